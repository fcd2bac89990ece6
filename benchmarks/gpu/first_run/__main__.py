"""A first run on a device, or its rehearsal: python -m benchmarks.gpu.first_run --emulated.

`bash benchmarks/gpu_first_run.sh` calls it with the wheels of a kit on its path.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import command, machine
from benchmarks.gpu.first_run.driver import Run, run_steps
from benchmarks.gpu.first_run.identity import ARCHIVE, MANIFEST
from benchmarks.gpu.first_run.plan import EMULATED_FACTOR, STEPS, TABLE_S, TOTAL_S

RESULTS, TABLE, LOG = "results.jsonl", "table.txt", "log.txt"


def main(arguments: Sequence[str] | None = None) -> int:
    begun = time.monotonic()
    parser = command.parser("Run the steps that prove most of the CUDA path, within ten minutes.")
    names = [step.name for step in STEPS]
    build = machine.ROOT / "build"
    parser.add_argument("--step", action="append", choices=names, help="these steps only")
    parser.add_argument("--only", action="append", metavar="NAME", help="cells of these names only")
    parser.add_argument(
        "--out", type=Path, default=build / "gpu-first-run", metavar="FOLDER", help="results go there"
    )
    parser.add_argument("--kit", type=Path, metavar="FOLDER", help="what make gpu-kit has built")
    parser.add_argument("--emulated", action="store_true", help="rehearse on the processor, at small sizes")
    parser.add_argument(
        "--factor", type=float, metavar="F", help=f"stretch time limits; {EMULATED_FACTOR:g} if emulated"
    )
    parser.add_argument("--total-s", type=float, metavar="S", help=f"{TOTAL_S:.0f} on a device")
    parser.add_argument("--spent-s", type=float, default=0.0, metavar="S", help="of it, before this program")
    options = parser.parse_args(arguments)
    if options.kit is not None and (damage := _damage(options.kit)):
        parser.error(f"--kit {options.kit} {damage}: run make gpu-kit, or leave it out")
    factor = options.factor or (EMULATED_FACTOR if options.emulated else 1.0)
    total_s = TOTAL_S * factor if options.total_s is None else options.total_s
    with _alone(options.out) as alone:
        if not alone:
            parser.error(f"another run writes into {options.out}: wait for its end, or give another --out")
        return _run(options, factor, begun + total_s - options.spent_s - TABLE_S)


def _run(options: Any, factor: float, end: float) -> int:
    """Run the steps, print the table, and return the exit code."""
    results = _fresh(options.out)
    # a run that is ended from outside ends its step, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    chosen = [step for step in STEPS if options.step is None or step.name in options.step]
    with tempfile.TemporaryDirectory(prefix="daceml-first-run-", ignore_cleanup_errors=True) as scratch:
        run = Run(
            results=results,
            log=options.out / LOG,
            end=end,
            factor=factor,
            words=_words(options, factor),
            environment=_environment(options, Path(scratch)),
        )
        try:
            steps = run_steps(chosen, run)
        except (KeyboardInterrupt, SystemExit):
            print(f"interrupted: {results} has what was measured until now", file=sys.stderr)
            return 128 + signal.SIGTERM
    code = _summary(options, results)
    if options.only and not any(step["cells"] for step in steps):
        print(f"no step has a cell {' or '.join(options.only)}", file=sys.stderr)
        return 2
    return 1 if code or any(step["state"] != "done" or step["wrong"] or step["left"] for step in steps) else 0


@contextmanager
def _alone(out: Path) -> Generator[bool]:
    """Whether no other run writes into a folder, which is kept from others until the end of the block."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as writing:
        try:
            fcntl.flock(writing, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _damage(kit: Path) -> str:
    """Why a folder is no whole kit; empty if it is."""
    for name in (MANIFEST, ARCHIVE):
        if not (kit / name).is_file():
            return f"has no {name}"
    known = json.loads((kit / MANIFEST).read_text(encoding="utf-8"))["files"][ARCHIVE]
    with (kit / ARCHIVE).open("rb") as stream:
        return (
            "" if hashlib.file_digest(stream, "sha256").hexdigest() == known else f"has a damaged {ARCHIVE}"
        )


def _fresh(out: Path) -> Path:
    """The file of rows; those of earlier runs are kept under other names."""
    number = 1
    while any((out / f"earlier-{number}-{name}").exists() for name in (RESULTS, LOG)):
        number += 1
    for name in (RESULTS, LOG):
        if (out / name).exists():
            os.replace(out / name, out / f"earlier-{number}-{name}")
    return out / RESULTS


def _words(options: Any, factor: float) -> tuple[str, ...]:
    """What every step is told."""
    words = ["--factor", f"{factor:g}", "--commit", _commit(options.kit)]
    words += ["--kit", str(options.kit)] if options.kit is not None else []
    words += [word for name in options.only or () for word in ("--only", name)]
    return (*words, *(f"--{name}" for name in ("emulated", "quick") if getattr(options, name)))


def _commit(kit: Path | None) -> str:
    """That of the working tree; a tree without .git has it from the kit."""
    known = machine.commit()
    if known is None and kit is not None:
        known = json.loads((kit / MANIFEST).read_text(encoding="utf-8"))["commit"]
    return known or "unknown"


def _environment(options: Any, scratch: Path) -> dict[str, str]:
    """Caches of this run alone, with the kernels of the kit in them."""
    given = dict(os.environ)
    cache = Path(given.setdefault("DACEML_CACHE", str(scratch / "daceml")))
    if options.kit is not None and not options.emulated:
        with tarfile.open(options.kit / ARCHIVE) as archive:
            archive.extractall(cache, filter="data")
    given.setdefault("TORCHINDUCTOR_CACHE_DIR", str(scratch / "inductor"))
    given.setdefault("TRITON_CACHE_DIR", str(scratch / "triton"))
    return given | {"PYTHONUNBUFFERED": "1"}


def _summary(options: Any, results: Path) -> int:
    """Print the table, in a process of its own since it needs torch; gives its exit code."""
    command_line = [sys.executable, "-m", "benchmarks.gpu.first_run.table", str(results)]
    command_line += ["--check"] if options.check else []
    command_line += ["--json", str(options.json)] if options.json is not None else []
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    (options.out / TABLE).write_text(done.stdout, encoding="utf-8")
    print(done.stdout, end="")
    if done.stderr:
        print(done.stderr, file=sys.stderr, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
