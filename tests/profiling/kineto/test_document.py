"""Files: whole, damaged, and of other kinds."""

from __future__ import annotations

import gzip
import io
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from benchmarks.trace_examples import as_bytes, document, operator
from daceml.errors import TraceFileError
from daceml.profiling.kineto import source as module
from daceml.profiling.kineto.document import Document
from daceml.profiling.kineto.reader import read_trace, trace_of
from tests.support.golden import golden, raises

WHOLE = as_bytes(document(operator("aten::mm", 0, 9), operator("aten::relu", 9, 1)))


def read(data: bytes, source: str = "run.json") -> tuple[Document, list[Any]]:
    found = Document(io.BytesIO(data), source)
    return found, [event for events in found.events() for event in events]


def refusal(data: bytes, *facts: object, exact: bool = True) -> TraceFileError:
    with raises(TraceFileError, *facts, exact=exact) as caught:
        read(data)
    error = caught.value
    assert error.what
    assert error.where == "run.json"
    assert error.why
    assert error.fix
    return error


def test_plain_zipped_and_zipped_in_parts():
    for data in (WHOLE, gzip.compress(WHOLE), gzip.compress(WHOLE[:40]) + gzip.compress(WHOLE[40:])):
        assert len(read(data)[1]) == 2


def test_a_bare_list_of_events_and_a_mark_of_byte_order():
    data = json.dumps([operator("a", 0, 1)]).encode("utf-8-sig")
    assert read(data)[0].header == {}


@pytest.mark.parametrize("end", range(1, len(WHOLE) - 1, 7))
def test_a_cut_file_is_refused_wherever_it_ends(end: int):
    error = refusal(WHOLE[:end], exact=False)  # Python says what it misses
    assert f"of {end}" in error.why or "line 1, column" in error.why
    assert "at at" not in error.why and "starting at" not in error.why


@pytest.mark.parametrize("end", [3, 12, 60, -9, -1])
def test_a_cut_gzip_file_is_refused(end: int):
    data = gzip.compress(WHOLE)[:end]
    refusal(data, "gzip", f"{len(data)} compressed bytes")


def test_a_damaged_gzip_file_is_refused():
    data = bytearray(gzip.compress(WHOLE))
    data[len(data) // 2] ^= 0xFF
    refusal(bytes(data), "gzip", "byte 0 of the text", exact=False)  # zlib says what is wrong


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
    found, events = read(WHOLE.replace(b"aten::mm", b"aten\xff\xfemm"))
    assert events[0]["name"] == "aten\ufffd\ufffdmm"
    assert found.notes == [golden()]
    assert "UTF-8" in found.notes[0] and f"byte {WHOLE.index(b'aten::mm') + 4}" in found.notes[0]


def test_control_characters_are_taken():
    _, events = read(WHOLE.replace(b"aten::mm", b"aten\n\x00\tm"))
    assert events[0]["name"] == "aten\n\x00\tm"


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
            read_trace(tmp_path / name)
        assert name in caught.value.what


def test_a_file_of_too_many_events_is_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LIMIT_EVENTS", 1000)
    many = as_bytes(document(*[operator("aten::mm", 0, 9)] * 1500))
    for data in (many, gzip.compress(many)):
        refusal(data, "1,500 events", "more than 1,000")


def test_memory_is_bounded_by_what_is_kept_and_not_by_the_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1 << 16)
    event = b'{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}},\n'
    text = b'{"traceEvents": [' + 20_000 * event + b"{}]}"
    tracemalloc.start()
    trace_of(gzip.compress(text), "run.json")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(text)


@pytest.mark.parametrize("content", [b"", b'{"traceEvents": [{"ph": "X"}'])
def test_a_sparse_file_is_refused_where_its_zeros_begin(content: bytes, tmp_path: Path):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    os.truncate(path, 1 << 30)
    with raises(TraceFileError, f"column {len(content) + 1}", exact=False):
        read_trace(path)


@pytest.mark.parametrize("part_bytes", [1, 7, 64])
def test_parts_may_end_anywhere(part_bytes: int, monkeypatch: pytest.MonkeyPatch):
    odd = {"name": "\u00e4\U0001f600 }, {", "ts": 12345678901.125, "args": {"a": [{}, {"b": "}"}, -1.5e3]}}
    content = document(*[{**operator("a", 0, 1), **odd}] * 5, after=[{"x": 1}, {"y": True}])
    monkeypatch.setattr(module, "_CHUNK_BYTES", part_bytes)
    found, events = read(json.dumps(content, ensure_ascii=False, indent=1).encode())
    assert events == content.pop("traceEvents") and found.header == content


def test_a_damaged_event_among_many_is_found(monkeypatch: pytest.MonkeyPatch):
    lines = json.dumps(document(*[operator("a", 0, 1)] * 50), indent=1).encode().split(b"\n")
    lines[401] = b"!" + lines[401]
    for part_bytes in (64, 1 << 22):
        monkeypatch.setattr(module, "_CHUNK_BYTES", part_bytes)
        refusal(b"\n".join(lines), "line 402, column 1", exact=False)
