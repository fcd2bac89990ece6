"""Logs of nccl-tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daceml.errors import MeasurementFileError
from daceml.operations.database.importers.nccl_tests import import_nccl_tests
from daceml.operations.database.records import Operand
from tests.support.golden import raises

DATE = "2026-11-20"
RANKS = """# Using devices
#   Rank  0 Pid  63453 on node-0 device  0 [0x00] A100-SXM4-40GB
#   Rank  1 Pid  63454 on node-1 device  0 [0x00] A100-SXM4-40GB
"""
OLD = "  1024  256  float  sum  53.00  0.02  0.04  1e-07  81.05  0.01  0.02  1e-07\n"
NEW = "  2048  1024  half  sum  -1  146.7  0.01  0.03  0  54.36  0.04  0.07  N/A\n"
GATHER = "  4096  512  float  none  0  10.5  0.01  0.03  0  54.36  0.04  0.07  0\n"


def log(folder: Path, text: str) -> Path:
    """A log within a set."""
    path = folder / "echo" / "nccl.log"
    path.parent.mkdir(exist_ok=True)
    (path.parent / "LICENSE").write_text("MIT License\n")
    path.write_text(text)
    return path


def test_a_row_becomes_a_collective_of_all_ranks(tmp_path: Path):
    found = import_nccl_tests(log(tmp_path, RANKS + OLD), collective="all_reduce", date=DATE)
    (one,) = found.entries
    assert one.operation.operator == "nccl::all_reduce"
    assert one.operation.operands == (Operand(shape=(256,), dtype="float32"),)
    assert one.operation.attributes == {"devices": 2, "nodes": 2}
    assert one.duration.median_s == pytest.approx(53e-6)
    assert (one.environment.device, one.source) == ("A100-SXM4-40GB", "echo/nccl.log")


def test_newer_versions_print_the_root_and_their_version(tmp_path: Path):
    text = "# nccl-tests version 2.17.6\n# NCCL version 2.27.3\n".replace("# nccl-tests version 2.17.6\n", "")
    found = import_nccl_tests(log(tmp_path, text + RANKS + NEW + GATHER), collective="x", date=DATE)
    assert [e.duration.median_s for e in found.entries] == pytest.approx([146.7e-6, 10.5e-6])
    # as nccl-tests counts the size: of the whole array that is gathered
    assert [e.operation.operands[0].shape for e in found.entries] == [(1024,), (1024,)]
    assert found.entries[0].environment.software == {"NCCL": "2.27.3"}


def test_mpiruns_marks_are_taken_off(tmp_path: Path):
    text = "".join(f"[1,0]<stdout>:{line}\n" for line in (RANKS + OLD).splitlines())
    assert len(import_nccl_tests(log(tmp_path, text), collective="x", date=DATE).entries) == 1


def test_rows_that_mean_nothing_are_counted(tmp_path: Path):
    wrong = [
        "  8 2 float sum 1.0 2.0\n",
        "  8 2 float sum nan 0 0 0 1 0 0 0\n",
        "  8 2 quux sum 1 0 0 0 1 0 0 0\n",
    ]
    text = RANKS + OLD + "".join(wrong) + "  8 900 float sum 1 0 0 0 1 0 0 0\n"
    found = import_nccl_tests(log(tmp_path, text), collective="x", date=DATE)
    assert (found.rows, len(found.entries), sorted(found.malformed)) == (5, 1, [2, 3, 4, 5])


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (OLD, "rank"),
        (RANKS.replace("A100", "H100", 1) + OLD, "A100-SXM4-40GB, H100-SXM4-40GB"),
        (RANKS, "row"),
    ],
    ids=["no device", "two devices", "no row"],
)
def test_what_is_no_such_log_is_refused(tmp_path: Path, text: str, fact: str):
    with raises(MeasurementFileError, tmp_path, fact):
        import_nccl_tests(log(tmp_path, text), collective="x", date=DATE)


def test_a_log_that_is_not_there_is_refused(tmp_path: Path):
    with raises(MeasurementFileError, tmp_path / "none", exact=False):  # the system says why
        import_nccl_tests(tmp_path / "none", collective="x", date=DATE)


def test_all_logs_of_the_set_are_imported():
    data = os.environ.get("DACEML_DATA")
    folder = Path(data or "") / "measurements" / "nccl" / "echo"
    if data is None or not folder.is_dir():
        pytest.skip("DACEML_DATA has no measurements of nccl-tests")
    for devices, nodes, rows in ((1, 1, 28), (2, 1, 28), (8, 1, 28), (32, 4, 23)):
        found = import_nccl_tests(folder / f"nccl_{devices}.log", collective="all_reduce", date=DATE)
        assert (len(found.entries), found.malformed) == (rows, {})
        assert {tuple(e.operation.attributes.values()) for e in found.entries} == {(devices, nodes)}
