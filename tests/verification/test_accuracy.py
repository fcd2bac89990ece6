"""The accuracy metric, on tensors whose distances are known beforehand."""

from __future__ import annotations

import math

import pytest
import torch

from daceml.verification.accuracy import EPS_PER_SQRT_DEPTH, Accuracy, TensorError, compare, tensor_error
from tests.support.golden import golden, raises

EPS = torch.finfo(torch.float32).eps
TRUTH = torch.tensor([3.0, 4.0], dtype=torch.float64)  # of norm 5


def off_by(relative: float) -> torch.Tensor:
    """float32 values whose distance from TRUTH, over its norm, is about `relative`."""
    return torch.tensor([3.0 + 5.0 * relative, 4.0], dtype=torch.float32)


def measure(
    result: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor = TRUTH, depth: int = 1
) -> TensorError:
    return tensor_error("y", result, eager, reference, depth=depth)


def test_error_is_the_relative_distance_from_float64():
    seen = measure(off_by(1e-3), off_by(5e-4))
    assert seen.error == pytest.approx(1e-3, rel=1e-3)  # float32 rounds 3.005 by 2.4e-7
    assert seen.eager_error == pytest.approx(5e-4, rel=1e-3)
    assert seen.over_eager == pytest.approx(2.0, rel=1e-3)


def test_three_times_eagers_error_passes_and_more_does_not():
    assert measure(off_by(2.9e-3), off_by(1e-3)).passed
    assert not measure(off_by(3.1e-3), off_by(1e-3)).passed


def test_a_few_roundings_pass_even_where_eager_is_exact():
    floor = EPS_PER_SQRT_DEPTH * EPS
    assert measure(off_by(0.9 * floor), off_by(0.0)).passed
    assert not measure(off_by(1.1 * floor), off_by(0.0)).passed


def test_the_floor_grows_with_the_root_of_the_depth():
    error = 3.0 * EPS_PER_SQRT_DEPTH * EPS
    assert not measure(off_by(error), off_by(0.0), depth=4).passed
    assert measure(off_by(error), off_by(0.0), depth=16).passed


def test_the_floor_follows_the_element_type():
    truth = TRUTH
    result = torch.tensor([3.0, 4.004], dtype=torch.float16)
    assert tensor_error("y", result, truth.half(), truth, depth=1).passed


def test_where_the_truth_is_zero_only_zero_or_eagers_own_residue_pass():
    zero, residue = torch.zeros(2), torch.full((2,), 1e-9)
    truth = torch.zeros(2, dtype=torch.float64)
    assert measure(zero, zero, truth).passed
    assert not measure(residue, zero, truth).passed
    assert measure(2 * residue, residue, truth).passed
    assert not measure(4 * residue, residue, truth).passed


def test_zero_over_zero_is_as_good_as_eager_and_anything_over_zero_is_infinitely_worse():
    assert measure(off_by(0.0), off_by(0.0)).over_eager == 1.0
    assert measure(off_by(1e-6), off_by(0.0)).over_eager == math.inf


def test_empty_tensors_pass():
    empty = torch.zeros(0, 3)
    seen = measure(empty, empty, empty.double())
    assert seen.passed
    assert seen.over_eager == 1.0


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_special_values_have_to_be_where_eager_has_them(special: float):
    truth = torch.tensor([1.0, special, 2.0], dtype=torch.float64)
    eager = truth.float()
    assert measure(eager.clone(), eager, truth).passed
    finite = torch.tensor([1.0, 0.0, 2.0])
    seen = measure(finite, eager, truth)
    assert not seen.passed
    assert seen.error == math.inf
    assert seen.reason == golden() and "1" in seen.reason


def test_infinities_of_the_other_sign_and_new_nans_fail():
    eager = torch.tensor([math.inf, 1.0])
    for wrong in ([-math.inf, 1.0], [math.nan, 1.0], [math.inf, math.nan]):
        assert not measure(torch.tensor(wrong), eager, eager.double()).passed


def test_what_overflows_in_float32_is_compared_where_it_does_not():
    truth = torch.tensor([1e300, 4.0], dtype=torch.float64)
    eager = torch.tensor([math.inf, 4.0])
    assert measure(eager.clone(), eager, truth).passed
    assert not measure(torch.tensor([math.inf, 4.1]), eager, truth).passed


def test_shapes_and_element_types_have_to_agree():
    shape = measure(torch.zeros(2, 1), torch.zeros(2)).reason
    assert shape == golden() and "(2, 1)" in shape and "(2,)" in shape
    element = measure(torch.zeros(2, dtype=torch.float64), torch.zeros(2)).reason
    assert element == golden() and "torch.float64" in element and "torch.float32" in element


def test_integers_and_booleans_have_to_be_equal():
    indices = torch.tensor([1, 2, 3])
    assert measure(indices.clone(), indices, indices).passed
    seen = measure(torch.tensor([1, 2, 4]), indices, indices)
    assert not seen.passed
    assert seen.reason == golden() and all(fact in seen.reason for fact in ("1", "3", "torch.int64"))
    assert measure(indices > 1, indices > 1, indices > 1).passed


def test_the_median_over_tensors_has_a_limit_of_its_own():
    eager = {name: off_by(1e-3) for name in "abc"}
    truth = dict.fromkeys("abc", TRUTH)
    one_worse = compare({**eager, "a": off_by(2e-3)}, eager, truth, depth=1)
    assert one_worse.passed
    assert one_worse.median_over_eager == 1.0
    two_worse = compare({**eager, "a": off_by(2e-3), "b": off_by(2e-3)}, eager, truth, depth=1)
    assert not two_worse.failures
    assert two_worse.median_over_eager == pytest.approx(2.0, rel=1e-3)
    assert not two_worse.passed


def test_runs_are_joined_before_the_median():
    good = compare({"a": off_by(1e-3)}, {"a": off_by(1e-3)}, {"a": TRUTH}, depth=1)
    worse = compare({"a": off_by(2e-3)}, {"a": off_by(1e-3)}, {"a": TRUTH}, depth=1)
    assert not worse.passed
    assert Accuracy.joined([good, worse, good]).passed


def test_different_names_are_a_mistake_of_the_caller():
    with raises(ValueError, "['a']", "['b']"):
        compare({"a": TRUTH}, {"b": TRUTH}, {"a": TRUTH}, depth=1)
