"""A device without measurements, from others that have some; what was measured there never counts."""

from __future__ import annotations

import numpy as np

from daceml.errors import EstimationError
from daceml.operations.database.records import Operand, Operation
from daceml.operations.models.observations import Observations, observations, one_table
from daceml.operations.models.transfer import known_rows, transferred
from tests.support.golden import golden, raises
from tests.support.synthetic_operations import device, entry, products, seconds

DEVICES = {
    "slow": device("slow", multiprocessors=40, speed=0.5),
    "middle": device("middle"),
    "fast": device("fast", multiprocessors=160, speed=2.0),
}
SPEEDS = {"slow": 0.5, "middle": 1.0, "fast": 2.0}


def table(names: list[str]) -> Observations:
    operations = products(80)
    return one_table(
        observations(
            (
                entry(operation, name, s)
                for name in names
                for operation, s in zip(operations, seconds(operations, speed=SPEEDS[name]), strict=True)
            ),
            DEVICES.get,
        )
    )


def test_a_device_between_two_others():
    known = table(["slow", "fast"])
    answers = 1e6 * seconds(list(known.operations))
    found = transferred(known, DEVICES["middle"])
    errors = np.abs(np.array([one.duration_us for one in found]) / answers - 1)
    assert errors.mean() < 0.15
    assert (
        np.mean([one.low_us <= answer <= one.high_us for one, answer in zip(found, answers, strict=True)])
        > 0.8
    )
    assert {one.basis for one in found} == {"scaled"}
    assert found[0].notes == (golden(),)
    assert "fast, slow" in found[0].notes[0]


def test_what_was_measured_on_the_target_is_dropped_and_changes_nothing():
    everything = table(["slow", "middle", "fast"])
    hidden = everything.without("middle")
    assert set(hidden.seconds) == set(hidden.devices) == {"slow", "fast"}
    other = everything.seconds["middle"] * 1000
    changed = Observations(
        kind=everything.kind,
        timing=everything.timing,
        operations=everything.operations,
        devices=everything.devices,
        seconds={**everything.seconds, "middle": other},
    ).without("middle")
    assert transferred(changed, DEVICES["middle"]) == transferred(hidden, DEVICES["middle"])


def test_a_table_with_the_target_or_with_one_device_is_refused():
    with raises(EstimationError, "middle", "column"):
        transferred(table(["slow", "middle"]), DEVICES["middle"])
    with raises(EstimationError, "middle", "1 devices", "roofline"):
        transferred(table(["slow"]), DEVICES["middle"])


def test_operations_that_one_device_lacks_come_from_the_others():
    known = table(["slow", "fast"])
    gaps = known.seconds["slow"].copy()
    gaps[:3] = np.nan
    holed = Observations(
        kind=known.kind,
        timing=known.timing,
        operations=known.operations,
        devices=known.devices,
        seconds={"slow": gaps, "fast": known.seconds["fast"]},
    )
    assert list(known_rows(holed)) == list(range(3, 80))
    assert all(np.isfinite(one.duration_us) for one in transferred(holed, DEVICES["middle"]))


def test_rows_of_elements_scale_with_memory():
    operations = [
        Operation(operator="aten::relu", operands=(Operand(shape=(int(n), 1024), dtype="float32"),))
        for n in np.geomspace(1, 60_000, 100)
    ]
    moved = np.array([8.0 * one.operands[0].elements for one in operations])
    known = one_table(
        observations(
            (
                entry(operation, name, 2e-5 + b / (6e11 * SPEEDS[name]))
                for name in ("slow", "fast")
                for operation, b in zip(operations, moved, strict=True)
            ),
            DEVICES.get,
        )
    )
    found = np.array([one.duration_us for one in transferred(known, DEVICES["middle"])])
    sizes = np.array([8.0 * one.operands[0].elements for one in known.operations])
    errors = np.abs(found / (20 + 1e6 * sizes / 6e11) - 1)
    assert errors.mean() < 0.08
    assert errors[sizes > 1e8].max() < 0.1
