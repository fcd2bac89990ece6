"""Normalisations: statistics that the forward node saves, and gradients from them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.implementation_pairs import NATIVE, Case, agree
from tests.support.node_gradients import Node, gradient_nodes, network_of, run
from tests.support.sampling import sampled

EVERY = [(KINDS, KINDS), (KINDS, NATIVE), (NATIVE, KINDS), (NATIVE, NATIVE)]
EPSILON = 1e-3


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 1.5 + 0.5).to(dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def batch(*shape: int, dtype: torch.dtype = torch.float32, **more: Any) -> Case:
    channels = shape[1]
    statistic = torch.empty(channels, dtype=wide(dtype))
    parameters = {
        n: numbers(channels, dtype=dtype, seed=i) for i, n in enumerate(("scale", "B", "input_mean"))
    }
    parameters["input_var"] = numbers(channels, dtype=dtype, seed=9).abs()
    return Case(
        op="BatchNormalizationSaving",
        domain="daceml",
        inputs={"X": numbers(*shape, dtype=dtype, seed=5), **parameters},
        outputs={
            "Y": torch.empty(shape, dtype=dtype),
            "running_mean": torch.empty(channels, dtype=dtype),
            "running_var": torch.empty(channels, dtype=dtype),
            "Mean": statistic,
            "InvStdDev": statistic,
        },
        attributes={"training_mode": 1, "epsilon": EPSILON, "momentum": 0.7},
        reference=lambda X, scale, B, input_mean, input_var: functional.batch_norm(
            X, None, None, scale, B, training=True, eps=EPSILON
        ),
        wanted=("X", "scale", "B"),
        **more,
    )


def layer(*shape: int, axis: int = -1, dtype: torch.dtype = torch.float32, **more: Any) -> Case:
    rows = shape[axis:]
    statistic = torch.empty((*shape[:axis], *(1 for _ in rows)), dtype=wide(dtype))
    double = dtype == torch.float64
    return Case(
        op="LayerNormalizationSaving" if double else "LayerNormalization",
        domain="daceml" if double else "",
        inputs={
            "X": numbers(*shape, dtype=dtype),
            "Scale": numbers(*rows, dtype=dtype, seed=1),
            "B": numbers(*rows, dtype=dtype, seed=2),
        },
        outputs={"Y": torch.empty(shape, dtype=dtype), "Mean": statistic, "InvStdDev": statistic},
        attributes={"axis": axis, "epsilon": EPSILON},
        reference=lambda X, Scale, B: functional.layer_norm(X, rows, Scale, B, eps=EPSILON),
        wanted=("X", "Scale", "B"),
        **more,
    )


def group(groups: int, *shape: int, dtype: torch.dtype = torch.float32, **more: Any) -> Case:
    statistic = torch.empty((shape[0], groups), dtype=wide(dtype))
    return Case(
        op="GroupNormalizationSaving",
        domain="daceml",
        inputs={
            "X": numbers(*shape, dtype=dtype),
            "scale": numbers(shape[1], dtype=dtype, seed=1),
            "bias": numbers(shape[1], dtype=dtype, seed=2),
        },
        outputs={"Y": torch.empty(shape, dtype=dtype), "Mean": statistic, "InvStdDev": statistic},
        attributes={"num_groups": groups, "epsilon": EPSILON},
        reference=lambda X, scale, bias: functional.group_norm(X, groups, scale, bias, eps=EPSILON),
        wanted=("X", "scale", "bias"),
        **more,
    )


def instance(*shape: int, dtype: torch.dtype = torch.float32) -> Case:
    statistic = torch.empty(shape[:2], dtype=wide(dtype))
    return Case(
        op="InstanceNormalizationSaving",
        domain="daceml",
        inputs={
            "input": numbers(*shape, dtype=dtype),
            "scale": numbers(shape[1], dtype=dtype, seed=1),
            "B": numbers(shape[1], dtype=dtype, seed=2),
        },
        outputs={"output": torch.empty(shape, dtype=dtype), "Mean": statistic, "InvStdDev": statistic},
        result="output",
        attributes={"epsilon": EPSILON},
        reference=lambda input, scale, B: functional.instance_norm(input, weight=scale, bias=B, eps=EPSILON),
        wanted=("input", "scale", "B"),
    )


def root_mean_square(*shape: int, axis: int = -1, dtype: torch.dtype = torch.float32) -> Case:
    rows = shape[axis:]
    return Case(
        op="RMSNormalizationSaving",
        domain="daceml",
        inputs={"X": numbers(*shape, dtype=dtype), "scale": numbers(*rows, dtype=dtype, seed=1)},
        outputs={
            "Y": torch.empty(shape, dtype=dtype),
            "InvStdDev": torch.empty((*shape[:axis], *(1 for _ in rows)), dtype=wide(dtype)),
        },
        attributes={"axis": axis, "epsilon": EPSILON},
        reference=lambda X, scale: functional.rms_norm(X, rows, scale, eps=EPSILON),
        wanted=("X", "scale"),
    )


def evaluated(*shape: int, dtype: torch.dtype = torch.float32) -> Case:
    case = batch(*shape, dtype=dtype)
    return Case(
        op="BatchNormalization",
        inputs=case.inputs,
        outputs={"Y": case.outputs["Y"]},
        attributes={"epsilon": EPSILON},
        reference=lambda X, scale, B, input_mean, input_var: functional.batch_norm(
            X, input_mean, input_var, scale, B, eps=EPSILON
        ),
        wanted=("X", "scale", "B"),
    )


CASES: dict[str, Case] = {
    "batch, H != W": batch(3, 5, 4, 7),
    "batch, float64": batch(2, 3, 5, dtype=torch.float64),
    "batch, matrix": batch(7, 3),
    "batch, one channel": batch(2, 1, 3, 3),
    "batch, one sample": batch(1, 3, 2, 1),
    "batch, bfloat16": batch(4, 3, 5, dtype=torch.bfloat16),
    "layer": layer(4, 3, 5),
    "layer, many rows": layer(3, 67, 48),
    "layer, many rows of two dims": layer(130, 5, 7, axis=-2),
    "layer, two dims": layer(3, 4, 5, axis=-2),
    "layer, float64": layer(3, 7, dtype=torch.float64),
    "layer, rows of one": layer(3, 1),
    "layer, float16": layer(3, 33, dtype=torch.float16),
    "group": group(3, 2, 6, 5, 3),
    "group, one": group(1, 3, 4, 5),
    "group, no spatial dims, float64": group(2, 3, 6, dtype=torch.float64),
    "group, bfloat16": group(2, 3, 4, 9, dtype=torch.bfloat16),
    "instance": instance(2, 3, 4, 5),
    "instance, float64": instance(3, 1, 7, dtype=torch.float64),
    "instance, float16": instance(2, 3, 7, dtype=torch.float16),
    "rms": root_mean_square(4, 3, 5),
    "rms, many rows": root_mean_square(3, 67, 48),
    "rms, two dims, float64": root_mean_square(3, 4, 5, axis=-2, dtype=torch.float64),
    "rms, bfloat16": root_mean_square(5, 17, dtype=torch.bfloat16),
    "inference": evaluated(2, 3, 4, 5),
    "inference, float64": evaluated(4, 3, dtype=torch.float64),
    "inference, float16": evaluated(4, 3, 5, dtype=torch.float16),
}


# native results and gradients: each side is in another pair, too
@pytest.mark.parametrize(("forward", "backward"), sampled(EVERY, *EVERY[:3]))
def test_gradients_are_those_of_torch(forward: tuple[Kind, ...], backward: tuple[Kind, ...]):
    _, chosen = agree(CASES, forward=forward, backward=backward)
    if backward == KINDS:
        assert {c for c in chosen if c.startswith("aten")} == {
            "aten:batch_norm_backward",
            "aten:layer_norm_backward",
            "aten:group_norm_backward",
        }


@pytest.mark.parametrize("kinds", [KINDS, NATIVE])
def test_a_symbolic_batch_and_no_samples(kinds: tuple[Kind, ...]):
    shared: dict[str, Any] = {"symbolic": {11: "N"}}
    cases = {
        "batch": batch(11, 3, 4, **shared),
        "layer": layer(11, 3, 5, **shared),
        "layer, long rows": layer(11, 3, 35, **shared),
        "group": group(2, 11, 4, 5, **shared),
        "no rows": layer(0, 5),
    }
    agree(cases, forward=kinds, backward=kinds)


def test_running_statistics_are_those_of_onnx_in_both_forms():
    case = batch(3, 5, 4, 7)
    X, mean, variance = (case.inputs[n] for n in ("X", "input_mean", "input_var"))
    for kinds in (KINDS, NATIVE):
        node = Node(
            op=case.op, domain="daceml", inputs=case.inputs, outputs=case.outputs, attributes=case.attributes
        )
        (results,) = run(node, allowed=kinds).results
        kept = 0.7 * mean + 0.3 * X.mean((0, 2, 3))
        population = 0.7 * variance + 0.3 * X.var((0, 2, 3), correction=0)
        torch.testing.assert_close(results["running_mean"], kept)
        torch.testing.assert_close(results["running_var"], population)


@pytest.mark.parametrize("wanted", [("X",), ("Scale",), ("B",), ("Scale", "B")])
def test_only_what_is_wanted_is_computed(wanted: tuple[str, ...]):
    case = layer(4, 3, 5)
    forward = Node(op=case.op, inputs=case.inputs, outputs=case.outputs, attributes=case.attributes)
    (results,) = run(forward).results
    nodes = gradient_nodes(case.op, case.inputs, results, {"Y": case.upstream()}, wanted, case.attributes)
    done = run(*nodes)
    assert done.chosen == ["aten:layer_norm_backward"]
    _, expected = case.expected()
    assert set(done.results[0]) == {f"d{w}" for w in wanted}
    for name in wanted:
        torch.testing.assert_close(done.results[0][f"d{name}"].double(), expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "chosen"),
    [
        ((128, 16), "native:rule"),
        ((2, 64, 1024), "native:rule"),
        ((127, 16), "aten:layer_norm_backward"),
        ((128, 15), "aten:layer_norm_backward"),
        ((128, 1025), "aten:layer_norm_backward"),
    ],
)
def test_rows_that_sums_are_taken_beside_are_no_call(shape: tuple[int, ...], chosen: str):
    case = layer(*shape)
    wanted = ("X", "Scale", "B")
    nodes = gradient_nodes(
        case.op, case.inputs, case.outputs, {"Y": case.upstream()}, wanted, case.attributes
    )
    network, _ = network_of(nodes)
    assert [node.chosen for node in lower(network).nodes] == [chosen]
