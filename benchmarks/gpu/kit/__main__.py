"""Build what a first run takes along: make gpu-kit, which runs this with a stand-in for a device."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import command, machine
from benchmarks.bars import Bar
from benchmarks.gpu.first_run.identity import ARCHIVE, MANIFEST, versions
from benchmarks.gpu.kit.wheels import build_wheels, lacking

MOST_BYTES = 40 * 2**20
MOST_S = 20 * 60
BUDGET_S = 15 * 60.0  # of compiling; what is left is compiled on the device machine, which has more cores
NO_DEVICE = "torch sees no CUDA device, nor one that stands in for it: run make gpu-kit"


def main(arguments: Sequence[str] | None = None) -> int:
    begun = time.monotonic()
    parser = command.parser("Build wheels and compile programs and kernels for a first run on a device.")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "build" / "gpu-kit", metavar="FOLDER")
    parser.add_argument(
        "--budget-s", type=float, default=BUDGET_S, metavar="S", help="seconds after which no case is begun"
    )
    options = parser.parse_args(arguments)
    import torch

    if not torch.cuda.is_available():
        print(NO_DEVICE, file=sys.stderr)
        return 2
    from benchmarks.gpu.kit import programs

    commit = machine.commit() or "unknown"
    scratch = options.out.with_name(f"{options.out.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    build_wheels(scratch / "wheels")
    cache = _cache(options.out.with_name("gpu-kit-cache"))
    rows = programs.compile_all(
        scratch / "compiled.jsonl", commit=commit, quick=options.quick, budget_s=options.budget_s
    )
    kept = programs.keep(cache, scratch / ARCHIVE)
    wrong = programs.wrong(rows)
    manifest = _manifest(scratch, commit) | {"entries": kept, "cases": len(rows) - 1, "not_compiled": wrong}
    left = programs.left(rows, quick=options.quick)
    manifest["left_to_the_device"] = [case.label for case in left]
    (scratch / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(options.out, ignore_errors=True)
    scratch.rename(options.out)
    size = _size_bytes(options.out)
    print(
        f"{options.out}: {size / 2**20:.1f} MiB, {kept['programs']} programs, {kept['kernels']} kernels of "
        f"{len(rows) - 1} cases, {len(left)} are left to the device, in {time.monotonic() - begun:.0f} s"
    )
    needed = [case.label for case in left if case.kind != "correctness"]
    return command.finish("gpu_kit", options, rows, bars(size, wrong, needed, time.monotonic() - begun))


def _cache(parent: Path) -> Path:
    """The cache of this process, where what the same sources have compiled before lies, and nothing else."""
    from daceml.compiler.keys.program_key import package_digest

    folder = parent / package_digest()[:12]
    for other in parent.glob("*"):
        if other != folder:
            shutil.rmtree(other)
    os.environ["DACEML_CACHE"] = str(folder.resolve())
    return folder


def bars(size_bytes: int, wrong: Sequence[str], left: Sequence[str], seconds: float) -> list[Bar]:
    """Everything compiles, needs nothing that the machine lacks, and is small and quick enough."""
    absent = sorted(lacking())
    return [
        Bar(name="cases that do not compile", figure=len(wrong), limit=0, note="; ".join(wrong[:3])),
        Bar(name="cases before the last step left out", figure=len(left), limit=0, note=", ".join(left[:3])),
        Bar(name="missing packages", figure=len(absent), limit=0, note=", ".join(absent)),
        Bar(name="size of the kit", figure=size_bytes, limit=MOST_BYTES, unit="bytes"),
        Bar(name="time to build it", figure=seconds, limit=MOST_S, unit="s"),
    ]


def _manifest(folder: Path, commit: str) -> dict[str, Any]:
    """Commit, versions, and the hash of every file."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {
        "commit": commit,
        "date": machine.description()["date"],
        "versions": versions(),
        "files": {str(file.relative_to(folder)): _digest(file) for file in files},
    }


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    sys.exit(main())
