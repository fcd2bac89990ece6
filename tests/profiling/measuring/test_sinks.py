from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from daceml.errors import MeasurementFileError
from daceml.profiling.database.records import Duration, Entry, Environment, Operand, Operation
from daceml.profiling.measuring.sinks import JsonLines

ENTRY = Entry(
    operation=Operation(
        operator="aten::convolution",
        operands=(
            Operand(shape=(1, 3, 8, 8), dtype="float32"),
            Operand(shape=(3,), dtype="float32", layout=(2,)),
        ),
        attributes={"stride": (1, 1), "transposed": False, "mode": "nearest"},
    ),
    environment=Environment(device="Planted 1", fingerprint="cores=2", software={"torch": "2.13.0"}),
    duration=Duration(median_s=1e-6, samples=15, mad_s=1e-8, p10_s=9e-7, p90_s=2e-6),
    provenance="measured",
    source="a test",
    licence="CC0-1.0",
    date="2026-11-23",
)


def test_what_was_added_is_found_again(tmp_path: Path):
    with JsonLines(tmp_path / "m.jsonl") as sink:
        sink.add([ENTRY])
        assert sink.find(ENTRY.operation, "Planted 1") == (ENTRY,)
    with JsonLines(tmp_path / "m.jsonl") as sink:
        assert len(sink) == 1
        assert sink.find(ENTRY.operation, "Planted 1") == (ENTRY,)
        assert sink.find(ENTRY.operation, "Planted 2") == ()
        assert sink.find(replace(ENTRY.operation, direction="backward"), "Planted 1") == ()
        changed = replace(ENTRY.operation, attributes={**ENTRY.operation.attributes, "transposed": 0})
        assert sink.find(changed, "Planted 1") == (), "0 is not False"


def test_a_line_that_a_crash_cut_off_is_left_out_and_written_over(tmp_path: Path):
    file = tmp_path / "m.jsonl"
    with JsonLines(file) as sink:
        sink.add([ENTRY, ENTRY])
    file.write_bytes(file.read_bytes()[:-40])
    with JsonLines(file) as sink:
        assert len(sink) == 1
        sink.add([ENTRY])
    with JsonLines(file) as sink:
        assert len(sink) == 2


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"some": "json"}\n', "line 1"),
        ("[1]\n", "line 1"),
        ('{"format": "daceml measurements 1"}\nnot json\n', "line 2"),
        ('{"format": "daceml measurements 1"}\n{"operation": 3}\n', "line 2"),
        ("a letter to somebody", ""),
    ],
)
def test_a_file_of_somebody_else_is_refused_and_left_alone(text: str, where: str, tmp_path: Path):
    file = tmp_path / "m.jsonl"
    file.write_text(text)
    with pytest.raises(MeasurementFileError) as refusal:
        JsonLines(file)
    assert refusal.value.what == f"{file} is no file of measurements"
    assert refusal.value.where == where
    assert file.read_text() == text
