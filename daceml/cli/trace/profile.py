"""`daceml trace profile`: run a training script on several ranks, and collect the traces that they record."""

from __future__ import annotations

import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from shutil import which
from typing import Annotated

import typer

from daceml.cli import options
from daceml.errors import LaunchError

# What follows the script is the script's own.
CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}

_RECORDS = (
    'record in the script: recorder = daceml.Recorder("traces", model), and @daceml.profile(recorder) on the'
    "\nfunction that is one step; call it often enough"
)
_SUFFIXES = (".json", ".json.gz")


class Launcher(StrEnum):
    """What starts the ranks."""

    TORCHRUN = "torchrun"
    MPIRUN = "mpirun"


Script = Annotated[
    Path,
    typer.Argument(
        metavar="SCRIPT [ARGS]...",
        help="Python script that records itself with daceml.profile, and its arguments",
        show_default=False,
    ),
]
Ranks = Annotated[
    int, typer.Option("--ranks", min=1, metavar="N", help="number of processes on this machine")
]
Out = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        "--out",
        metavar="DIR",
        help="folder for the traces, wherever the script writes them",
    ),
]
By = Annotated[
    Launcher,
    typer.Option("--launcher", help="torchrun, or mpirun for scripts that communicate by MPI"),
]


def profile(
    context: typer.Context,
    script: Script,
    ranks: Ranks = 1,
    out: Out = Path("traces"),
    launcher: By = Launcher.TORCHRUN,
    debug: options.Debug = False,
) -> None:
    """Run a script that records itself on several ranks, and collect one trace per rank in DIR."""
    folder = out.expanduser().absolute()
    if not script.is_file():
        raise LaunchError(
            f"there is no script {script}", fix="name a Python file; its arguments follow behind it"
        )
    if found := traces_in(folder):
        raise LaunchError(
            f"{out} holds traces already",
            why=f"{found[0].name} would be taken for a part of this run",
            fix="name another folder with --output, or remove them",
        )
    command = [*command_of(launcher, ranks), str(script), *context.args]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            f"{out} cannot be made",
            why=error.strerror or str(error),
            fix="name another folder with --output",
        ) from error
    # what a script prints is no result of this command
    done = subprocess.run(command, env={**os.environ, "DACEML_TRACES": str(folder)}, stdout=2, check=False)
    if done.returncode:
        raise LaunchError(
            f"{script} ended with {done.returncode}",
            why=f"it was started by {' '.join(command[: -1 - len(context.args)])}",
            fix="mend what it printed above; traces that it wrote before are kept",
        )
    made = traces_in(folder)
    if len(made) < ranks:
        raise LaunchError(
            f"{script} ran on {_counted(ranks, 'rank')} and wrote {_counted(len(made), 'trace')}",
            where=str(out),
            why="each rank that records writes one",
            fix=_RECORDS,
        )
    for path in made:
        typer.echo(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    question = f"optimize {out}" if ranks > 1 else f"replay {out / made[0].name}"
    typer.echo(f"next: daceml trace {question}")


def traces_in(folder: Path) -> list[Path]:
    """Files of a folder that may be traces, by name; none where there is no folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIXES))


def command_of(launcher: Launcher, ranks: int) -> list[str]:
    """What starts a script on so many ranks.

    Raises:
        LaunchError: there is no mpirun.
    """
    if ranks == 1:
        return [sys.executable]
    if launcher is Launcher.TORCHRUN:
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        return [sys.executable, *run]
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else which("mpirun")
    if found is None:
        raise LaunchError(
            "there is no mpirun here",
            why=f"neither next to {sys.executable} nor in PATH",
            fix="pip install 'daceml[mpi]', which brings MPICH along, or leave --launcher out",
        )
    return [found, "-n", str(ranks), sys.executable]


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
