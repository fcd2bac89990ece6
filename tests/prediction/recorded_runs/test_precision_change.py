"""Other precisions on other devices, by their own peaks."""

from __future__ import annotations

import pytest

from daceml.devices.catalogue import find_device
from daceml.errors import DeviceError, PredictionError, WhatIfError
from daceml.prediction.recorded_runs.cross_device import HOST_STAYS, RecordedRun
from daceml.prediction.recorded_runs.precision_change import in_precision
from tests.support.golden import golden, raises
from tests.support.recorded_operators import ADD, Run, square

A100, H100 = find_device("A100-SXM4-80GB"), find_device("H100")


def recorded(kernel: str) -> RecordedRun:
    run = Run()
    for _ in range(10):
        run.operator("aten::mm", (kernel, 400.0), dims=square(4096)).operator(
            "aten::add", (ADD, 100.0), dims=square(4096)
        )
    return RecordedRun.of(run.wait().trace())


def test_products_gain_by_the_peaks_of_the_destination_and_others_by_their_bytes():
    run = recorded("sgemm_128x64")
    plain, half = run.on(A100), run.on(A100, optimizations=[in_precision("bf16", A100)])
    before, after = ({one.kind: one for one in seen.classes} for seen in (plain, half))
    # 312 of bfloat16 over 19.5 of float32, of which three quarters
    gained = before["GEMM"].duration_us / after["GEMM"].duration_us
    assert gained == pytest.approx(0.75 * 312 / 19.5, rel=0.02)
    assert before["elementwise"].duration_us / after["elementwise"].duration_us == pytest.approx(2, rel=0.05)
    assert half.step_us < plain.step_us
    assert half.assumptions == (HOST_STAYS, golden(), golden())
    assert "float32" in half.assumptions[-1]


def test_eight_bits_are_faster_than_sixteen():
    run = recorded("sm90_xmma_gemm_bf16bf16")
    plain, eight = run.on(H100), run.on(H100, optimizations=[in_precision("fp8", H100)])
    assert 0.5 < eight.step_us / plain.step_us < 0.9


def test_a_run_in_half_precision_already_is_refused():
    with raises(WhatIfError, in_precision("bf16", A100).title, "100%"):
        recorded("sm90_xmma_gemm_bf16bf16").on(A100, optimizations=[in_precision("bf16", A100)])


def test_a_device_without_the_arithmetic():
    known = "float32, tf32, float16, bfloat16"
    with raises(DeviceError, "A100-SXM4-80GB", "float8", known, "docs/devices.md"):
        in_precision("fp8", A100)


def test_a_precision_that_nobody_knows():
    with raises(PredictionError, "'int4'", "bf16, fp16, fp8"):
        in_precision("int4", H100)
