"""Cases of the crossover benchmark, and what it takes for a missed rule."""

from __future__ import annotations

import pytest
import torch

from benchmarks.crossover import CASES, Convolution, Linear, rule_bar, step
from benchmarks.rounds import Measurement, Slice
from daceml.transformations.layout import channels_last


def case(**options) -> Convolution:
    return Convolution(name="c", batch=2, channels=(4, 8), side=5, kernel=3, **options)


def seen(**duration_us: float) -> Measurement:
    row = {name: Slice(duration_us=value, foreign=0.0) for name, value in duration_us.items()}
    return Measurement(names=tuple(row), rounds=(row,) * 6)


def test_products_are_multiplications():
    assert case().products == 2 * 8 * 25 * 4 * 9
    assert case(stride=2, group=2).products == 2 * 8 * 9 * 2 * 9


def test_names_tell_cases_apart_and_cases_lie_on_both_sides_of_the_rule():
    assert len({c.name for c in CASES}) == len(CASES)
    products = [c.products for c in CASES if isinstance(c, Convolution) and c.group == 1]
    limit = channels_last._FEWEST_PRODUCTS
    assert min(products) < limit < max(products)


def test_a_rule_is_missed_where_what_it_prefers_is_slower():
    assert rule_bar(case(), seen(torch=10, channels_last=10.5)).met
    assert not rule_bar(case(), seen(torch=10, channels_last=12)).met
    assert rule_bar(case(prefers=("torch", "channels_last")), seen(torch=10, channels_last=12)).met
    assert rule_bar(case(prefers=None), seen(torch=10, channels_last=12)) is None


@pytest.mark.parametrize("how", ["channels_last", "packed", "program", "columns", "native", "native_columns"])
def test_every_way_gives_the_same_numbers(how: str):
    with torch.no_grad():
        expected, found = step(case(stride=2), "torch")(), step(case(stride=2), how)()
    torch.testing.assert_close(found[0] if isinstance(found, list | tuple) else found, expected)


@pytest.mark.parametrize("how", ["mkl", "packed"])
def test_a_packed_linear_layer_gives_the_same_numbers(how: str):
    linear = Linear(name="l", rows=3, inputs=5, outputs=7)
    with torch.no_grad():
        expected, found = step(linear, "torch")(), step(linear, how)()
    torch.testing.assert_close(found, expected)
