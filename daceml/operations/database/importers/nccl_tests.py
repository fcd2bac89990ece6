"""What nccl-tests print: times out of place, of one device for each rank, as it is or through mpirun.

`daceml.simulation.network.nccl_tests` makes a table of one collective of them; profiling may not import it.
"""

from __future__ import annotations

import re
from pathlib import Path

from daceml.errors import MeasurementFileError
from daceml.operations.database.importers.table import US, Imported, Measurement, imported, positive, size
from daceml.operations.database.records import Environment, Operand, Operation

_MPIRUN = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:")
_RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)\b.*\bon\s+(?P<node>\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(?P<device>.+?)\s*$"
)
_VERSION = re.compile(r"#\s*(?:NCCL|nccl).*version\s+(?P<version>[\d.]+)", re.IGNORECASE)
_TYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "half": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "int8": ("int8", 1),
    "uint8": ("uint8", 1),
    "int32": ("int32", 4),
    "uint32": ("uint32", 4),
    "int64": ("int64", 8),
    "uint64": ("uint64", 8),
}


def import_nccl_tests(path: str | Path, *, collective: str, date: str) -> Imported:
    """Rows of a log.

    Args:
        path: within its set, whose folder has the LICENSE.
        collective: which the program measured ("all_reduce"); its output does not say so.
        date: ISO 8601, of the log.
    Raises:
        MeasurementFileError: it is no such log, or its ranks are not of one kind of device.
    """
    path = Path(path)
    try:
        lines = [_MPIRUN.sub("", line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise _refuse(path, str(error)) from error
    ranks = {found["rank"]: found for line in lines if (found := _RANK.match(line.strip()))}
    devices = {found["device"] for found in ranks.values()}
    if len(devices) != 1:
        why = f"it names {', '.join(sorted(devices))}" if devices else "it names no rank with its device"
        raise _refuse(path, why)
    nodes = len({found["node"] for found in ranks.values()})
    version = next((found["version"] for line in lines if (found := _VERSION.search(line))), None)
    environment = Environment(device=devices.pop(), software={} if version is None else {"NCCL": version})

    def understand(line: str) -> Measurement:
        words = line.split()
        name, of = _TYPES[words[2]]
        size_bytes, count = size(words[0]), size(words[1])
        seconds = positive(_out_of_place(words)) * US
        if size_bytes % of or size_bytes < count * of:
            raise ValueError(f"{count} elements of {name} are not {size_bytes} bytes")
        return Measurement(
            # of the whole array, as nccl-tests counts its size: not always what one rank sends
            operation=Operation(
                operator=f"nccl::{collective}",
                operands=(Operand(shape=(size_bytes // of,), dtype=name),),
                attributes={"devices": len(ranks), "nodes": nodes},
            ),
            environment=environment,
            mode="eager",
            seconds=seconds,
        )

    rows = [line for line in lines if line.strip()[:1].isdigit()]
    return imported(rows, understand, path=path, date=date)


def _out_of_place(words: list[str]) -> str:
    """After size, count and type, a version may print the reduction and the root; then come times."""
    rest = words[3:]
    while rest and not re.fullmatch(r"\d+(\.\d+)?|nan|inf", rest[0]):
        rest = rest[1:]  # "sum", "none"
    # newer versions print the root, -1 or a rank, before four or three figures for each of two places
    if len(rest) % 2:
        rest = rest[1:]
    if len(rest) < 6:
        raise ValueError(f"{' '.join(words)[:80]!r} has no time, bandwidths and times again")
    return rest[0]


def _refuse(path: Path, why: str) -> MeasurementFileError:
    return MeasurementFileError(
        "this is no log of nccl-tests that can be imported",
        where=str(path),
        why=why,
        fix="give all that the program printed, from '# Using devices' on, of one kind of device",
    )
