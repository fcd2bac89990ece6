"""A model of one kind of operation: right near what it saw, bounded and honest elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from daceml.devices.specification import Device
from daceml.errors import EstimationError
from daceml.operations.database.records import Operation
from daceml.operations.database.store import OpDatabase
from daceml.operations.models.fitting.fit import FEWEST, Fitted, fit
from daceml.operations.models.fitting.from_database import fit_all
from daceml.operations.models.fitting.trees import TreeSettings
from daceml.operations.models.learned import LearnedDurations
from daceml.operations.models.model_file import read_models, write_models
from daceml.operations.models.operator_model import OperatorModel
from tests.support.golden import golden, raises
from tests.support.synthetic_operations import device, entry, product, products, seconds

HERE = device("here")


def test_one_odd_row_is_left_out_and_the_others_are_learned():
    operations = products(60)
    odd = [product(10**200, 10**200, 10**200), product(-4, 5, 7)]
    entries = [entry(one, "here", s) for one, s in zip(operations, seconds(operations), strict=True)]
    entries += [entry(one, "here", 1e-5) for one in odd]
    entries.append(entry(product(3, 4, 5), "here", float("inf")))
    with few_trees():
        (lesson,) = fit_all(entries, {"here": HERE}.get, budget_s=0.0)
    assert (lesson.rows, lesson.odd) == (60, 2)
    assert lesson.fitted is not None and lesson.fitted.error < 0.5


def test_what_is_not_begun_when_the_budget_has_passed_is_not_learned():
    entries = [
        entry(one, name, s)
        for name in ("here", "there")
        for one, s in zip(products(60), seconds(products(60)), strict=True)
    ]
    devices = {"here": HERE, "there": device("there")}
    lessons = fit_all(entries, devices.get, budget_s=1e-6)
    assert [one.fitted for one in lessons] == [None] * 4
    assert len({one.why for one in lessons}) == 1
    assert lessons[0].why == golden()


def test_a_model_that_was_begun_ends_when_the_budget_has_passed():
    operations = products(200)
    found = fit(operations, seconds(operations), HERE, floor_s=2e-5, budget_s=1e-6)
    assert len(found.tried) == 1 and found.model.trees is not None
    assert len(found.model.trees.roots) == 20
    assert found.error < 0.5


def learned() -> Fitted:
    operations = products(500)
    return fit(operations, seconds(operations, seed=5), HERE, floor_s=2e-5, budget_s=0.0)


@contextmanager
def few_trees() -> Generator[None]:
    """Fit in a seventh of the time, where errors do not matter."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("daceml.operations.models.fitting.fit._TREES", (TreeSettings(trees=60, rate=0.15),))
        yield


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    with few_trees():
        return learned()


@pytest.fixture(scope="module")
def well_fitted() -> Fitted:
    return learned()


@pytest.mark.slow
def test_new_operations_are_estimated_and_covered(well_fitted: Fitted):
    fresh = products(300, seed=9)
    answers = 1e6 * seconds(fresh, seed=6)
    found = well_fitted.model.estimates(fresh, HERE)
    errors = np.abs(np.array([one.duration_us for one in found]) / answers - 1)
    covered = np.mean(
        [one.low_us <= answer <= one.high_us for one, answer in zip(found, answers, strict=True)]
    )
    assert errors.mean() < 0.06  # noise alone is 2.4 %
    assert 0.8 < covered < 0.98
    assert all(one.basis == "learned" for one in found)


def test_what_is_larger_than_anything_measured_is_flagged_and_wide(fitted: Fitted):
    near, far = fitted.model.estimates([product(700, 700, 700), product(700, 700, 60_000)], HERE)
    assert near.outside == ""
    assert far.outside == golden()
    assert all(fact in far.outside for fact in ("size 0.1", "60000", "16", "2046"))
    assert far.high_us / far.duration_us - 1 > 2 * (near.high_us / near.duration_us - 1)


def test_an_operation_takes_no_less_than_peaks_and_than_a_smaller_one(fitted: Fitted):
    (huge,) = fitted.model.estimates([product(20_000, 20_000, 20_000)], HERE)
    assert huge.low_us >= 0.999 * 2 * 20_000**3 / 1e13 * 1e6
    largest = max(products(500), key=lambda o: o.operands[0].elements * o.operands[1].shape[1])
    m, k = largest.operands[0].shape
    (larger,) = fitted.model.estimates([product(m + 1, largest.operands[1].shape[1] + 1, k + 1)], HERE)
    slack = np.exp(-fitted.model.limits.slack)
    assert larger.duration_us >= slack * 1e6 * seconds([largest], seed=None)[0] * 0.9


def test_another_kind_is_refused(fitted: Fitted):
    other = Operation(operator="aten::bmm", operands=product(2, 3, 4).operands)
    with raises(EstimationError, fitted.model.kind, "aten::mm"):
        fitted.model.estimates([other], HERE)


