"""Packages that daceml and the networks of a first run need, and that the device machine lacks.

dace has no wheel on PyPI, and a machine without a network cannot build one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks.machine import ROOT

# What `pip list` shows there: PyTorch's CUDA image with the usual packages of machine learning.
ON_THE_MACHINE = frozenset(Path(__file__).with_name("machine_packages.txt").read_text().split())
CARRIED = (
    "astunparse",
    "dace",
    "dill",
    "efficientnet_pytorch",
    "fparser",
    "mlp_mixer_pytorch",
    "ordered-set",
    "platformdirs",
    "ply",
    "pytorchcv",
)
# Of daceml itself, which is run from its folder.
ROOTS = (
    "dace", "filelock", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "platformdirs", "rich", "scipy",
    "typer",
)  # fmt: skip
NETWORKS = ("efficientnet_pytorch", "mlp_mixer_pytorch", "einops", "transformers")
# dace names what builds its wheel; constraints.txt says why pytorchcv does without torchvision.
NEEDLESS = frozenset({"scikit-build", "torchvision"})


def build_wheels(folder: Path) -> list[Path]:
    """Write a wheel for each package that is carried, in the versions of constraints.txt.

    Raises:
        RuntimeError: pip could not build one; the message has what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    command += ["-c", str(ROOT / "constraints.txt"), *CARRIED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"pip wheel failed: {done.stderr.strip()[-600:]}")
    return sorted(folder.glob("*.whl"))


def lacking(roots: Iterable[str] = (*ROOTS, *NETWORKS)) -> set[str]:
    """What these packages need, directly or through others, and neither the machine nor the kit has.

    What the machine has came there with all that it needs itself.
    """
    there = {*map(_plain, ON_THE_MACHINE), *map(_plain, NEEDLESS)}
    seen: set[str] = set()
    waiting = [_plain(root) for root in roots]
    while waiting:
        name = waiting.pop()
        if name in seen or name in there:
            continue
        seen.add(name)
        waiting += _needs(name)
    return seen - {*map(_plain, CARRIED)}


def _needs(name: str) -> Iterator[str]:
    try:
        listed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # on the machine alone
        return
    for text in listed:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _plain(requirement.name)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
