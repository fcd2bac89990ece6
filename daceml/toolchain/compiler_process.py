"""A compiler or linker as a process, and what its failure means."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from daceml.errors import BuildError
from daceml.toolchain.disk_space import refuse_full_disk

_NO_ERROR = "note: disable pass"  # gcc says so of a flag that daceml gives, each time
_KILLED = "Killed signal terminated program"
_LINES = 12


def run_compiler(command: Sequence[str], folder: Path, *, name: str, where: Path) -> str:
    """What a compiler says that succeeds.

    Args:
        folder: in which it runs and writes.
        name: of the compiler, for its error.
        where: the file that it compiles, or the folder.
    Raises:
        BuildError: it failed.
        EnvironmentProblem: it failed since the disk is full.
    """
    english = {**os.environ, "LC_ALL": "C"}  # the language in which its messages are known
    done = subprocess.run(
        command, cwd=folder, env=english, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode == 0:
        return done.stderr + done.stdout
    said = [line for line in (done.stderr or done.stdout).strip().splitlines() if _NO_ERROR not in line]
    refuse_full_disk("\n".join(said), folder)
    killed = done.returncode == -9 or any(_KILLED in line for line in said)
    raise BuildError(
        f"{name} failed with status {done.returncode}",
        where=str(where),
        why="\n".join(said[:_LINES]) or "it printed nothing",
        fix="free memory, or compile less at once: DACEML_JOBS=1"
        if killed
        else "run `daceml doctor`; if the compiler is fine, report this message",
    )
