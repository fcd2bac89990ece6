"""Attention by torch's kernels for CUDA devices: stand-ins on the processor take their place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import daceml
from daceml.codegen.planning.plan import make_plan
from daceml.compiler.pipeline import optimised_network
from daceml.frontend.onnx_export.export import export_program
from daceml.onnx_ops.external import external_call
from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.external import AtenCall
from tests.support.attention_cases import attention, numbers, some_rows_without_keys
from tests.support.device_stand_ins import ATTENTION, FLASH, stand_ins
from tests.support.golden import golden
from tests.support.implementation_pairs import Case, agree
from tests.support.node_gradients import Node, gradient_nodes, network_of, run

EFFICIENT = "_scaled_dot_product_efficient_attention"
HALF, BFLOAT = torch.float16, torch.bfloat16

CASES = {
    "other lengths": attention(2, 3, 5, 7, 8),
    "32 queries": attention(1, 2, 32, 9, 4),
    "causal, a ragged tail": attention(2, 2, 37, 37, 4, causal=True),
    "scale": attention(1, 2, 65, 3, 4, scale=0.3),
    "negative scale": attention(1, 2, 5, 3, 4, scale=-0.5),
    "mask of all": attention(2, 3, 5, 7, 8, mask=some_rows_without_keys(2, 3, 5, 7)),
    "mask of batches": attention(2, 3, 5, 8, 8, mask=numbers(2, 1, 1, 8)),
    "mask of keys alone": attention(2, 3, 5, 7, 8, mask=numbers(1, 7)),
    "gradient of a mask": attention(2, 3, 5, 7, 8, mask=numbers(2, 3, 5, 7), of_mask=True),
    "gradient of a mask of rows": attention(2, 3, 5, 16, 8, mask=numbers(5, 16), of_mask=True),
    "half, masked": attention(2, 3, 5, 7, 8, mask=numbers(5, 7, dtype=HALF), dtype=HALF),
    "bfloat16, masked": attention(1, 2, 35, 7, 16, mask=numbers(35, 7, dtype=BFLOAT), dtype=BFLOAT),
    "symbolic batch": attention(11, 2, 3, 4, 8, symbolic={11: "N"}),
}
HALVES = {
    "half": attention(2, 3, 5, 7, 8, dtype=HALF),
    "bfloat16, causal": attention(2, 2, 37, 37, 16, causal=True, dtype=BFLOAT),
    "half, scale": attention(1, 2, 65, 3, 24, scale=0.3, dtype=HALF),
}


def test_memory_efficient_attention_and_gradients():
    with stand_ins(**ATTENTION) as called:
        first, chosen = agree(CASES)
    assert set(first.chosen) == {"aten:cuda_efficient"}
    assert set(chosen) == {"aten:cuda_efficient_backward"}
    assert called == [EFFICIENT] * len(CASES) + [f"{EFFICIENT}_backward"] * len(CASES)


def test_flash_attention_and_gradients():
    with stand_ins(**ATTENTION) as called:
        first, chosen = agree(HALVES)
    assert set(first.chosen) == {"aten:cuda_flash"} and set(chosen) == {"aten:cuda_flash_backward"}
    assert called == [FLASH] * 3 + [f"{FLASH}_backward"] * 3


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_heads_side_by_side_are_views(dtype: torch.dtype):
    case = attention(2, 3, 5, 4, 8, dtype=dtype)
    beside = {
        n: v.transpose(1, 2).flatten(2) if isinstance(v, torch.Tensor) else None
        for n, v in case.inputs.items()
    }
    attributes = {"q_num_heads": 3, "kv_num_heads": 3}
    y = torch.empty(2, 5, 24, dtype=dtype)
    made = {**case.outputs, "Y": y}
    node = Node(op=case.op, domain="daceml", inputs=beside, outputs=made, attributes=attributes)
    error = 2e-6 if dtype == torch.float32 else 4e-3
    with stand_ins(**ATTENTION) as called:
        done = run(node)
        upstream = {"Y": case.upstream().transpose(1, 2).flatten(2)}
        back = gradient_nodes(
            case.op, beside, done.results[0], upstream, ["Q", "K", "V"], attributes, domain="daceml"
        )
        (found,) = run(*back).results
    assert len(called) == 2 and done.chosen[0].startswith("aten:cuda_")
    result, expected = case.expected()
    expected = {"Y": result, **{f"d{n}": g for n, g in expected.items()}}
    for name, value in {"Y": done.results[0]["Y"], **found}.items():
        wanted = expected[name].transpose(1, 2).flatten(2)
        torch.testing.assert_close(value.double(), wanted, rtol=error, atol=4 * error)


@pytest.mark.parametrize("wanted", [("Q",), ("K", "V")])
def test_only_what_is_wanted_is_given(wanted: tuple[str, ...]):
    case = CASES["other lengths"]
    node = Node(op=case.op, domain="daceml", inputs=case.inputs, outputs=case.outputs)
    with stand_ins(**ATTENTION):
        (results,) = run(node).results
        back = gradient_nodes(case.op, case.inputs, results, {"Y": case.upstream()}, wanted, domain="daceml")
        (found,) = run(*back).results
    assert set(found) == {f"d{w}" for w in wanted}
    expected = case.expected()[1]
    for name in wanted:
        torch.testing.assert_close(found[f"d{name}"].double(), expected[name], rtol=1e-5, atol=1e-5)


def test_no_logarithms_are_computed_without_gradients():
    seen: list[Any] = []

    def noting(*operands: Any, **named: Any) -> Any:
        seen.append(operands[4])
        return ATTENTION[EFFICIENT](*operands, **named)

    case = CASES["other lengths"]
    with stand_ins(**{EFFICIENT: noting}):
        run(Node(op="AttentionSaving", domain="daceml", inputs=case.inputs, outputs={"Y": case.outputs["Y"]}))
    assert seen == [False]


def refusals(case: Case, architecture: int | None = None, **attributes: Any) -> dict[str, str]:
    """Why implementations do not take a node on a CUDA device."""
    node = Node(
        op=case.op,
        domain="daceml",
        inputs=case.inputs,
        outputs=case.outputs,
        attributes={**case.attributes, **attributes},
        symbolic=case.symbolic,
    )
    network, _ = network_of([node])
    network.device, network.architecture = "cuda", architecture
    (lowered,) = lower(network).nodes
    return {"chosen": lowered.chosen, **dict(lowered.refusals)}


@pytest.mark.parametrize(
    ("case", "efficient", "flash"),
    [
        (attention(2, 3, 5, 5, 8, dtype=torch.float64), ["float64"], ["float64"]),
        (attention(2, 4, 5, 5, 8, groups=2), ["head"], ["float32"]),
        (attention(1, 2, 4, 5, 4, width=8), ["width"], ["float32"]),
        (attention(2, 3, 5, 5, 6), ["6 elements", "16 bytes"], ["float32"]),
        (attention(2, 3, 5, 5, 4, dtype=HALF), ["4 elements", "16 bytes"], ["4 elements", "16 bytes"]),
        (attention(2, 3, 5, 4, 8, mask=numbers(5, 4) > 0), ["mask", "bool", "float32"], ["mask"]),
        (attention(2, 3, 5, 4, 8, mask=numbers(5, 1)), ["mask"], ["mask"]),
        (attention(2, 3, 5, 4, 8, causal=True), ["is_causal"], ["float32"]),
    ],
)
def test_what_neither_takes_stays_loops(case: Case, efficient: list[str], flash: list[str]):
    found = refusals(case)
    assert found["chosen"] == "native:maps"
    assert found["aten:cuda_efficient"] == golden()
    assert all(fact in found["aten:cuda_efficient"] for fact in efficient)
    assert found["aten:cuda_flash"] == golden()
    assert all(fact in found["aten:cuda_flash"] for fact in flash)
    assert found["aten:flash"] == golden()
    assert "cuda" in found["aten:flash"]


def test_wide_heads_and_older_devices_get_the_other_kernel():
    found = refusals(attention(1, 1, 3, 3, 264, dtype=HALF))
    assert found["aten:cuda_flash"] == golden()
    assert "264" in found["aten:cuda_flash"] and "256" in found["aten:cuda_flash"]
    assert found["chosen"] == "aten:cuda_efficient"
    found = refusals(attention(1, 1, 3, 3, 8, dtype=HALF), architecture=75)
    assert found["aten:cuda_flash"] == golden()
    assert "8.0" in found["aten:cuda_flash"] and "7.5" in found["aten:cuda_flash"]
    assert found["chosen"] == "aten:cuda_efficient"
    found = refusals(attention(1, 1, 3, 3, 8, dtype=BFLOAT), architecture=75)
    assert found["aten:cuda_efficient"] == golden()
    assert all(fact in found["aten:cuda_efficient"] for fact in ("bfloat16", "8.0", "7.5"))


def test_rows_of_hidden_scores_alone_stay_nan_where_spelled_out():
    masked, plain = CASES["mask of batches"], CASES["other lengths"]
    reason = refusals(masked, as_spelled=1)["aten:cuda_efficient"]
    assert reason == golden()
    assert "NaN" in reason
    assert refusals(plain, as_spelled=1)["chosen"] == "aten:cuda_efficient"


def _layout(results: Any) -> list[Any]:
    tensors = [t for t in results if isinstance(t, torch.Tensor)]
    return [(t.shape, t.stride(), t.dtype) for t in tensors if t.numel() > 1 and t.dtype.is_floating_point]


def _operands(dtype: torch.dtype, rows: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(2, 3, n, 8, dtype=dtype) for n in (rows, 7, 7))


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        (EFFICIENT, lambda: (*_operands(torch.float32, 37), None, True)),
        (EFFICIENT, lambda: (*_operands(HALF, 32), torch.zeros(2, 3, 32, 8, dtype=HALF)[..., :7], True)),
        (FLASH, lambda: _operands(torch.bfloat16, 37)),
    ],
)
def test_stand_ins_give_what_meta_kernels_promise(name: str, operands: Callable[[], Any]):
    """Shapes, strides and types: what reads them was tested with the stand-ins alone."""
    values = operands()
    done = ATTENTION[name](*values)
    fake = [v.to("meta") if isinstance(v, torch.Tensor) else v for v in values]
    promised = getattr(torch.ops.aten, name)(*fake)
    assert _layout(done) == _layout(promised)


class Attending(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize(("dtype", "function"), [(torch.float32, "efficient"), (HALF, "flash")])
def test_attention_of_a_program_for_a_device_is_one_call(dtype: torch.dtype, function: str):
    q, k, v = (torch.randn(2, 3, 17, 8, dtype=dtype) for _ in range(3))
    network = optimised_network(export_program(Attending(), (q, k, v)), device="cuda").network
    plan = make_plan(network, external_call)
    calls = [s.action for s in plan.steps if isinstance(s.action, AtenCall)]
    assert [call.function for call in calls] == [f"device_{function}_attention"]
    assert not plan.kernels
    assert not any(isinstance(n, ONNXNode) and not n.implementation for n in network.state.nodes())


def test_a_module_that_is_trained():
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
    exact = torch.nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True).double()
    exact.load_state_dict(module.state_dict())
    x = torch.randn(2, 11, 16)
    with stand_ins(**ATTENTION) as called:
        compiled = daceml.compile(module)
        y = compiled(x)
        y.square().sum().backward()
    expected = exact(x.double())
    expected.square().sum().backward()
    assert called == [EFFICIENT, f"{EFFICIENT}_backward"]
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(module.parameters(), exact.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None and math.isfinite(float(ours.grad.sum()))
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-4)
