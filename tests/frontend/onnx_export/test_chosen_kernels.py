"""Nodes of a trace that torch's own kernels run by choice, and what an ONNX node comes from."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from daceml.compiler.keys.program_key import program_key
from daceml.frontend.onnx_export.chosen_kernels import (
    functional_form,
    may_choose,
    torch_kernels,
    traced_names,
    with_torch_kernels,
)
from daceml.frontend.onnx_export.export import to_onnx


class Parts(nn.Module):
    """A view, random numbers, a change in place, and operators that ONNX expresses with several."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x.view(2, 4, 6))
        y = F.dropout(F.huber_loss(y, torch.zeros_like(y), reduction="none"), 0.5)
        y.index_add_(0, torch.tensor([1]), y[:1])
        return y.cumsum(1)


def exported(*shape: int) -> torch.export.ExportedProgram:
    return torch.export.export(Parts().train(), (torch.randn(*shape),))


def test_an_onnx_node_knows_its_node_also_through_decompositions():
    names = traced_names(to_onnx(exported(2, 24)))
    nodes = functional_form(exported(2, 24)).graph.nodes
    operators = [str(node.target) for node in nodes if node.name in names.values()]
    assert {"aten.group_norm.default", "aten.huber_loss.default", "aten.index_add.default"} <= set(operators)


def test_chosen_nodes_become_calls_and_the_program_stays_as_it_is():
    program = exported(2, 24)
    before = copy.deepcopy(program.graph)
    wanted = ["aten.group_norm.default", "aten.index_add.default"]
    nodes = functional_form(program).graph.nodes
    names = tuple(sorted(node.name for node in nodes if str(node.target) in wanted))
    chosen = with_torch_kernels(program, names)
    model = to_onnx(chosen)
    called = [node.op_type for node in model.graph if node.domain == "daceml.aten"]
    assert called == wanted
    assert torch_kernels(program) == () and torch_kernels(chosen) == names
    assert [str(n) for n in program.graph.nodes] == [str(n) for n in before.nodes]
    assert not {node.op_type for node in to_onnx(program).graph}.intersection(wanted)


def test_a_choice_is_part_of_the_key():
    program = exported(2, 24)
    keys = {program_key(with_torch_kernels(program, names)) for names in (["cumsum"], ["index_add"])}
    assert len({*keys, program_key(program)}) == 3
    assert program_key(with_torch_kernels(program, [])) == program_key(program)


def test_views_and_random_numbers_are_not_chosen():
    program = exported(2, 24)
    refused = {str(n.target) for n in functional_form(program).graph.nodes if not may_choose(n)}
    assert {"aten.view.default", "aten.dropout.default"} <= refused
    names = [node.name for node in functional_form(program).graph.nodes]
    model = to_onnx(with_torch_kernels(program, names))  # whoever asks for all gets those that may be
    called = {node.op_type for node in model.graph if node.domain == "daceml.aten"}
    assert "aten.huber_loss.default" in called and not called & refused


def test_views_that_their_schema_hides_are_not_chosen():
    class Hidden(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, _ = torch.unsafe_split(torch.ops.aten._unsafe_view(x * 1, [24, 2]), 12)
            return first * 2

    program = torch.export.export(Hidden(), (torch.randn(2, 24),))
    chosen = {str(n.target) for n in functional_form(program).graph.nodes if may_choose(n)}
    assert chosen == {"aten.mul.Tensor"}


def test_complex_numbers_may_be_inside():
    class Spectrum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.rfft(x).abs()

    program = torch.export.export(Spectrum(), (torch.randn(2, 24),))
    names = [node.name for node in functional_form(program).graph.nodes]
    called = [node.op_type for node in to_onnx(with_torch_kernels(program, names)).graph]
    assert called == ["aten.fft_rfft.default", "aten.abs.default"]
