"""Starts the ranks of a run, and reads what they have written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = "tests.frontend.rank_programs"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def mpirun() -> str | None:
    """mpirun where mpi4py can be imported and finds a library, else None."""
    found = subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI; MPI.COMM_WORLD"],
        capture_output=True,
        check=False,
    )
    from shutil import which

    beside = Path(sys.executable).with_name("mpirun")
    return (str(beside) if beside.exists() else which("mpirun")) if found.returncode == 0 else None


def by_torchrun(name: str, folder: Path, ranks: int = 2) -> list[Any]:
    """Results of the ranks of a program that torchrun starts."""
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={free_port()}"]
    command = [sys.executable, *torchrun, "-m", PROGRAM, name, str(folder)]
    subprocess.run(command, check=True, timeout=120, env=_environment(), capture_output=True)
    return _results(folder, ranks)


def by_mpirun(launcher: str, name: str, folder: Path, ranks: int = 2) -> list[Any]:
    """The same, of those that mpirun starts."""
    command = [launcher, "-n", str(ranks), sys.executable, "-m", PROGRAM, name, str(folder)]
    environment = _environment() | {"RANKS_STORE": f"tcp://127.0.0.1:{free_port()}"}
    subprocess.run(command, check=True, timeout=120, env=environment, capture_output=True)
    return _results(folder, ranks)


def alone(name: str, folder: Path, ranks: int = 2) -> list[Any]:
    """The same, of processes that do not end when another one does; None for one without a result."""
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", PROGRAM, name, str(folder)]
    started = [
        subprocess.Popen(
            command,
            env=_environment() | shared | {"RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    try:
        for process in started:
            process.wait(timeout=120)
    finally:
        for process in started:
            process.kill()
    return _results(folder, ranks)


def _results(folder: Path, ranks: int) -> list[Any]:
    files = [folder / f"{rank}.json" for rank in range(ranks)]
    return [json.loads(file.read_text()) if file.exists() else None for file in files]


def _environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
