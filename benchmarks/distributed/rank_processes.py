"""Starts the ranks of a run on this machine, and reads what each has written."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any

TIMEOUT_S = 240.0
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Environment variables that tell a process its rank, whoever has started it."""


def own_rank() -> int:
    """Of this process, by its launcher's environment."""
    return next(int(os.environ[name]) for name in RANK_NAMES if name in os.environ)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def mpirun() -> str | None:
    """The launcher of an MPI that mpi4py can load here, else None."""
    command = [sys.executable, "-c", "from mpi4py import MPI; MPI.COMM_WORLD"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else which("mpirun")


def by_torchrun(program: Sequence[str], folder: Path, ranks: int = 2) -> list[Any]:
    """Results of the ranks that torchrun starts.

    Args:
        program: a module and its arguments; each rank writes `<rank>.json` into `folder`.
    """
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={free_port()}"]
    _run([sys.executable, *torchrun, "-m", *program], _environment())
    return _results(folder, ranks)


def by_mpirun(launcher: str, program: Sequence[str], folder: Path, ranks: int = 2) -> list[Any]:
    """The same, of ranks that mpirun starts; RANKS_STORE names a free place for a store of torch's."""
    environment = _environment({"RANKS_STORE": f"tcp://127.0.0.1:{free_port()}"})
    _run([launcher, "-n", str(ranks), sys.executable, "-m", *program], environment)
    return _results(folder, ranks)


def alone(program: Sequence[str], folder: Path, ranks: int = 2) -> list[Any]:
    """The same, of processes that nobody ends when another one does; None for one without a result."""
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", *program],
            env=_environment(shared | {"RANK": str(rank)}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    until = time.monotonic() + TIMEOUT_S
    try:
        for process in started:
            process.wait(timeout=max(until - time.monotonic(), 0.1))
    finally:
        for process in started:
            process.kill()
            process.wait()
    return _results(folder, ranks)


def together(
    program: Sequence[str],
    folder: Path,
    *,
    prefixes: Sequence[Sequence[str]],
    variables: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> list[Any]:
    """The same, one rank behind each prefix, such as what enters a network namespace.

    Args:
        variables: of every rank's environment, besides RANK and WORLD_SIZE.
    Raises:
        RuntimeError: a rank failed, or took too long; the message has what it printed last.
    """
    shared = {**(variables or {}), "WORLD_SIZE": str(len(prefixes))}
    started: list[subprocess.Popen[bytes]] = []
    for rank, prefix in enumerate(prefixes):
        with (folder / f"{rank}.err").open("w") as said:  # the process has it for itself
            started.append(
                subprocess.Popen(
                    [*prefix, sys.executable, "-m", *program],
                    env=_environment(shared | {"RANK": str(rank)}),
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                )
            )
    until = time.monotonic() + timeout_s
    try:
        # one that has failed leaves the others waiting
        while any(one.poll() is None for one in started) and not any(one.poll() for one in started):
            if time.monotonic() > until:
                raise RuntimeError(f"{program[0]} took more than {timeout_s:g} s")
            time.sleep(0.05)
    finally:
        for one in started:
            one.kill()
            one.wait()
    for rank, one in enumerate(started):
        if one.returncode > 0:
            said = (folder / f"{rank}.err").read_text()
            raise RuntimeError(f"rank {rank} ended with {one.returncode}: {said[-2000:]}")
    return _results(folder, len(prefixes))


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, timeout=TIMEOUT_S, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[-2:]} ended with {done.returncode}:\n{done.stderr[-4000:]}")


def _results(folder: Path, ranks: int) -> list[Any]:
    files = [folder / f"{rank}.json" for rank in range(ranks)]
    return [json.loads(file.read_text()) if file.exists() else None for file in files]


def _environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    root, paths = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, (root, paths)))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **(more or {})}
