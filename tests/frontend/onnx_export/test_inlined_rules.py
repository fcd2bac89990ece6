"""Rules in place of nodes: values are eager's, and nothing else of the graph changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from daceml.frontend.onnx_export.export import export_program
from daceml.frontend.onnx_export.functionalize import functionalize
from daceml.frontend.onnx_export.inlined_rules import NeedsWholeGraphError, inline
from tests.support.exported_models import Lambda, tensor

aten = torch.ops.aten


def _all_rules(program: Any) -> dict[Any, Any]:
    core = torch.export.default_decompositions()
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    return {target: core[target] for target in targets if target in core}


def _targets(program: Any) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "one result": lambda x: functional.hardsigmoid(x).tanh() + 1,
    "a rule that changes what it makes": lambda x: functional.multi_margin_loss(x, torch.arange(3)),
    "several results": lambda x: torch.var_mean(x, dim=1),
    "all results": lambda x: [*torch.aminmax(x, dim=1)],
    "rules within rules": lambda x: functional.cosine_embedding_loss(x, x.flip(1), torch.ones(3)),
    "no operand": lambda x: torch.eye(4) @ x.t(),
    "numbers of other types": lambda x: torch.logaddexp(x.double(), x.double() * 2).to(torch.bfloat16),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_eagers(name: str):
    module, x = Lambda(PROGRAMS[name]), tensor(3, 4)
    program = functionalize(export_program(module, (x,)))
    rules = _all_rules(program)
    inlined = inline(program, rules)
    assert rules and _targets(inlined) != _targets(program)
    seen, expected = inlined.module()(x), module(x)
    torch.testing.assert_close(seen, expected)


def test_other_nodes_stay_and_new_ones_say_where_they_come_from():
    def forward(x: Tensor) -> Tensor:
        return functional.glu(functional.linear(x, x)).relu()

    program = functionalize(export_program(Lambda(forward), (tensor(4, 4),)))
    rule = torch.export.default_decompositions()[aten.glu.default]
    inlined = inline(program, {aten.glu.default: rule})
    before, after = _targets(program), _targets(inlined)
    assert (before[0], before[-1]) == (after[0], after[-1]) and "aten.glu.default" not in after
    traces = {node.meta["stack_trace"] for node in inlined.graph.nodes if node.op == "call_function"}
    assert all("test_inlined_rules.py" in trace for trace in traces)
    assert "aten.glu.default" in _targets(program), "it worked on a copy"


def test_a_node_that_its_rule_leaves_alone_stays():
    program = functionalize(export_program(Lambda(torch.tanh), (tensor(3),)))
    same = inline(program, {aten.tanh.default: lambda x: NotImplemented})
    assert _targets(same) == _targets(program)


def test_sizes_may_be_symbols():
    module = Lambda(lambda x: functional.glu(x, 0))
    shapes = {0: 2 * torch.export.Dim("half", min=2)}
    program = functionalize(export_program(module, (tensor(6, 4),), dynamic_shapes=(shapes,)))
    inlined = inline(program, _all_rules(program))
    x = tensor(10, 4)
    torch.testing.assert_close(inlined.module()(x), functional.glu(x, 0))


def test_what_is_drawn_is_drawn_even_if_nobody_reads_it():
    def rule(x: Tensor) -> Tensor:
        torch.rand_like(x)
        x.exp()
        return x.sin()

    program = functionalize(export_program(Lambda(torch.tanh), (tensor(3),)))
    inlined = inline(program, {aten.tanh.default: rule})
    assert _targets(inlined) == ["aten.rand_like.default", "aten.sin.default"]


def test_sizes_of_data_need_the_whole_graph():
    program = functionalize(export_program(Lambda(torch.tanh), (tensor(3),)))
    with pytest.raises(NeedsWholeGraphError, match="nonzero"):
        inline(program, {aten.tanh.default: lambda x: x.nonzero().sum() + x})


def test_a_rule_that_holds_a_tensor_needs_the_whole_graph():
    program = functionalize(export_program(Lambda(torch.tanh), (tensor(3),)))
    held = torch.ones(3)
    with pytest.raises(NeedsWholeGraphError, match="constant tensor"):
        inline(program, {aten.tanh.default: lambda x: x + held})
