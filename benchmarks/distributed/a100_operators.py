"""Operators of training in float16 on an A100, from tables of products and rooflines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path

from daceml.devices.catalogue import find_device
from daceml.devices.roofline import expected
from daceml.operations.database.importers.aiconfigurator import import_gemm
from daceml.operations.database.records import Operand, Operation
from daceml.operations.models.product_table import ProductTable
from daceml.operations.work.operator_work import work_of

TABLE = "measurements/aiconfigurator/a100_sxm/gemm_perf.parquet"
DEVICE = "A100"  # as the data set calls it; the table of products was measured on that of 80 GB


def operator_times(folder: Path) -> Callable[[Operation], float | None]:
    """Microseconds of an operator: products by a table, others by a roofline.

    The table is of bfloat16, which an A100 multiplies as fast as float16.
    """
    table = ProductTable.of(import_gemm(folder / TABLE, date="2026-11-20").entries)
    device = find_device(DEVICE)

    def duration_us(operation: Operation) -> float | None:
        known = (
            batched_us(operation, table)
            if operation.operator == "aten::bmm"
            else table.duration_us(_with_type(operation, table.dtype))
        )
        if known is not None:
            return known
        work = work_of(operation)
        return None if work is None else expected(work, device).duration_us

    return duration_us


def batched_us(operation: Operation, table: ProductTable) -> float | None:
    """Of products of a batch, as of one with all their rows: it computes and writes as much.

    More rows than the table has are taken in equal parts.
    """
    first, second = operation.operands
    batch, rows, inner = first.shape
    parts = ceil(batch * rows / table.m[-1])
    shapes = ((ceil(batch * rows / parts), inner), (second.shape[-1], inner))
    one = Operation(
        operator="aten::linear", operands=tuple(Operand(shape=shape, dtype=table.dtype) for shape in shapes)
    )
    known = table.duration_us(one)
    return None if known is None else parts * known


def _with_type(operation: Operation, dtype: str) -> Operation:
    return replace(operation, operands=tuple(replace(one, dtype=dtype) for one in operation.operands))
