"""Kernels on another device: which way is taken for each, and what it says."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.devices.catalogue import catalogue, find_device
from daceml.devices.roofline import Work, expected
from daceml.devices.specification import Device
from daceml.devices.wave_scaling import KernelRun, scale_kernel
from daceml.operations.database.records import Operation
from daceml.operations.estimate import Estimate
from daceml.prediction.recorded_runs.retimed_tasks import RetimedTask, Retiming
from daceml.prediction.recorded_runs.retiming import retime
from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace
from daceml.simulation import build
from tests.support.golden import golden
from tests.support.recorded_operators import ADD, GEMM, Run, square

H100, A100, L4, MI300X = (find_device(name) for name in ("H100", "A100-SXM4-80GB", "L4", "MI300X"))


def retimed(trace: Trace, origin: Device, destination: Device, **more: object) -> Retiming:
    return retime(build(trace), trace, origin=origin, destination=destination, **more)  # pyright: ignore


def only(retiming: Retiming) -> RetimedTask:
    (task,) = retiming.tasks
    return task


durations = st.lists(st.floats(0.5, 1e5), min_size=1, max_size=6)


@given(durations, st.sampled_from([one.name for one in catalogue() if one.kind == "gpu"]))
def test_on_the_same_device_every_duration_is_the_recorded_one(lasts: list[float], name: str):
    run = Run()
    for one in lasts:
        run.operator("aten::mm", (GEMM, one), dims=square(64)).operator(
            "aten::add", (ADD, one), dims=square(64)
        )
    device = find_device(name)
    retiming = retimed(run.wait().trace(), device, device)
    recorded = retiming.graph.tasks.duration_us
    for side in ("likely", "fast", "slow"):
        assert (retiming.durations_us(side) == recorded).all()
    assert {one.method for one in retiming.tasks} == {"same device"}


def test_pytorch_s_own_kernels_are_wave_scaled_between_devices_of_nvidia():
    trace = Run().operator("aten::add", (ADD, 100.0), dims=square(4096)).wait().trace()
    task = only(retimed(trace, H100, A100))
    elements = 4096 * 4096
    kernel = KernelRun(
        duration_us=100.0,
        blocks=1024,
        threads=256,
        registers=32,
        flops=elements,
        bytes_moved=3 * 4 * elements,
    )
    assert task.method == "wave scaling"
    assert task.duration_us == scale_kernel(kernel, H100, A100).duration_us > 100.0
    assert task.low_us < task.duration_us < task.high_us
    assert task.reason == golden() and not task.outside


def test_products_go_by_the_ratio_of_rooflines():
    trace = Run().operator("aten::mm", (GEMM, 400.0), dims=square(4096)).wait().trace()
    task = only(retimed(trace, H100, L4))
    work = Work(flops=2 * 4096**3, bytes_moved=3 * 4 * 4096**2)
    ratio = expected(work, L4).duration_us / expected(work, H100).duration_us
    assert task.method == "roofline" and task.duration_us == pytest.approx(400.0 * ratio, rel=1e-12)
    assert task.reason == golden() and "GEMM" in task.reason


def test_each_kernel_of_a_call_has_a_floor_of_its_own():
    kernels = ((GEMM, 3.0), ("splitKreduce_kernel", 3.0))
    trace = Run().operator("aten::mm", *kernels, dims=square(4096)).wait().trace()
    work = Work(flops=2 * 4096**3, bytes_moved=3 * 4 * 4096**2)
    here, there = expected(work, H100), expected(work, L4)
    seconds = [2 * one.floor_us + max(one.compute_us, one.memory_us) for one in (here, there)]
    assert [one.duration_us for one in retimed(trace, H100, L4).tasks] == pytest.approx(
        [3 * seconds[1] / seconds[0]] * 2
    )


def test_another_vendor_s_device_runs_other_kernels_and_limits_are_wider():
    trace = Run().operator("aten::add", (ADD, 100.0), dims=square(4096)).wait().trace()
    near, far = only(retimed(trace, H100, A100)), only(retimed(trace, H100, MI300X))
    assert far.method == "roofline" and far.reason == golden()
    assert far.high_us / far.duration_us > near.high_us / near.duration_us


def test_without_shapes_the_rates_of_both_devices_count():
    trace = (
        Run().operator("aten::mm", (GEMM, 400.0)).operator("mine::scan", ("my_kernel", 30.0)).wait().trace()
    )
    product, other = retimed(trace, H100, MI300X).tasks
    assert product.method == other.method == "rates"
    assert (product.reason, other.reason) == (golden(), golden())
    assert "float32" in product.reason and "float32" not in other.reason


@pytest.mark.parametrize(
    ("kernel", "arithmetic"),
    [("sm80_xmma_gemm_bf16bf16", "bfloat16"), ("cutlass_tf32_gemm", "tf32"), ("sgemm_32x32", "float32")],
)
def test_the_name_of_a_product_says_in_what_it_computes(kernel: str, arithmetic: str):
    trace = Run().operator("mine::product", (kernel, 400.0)).wait().trace()
    reason = only(retimed(trace, H100, A100)).reason
    assert reason == golden() and arithmetic in reason


def test_what_the_destination_cannot_compute_stays_as_recorded_and_is_flagged():
    run = Run().operator(
        "aten::mm", ("sm80_xmma_gemm_bf16", 40.0), dims=square(512), types=["c10::BFloat16"] * 2
    )
    task = only(retimed(run.wait().trace(), H100, find_device("V100-SXM2-16GB")))
    assert (task.method, task.duration_us) == ("none", 40.0)
    assert task.outside == golden()
    assert "peak_flops_per_s.bfloat16" in task.outside and "V100-SXM2-16GB" in task.outside


def test_copies_from_the_host_go_by_pci_express_and_collectives_by_links():
    run = Run().operator("aten::copy_", ("Memcpy HtoD (Pageable -> Device)", 103.0))
    run.operator("c10d::allreduce_", ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 203.0))
    copy, collective = retimed(run.wait().trace(), H100, A100).tasks
    # 3 us are the floor; PCIe 5 is twice as fast as PCIe 4, 900 GB/s of links are 1.5 times 600
    assert (copy.method, copy.kind, copy.duration_us) == ("link", "copy", pytest.approx(3 + 200.0))
    assert (collective.method, collective.kind) == ("link", "collective")
    assert collective.duration_us == pytest.approx(3 + 200 * 1.5)


@dataclass(frozen=True, kw_only=True)
class Knows:
    """A source that knows every product."""

    estimate_: Estimate

    def estimate(self, operation: Operation, device: Device) -> Estimate | None:
        return self.estimate_ if operation.operator == "aten::mm" else None


def test_a_source_that_knows_the_operation_is_surer_than_a_ratio():
    run = Run().operator("aten::mm", (GEMM, 30.0), ("splitKreduce_kernel", 10.0), dims=square(512))
    trace = run.operator("aten::add", (ADD, 5.0), dims=square(512)).wait().trace()
    known = Estimate(duration_us=80.0, low_us=60.0, high_us=120.0, basis="learned", outside="too large")
    gemm, rest, add = retimed(trace, H100, L4, source=Knows(estimate_=known)).tasks
    # the kernels of a call share its time as they did
    assert (gemm.duration_us, gemm.low_us, gemm.high_us) == (60.0, 45.0, 90.0) and rest.duration_us == 20.0
    assert (gemm.method, gemm.outside) == ("learned", "too large") and add.method == "wave scaling"
    measured = Knows(estimate_=replace(known, basis="measured", outside=""))
    assert retimed(trace, H100, L4, source=measured).tasks[0].method == "measured"


def test_a_roofline_of_the_destination_alone_says_less_than_a_ratio():
    trace = Run().operator("aten::mm", (GEMM, 400.0), dims=square(4096)).wait().trace()
    source = Knows(estimate_=Estimate(duration_us=1.0, low_us=0.5, high_us=2.0, basis="roofline"))
    task = only(retimed(trace, H100, L4, source=source))
    assert task.method == "roofline" and task.duration_us > 400.0


def test_classes_add_up_tasks_of_a_step():
    run = (
        Run()
        .operator("aten::mm", (GEMM, 30.0), dims=square(512))
        .operator("aten::mm", (GEMM, 10.0), dims=square(256))
    )
    classes = retimed(
        run.operator("aten::add", (ADD, 5.0), dims=square(512)).wait().trace(), H100, A100
    ).by_class()
    assert [(one.kind, one.count, one.recorded_us) for one in classes] == [
        ("GEMM", 2, 40.0),
        ("elementwise", 1, 5.0),
    ]
    assert all(one.low_us < one.duration_us < one.high_us for one in classes)


def compiled(*steps: dict[str, object]) -> Trace:
    """Kernels of two compiled steps, one launch each, with what the recorder knows of their program."""
    run = Run()
    for step in steps:
        run.operator("daceml::call", (f"void daceml::kernel::{step['function']}(float*)", 50.0))
    header = {"daceml": {"programs": [{"number": 1, "steps": list(steps)}]}}
    return trace_of(json.dumps(run.wait().document(**header)).encode(), "a run")


def test_compiled_kernels_are_scaled_by_what_the_compiler_counted():
    steps = [
        {"function": "map_moves", "flops": 10**6, "bytes": 10**8},
        {"function": "map_computes", "flops": 10**12, "bytes": 10**6},
    ]
    moves, computes = retimed(compiled(*steps), H100, A100).tasks
    assert moves.kind == computes.kind == "compiled" and moves.method == computes.method == "wave scaling"
    assert (moves.reason, computes.reason) == (golden(), golden())
    assert "100%" in moves.reason and " 0%" in computes.reason
    far = retimed(compiled(*steps), H100, MI300X).tasks
    work = Work(flops=1e6, bytes_moved=100e6)
    ratio = expected(work, MI300X).duration_us / expected(work, H100).duration_us
    assert far[0].method == "roofline" and far[0].duration_us == pytest.approx(50.0 * ratio)


@pytest.mark.parametrize(
    "steps",
    [
        [{"function": "map_a"}],
        [{"function": "map_a", "flops": "many", "bytes": 8.0}],
        [
            {"function": "map_a", "flops": 1.0, "bytes": 8.0},
            {"function": "map_a", "flops": 2.0, "bytes": 8.0},
        ],
    ],
    ids=["nothing counted", "no number", "two programs disagree"],
)
def test_of_other_compiled_kernels_it_is_not_known_what_they_do(steps: list[dict[str, object]]):
    assert {one.method for one in retimed(compiled(*steps), H100, MI300X).tasks} == {"rates"}
