"""Sums of float32 in float32: which are, and what keeps float64."""

from __future__ import annotations

from collections.abc import Callable

import dace
import numpy as np
import pytest

from daceml.sdfg.builder import Builder, Computation, parameters, reduced_parameters
from daceml.sdfg.network import Network
from daceml.sdfg.scalar import DType, Index, Scalar, cast, index_value, read, reduce_over
from daceml.transformations.local.narrow_sums import MOST_TERMS, narrow_sums
from tests.support.golden import golden

ROWS, COLUMNS = 5, 77


def means(
    given: DType, made: DType, *, wide_terms: bool = False, squares: bool = True, columns: int = COLUMNS
) -> Network:
    """Y[i] = (sum of X[i, k]^2 over k) / 77, in the accumulator's type."""
    sdfg = dace.SDFG("means")
    sdfg.add_array("X", [ROWS, columns], given)
    sdfg.add_array("Y", [ROWS], made)
    state = sdfg.add_state()
    (row,), (k,) = parameters(1), reduced_parameters(1)
    element = read("X", given, (row, k), (ROWS, columns))
    value = _mean(element * element if squares else element, k, columns, wide_terms)
    computation = Computation(
        label="mean", target="Y", index=(row,), params=(row,), extents=(ROWS,), value=cast(value, made)
    )
    Builder(sdfg, state).emit(computation)
    return Network(sdfg=sdfg, inputs=("X",), outputs=("Y",))


def _mean(element: Scalar, k: Index, columns: int, wide_terms: bool) -> Scalar:
    terms = cast(element, dace.float64) * 3.0 if wide_terms else element
    total = reduce_over("sum", [k], [columns], terms)
    return total / index_value(columns, total.dtype)


def types(network: Network) -> set[str]:
    return {desc.dtype.to_string() for desc in network.sdfg.arrays.values()}


@pytest.mark.parametrize("given", [dace.float32, dace.float16, dace.bfloat16], ids=str)
def test_narrow_values_are_added_up_in_float32(given: DType) -> None:
    network = means(given, dace.float32)
    assert "float64" in types(network)
    assert narrow_sums(network) == 1
    assert types(network) == {given.to_string(), "float32"}
    assert "float64" not in "".join(
        n.code.as_string for n in network.state.nodes() if isinstance(n, dace.nodes.Tasklet)
    )
    network.sdfg.validate()


def test_the_values_stay() -> None:
    network = means(dace.float32, dace.float32)
    narrow_sums(network)
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    y = np.empty(ROWS, np.float32)
    network.sdfg(X=x, Y=y)
    # 77 additions one after the other
    squares = x.astype(np.float64) ** 2
    assert (np.abs(y - squares.mean(1)) <= 77 * 2.0**-24 * squares.mean(1)).all()


def test_sums_of_many_terms_keep_their_accumulator() -> None:
    """One thread may have them all: 2^24 ones would be as far as it gets."""
    network = means(dace.float32, dace.float32, columns=MOST_TERMS + 1)
    assert narrow_sums(network) == 1
    assert "float64" in types(network)
    few = means(dace.float32, dace.float32, columns=MOST_TERMS)
    narrow_sums(few)
    assert "float64" not in types(few)


def test_the_mean_of_values_is_rounded_once_and_divided() -> None:
    """Statistics take it off every value: far from zero its error would be all that is left."""
    network = means(dace.float32, dace.float32, squares=False)
    assert narrow_sums(network) == 1
    assert "float64" in types(network), "the accumulator"
    x = 1e4 + np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    y = np.empty(ROWS, np.float32)
    network.sdfg(X=x, Y=y)
    total = x.astype(np.float64).sum(1).astype(np.float32)
    assert (y == total / np.float32(COLUMNS)).all()


@pytest.mark.parametrize(
    ("network", "wide"),
    [
        (lambda: means(dace.float64, dace.float32), "terms"),
        (lambda: means(dace.float32, dace.float64), "result"),
        (lambda: means(dace.float32, dace.float32, wide_terms=True), "terms"),
    ],
    ids=["operand", "result", "terms"],
)
def test_float64_stays(network: Callable[[], Network], wide: str) -> None:
    given = network()
    assert narrow_sums(given) == 0
    (reason,) = [refusal.reason for refusal in given.passes[-1].refused]
    assert reason == golden()
    assert wide in reason and "float64" in reason
