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

WHOLE = as_bytes(document(operator("aten::mm", 0, 9), operator("aten::relu", 9, 1)))


def refusal(data: bytes) -> TraceFileError:
    with pytest.raises(TraceFileError) as caught:
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
    assert refusal(WHOLE[:end]).what in (
        "a trace that ends in the middle",
        "a file that is no JSON, or damaged",
    )


@pytest.mark.parametrize("end", [3, 12, 60, -9, -1])
def test_a_cut_gzip_file_is_refused(end: int):
    assert refusal(gzip.compress(WHOLE)[:end]).what == "a trace that ends in the middle"


def test_a_damaged_gzip_file_is_refused():
    data = bytearray(gzip.compress(WHOLE))
    data[len(data) // 2] ^= 0xFF
    assert refusal(bytes(data)).what == "a gzip file that is damaged"


def test_a_refusal_says_where_the_damage_is():
    error = refusal(WHOLE.replace(b'"dur": 9,', b'"dur": 9;', 1))
    assert str(error) == (
        "[DML601] a file that is no JSON, or damaged\n"
        "  where: run.json\n"
        "  why:   Expecting ',' delimiter at line 1, column 143: '; \"args\": {}}, {'\n"
        "  fix:   export the trace again, and copy the whole file"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "a trace that ends in the middle"),
        (b"PK\x03\x04", "a file that is no JSON, or damaged"),
        (b"7", "a file of JSON that is no trace"),
        (b'{"nodes": []}', "a file of JSON that is no trace"),
        (b'{"traceEvents": {}}', "'traceEvents' of a trace is no list"),
        (b"[" * 100_000 + b"]" * 100_000, "a file that is no trace, or damaged"),
        (b'{"traceEvents": [' + b"9" * 5000 + b"]}", "a file that is no trace, or damaged"),
    ],
)
def test_other_files_are_refused(text: bytes, what: str):
    assert refusal(text).what == what


def test_names_that_are_no_utf8_are_marked():
    found = document_of(WHOLE.replace(b"aten::mm", b"aten\xff\xfemm"), "run.json")
    assert found.events[0]["name"] == "aten\ufffd\ufffdmm"
    assert found.notes == (
        f"the file is no UTF-8 from byte {WHOLE.index(b'aten::mm') + 4} on: "
        "unreadable characters of names were replaced",
    )


def test_control_characters_are_taken():
    found = document_of(WHOLE.replace(b"aten::mm", b"aten\n\x00\tm"), "run.json")
    assert found.events[0]["name"] == "aten\n\x00\tm"


def test_a_file_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LIMIT_BYTES", 1 << 20)
    assert refusal(gzip.compress(b" " * (6 << 20))).why == "it would take many times that of memory"


def test_what_is_no_file_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path, what in (
        (tmp_path / "nothing.json", "nothing.json does not exist"),
        (tmp_path, f"{tmp_path.name} is a folder"),
        (tmp_path / "pipe", "pipe is no file"),
    ):
        with pytest.raises(TraceFileError) as caught:
            read_bytes(path)
        assert caught.value.what == what