def test_too_few_rows_and_durations_of_nothing_are_refused():
    few = products(FEWEST - 1)
    with raises(EstimationError, FEWEST - 1, FEWEST, "daceml measure"):
        fit(few, seconds(few), HERE, floor_s=0.0)
    enough = products(FEWEST)
    with raises(EstimationError, "duration", "0"):
        fit(enough, np.zeros(FEWEST), HERE, floor_s=0.0)


@pytest.mark.slow
def test_a_file_gives_back_the_same_models(well_fitted: Fitted, tmp_path: Path):
    path = tmp_path / "models.npz"
    with_network = fit(
        (operations := products(FEWEST)), seconds(operations), HERE, floor_s=2e-5, budget_s=30.0
    )
    assert any("Perceptron" in one.architecture for one in with_network.tried)
    write_models([well_fitted.model, with_network.model], path)
    fresh = products(20, seed=2)
    for written, read in zip([well_fitted.model, with_network.model], read_models(path), strict=True):
        assert read.estimates(fresh, HERE) == written.estimates(fresh, HERE)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a file", b"\x80\x04\x95 a pickle"])
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "models.npz"
    path.write_bytes(content)
    with raises(EstimationError, path, "daceml learn", exact=False):  # numpy says what is wrong
        read_models(path)


def test_pickles_are_never_read(tmp_path: Path):
    path = tmp_path / "models.npz"
    np.savez(path, head=np.array([print], dtype=object), allow_pickle=True)
    with raises(EstimationError, path, "ValueError", "daceml learn"):
        read_models(path)


def test_a_missing_file_is_refused(tmp_path: Path):
    # the system says why
    with raises(EstimationError, tmp_path / "none.npz", "Errno", "daceml learn", exact=False):
        read_models(tmp_path / "none.npz")


@pytest.mark.slow
def test_a_database_teaches_all_that_it_has_enough_of(tmp_path: Path):
    there = device("there", speed=2.0)
    devices: dict[str, Device] = {"here": HERE, "there": there}
    operations = products(120)
    elementwise = Operation(operator="aten::relu", operands=operations[0].operands[:1])
    with OpDatabase(tmp_path / "rows.db") as database:
        for name, speed in (("here", 1.0), ("there", 2.0), ("unknown", 1.0)):
            rows = zip(operations, seconds(operations, speed=speed), strict=True)
            database.add_all(entry(operation, name, s) for operation, s in rows)
        database.add(entry(elementwise, "here", 1e-4))
        lessons = fit_all(database.entries(), devices.get, budget_s=0.0)
        told = [(one.device, one.rows, one.fitted is not None) for one in lessons]
        expected = [("here", 1, False), *[("here", 120, True)] * 2, *[("there", 120, True)] * 2]
        assert sorted(told) == expected
        (missing,) = [one.why for one in lessons if one.fitted is None]
        assert missing == golden()
        assert "1" in missing and str(FEWEST) in missing
        models: list[OperatorModel] = [one.fitted.model for one in lessons if one.fitted is not None]
        references = {(one.device, one.references) for one in models}
        assert references == {("here", ()), ("here", ("there",)), ("there", ()), ("there", ("here",))}
        source = LearnedDurations(models, database=database, device_of=devices.get)
        found = source.estimate(operations[7], HERE)
        assert found is not None
        assert found.duration_us == pytest.approx(1e6 * seconds(operations[7:8])[0], rel=0.1)
        assert source.estimate(elementwise, HERE) is None
        alone = LearnedDurations(models).estimate(operations[7], HERE)  # what others took is not known
        plain = next(one for one in models if one.device == "here" and not one.references)
        assert alone is not None
        assert alone.duration_us == plain.estimates([operations[7]], HERE)[0].duration_us
        assert alone.notes == (golden(),)
        assert "eager" in alone.notes[0]


def test_a_short_eager_call_may_be_its_launch(fitted: Fitted):
    smallest = min(products(500), key=lambda one: float(seconds([one])[0]))
    source = LearnedDurations([fitted.model])
    short, long = source.estimate(smallest, HERE), source.estimate(product(1500, 1500, 1500), HERE)
    assert short is not None and long is not None
    assert short.outside == golden()
    assert "launch" in short.outside
    assert short.low_us < 0.1 * short.duration_us
    assert long.outside == ""


def test_what_cannot_be_learned_is_told_and_ends_nothing():
    operations = products(FEWEST)
    strange = [Operation(operator="mine::op", operands=one.operands) for one in operations]
    entries = [entry(one, "here", 1e-4) for one in (*operations, *strange)]
    with few_trees():
        lessons = fit_all(entries, {"here": HERE}.get, budget_s=0.0)
    told = {one.kind.split("'")[1]: one.why for one in lessons}
    assert told == {"aten::mm": "", "mine::op": golden()}
    assert "mine::op" in told["mine::op"]
