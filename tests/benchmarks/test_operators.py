"""The campaign of random uses of operators: what it draws, how it compares, and two hundred of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.operators.__main__ import rows_of, with_strides
from benchmarks.operators.compare import difference
from benchmarks.operators.draws import ROWS, Chance, Draw, draw, feeds_of, load_rows, model_of
from benchmarks.operators.oracles import NoOracleError, expected
from tests.support.golden import raises


def use(**changes: object) -> Draw:
    return Draw(**({"op_type": "Exp", "inputs": [np.zeros(2, np.float32)]} | changes))  # pyright: ignore[reportArgumentType]


def test_a_number_stands_for_one_use():
    load_rows()
    for number in (0, 7, len(ROWS) + 7):
        assert draw(number).describe() == draw(number).describe()
    assert draw(7).op_type == draw(len(ROWS) + 7).op_type
    assert {draw(number).op_type for number in range(len(ROWS))} == set(ROWS)


def test_shapes_have_zeros_ones_and_odd_sizes():
    sizes = [size for seed in range(300) for size in Chance(seed).shape()]
    assert {0, 1, 7} <= set(sizes)
    assert any(Chance(seed).shape() == () for seed in range(50))
    assert any(Chance(seed).axis(3) < 0 for seed in range(10))


def test_strides_do_not_change_values():
    array = np.arange(24.0).reshape(2, 3, 4)
    seen = [with_strides(array, Chance(seed)) for seed in range(40)]
    assert all(np.array_equal(a, array) for a in seen)
    assert len({a.strides for a in seen}) > 3


def test_several_uses_are_one_model():
    uses = [
        use(),
        use(op_type="Concat", inputs=[np.ones((1, 2)), np.ones((3, 2))], attributes={"axis": 0}),
        use(op_type="Clip", inputs=[np.ones(3), None, np.asarray(2.0)], constants=frozenset({2})),
    ]
    model = model_of(uses)
    assert [o.name for o in model.graph.output] == ["y0_0", "y1_0", "y2_0"]
    assert [d.dim_value for d in model.graph.output[1].type.tensor_type.shape.dim] == [4, 2]
    assert list(feeds_of(uses)) == ["x0_0", "x1_0", "x1_1", "x2_0"]
    assert [i.name for i in model.graph.initializer] == ["x2_2"]


def test_types_shapes_and_values_are_compared():
    y = np.asarray([1.0, 1000.0], np.float32)
    assert difference(use(), [y], [y]) is None
    assert "float64[2] instead of float32[2]" in str(difference(use(), [y.astype(np.float64)], [y]))
    assert "instead of float32[2, 1]" in str(difference(use(), [y], [y[:, None]]))
    near = y * np.float32(1 + 1e-6)
    assert difference(use(), [near], [y]) is None
    assert "differs in" in str(difference(use(exact=True), [near], [y]))
    assert difference(use(), [y * np.float32(1.001)], [y]) is not None


def test_small_numbers_beside_large_terms_lose_digits():
    y = np.asarray([1e-3, 1e3], np.float32)
    off = y + np.asarray([1e-3, 0], np.float32)
    assert difference(use(), [off], [y]) is not None
    assert difference(use(terms=50), [off], [y]) is None


def test_infinities_and_nans_have_to_be_the_same():
    y = np.asarray([np.inf, np.nan, 1], np.float32)
    assert difference(use(), [y], [y]) is None
    for other in ([-np.inf, np.nan, 1], [np.inf, 1, 1], [np.inf, np.nan, np.nan]):
        assert difference(use(), [np.asarray(other, np.float32)], [y]) is not None


def test_what_no_oracle_can_run():
    with raises(NoOracleError, "Concat", exact=False):
        expected(use(op_type="Concat", inputs=[np.ones((1, 2)), np.ones((1, 3))], attributes={"axis": 0}))


def test_a_process_that_dies_is_a_crash_of_what_it_had_not_told():
    from benchmarks.children import Outcome

    outcome = Outcome(case=16, told={"16": ["equal", ""], "at": 17}, end="signal 11", duration_s=1.0)
    rows = rows_of(outcome, 2)
    assert [row["verdict"] for row in rows] == ["equal", "crash"]
    assert rows[1]["reason"] == "signal 11 at 17"


@pytest.mark.slow
def test_two_hundred_uses(tmp_path: Path):
    """In a fresh process: this one may have started threads, which forked ones would miss."""
    file = tmp_path / "operators.json"
    command = [sys.executable, "-m", "benchmarks.operators", "--quick", "--check", "--json", str(file)]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    verdicts = [row["verdict"] for row in json.loads(file.read_text())["rows"]]
    assert len(verdicts) == 200
    assert verdicts.count("equal") >= 170
