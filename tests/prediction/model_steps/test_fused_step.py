"""What joining loops does to the operations of a step: less is moved, and nothing is lost."""

from __future__ import annotations

import torch
from torch import nn

from daceml.operations.database.records import Operand, Operation
from daceml.operations.work.operator_work import work_of
from daceml.prediction.capture.module import capture_step
from daceml.prediction.model_step import ModelStep, StepOperation
from daceml.prediction.model_steps.fused_step import fused
from tests.support.golden import golden

MB = 4 * 1024 * 256


def step_of(*calls: tuple[str, tuple[int, ...], tuple[int, ...]]) -> ModelStep:
    """Operators over matrices of 1 MB, with the numbers of what they read and write."""
    matrix = Operand(shape=(1024, 256), dtype="float32")
    operations: list[StepOperation] = []
    for name, reads, writes in calls:
        operation = Operation(operator=f"aten::{name}", operands=(matrix,) * len(reads))
        work = work_of(operation, (matrix,) * len(writes))
        operations.append(
            StepOperation(
                operation=operation, results=(matrix,) * len(writes), work=work, reads=reads, writes=writes
            )
        )
    return ModelStep(name="test", operations=tuple(operations))


def moved(step: ModelStep) -> list[float]:
    return [one.work.bytes_moved / MB for one in step.operations if one.work is not None]


def test_a_chain_reads_its_operand_once_and_writes_its_result_once():
    chain = step_of(("relu", (0,), (1,)), ("add", (1, 0), (2,)), ("tanh", (2,), (3,)))
    assert moved(chain) == [2, 3, 2]
    assert moved(fused(chain)) == [2]
    (kernel,) = fused(chain).operations
    assert kernel.operation.attributes == {"operators": ("aten::relu", "aten::add", "aten::tanh")}
    assert (kernel.reads, kernel.writes) == ((0,), (3,))


def test_what_somebody_reads_later_is_written():
    step = step_of(("relu", (0,), (1,)), ("tanh", (1,), (2,)), ("mm", (1, 2), (3,)))
    assert moved(fused(step)) == [3, 3]


def test_what_is_written_in_place_is_a_result():
    step = step_of(("mul", (0, 0), (1,)), ("add_", (1, 1), (1,)), ("mul_", (1, 1), (1,)))
    assert moved(fused(step)) == [2]
    buffer = step_of(("relu", (0,), (1,)), ("add_", (7, 1), (7,)))
    (kernel,) = fused(buffer).operations
    assert (kernel.reads, kernel.writes) == ((0, 7), (7,))
    assert moved(fused(buffer)) == [3]


def test_a_product_ends_a_kernel_and_what_is_not_connected_begins_one():
    step = step_of(("relu", (0,), (1,)), ("mm", (1, 9), (2,)), ("tanh", (2,), (3,)), ("relu", (7,), (8,)))
    assert fused(step).operations == step.operations


def test_a_view_between_two_loops_is_no_obstacle():
    step = step_of(("relu", (0,), (1,)), ("view", (1,), (1,)), ("tanh", (1,), (2,)))
    assert moved(fused(step)) == [0, 2]


def test_a_step_that_does_not_say_what_it_reads_stays_as_it_is():
    step = step_of(("relu", (), ()), ("tanh", (), ()))
    assert fused(step).operations == step.operations
    assert fused(step).notes == (golden(),)


def test_a_captured_module_has_fewer_operations_and_the_same_flops():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)
            self.norm = nn.LayerNorm(64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.norm(torch.nn.functional.gelu(self.linear(x)) * 2)

    step = capture_step(Block().eval(), (torch.zeros(8, 64),), train=False)
    joined = fused(step)
    assert len(joined.operations) < len(step.operations)
    assert joined.flops == step.flops
    assert sum(moved(joined)) < sum(moved(step))
    names = joined.operations[-1].operation.attributes["operators"]
    assert names == ("aten::gelu", "aten::mul", "aten::native_layer_norm", "aten::add")
