"""Rows that the tests of the database write: small ones by a few words, and one that has everything."""

from __future__ import annotations

from dataclasses import replace

from daceml.operations.database.records import Attribute, Duration, Entry, Environment, Operand, Operation


def matmul(
    m: int = 8, k: int = 4, n: int = 2, *, dtype: str = "float32", **attributes: Attribute
) -> Operation:
    """[m, k] @ [k, n]."""
    operands = (Operand(shape=(m, k), dtype=dtype), Operand(shape=(k, n), dtype=dtype))
    return Operation(operator="aten::mm", operands=operands, attributes=attributes)


def entry(
    operation: Operation | None = None,
    *,
    device: str = "A100",
    seconds: float = 1e-3,
    date: str = "2026-11-23",
    source: str = "me",
) -> Entry:
    """A measured row."""
    return Entry(
        operation=matmul() if operation is None else operation,
        environment=Environment(device=device, software={"torch": "2.13.0"}),
        duration=Duration(median_s=seconds),
        provenance="measured",
        source=source,
        licence="BSD-3-Clause",
        date=date,
    )


def numbered(first: int, rows: int, *, source: str = "me") -> list[Entry]:
    """Rows of operations that differ in a size."""
    return [entry(matmul(m=first + row + 1), source=source, seconds=1e-6 * (row + 1)) for row in range(rows)]


EVERYTHING = Entry(
    operation=Operation(
        operator="Conv",
        operands=(
            Operand(shape=(8, 3, 0, 224), dtype="bfloat16", layout="channels_last"),
            Operand(shape=(), dtype="float8_e4m3fn", layout=()),
            Operand(shape=(4, 5), dtype="int64", layout=(-5, 1)),
        ),
        attributes={
            "auto_pad": "SAME_UPPER ü\n\"'",
            "ceil": True,
            "group": 1,
            "alpha": 1.0,
            "min": float("-inf"),
            "pads": (1, 2),
            "scales": (0.1, float("inf")),
            "axes": (),
            "names": ("a", "b"),
            "large": 2**63 - 1,
        },
        direction="backward",
        kernel="",
    ),
    environment=Environment(
        device="GPU ☃", fingerprint="80 GB, 400 W", software={"CUDA": "13.0", "cuDNN": ""}
    ),
    duration=Duration(median_s=0.1 + 0.2, samples=17, mad_s=1e-300, p10_s=0.0, p90_s=5e-324, mode="cold"),
    provenance="predicted",
    source="model 3, of café",
    licence="CC-BY-SA-4.0",
    date="2026-11-23T10:11:12.123456+02:00",
)
VARIED = (
    EVERYTHING,
    entry(),
    entry(matmul(dtype="float16"), device="H100"),
    replace(entry(matmul(m=9)), provenance="imported", duration=Duration(median_s=2e-3, mode="graph")),
)
