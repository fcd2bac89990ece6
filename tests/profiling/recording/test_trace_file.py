"""The profiler's file, extended and moved into place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from daceml.errors import OutputFileError
from daceml.profiling.recording.trace_file import extended, read_document, write_document
from tests.support.golden import raises

DOCUMENT = {
    "schemaVersion": 1,
    "host_name": "somebody's laptop",
    "traceName": "somebody/trace.json",
    "traceEvents": [{"name": "ProfilerStep#2"}, {"name": "aten::add"}, {"name": "ProfilerStep#3"}],
}


def test_a_file_gets_a_header_and_events_and_loses_names_and_half_a_step():
    assert extended(DOCUMENT, {"steps": 1}, [{"name": "kernel"}], last_step=2) == {
        "schemaVersion": 1,
        "daceml": {"format": 1, "steps": 1},
        "traceEvents": [{"name": "ProfilerStep#2"}, {"name": "aten::add"}, {"name": "kernel"}],
    }
    assert len(DOCUMENT["traceEvents"]) == 3 and "host_name" in DOCUMENT, "it changes nothing"


def test_a_name_says_whether_a_file_is_compressed(tmp_path: Path):
    write_document({"a": 1}, tmp_path / "new" / "run.json")
    write_document({"a": 1}, tmp_path / "run.json.gz")
    assert json.loads((tmp_path / "new" / "run.json").read_text()) == {"a": 1}
    assert json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes())) == {"a": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "run.json.gz"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    old = tmp_path / "run.json"
    old.write_text("old")
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_document({"a": object()}, old)
    assert old.read_text() == "old" and list(tmp_path.iterdir()) == [old]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    file = tmp_path / "file" / "run.json"
    with raises(OutputFileError, file, "File exists", exact=False):  # the system says why
        write_document({}, file)


def test_bytes_that_are_no_text_are_read(tmp_path: Path):
    (tmp_path / "run.json").write_bytes(b'{"traceEvents": [{"name": "k\xff\x01"}]}')
    assert read_document(tmp_path / "run.json")["traceEvents"][0]["name"] == "k\ufffd\x01"
