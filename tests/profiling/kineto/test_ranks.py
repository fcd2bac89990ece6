"""Several ranks of one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.trace_examples import as_bytes, document, operator
from daceml.errors import TraceFileError
from daceml.profiling.kineto import read_traces
from daceml.profiling.kineto.ranks import rank_in
from tests.support.golden import raises


def write(path: Path, rank: int | None) -> Path:
    told = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 4}}
    path.write_bytes(as_bytes(document(operator("a", 0, 1), **told), zipped=path.name.endswith(".gz")))
    return path


def test_ranks_are_what_files_say_else_what_their_names_say(tmp_path: Path):
    write(tmp_path / "rank0.json", 2)
    write(tmp_path / "worker1.pt.trace.json.gz", None)
    write(tmp_path / "anything.json", 0)
    (tmp_path / "README.md").write_text("not a trace", encoding="utf-8")
    traces = read_traces(tmp_path)
    assert [(trace.rank, Path(trace.source).name) for trace in traces] == [
        (0, "anything.json"),
        (1, "worker1.pt.trace.json.gz"),
        (2, "rank0.json"),
    ]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.pt.trace.json.gz", 3),
        ("rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0),
        ("trace_rank_12_step_3.json", 12),
        ("num_workers_4.pt.trace.json.gz", None),
        ("host_4515.1683564901.pt.trace.json", None),
    ],
)
def test_ranks_in_names(name: str, rank: int | None):
    assert rank_in(name) == rank


def test_one_file_needs_no_rank(tmp_path: Path):
    assert [trace.rank for trace in read_traces([write(tmp_path / "a.json", None)])] == [None]


def test_what_is_unclear_is_refused(tmp_path: Path):
    first, second = write(tmp_path / "a.json", 1), write(tmp_path / "b.json", 1)
    with raises(TraceFileError, "rank 1", first) as caught:
        read_traces([first, second])
    assert caught.value.where == str(second)
    unknown = write(tmp_path / "c.json", None)
    with raises(TraceFileError, unknown, "rank0.json"):
        read_traces([first, unknown])


def test_a_folder_without_traces_is_refused(tmp_path: Path):
    with raises(TraceFileError, tmp_path, ".json.gz"):
        read_traces(tmp_path)
