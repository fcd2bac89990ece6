"""Operator tables of NeuSight (sitar-lab/NeuSight): train/OPERATOR/p2.1.0/GPU.csv.gz.

Columns `M, N, K` of bmm and linear are rows, what is summed over, and columns: [B, M, N] @ [B, N, K]. So says
the grid of every row of cuBLAS's kernels on the V100: ceil(K / tile) by ceil(M / tile). Latencies are in
milliseconds, of eager calls with the host's part: the shortest take 24 us. Each is the mean of the fastest
calls (neusight/Tracing/trace.py: 5 of 25), which stands here for the median. Types are float32 throughout.
Kernel names and grids are left out: an operation is what was asked for, and which kernel ran is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from daceml.errors import MeasurementFileError
from daceml.operations.database.importers.csv_table import csv_rows
from daceml.operations.database.importers.table import MS, Imported, Measurement, imported, positive, size
from daceml.operations.database.records import Environment, Operand, Operation

Row = dict[str, str]
Dims = Mapping[str, int]

_MATRIX = ("B", "H")
_PRODUCT = ("B", "M", "N", "K")
# the set spells it so
_CONVOLUTION = ("B", "Input_Channel", "Output_Channel", "Kernel_Szie", "Input_Size", "Stride", "Padding")


def _operation(operator: str, *shapes: tuple[int, ...], **attributes: Any) -> Operation:
    operands = tuple(Operand(shape=shape, dtype="float32") for shape in shapes)
    return Operation(operator=operator, operands=operands, attributes=attributes)


def _linear(d: Dims) -> Operation:
    # every row has B = 1; the grids do not tell whether there is a bias, which costs little
    return _operation("aten::linear", (d["B"], d["M"], d["N"]), (d["K"], d["N"]))


def _conv(d: Dims) -> Operation:
    image, kernel = (d["Input_Size"],) * 2, (d["Kernel_Szie"],) * 2
    return _operation(
        "aten::conv2d",
        (d["B"], d["Input_Channel"], *image),
        (d["Output_Channel"], d["Input_Channel"], *kernel),
        stride=(d["Stride"],) * 2,
        padding=(d["Padding"],) * 2,
    )


# operator of the set -> columns with sizes, and what they mean
_OPERATORS: dict[str, tuple[tuple[str, ...], Callable[[Dims], Operation]]] = {
    "add": (_MATRIX, lambda d: _operation("aten::add", (d["B"], d["H"]), (d["B"], d["H"]))),
    "gelu": (_MATRIX, lambda d: _operation("aten::gelu", (d["B"], d["H"]))),
    "softmax": (_MATRIX, lambda d: _operation("aten::softmax", (d["B"], d["H"]), dim=-1)),
    "ln": (_MATRIX, lambda d: _operation("aten::layer_norm", (d["B"], d["H"]), (d["H"],), (d["H"],))),
    "bmm": (
        _PRODUCT,
        lambda d: _operation("aten::bmm", (d["B"], d["M"], d["N"]), (d["B"], d["N"], d["K"])),
    ),
    "linear": (_PRODUCT, _linear),
    "conv": (_CONVOLUTION, _conv),
}
NEEDED = {"OPName", "Latency", "Device", "Torch Version", "CUDNN Version", "CUDA Version"}


def import_neusight(path: str | Path, *, date: str) -> Imported:
    """Rows of one table.

    Args:
        path: of the table within the set, whose folder has the LICENSE.
        date: ISO 8601, when the set was taken over: it does not say when it was measured.
    Raises:
        MeasurementFileError: it is no such table, or damaged.
    """
    path = Path(path)
    with csv_rows(path) as reader:
        if missing := NEEDED - set(reader.fieldnames or ()):
            raise MeasurementFileError(
                "this is not an operator table of NeuSight",
                where=str(path),
                why=f"it has no column {', '.join(sorted(missing))}",
                fix="give a file of train/OPERATOR/p2.1.0",
            )
        return imported(reader, _understand, path=path, date=date)


def _understand(row: Row) -> Measurement:
    columns, operation = _OPERATORS[row["OPName"]]
    dims = {name: int(row[name]) if name == "Padding" else size(row[name]) for name in columns}
    software = {
        "torch": row["Torch Version"].removeprefix("p"),
        "cuDNN": row["CUDNN Version"],
        "CUDA": row["CUDA Version"].removeprefix("cu"),
    }
    return Measurement(
        operation=operation(dims),
        environment=Environment(device=row["Device"], software=software),
        mode="eager",
        seconds=positive(row["Latency"]) * MS,
    )
