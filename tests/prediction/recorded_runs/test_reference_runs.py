"""Other models recorded on both devices: what they teach of kernels, and where they say nothing."""

from __future__ import annotations

import pytest

from daceml.devices.catalogue import find_device
from daceml.devices.roofline import Work, expected
from daceml.errors import PredictionError
from daceml.prediction.recorded_runs.cross_device import RecordedRun
from daceml.prediction.recorded_runs.reference_runs import LEAST_CALLS, ReferenceRuns, reference_runs
from daceml.prediction.recorded_runs.retimed_tasks import RetimedTask
from daceml.profiling.trace import Trace
from tests.support.golden import golden, raises
from tests.support.recorded_operators import ADD, GEMM, Run, square

H100, MI300X = find_device("H100"), find_device("MI300X")
HERE_US = 50.0


def ratio(size: int) -> float:
    """Of an addition's rooflines, MI300X over H100."""
    work = Work(flops=size * size, bytes_moved=3 * 4 * size * size)
    return expected(work, MI300X).duration_us / expected(work, H100).duration_us


def pair(factors: dict[int, float], *, calls: int = LEAST_CALLS) -> tuple[Trace, Trace]:
    """Additions of squares: on MI300X each takes `factor` times what the ratio of rooflines says."""
    here, there = Run(), Run("AMD Instinct MI300X")
    for size, factor in factors.items():
        for _ in range(calls):
            here.operator("aten::add", (ADD, HERE_US), dims=square(size))
            there.operator("aten::add", (ADD, HERE_US * ratio(size) * factor), dims=square(size))
    return here.wait().trace(), there.wait().trace()


def added(references: ReferenceRuns, size: int, *, kernel: str = ADD) -> RetimedTask:
    """An addition of another run, on MI300X."""
    trace = Run().operator("aten::add", (kernel, 20.0), dims=square(size)).wait().trace()
    (task,) = RecordedRun.of(trace).on(MI300X, references=references).tasks
    return task


def test_a_kind_of_kernel_is_corrected_by_what_others_of_its_kind_took():
    task = added(reference_runs([pair({1024: 1.5})]), 1024)
    assert task.method == "references" and task.duration_us == pytest.approx(20.0 * ratio(1024) * 1.5)
    assert task.high_us == pytest.approx(1.25 * task.duration_us) and not task.outside
    assert task.reason == golden() and "1.50" in task.reason and str(LEAST_CALLS) in task.reason


def test_between_sizes_factors_follow_the_logarithm_of_the_bytes():
    references = reference_runs([pair({512: 4.0, 8192: 1.0})])
    # 2048 is half-way: 4 and 1 meet at 2
    assert added(references, 2048).duration_us == pytest.approx(20.0 * ratio(2048) * 2.0)


def test_both_directions_are_known():
    references = reference_runs([pair({1024: 2.0})])
    back = Run("AMD Instinct MI300X").operator("aten::add", (ADD, 20.0), dims=square(1024)).wait().trace()
    (task,) = RecordedRun.of(back).on(H100, references=references).tasks
    assert task.duration_us == pytest.approx(20.0 / ratio(1024) / 2.0)


def test_beyond_what_was_seen_the_nearest_counts_with_wide_limits_and_a_flag():
    near, far = (added(reference_runs([pair({1024: 1.5})]), size) for size in (1024, 32))
    assert far.duration_us == pytest.approx(20.0 * ratio(32) * 1.5)
    assert far.outside == golden() and "elementwise" in far.outside
    assert far.high_us / far.duration_us > near.high_us / near.duration_us


@pytest.mark.parametrize(
    "told",
    [pair({1024: 9.0}, calls=LEAST_CALLS - 1), pair({1024: 9.0, 64: 9.0, 16: 9.0}, calls=2)],
    ids=["too few", "too few of a size"],
)
def test_few_calls_teach_nothing(told: tuple[Trace, Trace]):
    references = reference_runs([told])
    task = added(references, 1024)
    assert task.method == "roofline" and task.duration_us == pytest.approx(20.0 * ratio(1024))
    assert task.reason == golden() and "elementwise" in task.reason


def test_other_kinds_and_other_devices_are_not_corrected():
    references = reference_runs([pair({1024: 9.0})])
    assert added(references, 1024, kernel="softmax_warp_forward").method == "roofline"
    trace = Run().operator("aten::mm", (GEMM, 90.0), dims=square(1024)).wait().trace()
    (task,) = RecordedRun.of(trace).on(find_device("L4"), references=references).tasks
    assert task.method == "roofline" and task.reason == golden()
    assert "H100-SXM5-80GB" in task.reason and "L4" in task.reason


def test_on_the_same_device_nothing_is_corrected():
    trace = Run().operator("aten::add", (ADD, 20.0), dims=square(1024)).wait().trace()
    (task,) = RecordedRun.of(trace).on(H100, references=reference_runs([pair({1024: 9.0})])).tasks
    assert (task.method, task.duration_us) == ("same device", 20.0)


def test_what_scatters_has_wider_limits():
    here, there = Run(), Run("AMD Instinct MI300X")
    for size, factor in ((1024, 1.0), (1025, 4.0), (1026, 1.0), (1027, 4.0)):
        for _ in range(LEAST_CALLS):
            here.operator("aten::add", (ADD, HERE_US), dims=square(size))
            there.operator("aten::add", (ADD, HERE_US * ratio(size) * factor), dims=square(size))
    task = added(reference_runs([(here.wait().trace(), there.wait().trace())]), 1024)
    assert task.low_us <= 20.0 * ratio(1024) and task.high_us >= 4 * 20.0 * ratio(1024) * 0.99


def test_a_pair_of_one_device():
    with raises(PredictionError, "H100-SXM5-80GB", "--reference here.json.gz,there.json.gz"):
        reference_runs([(pair({64: 1.0})[0], pair({64: 1.0})[0])])


def test_a_pair_of_two_models():
    with raises(PredictionError, "a run, a run", "record_shapes=True"):
        reference_runs([(pair({64: 1.0})[0], pair({128: 1.0})[1])])
