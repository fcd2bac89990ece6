"""Durations from a database, a model, another device, a roofline: the surest that knows an operation."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from daceml.devices.catalogue import find_device
from daceml.devices.roofline import Work, expected, lower_bound
from daceml.devices.specification import Device
from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation
from daceml.operations.database.store import OpDatabase
from daceml.operations.duration_chain import SCALED, SLOWER, DurationLadder, roofline_estimate
from daceml.operations.estimate import Estimate
from daceml.operations.work.operator_aliases import spellings
from daceml.operations.work.operator_class import operator_class
from tests.support.golden import golden

H100, A100, V100 = (find_device(name) for name in ("H100", "A100", "V100"))


def mm(m: int = 1024, k: int = 2048, n: int = 4096) -> Operation:
    return Operation(
        operator="aten::mm",
        operands=(Operand(shape=(m, k), dtype="bfloat16"), Operand(shape=(k, n), dtype="bfloat16")),
    )


def row(operation: Operation, device: str, us: float, **told: float | str) -> Entry:
    duration = Duration(median_s=us * 1e-6, **{k: v for k, v in told.items() if k != "date"})  # pyright: ignore
    return Entry(
        operation=operation,
        environment=Environment(device=device),
        duration=duration,
        provenance="measured",
        source="a test",
        licence="CC0-1.0",
        date=str(told.get("date", "2026-05-20")),
    )


@pytest.fixture
def database(tmp_path: Path) -> Generator[OpDatabase]:
    with OpDatabase(tmp_path / "rows.db") as opened:
        yield opened


def estimate(ladder: DurationLadder, operation: Operation, device: Device) -> Estimate:
    found = ladder.estimate(operation, device)
    assert found is not None
    return found


def test_a_measurement_on_the_device_comes_first(database: OpDatabase):
    database.add_all([row(mm(), "H100-SXM5-80GB", 40.0), row(mm(), "A100", 90.0)])
    found = estimate(DurationLadder(database), mm(), H100)
    assert (found.basis, found.duration_us) == ("measured", 40.0)
    assert (found.low_us, found.high_us) == (pytest.approx(38.0), pytest.approx(42.0))
    assert found.notes == (golden(),)
    assert "a test" in found.notes[0]


def test_an_alias_of_the_device_is_the_device(database: OpDatabase):
    database.add(row(mm(), "NVIDIA H100 80GB HBM3", 40.0))
    assert estimate(DurationLadder(database), mm(), H100).basis == "measured"


def test_deciles_are_widened_to_nine_in_ten(database: OpDatabase):
    database.add(row(mm(), "H100", 100.0, p10_s=80e-6, p90_s=150e-6))
    found = estimate(DurationLadder(database), mm(), H100)
    assert found.low_us == pytest.approx(100 - 20 * 1.6449 / 1.2816)
    assert found.high_us == pytest.approx(100 + 50 * 1.6449 / 1.2816)


def test_a_captured_graph_tells_more_of_a_device_than_calls(database: OpDatabase):
    database.add_all([row(mm(), "H100", 60.0, mode="eager"), row(mm(), "H100", 40.0, mode="graph")])
    assert estimate(DurationLadder(database), mm(), H100).duration_us == 40.0


def test_a_model_comes_before_other_devices(database: OpDatabase):
    class Knows:
        def estimate(self, operation: Operation, device: Device) -> Estimate | None:
            if operation.operator != "aten::mm":
                return None
            return Estimate(duration_us=50, low_us=40, high_us=60, basis="learned", outside="too large")

    database.add(row(mm(), "A100", 90.0))
    ladder = DurationLadder(database, learned=[Knows()])
    found = estimate(ladder, mm(), H100)
    assert (found.basis, found.duration_us, found.outside) == ("learned", 50, "too large")
    bmm = Operation(operator="aten::relu", operands=(Operand(shape=(1000,), dtype="float32"),))
    assert estimate(ladder, bmm, H100).basis == "roofline"


def test_another_device_is_scaled_by_the_ratio_of_rooflines(database: OpDatabase):
    database.add(row(mm(), "A100", 90.0))
    work = Work(flops=2 * 1024 * 2048 * 4096, bytes_moved=2 * (1024 * 2048 + 2048 * 4096 + 1024 * 4096))
    work = replace(work, arithmetic="bfloat16")
    ratio = expected(work, H100).duration_us / expected(work, A100).duration_us
    found = estimate(DurationLadder(database), mm(), H100)
    assert found.basis == "scaled"
    assert found.duration_us == pytest.approx(90.0 * ratio)
    assert found.high_us == pytest.approx(90.0 * ratio * SCALED)
    assert found.low_us >= lower_bound(work, H100).duration_us
    assert found.notes == (golden(),)
    assert "A100-SXM4-80GB" in found.notes[0]
    assert estimate(DurationLadder(database, scale=False), mm(), H100).basis == "roofline"


def test_a_device_that_nobody_knows_says_nothing_of_another(database: OpDatabase):
    database.add(row(mm(), "/etc/passwd.toml", 90.0))
    assert estimate(DurationLadder(database), mm(), H100).basis == "roofline"


def test_predicted_rows_are_no_measurements(database: OpDatabase):
    database.add(replace(row(mm(), "H100", 40.0), provenance="predicted"))
    assert estimate(DurationLadder(database), mm(), H100).basis == "roofline"


def test_a_roofline_is_between_the_peaks_and_a_multiple():
    found = estimate(DurationLadder(), mm(), H100)
    flops = 2 * 1024 * 2048 * 4096
    assert found.basis == "roofline"
    assert found.low_us == pytest.approx(flops / 9.89e14 * 1e6)
    floor_us = expected(Work(flops=flops, bytes_moved=0, arithmetic="bfloat16"), H100).floor_us
    assert found.duration_us == pytest.approx(floor_us + flops / 8.65e14 * 1e6)
    assert found.high_us == pytest.approx(2 * floor_us + SLOWER["product"] * flops / 8.65e14 * 1e6)


def test_what_computes_and_moves_nothing_takes_no_time():
    found = roofline_estimate(Work(flops=0, bytes_moved=0), H100, "elementwise")
    assert (found.low_us, found.duration_us, found.high_us) == (0, 0, 0)


def test_an_operator_that_nobody_described_has_no_duration():
    strange = Operation(operator="mine::strange", operands=(Operand(shape=(8,), dtype="float32"),))
    assert DurationLadder().estimate(strange, H100) is None


def test_a_linear_layer_is_a_product_with_a_transposed_weight(database: OpDatabase):
    asked = Operation(
        operator="aten::addmm",
        operands=(
            Operand(shape=(768,), dtype="float32"),
            Operand(shape=(128, 512), dtype="float32"),
            Operand(shape=(512, 768), dtype="float32", layout=(1, 512)),
        ),
    )
    linear = Operation(
        operator="aten::linear",
        operands=(Operand(shape=(1, 128, 512), dtype="float32"), Operand(shape=(768, 512), dtype="float32")),
    )
    database.add(row(linear, "V100", 33.0))
    assert estimate(DurationLadder(database), asked, V100).duration_us == pytest.approx(33.0)
    other = replace(asked, operands=(*asked.operands[:2], Operand(shape=(512, 768), dtype="float32")))
    assert linear not in spellings(other), "another order in memory is another kernel"


def test_softmax_by_rows_and_convolutions_are_found_as_users_call_them():
    one = Operation(
        operator="aten::_softmax",
        operands=(Operand(shape=(2, 3, 5), dtype="float32"),),
        attributes={"dim": -1, "half_to_float": False},
    )
    rows = Operation(
        operator="aten::softmax", operands=(Operand(shape=(6, 5), dtype="float32"),), attributes={"dim": -1}
    )
    assert rows in spellings(one)
    conv = Operation(
        operator="aten::convolution",
        operands=tuple(Operand(shape=shape, dtype="float32") for shape in ((8, 3, 32, 32), (4, 3, 3, 3))),
        attributes={
            "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "transposed": False,
            "output_padding": (0, 0), "groups": 1,
        },
    )  # fmt: skip
    wanted = replace(conv, operator="aten::conv2d", attributes={"stride": (2, 2), "padding": (1, 1)})
    assert wanted in spellings(conv)
    grouped = replace(conv, attributes={**conv.attributes, "groups": 2})
    assert wanted not in spellings(grouped)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::addmm", "product"), ("Gemm", "product"), ("MatMul", "product"), ("aten::bmm", "product"),
        ("aten::convolution_backward", "convolution"), ("ConvTranspose", "convolution"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::native_layer_norm_backward", "normalization"), ("BatchNormalization", "normalization"),
        ("aten::_log_softmax", "softmax"), ("aten::embedding_dense_backward", "lookup"),
        ("aten::_foreach_add_", "optimizer"), ("aten::sum", "reduction"), ("ReduceMean", "reduction"),
        ("aten::add", "elementwise"), ("aten::gelu_backward", "elementwise"), ("Relu", "elementwise"),
        ("aten::_to_copy", "copy"), ("aten::cat", "copy"), ("aten::clone", "copy"),
        ("aten::mul", "elementwise"),
    ],
)  # fmt: skip
def test_operators_have_a_class(operator: str, kind: str):
    assert operator_class(operator) == kind
