"""The traces of several ranks of one run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from daceml.errors import TraceFileError
from daceml.profiling.kineto.reader import read_trace
from daceml.profiling.trace import Trace

SUFFIXES = (".json", ".json.gz")
# "rank3.pt.trace.json", "worker-3.json.gz", "trace_rank_3_step_10.json"
_RANK = re.compile(r"(?:rank|worker|gpu)[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)


def read_traces(where: str | Path | Sequence[str | Path]) -> list[Trace]:
    """Read one trace of each rank.

    Args:
        where: a folder, or files. The rank is what a file says itself, else what its name says.
    Returns:
        the traces by rank.
    Raises:
        TraceFileError: there is no trace, one is damaged, or two of several have no rank of their own.
    """
    paths = _files(where)
    traces = [_ranked(read_trace(path), path) for path in paths]
    if len(traces) > 1:
        _refuse_unclear(traces)
    return sorted(traces, key=lambda trace: trace.rank or 0)


def rank_in(name: str) -> int | None:
    """The rank that the name of a file tells."""
    found = _RANK.search(name)
    return int(found[1]) if found else None


def _files(where: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(where, (str, Path)):
        paths = [Path(path) for path in where]
    elif Path(where).is_dir():
        paths = sorted(path for path in Path(where).iterdir() if path.name.endswith(SUFFIXES))
    else:
        paths = [Path(where)]
    if not paths:
        raise TraceFileError(
            "no trace was found",
            where=str(where),
            why=f"no file there ends in {' or '.join(SUFFIXES)}",
            fix="give the folder that the profiler wrote into, or its files",
        )
    return paths


def _ranked(trace: Trace, path: Path) -> Trace:
    return trace if trace.rank is not None else dataclasses.replace(trace, rank=rank_in(path.name))


def _refuse_unclear(traces: Sequence[Trace]) -> None:
    first: dict[int | None, Trace] = {}
    for trace in traces:
        other = first.setdefault(trace.rank, trace)
        if trace.rank is None:
            what, why = "a trace among several that tells no rank", "neither the file nor its name says one"
        elif other is not trace:
            what, why = f"two traces of rank {trace.rank}", f"the other one is {other.source}"
        else:
            continue
        raise TraceFileError(
            what,
            where=trace.source,
            why=why,
            fix="give one file for each rank of one run, named rank0.json, rank1.json, ...",
        )
