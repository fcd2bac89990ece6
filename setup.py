"""Packaging of daceml; tool settings live in pyproject.toml, exact versions in constraints.txt."""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

INSTALL_REQUIRES = [
    "cmake>=3.27",  # dace takes the first cmake on PATH, and what a distribution ships is often too old
    "dace==2.0.0b1",
    "filelock>=3.16",
    "ninja>=1.11",
    "numpy>=2.1",
    "onnx>=1.20",
    "onnx-ir>=1.0",
    "onnxruntime>=1.24",
    "onnxscript>=0.7",
    "platformdirs>=4.3",
    "rich>=14",
    "scipy>=1.15",
    "sympy>=1.13.3",
    "torch>=2.11,<2.14",
    "typer>=0.20",
]

# The networks of benchmarks and model tests. pytorchcv asks for torchvision, which nothing here imports;
# constraints.txt says how to do without.
NETWORKS = [
    "efficientnet_pytorch>=0.7.1",
    "einops>=0.8",
    "mlp_mixer_pytorch>=0.3",
    "transformers>=5",
]

# Compiles the loops of the simulator, which run in Python without it.
SIMULATION = ["numba>=0.61"]

# Exchanges rows of the operation database as Parquet.
DATABASE = ["pyarrow>=20"]

# Fits models of operations; their predictions need numpy alone.
LEARNING = ["scikit-learn>=1.7"]

# MPI for training on several ranks. mpi4py finds any MPI library of the system; this wheel brings one along.
MPI = ["mpi4py>=4.1", "mpich>=4.3"]

# nvcc, its headers, its libraries and CCCL, of one release: they do not ask for one themselves.
# The wheels of CUDA 12 hold no nvcc; for it there is the toolkit.
CUDA_BUILD = [
    f"{package}>=13.0,<13.1"
    for package in (
        "nvidia-cuda-nvcc",
        "nvidia-cuda-crt",
        "nvidia-nvvm",
        "nvidia-cuda-runtime",
        "nvidia-cuda-cccl",
    )
]

# Reads the machine code that nvcc makes; `make cuda` installs it where nvcc has none next to it. PyPI has no
# wheels of 13.0; newer ones read its objects, and share no file with the wheels of nvcc.
CUDA_SASS = [f"{package}>=13.2,<14" for package in ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm")]

EXTRAS_REQUIRE = {
    "cuda-build": CUDA_BUILD,
    "cuda-sass": CUDA_SASS,
    "simulation": SIMULATION,
    "test": [
        *NETWORKS,
        *SIMULATION,
        *DATABASE,
        *LEARNING,
        *MPI,
        "hypothesis>=6.150",
        "pytest>=9",
        "pytest-timeout>=2.4",
        "pytest-xdist>=3.8",
    ],
    "coverage": ["coverage>=7.10"],
    # Drives a Chromium of the system through the tests of the page, which are skipped without.
    "browser": ["playwright>=1.60"],
    "lint": [
        "import-linter>=2.16",
        "pyright[nodejs]>=1.1.414",  # with its own node, so that nothing else has to be installed
        "ruff>=0.17",
    ],
    "opinfo": ["expecttest>=0.3"],  # which torch's own database of operators imports
    # Models of other libraries. torchvision and torchaudio come besides, without their dependencies, into an
    # environment of their own (make strangers): their C++ parts do not load next to every build of torch.
    "strangers": ["transformers>=5", "timm>=1.0.20", "torch_geometric>=2.7"],
    "bench": [*NETWORKS, "pytorchcv>=0.0.74"],
    # CuPy's wheels are one for each CUDA: measurements of devices, and its arrays as arguments
    "gpu": ["nvidia-ml-py>=13", "cupy-cuda13x>=14"],
    "gpu-cuda12": ["nvidia-ml-py>=13", "cupy-cuda12x>=14"],
    "measure": ["dask>=2026.1", "distributed>=2026.1"],
    "mpi": MPI,
    "db": DATABASE,
    "learn": LEARNING,
    "plot": ["matplotlib>=3.10"],
    "docs": ["mkdocs-material>=9.6", "mkdocstrings[python]>=1"],
}


def long_description() -> str:
    """The README where there is one; a source tree without it still installs."""
    readme = HERE / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


def version() -> str:
    """The version in the package's own file, read without importing the package."""
    return runpy.run_path(str(HERE / "daceml" / "version.py"))["__version__"]


setup(
    name="daceml",
    version=version(),
    description="A data-centric compiler for PyTorch, and a simulator of what an optimisation is worth",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="the daceml authors",
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Compilers",
        "Typing :: Typed",
    ],
    python_requires=">=3.11,<3.14",
    install_requires=INSTALL_REQUIRES,
    extras_require=EXTRAS_REQUIRE,
    # Named one by one: the root also holds links to four of the packages, which must not be packaged twice.
    packages=find_packages(include=["daceml", "daceml.*"]),
    package_data={
        "daceml": ["py.typed"],
        "daceml.codegen": ["*.cpp"],
        "daceml.codegen_cuda": ["*.cu", "**/*.h", "**/*.cpp"],
        "daceml.devices.catalogue": ["*.toml"],
        "daceml.deployment": ["**/*.h", "**/*.cpp"],
        "daceml.gui": ["assets/*.js", "assets/*.css"],
        "daceml.runtime": ["*.cpp"],
        "daceml.toolchain": ["**/*.h"],
        "daceml.tuning": ["*.cpp"],
    },
    entry_points={
        "console_scripts": ["daceml = daceml.cli.main:app"],
        "torch_dynamo_backends": ["daceml = daceml.module.dynamo:backend"],
    },
    zip_safe=False,
)
