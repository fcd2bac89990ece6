"""Attention: masks, grouped heads, causal and scaled scores, rows without visible keys."""

from __future__ import annotations

import pytest
import torch

from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.attention_cases import attention, numbers, some_rows_without_keys
from tests.support.implementation_pairs import NATIVE, agree
from tests.support.node_gradients import Node, gradient_nodes, run
from tests.support.sampling import sampled

EVERY = [(KINDS, KINDS), (KINDS, NATIVE), (NATIVE, KINDS), (NATIVE, NATIVE)]

CASES = {
    "plain": attention(2, 3, 5, 5, 8),
    "other lengths, float64": attention(1, 2, 3, 7, 5, dtype=torch.float64),
    "causal": attention(2, 2, 6, 6, 4, causal=True),
    "scale": attention(1, 2, 4, 3, 5, scale=0.3),
    "mask": attention(2, 3, 5, 4, 8, mask=some_rows_without_keys(2, 1, 5, 4)),
    "gradient of a mask": attention(2, 3, 5, 4, 8, mask=numbers(1, 3, 5, 4), of_mask=True),
    "gradient of a mask of rows": attention(2, 3, 5, 4, 8, mask=numbers(5, 1), of_mask=True),
    "boolean mask": attention(2, 3, 5, 4, 8, mask=numbers(5, 4) > -0.5),
    "grouped heads": attention(2, 6, 4, 5, 3, groups=2),
    "wider values": attention(1, 2, 4, 5, 3, width=7),
    "one row, one key": attention(2, 1, 1, 1, 3),
    "bfloat16": attention(2, 3, 5, 5, 8, dtype=torch.bfloat16),
    "symbolic batch": attention(11, 2, 3, 4, 5, symbolic={11: "N"}),
}


# native results and gradients: each side is in another pair, too
@pytest.mark.parametrize(("forward", "backward"), sampled(EVERY, *EVERY[:3]))
def test_gradients_are_those_of_torch(forward: tuple[Kind, ...], backward: tuple[Kind, ...]):
    first, chosen = agree(CASES, forward=forward, backward=backward)
    assert ("aten:flash" in first.chosen) == (forward == KINDS)
    assert ("aten:flash_backward" in chosen) == (backward == KINDS)


@pytest.mark.parametrize("kinds", [KINDS, NATIVE])
def test_rows_without_keys_have_logarithm_0_as_in_torch(kinds: tuple[Kind, ...]):
    case = CASES["mask"]
    node = Node(
        op=case.op, domain="daceml", inputs=case.inputs, outputs=case.outputs, attributes=case.attributes
    )
    (results,) = run(node, allowed=kinds).results
    assert torch.equal(results["LogSumExp"][:, :, 1], torch.zeros(2, 3))


def test_heads_side_by_side_in_the_last_dimension():
    case = attention(2, 3, 5, 4, 8)
    folded = {
        name: None if value is None else value.transpose(1, 2).flatten(2)
        for name, value in case.inputs.items()
    }
    attributes = {"q_num_heads": 3, "kv_num_heads": 3}
    y = case.outputs["Y"].transpose(1, 2).flatten(2)
    node = Node(
        op=case.op,
        domain="daceml",
        inputs=folded,
        outputs={**case.outputs, "Y": y},
        attributes=attributes,
    )
    done = run(node)
    upstream = case.upstream().transpose(1, 2).flatten(2)
    wanted = ["Q", "K", "V"]
    nodes = gradient_nodes(
        case.op, folded, done.results[0], {"Y": upstream}, wanted, attributes, domain="daceml"
    )
    result, expected = case.expected()
    torch.testing.assert_close(
        done.results[0]["Y"].double(), result.transpose(1, 2).flatten(2), rtol=1e-5, atol=1e-6
    )
    (found,) = run(*nodes).results
    for name in wanted:
        folded_gradient = expected[name].transpose(1, 2).flatten(2)
        torch.testing.assert_close(found[f"d{name}"].double(), folded_gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wanted", [("Q",), ("V",), ("K", "V")])
def test_only_what_is_wanted_is_given(wanted: tuple[str, ...]):
    case = CASES["plain"]
    node = Node(op=case.op, domain="daceml", inputs=case.inputs, outputs=case.outputs)
    (results,) = run(node).results
    _, expected = case.expected()
    for kinds in (KINDS, NATIVE):
        nodes = gradient_nodes(case.op, case.inputs, results, {"Y": case.upstream()}, wanted, domain="daceml")
        (found,) = run(*nodes, allowed=kinds).results
        assert set(found) == {f"d{w}" for w in wanted}
        for name in wanted:
            torch.testing.assert_close(found[f"d{name}"].double(), expected[name], rtol=1e-5, atol=1e-5)
