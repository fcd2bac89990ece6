"""GEMM and NCCL tables of aiconfigurator (ai-dynamo/aiconfigurator), as Parquet; with the extra `db`.

GEMM (collector/sglang/collect_gemm.py): y[m, n] = x[m, k] @ w[n, k].T, six with tensors of their own in a
CUDA graph. `fp8` and `fp8_block` take bfloat16 activations, and the time has their quantisation in it.
NCCL (collector/network/collect_nccl.py): nccl-tests out of place, on one node; `message_size` counts elements
of the array whose bytes nccl-tests calls the size. Latencies are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from daceml.errors import MeasurementFileError
from daceml.operations.database.importers.table import MS, Imported, Measurement, imported, positive, size
from daceml.operations.database.parquet import load_pyarrow
from daceml.operations.database.records import Attribute, Environment, Operand, Operation

Row = Mapping[str, Any]

# gemm_dtype -> types of activations and weights, and how these are scaled
_GEMM: dict[str, tuple[str, str, dict[str, Attribute]]] = {
    "bfloat16": ("bfloat16", "bfloat16", {}),
    "float16": ("float16", "float16", {}),
    "fp8": ("bfloat16", "float8_e4m3fn", {"scales": "rows"}),
    "fp8_block": ("bfloat16", "float8_e4m3fn", {"scales": "blocks of 128"}),
}
_NCCL_TYPES = {"half": "float16", "int8": "int8"}
COLLECTIVES = {
    "all_reduce": "nccl::all_reduce",
    "all_gather": "nccl::all_gather",
    "reduce_scatter": "nccl::reduce_scatter",
    "alltoall": "nccl::all_to_all",
}


def import_gemm(path: str | Path, *, date: str) -> Imported:
    """Rows of `gemm_perf.parquet`.

    Args:
        path: within the set, whose folder has the LICENSE.
        date: ISO 8601, when the set was taken over: it does not say when it was measured.
    Raises:
        EnvironmentProblem: pyarrow is not installed.
        MeasurementFileError: it is no such table, or damaged.
    """
    return _imported(Path(path), {"gemm_dtype", "m", "n", "k"}, _gemm, date)


def import_nccl(path: str | Path, *, date: str) -> Imported:
    """Rows of `nccl_perf.parquet`; arguments and errors as those of `import_gemm`."""
    return _imported(Path(path), {"nccl_dtype", "num_gpus", "message_size"}, _nccl, date)


def _imported(path: Path, own: set[str], understand: Callable[[Row], Measurement], date: str) -> Imported:
    arrow, parquet = load_pyarrow()
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise MeasurementFileError(
            "this table of aiconfigurator cannot be read",
            where=str(path),
            why=str(error),
            fix="fetch it again; a file of Git LFS has to be pulled",
        ) from error
    missing = {"framework", "version", "device", "op_name", "latency", *own} - set(table.column_names)
    if missing:
        raise MeasurementFileError(
            "this is no such table of aiconfigurator",
            where=str(path),
            why=f"it has no column {', '.join(sorted(missing))}",
            fix="give gemm_perf.parquet to import_gemm, nccl_perf.parquet to import_nccl",
        )
    return imported(_rows(table), understand, path=path, date=date)


def _rows(table: Any) -> Any:
    for lot in table.to_batches(10_000):
        yield from lot.to_pylist()


def _gemm(row: Row) -> Measurement:
    activations, weights, attributes = _GEMM[row["gemm_dtype"]]
    m, n, k = (size(row[name]) for name in "mnk")
    return Measurement(
        operation=Operation(
            operator="aten::linear",
            operands=(Operand(shape=(m, k), dtype=activations), Operand(shape=(n, k), dtype=weights)),
            attributes=attributes,
        ),
        environment=Environment(device=row["device"], software={row["framework"]: row["version"]}),
        mode="graph",
        seconds=positive(row["latency"]) * MS,
    )


def _nccl(row: Row) -> Measurement:
    elements = Operand(shape=(size(row["message_size"]),), dtype=_NCCL_TYPES[row["nccl_dtype"]])
    return Measurement(
        operation=Operation(
            operator=COLLECTIVES[row["op_name"]],
            operands=(elements,),
            attributes={"devices": size(row["num_gpus"]), "nodes": 1},
        ),
        environment=Environment(device=row["device"], software={"NCCL": row["version"]}),
        mode="eager",
        seconds=positive(row["latency"]) * MS,
    )
