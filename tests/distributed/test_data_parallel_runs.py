"""Training on two ranks: the numbers of torch's DistributedDataParallel, and errors that name a rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.distributed.rank_processes import alone, by_mpirun, by_torchrun, mpirun
from tests.support.golden import golden, raises

# Sums in another order: some units in the last place of float32, in values around 1
ROUNDING = 2e-6


def program(name: str, folder: Path) -> tuple[str, ...]:
    """What a rank runs: one of `rank_programs`."""
    return "tests.distributed.rank_programs", name, str(folder)


def mpi_launcher() -> str:
    """mpirun; the test is skipped where there is none."""
    launcher = mpirun()
    if launcher is None:
        pytest.skip("there is no mpirun with mpi4py here: pip install 'daceml[mpi]'")
    return launcher


def assert_same_training(result: dict[str, Any]) -> None:
    ours, theirs = result["ours"], result["torch"]
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=ROUNDING)
    assert len(ours["losses"]) == 20
    for mine, other in zip(ours["gradients"], theirs["gradients"], strict=True):
        assert mine.keys() == other.keys()
        for name, gradient in other.items():
            if gradient is None:  # frozen, or not used
                assert mine[name] is None, name
            else:
                assert mine[name] == pytest.approx(gradient, rel=ROUNDING, abs=1e-7), name
    assert ours["state"].keys() == theirs["state"].keys()
    for name, value in theirs["state"].items():
        assert ours["state"][name] == pytest.approx(value, rel=ROUNDING, abs=1e-6), name
    for mine, other in zip(ours["uneven"], theirs["uneven"], strict=True):
        assert mine == pytest.approx(other, rel=ROUNDING, abs=1e-7)
    for mine, other in zip(ours["heads"], theirs["heads"], strict=True):
        assert mine == pytest.approx(other, rel=ROUNDING, abs=1e-6)
    assert len(result["buckets"]) > 1


@pytest.mark.slow
def test_two_ranks_of_torchrun_train_as_torch_does(tmp_path: Path):
    first, second = by_torchrun(program("compare", tmp_path), tmp_path)
    assert_same_training(first)
    assert_same_training(second)
    assert first["ours"]["losses"] != second["ours"]["losses"], "each rank has samples of its own"
    trained = {name: values for name, values in first["ours"]["state"].items() if "running" not in name}
    assert {name: second["ours"]["state"][name] for name in trained} == trained
    for rank, result in enumerate((first, second)):
        spans = result["overlap"]
        assert spans["file"] == f"step_rank{rank}.json.gz"
        assert spans["steps"] == list(range(1, 9)), "both ranks have recorded the same steps"
        assert spans["all_reduces"] == 8 * len(result["buckets"])
        assert spans["overlapping"] > 0
        assert spans["buckets"] == [[f"module.{name}" for name in bucket] for bucket in result["buckets"]]


def test_two_ranks_of_mpirun_add_up_broadcast_and_tell(tmp_path: Path):
    results = by_mpirun(mpi_launcher(), program("collectives", tmp_path), tmp_path)
    for rank, result in enumerate(results):
        assert (result["name"], result["rank"], result["size"]) == ("mpi", rank, 2)
        assert result["sums"] == [[[4.5, -6.0], [0.75, 9.0]]] * 3
        assert result["sent"] == [[3, 4], 2.5]
        assert result["told"] == "rank 0"


@pytest.mark.slow
def test_two_ranks_of_mpirun_train_as_torch_does(tmp_path: Path):
    launcher = mpi_launcher()
    first, second = by_mpirun(launcher, program("compare", tmp_path), tmp_path)
    assert_same_training(first)
    assert_same_training(second)
    assert first["overlap"]["overlapping"] > 0
    assert second["overlap"]["file"] == "step_rank1.json.gz"


@pytest.mark.slow
def test_a_killed_rank_is_named_and_nobody_waits_for_it(tmp_path: Path):
    survivor, dead = alone(program("killed", tmp_path), tmp_path)
    assert dead is None
    assert survivor["code"] == "DML677" and survivor["seconds"] < 60
    what, where, why, *_, fix, option = survivor["error"].splitlines()
    assert "rank 1" in what and "rank 0 of 2" in where and "all-reduce 3" in where and "timeout_s" in option
    assert "rank 1" in why and "rank 1" in fix
    # what the rank did last follows in parentheses
    assert [what, where, why.partition(" (")[0], fix, option] == [golden() for _ in range(5)]


@pytest.mark.slow
def test_other_models_and_a_rank_that_does_not_come_are_named(tmp_path: Path):
    results = alone(program("absent", tmp_path), tmp_path)
    for rank, result in enumerate(results):
        assert result["different"]["code"] == "DML676"
        text = result["different"]["error"]
        for fact in ("1 of 2 ranks", f"rank {rank}", "weight: float32[4, 4]", "weight: float32[5, 4]"):
            assert fact in text
        assert text == golden()
    waiting = results[0]
    assert waiting["code"] == "DML677"
    why, _, last = waiting["error"].splitlines()[2].partition(" (")
    assert "rank 1" in why and "all-reduce 2" in why and why == golden()
    assert ": 1" in last, "it has begun one"


def assert_left(survivor: dict[str, Any]) -> None:
    assert survivor["code"] == "DML677"
    what, where, *_ = survivor["error"].splitlines()
    assert "rank 0" in what and "rank 1 of 2" in where and "broadcast" in where
    assert [what, where] == [golden(), golden()]


@pytest.mark.slow
def test_a_rank_that_leaves_between_two_steps_is_named(tmp_path: Path):
    left, survivor = alone(program("leaves", tmp_path), tmp_path)
    assert left == {"error": None}, "it waits for another rank's first program, however long that takes"
    assert_left(survivor)


@pytest.mark.slow
def test_a_rank_that_leaves_an_mpirun_is_named_and_ends_the_job(tmp_path: Path):
    launcher = mpi_launcher()
    with raises(RuntimeError, "'leaves'", exact=False):
        by_mpirun(launcher, program("leaves", tmp_path), tmp_path)
    assert_left(json.loads((tmp_path / "1.json").read_text()))
