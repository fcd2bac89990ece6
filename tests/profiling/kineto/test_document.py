"""Files: whole, damaged, and of other kinds."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from benchmarks.trace_examples import as_bytes, document, operator
from daceml.errors import TraceFileError
from daceml.profiling.kineto import document as module
from daceml.profiling.kineto.document import document_of, read_bytes
from tests.support.golden import golden, raises

WHOLE = as_bytes(document(operator("aten::mm", 0, 9), operator("aten::relu", 9, 1)))


def refusal(data: bytes, *facts: object, exact: bool = True) -> TraceFileError:
    with raises(TraceFileError, *facts, exact=exact) as caught:
        document_of(data, "run.json")
    error = caught.value
    assert error.what
    assert error.where == "run.json"
    assert error.why
    assert error.fix
    return error


def test_plain_zipped_and_zipped_in_parts():
    for data in (WHOLE, gzip.compress(WHOLE), gzip.compress(WHOLE[:40]) + gzip.compress(WHOLE[40:])):
        assert len(document_of(data, "run.json").events) == 2


def test_a_bare_list_of_events_and_a_mark_of_byte_order():
    data = json.dumps([operator("a", 0, 1)]).encode("utf-8-sig")
    assert document_of(data, "run.json").header == {}


@pytest.mark.parametrize("end", range(1, len(WHOLE) - 1, 7))
def test_a_cut_file_is_refused_wherever_it_ends(end: int):
    error = refusal(WHOLE[:end], exact=False)  # Python says what it misses
    assert f"of {end}" in error.why or "line 1, column" in error.why


@pytest.mark.parametrize("end", [3, 12, 60, -9, -1])
def test_a_cut_gzip_file_is_refused(end: int):
    refusal(gzip.compress(WHOLE)[:end], "gzip", "0 bytes")


def test_a_damaged_gzip_file_is_refused():
    data = bytearray(gzip.compress(WHOLE))
    data[len(data) // 2] ^= 0xFF
    refusal(bytes(data), "gzip", "0 bytes", exact=False)  # zlib says what is wrong


def test_a_refusal_says_where_the_damage_is():
    damaged = WHOLE.replace(b'"dur": 9,', b'"dur": 9;', 1)
    refusal(damaged, "JSON", "line 1, column 143", "','", """'; "args": {}}, {'""")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (b"", ["character 0 of 0"]),
        (b"PK\x03\x04", ["JSON", "line 1, column 1", "PK"]),
        (b"7", ["'traceEvents'", "7"]),
        (b'{"nodes": []}', ["'traceEvents'", "'nodes'"]),
        (b'{"traceEvents": {}}', ["'traceEvents'", "dict: {}"]),
        (b"[" * 100_000 + b"]" * 100_000, ["lists"]),
        (b'{"traceEvents": [' + b"9" * 5000 + b"]}", ["digits"]),
    ],
    ids=["nothing", "zip", "a number", "another object", "no list", "deep lists", "a long number"],
)
def test_other_files_are_refused(text: bytes, facts: list[str]):
    refusal(text, *facts, exact="digits" not in facts)  # Python says how many digits it takes


def test_names_that_are_no_utf8_are_marked():
    found = document_of(WHOLE.replace(b"aten::mm", b"aten\xff\xfemm"), "run.json")
    assert found.events[0]["name"] == "aten\ufffd\ufffdmm"
    assert found.notes == (golden(),)
    assert "UTF-8" in found.notes[0] and f"byte {WHOLE.index(b'aten::mm') + 4}" in found.notes[0]


def test_control_characters_are_taken():
    found = document_of(WHOLE.replace(b"aten::mm", b"aten\n\x00\tm"), "run.json")
    assert found.events[0]["name"] == "aten\n\x00\tm"


def test_a_file_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LIMIT_BYTES", 1 << 20)
    refusal(gzip.compress(b" " * (6 << 20)), "0 GiB", "torch.profiler.schedule")


def test_what_is_no_file_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "traces").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "round")
    (tmp_path / "round").symlink_to(tmp_path / "circle")
    (tmp_path / "lost").symlink_to(tmp_path / "nothing.json")
    for name in ("nothing.json", "traces", "pipe", "circle", "lost", "x" * 300):
        with raises(TraceFileError, tmp_path / name, "`read_traces`") as caught:
            read_bytes(tmp_path / name)
        assert name in caught.value.what
