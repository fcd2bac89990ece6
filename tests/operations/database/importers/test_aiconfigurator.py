"""GEMM and NCCL tables of aiconfigurator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from daceml.errors import MeasurementFileError
from daceml.operations.database.importers.aiconfigurator import import_gemm, import_nccl
from daceml.operations.database.records import Operand
from tests.support.golden import raises

arrow = pytest.importorskip("pyarrow", reason="the extra db is not installed")
parquet = pytest.importorskip("pyarrow.parquet")

DATE = "2026-11-20"
COMMON = {"framework": "SGLang", "version": "0.5.10", "device": "NVIDIA L40S", "op_name": "gemm"}


def table(folder: Path, *rows: dict[str, Any]) -> Path:
    """A table within a set."""
    path = folder / "aiconfigurator" / "l40s" / "perf.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parents[1] / "LICENSE").write_text("  Apache License\n Version 2.0, January 2004\n")
    parquet.write_table(arrow.Table.from_pylist([{**COMMON, **row} for row in rows]), path)
    return path


def gemm(dtype: str, ms: float, m: int, n: int, k: int) -> dict[str, Any]:
    """A row of a GEMM table."""
    return {"gemm_dtype": dtype, "latency": ms, "m": m, "n": n, "k": k}


def test_a_gemm_is_a_linear_layer_in_a_graph(tmp_path: Path):
    found = import_gemm(table(tmp_path, gemm("bfloat16", 0.5, 2, 3, 4)), date=DATE)
    (one,) = found.entries
    assert one.operation.operator == "aten::linear"
    assert one.operation.operands == (
        Operand(shape=(2, 4), dtype="bfloat16"),
        Operand(shape=(3, 4), dtype="bfloat16"),
    )
    assert (one.duration.median_s, one.duration.mode) == (0.5e-3, "graph")
    assert (one.source, one.licence) == ("aiconfigurator/l40s/perf.parquet", "Apache-2.0")
    assert (one.environment.device, one.environment.software) == ("NVIDIA L40S", {"SGLang": "0.5.10"})


def test_quantised_products_are_operations_of_their_own(tmp_path: Path):
    rows = [gemm(dtype, 0.5, 2, 3, 4) for dtype in ("bfloat16", "fp8", "fp8_block", "fp3")]
    found = import_gemm(table(tmp_path, *rows), date=DATE)
    assert len({repr(one.operation) for one in found.entries}) == 3
    assert [o.dtype for o in found.entries[1].operation.operands] == ["bfloat16", "float8_e4m3fn"]
    assert found.malformed == {4: "KeyError: 'fp3'"}


def test_a_message_counts_elements(tmp_path: Path):
    rows = [
        {"op_name": "alltoall", "nccl_dtype": "half", "num_gpus": 8, "message_size": 256, "latency": ms}
        for ms in (0.010, 0.012)
    ]
    found = import_nccl(table(tmp_path, *rows), date=DATE)
    (one,) = found.entries
    assert one.operation.operator == "nccl::all_to_all"
    assert one.operation.operands == (Operand(shape=(256,), dtype="float16"),)
    assert one.operation.attributes == {"devices": 8, "nodes": 1}
    assert one.duration.median_s == pytest.approx(11e-6) and one.duration.samples == 2
    assert one.environment.software == {"NCCL": "0.5.10"}


def test_rows_that_mean_nothing_are_counted(tmp_path: Path):
    rows = [gemm("bfloat16", ms, m, 3, 4) for ms, m in ((0.5, 2), (0.0, 2), (float("nan"), 2), (0.5, 0))]
    found = import_gemm(table(tmp_path, *rows), date=DATE)
    assert (found.rows, len(found.entries), sorted(found.malformed)) == (4, 1, [2, 3, 4])


def test_other_files_are_refused(tmp_path: Path):
    path = table(tmp_path, gemm("bfloat16", 0.5, 2, 3, 4))
    with raises(MeasurementFileError, path, "message_size, nccl_dtype, num_gpus", "import_gemm"):
        import_nccl(path, date=DATE)
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    with raises(MeasurementFileError, path, "parquet", "LFS", exact=False):  # pyarrow says why
        import_gemm(path, date=DATE)


def test_collectives_of_the_set_are_imported():
    data = os.environ.get("DACEML_DATA")
    folder = Path(data or "") / "measurements" / "aiconfigurator"
    if data is None or not folder.is_dir():
        pytest.skip("DACEML_DATA has no measurements of aiconfigurator")
    found = {path.parent.name: import_nccl(path, date=DATE) for path in folder.glob("*/nccl_perf.parquet")}
    assert {name: one.repeated for name, one in found.items()} == {"a100_sxm": 0, "h100_sxm": 504, "l40s": 0}
    assert all(not one.malformed and len(one.entries) == 504 for one in found.values())
