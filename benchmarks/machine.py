"""What a number was measured on; every result carries it."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from daceml.toolchain.processor import cpu_model

PACKAGES = ("daceml", "torch", "dace", "onnx", "onnxruntime", "numpy", "numba")
ALLOCATOR_VARIABLES = ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "LD_PRELOAD")
ROOT = Path(__file__).resolve().parent.parent


LIBRARIES = ("LD_PRELOAD", "DACEML_NVCC")  # files, whose folders are of one machine
FOLDERS = ("DACEML_CACHE", "DACEML_DATA", "DACEML_SUITES")  # paths of one machine, which move no number


def description() -> dict[str, Any]:
    """Processor, cores, versions, commit, date and the settings that move numbers."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := installed_version(name))},
        "compiler": first_line(["g++", "--version"]),
        "gpu": first_line(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": {
            name: _without_folders(value) if name in LIBRARIES else value
            for name, value in sorted(os.environ.items())
            if name.startswith(("OMP_", "MKL_", "DACEML_")) or name in ALLOCATOR_VARIABLES
            if name not in FOLDERS
        },
    }


def _without_folders(files: str) -> str:
    return " ".join(Path(file).name for file in files.replace(":", " ").split())


def installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the working tree, with `-dirty` where it was changed; None outside a repository."""
    return first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"])


def first_line(command: list[str]) -> str | None:
    """The first line that a program prints, None where it is absent or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else None
