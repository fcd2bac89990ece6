"""Reads at pairs of positions: x[:, i, j] is one node and one loop."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn

from daceml.errors import ExecutionError
from daceml.frontend.onnx_export.export import export_program, to_onnx
from tests.support.golden import raises
from tests.support.operator_programs import program, run

TEXT = (
    "g (float[N, 4, 3, 2] X, int64[5] I, int64[5] J) => (float[N, 5, 2] Y) "
    "{ Y = daceml.GatherPairs <perm = [1, 2, 0, 3], inverse = [1, 0, 2]> (X, I, J) }"
)


class Read(nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return x[:, :, i, j]


@pytest.mark.parametrize("batch", [1, 3, 0])
def test_values_with_a_symbolic_batch(batch: int):
    x, i, j = torch.randn(batch, 4, 3, 2), torch.tensor([0, 3, -1, 2, -4]), torch.tensor([2, -3, 1, 0, 2])
    assert torch.equal(run(TEXT, x, i, j), x[:, i, j])


@pytest.mark.parametrize(
    ("i", "j", "bounds"), [(4, 0, "[-4, 4)"), (-5, 0, "[-4, 4)"), (0, 3, "[-3, 3)"), (1, -4, "[-3, 3)")]
)
def test_each_position_is_checked_on_its_own(i: int, j: int, bounds: str):
    compiled = program(TEXT)
    with raises(ExecutionError, bounds):
        compiled((torch.randn(2, 4, 3, 2), torch.full((5,), i), torch.full((5,), j)))


def test_the_body_of_the_function_says_the_same():
    operands = torch.randn(2, 3, 5, 4, 2), torch.tensor([[0, 4], [2, 1]]), torch.tensor([[3, 0], [1, 1]])
    model = ir.serde.serialize_model(to_onnx(export_program(Read(), operands)))
    assert [n.op_type for n in model.graph.node] == ["GatherPairs"]
    onnx.checker.check_model(model, full_check=True)
    feeds = {v.name: t.numpy() for v, t in zip(model.graph.input, operands, strict=True)}
    (read,) = ReferenceEvaluator(model).run(None, feeds)
    assert torch.equal(torch.from_numpy(read), Read()(*operands))
