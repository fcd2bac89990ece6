"""The theorems say what simulation finds: fused is sooner over, or it is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daceml.simulation.distributed.strategy.evaluation import Evaluator
from daceml.simulation.distributed.strategy.plan import Plan, nothing_fuses, separate
from daceml.simulation.distributed.strategy.theorems import fuse_both, fuse_computations, fuse_tensors
from tests.simulation.distributed.strategy.steps import MB, all_fuse, chain, sums

times = st.integers(1, 200).map(float)
sizes = st.integers(1, 100).map(lambda size: size * MB)


def ends(evaluator: Evaluator, plan: Plan) -> float:
    """T: when both computations and both sums are over."""
    found = evaluator(plan)
    return max(float(found.computed_us[-1]), float(found.sent_us[-1]))


@given(times, times, sizes, st.integers(0, 100).map(float), st.integers(0, 50).map(float))
def test_fused_computations_of_which_only_the_first_ends_a_tensor(
    first_us: float, second_us: float, size: float, saved: float, latency_us: float
):
    """Theorem 1, where the path is the computations' and the first tensor alone could hide behind them."""
    saved_us = min(saved, first_us + second_us)
    step, network = chain((first_us, size), (second_us, 0.0)), sums(latency_us)
    evaluator = Evaluator(step=step, synchronization=network, fused_us=all_fuse(saved_us))
    apart, fused = Plan((1, 2), (2,), (1,)), Plan((2,), (2,), (1,))
    sync_us = network.sync_us(size)
    says = fuse_computations(
        previous_us=first_us,
        this_us=second_us,
        fused_us=first_us + second_us - saved_us,
        previous_sync_us=sync_us,
    )
    if says:
        assert ends(evaluator, fused) <= ends(evaluator, apart)
    elif sync_us <= second_us:  # the sum was hidden, and now it is not
        assert ends(evaluator, fused) >= ends(evaluator, apart)


@given(times, times, sizes, sizes, st.integers(0, 50).map(float))
def test_fused_tensors(first_us: float, second_us: float, one: float, two: float, latency_us: float):
    """Theorem 2 is exact."""
    step, network = chain((first_us, one), (second_us, two)), sums(latency_us)
    evaluator = Evaluator(step=step, synchronization=network, fused_us=nothing_fuses)
    apart, fused = separate(step), Plan((1, 2), (2,), (1,))
    says = fuse_tensors(
        previous_sync_end_us=float(evaluator(apart).sent_us[0]),
        this_end_us=first_us + second_us,
        fused_sync_us=network.sync_us(one + two),
        this_sync_us=network.sync_us(two),
    )
    assert says == (ends(evaluator, fused) < ends(evaluator, apart))


@given(times, times, sizes, sizes, st.integers(0, 50).map(float), st.integers(0, 100).map(float))
def test_what_is_fused_on_one_side_is_fused_on_the_other(
    first_us: float, second_us: float, one: float, two: float, latency_us: float, saved: float
):
    """Theorem 3: both is no worse than either."""
    saved_us = min(saved, first_us + second_us)
    step, network = chain((first_us, one), (second_us, two)), sums(latency_us)
    evaluator = Evaluator(step=step, synchronization=network, fused_us=all_fuse(saved_us))
    both = ends(evaluator, Plan((2,), (2,), (1,)))
    assert both <= ends(evaluator, Plan((1, 2), (2,), (1,)))
    assert both <= ends(evaluator, Plan((2,), (1, 2), (1, 1))) + 1e-9
    assert fuse_both(computations=True, tensors=False)
    assert fuse_both(computations=False, tensors=True)
    assert not fuse_both(computations=False, tensors=False)
