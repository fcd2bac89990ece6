"""Times of steps: as measured, else as steps with like costs were off their model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daceml.tuning.step_features import StepFacts, modelled_us
from daceml.tuning.step_times import StepTimes
from tests.tuning.speeds import MACHINE


def step(key: str, megabytes: float = 8, kind: str = "kernel") -> StepFacts:
    moved = round(megabytes * 1e6)
    return StepFacts(
        key=key, kind=kind, pieces=1024, unique_bytes=moved, total_bytes=moved, flops=0, special_functions=0
    )


def test_a_measured_step_takes_what_it_took_at_best():
    times = StepTimes(MACHINE)
    times.learn([step("a"), step("a")], [900.0, 1000.0])
    times.learn([step("a")], [1200.0])
    assert times.step(step("a")).us == 900
    assert len(times) == 1


def test_an_unknown_step_is_off_its_model_as_its_neighbours_are():
    times = StepTimes(MACHINE)
    near = [step(f"near {n}", 8 + n / 10) for n in range(8)]
    times.learn(near, [2 * modelled_us(MACHINE, one) for one in near])
    far = [step(f"far {n}", 800 + n) for n in range(8)]
    times.learn(far, [5 * modelled_us(MACHINE, one) for one in far])
    asked = step("new", 8.05)
    assert times.step(asked).us == pytest.approx(2 * modelled_us(MACHINE, asked), rel=0.05)
    large = step("other", 803.5)
    assert times.step(large).us == pytest.approx(5 * modelled_us(MACHINE, large), rel=0.05)


def test_steps_of_another_kind_are_no_neighbours():
    times = StepTimes(MACHINE)
    times.learn([step("a")], [3 * modelled_us(MACHINE, step("a"))])
    call = step("b", kind="aten")
    assert times.step(call) == StepTimes(MACHINE).step(call)


def loop(key: str, elements: int, place: int, exponentials: int = 0) -> StepFacts:
    """Over an array of float32 that was touched so far ago, one operation for each element."""
    reach = tuple(4 * elements if n == place else 0 for n in range(9))
    return StepFacts(
        key=key, kind="kernel", pieces=1024, unique_bytes=4 * elements, total_bytes=4 * elements,
        vector_operations=200 * elements, exponential_tenths=10 * exponentials * elements, reach=reach,
    )  # fmt: skip


def test_the_same_loop_over_more_elements_says_most_wherever_these_lie():
    times = StepTimes(MACHINE)
    others = [loop(f"other {n}", 10**6 + n, 8, exponentials=2) for n in range(30)]
    times.learn(others, [modelled_us(MACHINE, one) for one in others], own=False)
    own = loop("own", 10**6, 0)
    times.learn([own], [3 * modelled_us(MACHINE, own)])
    asked = loop("asked", 8 * 10**6, 7)
    assert times.step(asked).us == pytest.approx(3 * modelled_us(MACHINE, asked), rel=0.2)


def call(key: str, megaflops: float, function: str, *variety: str) -> StepFacts:
    flops = round(megaflops * 1e6)
    return StepFacts(
        key=key, kind="aten", function=function, variety=variety, unique_bytes=10**6, flops=flops
    )


def test_calls_are_told_apart_by_their_variety_before_anything_else():
    times = StepTimes(MACHINE)
    for *variety, slowness in (("pointwise", "last", "1x1", 2), ("windows", "first", "3x3", 6)):
        steps = [call(f"{variety} {n}", 100 + n, "convolution", *map(str, variety)) for n in range(8)]
        times.learn(steps, [int(slowness) * modelled_us(MACHINE, one) for one in steps], own=False)
    product = call("product", 100, "bmm_out")
    times.learn([product], [modelled_us(MACHINE, product)], own=False)
    for windows in ("1x1", "1x1 by 2"):
        asked = call("asked", 103.5, "convolution", "pointwise", "last", windows)
        assert times.step(asked).us == pytest.approx(2 * modelled_us(MACHINE, asked), rel=0.1)
    strange = call("strange", 103.5, "convolution", "grouped", "first", "3x3")
    assert 2 < times.step(strange).us / modelled_us(MACHINE, strange) < 6


def test_a_step_of_nothing_says_nothing():
    times = StepTimes(MACHINE)
    near = [loop(f"near {n}", 10**4 + n, 0) for n in range(3)]
    times.learn(near, [modelled_us(MACHINE, one) for one in near], own=False)
    empty = StepFacts(key="empty", kind="kernel", pieces=1, vector_operations=10)
    times.learn([empty], [100 * modelled_us(MACHINE, empty)])
    asked = loop("asked", 10**4 + 5, 0)
    assert times.step(asked).us < 3 * modelled_us(MACHINE, asked)


def test_who_has_no_like_is_less_sure_than_who_has():
    times = StepTimes(MACHINE)
    alone = times.step(step("new")).sigma
    near = [step(f"near {n}", 8 + n / 10) for n in range(8)]
    times.learn(near, [2 * modelled_us(MACHINE, one) for one in near])
    like, apart, known = (times.step(one).sigma for one in (step("new"), step("new", 64), near[0]))
    assert known < like <= apart <= alone and like < alone


def test_a_program_is_the_sum_of_its_steps_and_what_is_around_them():
    times = StepTimes(MACHINE)
    parts = [step("a"), step("b", 16)]
    times.learn(parts, [100.0, 300.0])
    found = times.program(parts, 50.0)
    assert found.us == 450 and found.measured_share == 1
    assert found.low_us < 450 < found.high_us
    unsure = times.program([*parts, step("new", 500)], 50.0)
    assert unsure.measured_share < 1
    assert unsure.high_us / unsure.us > found.high_us / found.us


def test_intervals_reach_further_up_than_down_and_never_below_nothing():
    found = StepTimes(MACHINE).program([step("new", 500)], 0.0)
    assert found.high_us - found.us > 1.5 * (found.us - found.low_us) > 0
    assert found.low_us > 0


def test_a_step_of_another_model_is_known_less_well_than_a_like_step_of_this_one():
    times = StepTimes(MACHINE)
    times.learn([step("elsewhere")], [100.0], own=False)
    times.learn([step("here"), step("product", kind="aten")], [100.0, 100.0])
    product, here, elsewhere = (
        times.step(one).sigma for one in (step("product", kind="aten"), step("here"), step("elsewhere"))
    )
    assert product < here < elsewhere
    times.learn([step("elsewhere")], [110.0])
    assert times.step(step("elsewhere")).sigma == here


def test_what_was_measured_in_another_hour_is_off_together():
    times, parts = StepTimes(MACHINE), [step(f"{n}") for n in range(100)]
    times.learn(parts, [100.0] * 100, own=False)
    elsewhere = times.program(parts, 0.0)
    times.learn(parts, [100.0] * 100)
    here = times.program(parts, 0.0)
    assert elsewhere.us == here.us and here.high_us < 1.1 * here.us < 1.2 * here.us < elsewhere.high_us


def test_programs_that_were_off_make_intervals_wider():
    times = StepTimes(MACHINE)
    times.learn([step("a")], [100.0])
    before = times.program([step("a")], 0.0)
    for _ in range(5):
        times.observe(100.0, 150.0)
    after = times.program([step("a")], 0.0)
    assert after.high_us > before.high_us and after.us == before.us


def test_what_took_no_time_teaches_nothing():
    times = StepTimes(MACHINE)
    times.learn([step("a"), replace(step("b"))], [0.0, -1.0])
    assert len(times) == 0


def test_what_the_models_own_steps_say_counts_more_than_others():
    times = StepTimes(MACHINE)
    others = [step(f"other {n}", 4 * 2**n) for n in range(8)]
    own = [step(f"own {n}", 4 * 2**n) for n in range(8)]
    scattered = [(4.0 if n % 2 else 1.0) * modelled_us(MACHINE, one) for n, one in enumerate(others)]
    times.learn(others, scattered, own=False)
    times.learn(own, [3 * modelled_us(MACHINE, one) for one in own])
    asked = step("new", 24)
    assert times.step(asked).us == pytest.approx(3 * modelled_us(MACHINE, asked), rel=0.1)


def test_a_models_own_steps_count_where_they_took_longer_than_before_too():
    others = [step(f"other {n}", 4 * 2**n) for n in range(8)]
    own = [step(f"own {n}", 4 * 2**n) for n in range(8)]
    times = StepTimes(MACHINE)
    times.learn(others, [modelled_us(MACHINE, one) for one in others], own=False)
    times.learn(own, [3 * modelled_us(MACHINE, one) for one in own], own=False)  # an earlier exploration
    times.learn(own, [3.2 * modelled_us(MACHINE, one) for one in own])
    asked = step("new", 24)
    assert times.step(asked).us == pytest.approx(3 * modelled_us(MACHINE, asked), rel=0.1)


def test_what_is_alike_but_larger_is_a_neighbour():
    times = StepTimes(MACHINE)
    sums = replace(step("sum"), vector_operations=10**7, dependent_operations=10**7)
    plain = [replace(step(f"plain {n}", 8 + n), vector_operations=10**7) for n in range(6)]
    times.learn([sums], [4 * modelled_us(MACHINE, sums)])
    times.learn(plain, [modelled_us(MACHINE, one) for one in plain])
    four = replace(
        step("more sums", 32), vector_operations=4 * 10**7, dependent_operations=4 * 10**7, pieces=1024
    )
    assert times.step(four).us > 2 * modelled_us(MACHINE, four)


def convolution(key: str, megabytes: float = 8, function: str = "convolution") -> StepFacts:
    return replace(step(key, megabytes, kind="aten"), function=function)


def test_a_call_that_ran_alone_takes_what_others_took_more_in_a_program():
    times = StepTimes(MACHINE)
    for n in range(6):
        own = convolution(f"own {n}", 8 + n)
        times.learn_trial(own, 1000.0 + n)
        times.learn([own], [1.5 * (1000.0 + n)])
        # what products lose says nothing of convolutions
        product = convolution(f"product {n}", 8 + n, function="mm_out")
        times.learn_trial(product, 500.0)
        times.learn([product], [2000.0])
    asked = convolution("another layout")
    assert times.untried(asked)
    unknown = times.step(asked)
    times.learn_trial(asked, 2000.0)
    found = times.step(asked)
    assert not times.untried(asked)
    assert found.us == pytest.approx(3000.0, rel=0.05)
    assert found.sigma < unknown.sigma
    assert times.step(convolution("own 0")).us == 1500.0, "what ran in a program takes what it took there"


def test_a_trial_is_less_certain_where_calls_differ_in_a_program():
    def sigma(factors: tuple[float, ...]) -> float:
        times = StepTimes(MACHINE)
        for n, factor in enumerate(factors):
            times.learn_trial(convolution(f"own {n}"), 1000.0)
            times.learn([convolution(f"own {n}")], [factor * 1000.0])
        times.learn_trial(convolution("another layout"), 1000.0)
        return times.step(convolution("another layout")).sigma

    assert sigma((1.5, 1.5, 1.5)) < sigma((1.5, 1.5, 1.5, 0.8, 2.5)) and sigma((1.5, 1.5, 1.5)) < sigma(())


def test_a_trial_whose_runs_differ_is_uncertain():
    steady, unsteady = StepTimes(MACHINE), StepTimes(MACHINE)
    steady.learn_trial(convolution("a"), 1000.0)
    unsteady.learn_trial(convolution("a"), 1000.0, sigma=1.0)
    assert unsteady.step(convolution("a")).us == steady.step(convolution("a")).us
    assert unsteady.step(convolution("a")).sigma > 1.0 > steady.step(convolution("a")).sigma


def test_steps_that_both_programs_have_cancel():
    times = StepTimes(MACHINE)
    shared = [step(f"shared {n}", 500) for n in range(20)]  # none of them was measured
    times.learn([step("a"), step("b"), step("c")], [100.0, 80.0, 1000.0])
    found = times.ratio([*shared, step("a")], [*shared, step("b")], around_us=0.0, over_around_us=0.0)
    program = times.program([*shared, step("a")], 0.0)
    assert found.value == pytest.approx(program.us / (program.us - 20))
    assert found.high - found.low < 0.001 < 0.5 < (program.high_us - program.low_us) / program.us
    assert found.low < found.value < found.high
    more = times.ratio([step("c"), step("a")], [step("c")], around_us=5.0, over_around_us=5.0)
    assert more.value == pytest.approx(1105 / 1005) and 1 < more.low < more.high < 1.2
    less = times.ratio([step("c")], [step("c"), step("a")], around_us=5.0, over_around_us=5.0)
    assert less.value == pytest.approx(1005 / 1105) and 0.8 < less.low < less.high < 1


def test_a_step_that_one_program_has_more_often_counts_once():
    times = StepTimes(MACHINE)
    times.learn([step("a"), step("c")], [100.0, 1000.0])
    twice = times.ratio(
        [step("c"), step("a"), step("a")], [step("c"), step("a")], around_us=0, over_around_us=0
    )
    assert twice.value == pytest.approx(1200 / 1100) and twice.high - twice.low < 0.06


def test_few_neighbors_that_agree_are_less_certain_than_many():
    def sigma(count: int) -> float:
        times = StepTimes(MACHINE)
        near = [step(f"near {n}", 8 + n / 10) for n in range(count)]
        times.learn(near, [2 * modelled_us(MACHINE, one) for one in near])
        return times.step(step("new", 8.05)).sigma

    assert sigma(1) > 1.5 * sigma(20)


def test_what_disturbed_a_measurement_widens_intervals_only():
    times = StepTimes(MACHINE)
    times.learn([step("a")], [1000.0])
    quiet = times.program([step("a")], 0.0)
    times.distrust(0.5)
    busy = times.program([step("a")], 0.0)
    assert busy.us == quiet.us and busy.low_us < 0.7 * quiet.low_us and busy.high_us > 1.5 * quiet.high_us
