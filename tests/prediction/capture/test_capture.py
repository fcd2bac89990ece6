"""Operations of a step from shapes alone: what is called, in which layer, and what is held meanwhile."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from daceml.errors import CaptureError
from daceml.prediction.capture.module import capture_step
from daceml.prediction.capture.optimizers import capture_optimizer
from daceml.prediction.model_step import ModelStep
from tests.support.golden import golden, raises


class Net(nn.Module):
    """Two layers with a normalisation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 6 * 6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.stem(x))).flatten(1))


def called(step: ModelStep, phase: str) -> list[tuple[str, str]]:
    """(operator, layer) of what a device has to do in a phase."""
    return [(o.operation.operator, o.layer) for o in step.operations if o.phase == phase and o.launches]


IMAGES = (torch.empty(4, 3, 8, 8, device="meta"),)


def test_a_training_step_is_its_calls_in_order_with_their_layers():
    step = capture_step(Net(), IMAGES, optimizer="sgd")
    assert called(step, "forward") == [
        ("aten::convolution", "stem"),
        ("aten::add_", "norm"),
        ("aten::native_batch_norm", "norm"),
        ("aten::relu", ""),
        ("aten::addmm", "head"),
        ("aten::sum", ""),
    ]
    assert called(step, "backward")[:1] == [("aten::ones_like", "")]
    assert [one for one in called(step, "backward") if one[1]] == [
        ("aten::mm", "head"),
        ("aten::mm", "head"),
        ("aten::sum", "head"),
        ("aten::native_batch_norm_backward", "norm"),
        ("aten::convolution_backward", "stem"),
    ]
    assert called(step, "optimizer") == [("aten::_foreach_add_", "")]
    assert (step.name, step.samples, step.trains) == ("Net", 4, True)


def test_gradients_are_ready_when_their_layer_is_done():
    step = capture_step(Net(), IMAGES)
    order = [name for one in step.operations for name in one.ready]
    assert sorted(order) == sorted(row.name for row in step.parameters)
    assert [name.partition(".")[0] for name in order] == ["head"] * 2 + ["norm"] * 2 + ["stem"] * 2
    assert all(one.layer == name.rpartition(".")[0] for one in step.operations for name in one.ready)


def test_a_shared_parameter_is_ready_once_when_its_last_user_is_done():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 8)
            self.out = nn.Linear(8, 50, bias=False)
            self.out.weight = self.table.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.table(x))

    step = capture_step(Tied(), (torch.zeros(2, 5, dtype=torch.int64),))
    assert [row.name for row in step.parameters] == ["table.weight"]
    (ready,) = [number for number, one in enumerate(step.operations) if one.ready]
    names = [one.operation.operator for one in step.operations]
    assert ready > names.index("aten::embedding_dense_backward") > names.index("aten::mm")


def test_flops_are_those_that_torch_counts_in_a_real_step():
    model = Net()
    step = capture_step(model, IMAGES, optimizer=None)
    products = ("aten::mm", "aten::addmm", "aten::convolution", "aten::convolution_backward")
    told = sum(o.work.flops for o in step.operations if o.work and o.operation.operator in products)
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(4, 3, 8, 8)).sum().backward()
    # torch counts the gradient of the image, which nobody asks for, and no additions of biases
    assert told == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_nothing_of_the_model_changes():
    model = Net()
    before = copy.deepcopy(model.state_dict())
    capture_step(model, IMAGES)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())
    assert torch.backends.mkldnn.enabled
    assert model(torch.randn(4, 3, 8, 8)).shape == (4, 10)


def test_a_model_of_seventy_billion_parameters_takes_no_memory():
    with torch.device("meta"):
        block = nn.Sequential(nn.Linear(8192, 286720, bias=False), nn.Linear(286720, 8192, bias=False))
        model = nn.Sequential(*(copy.deepcopy(block) for _ in range(15)))
    step = capture_step(model, (torch.empty(4, 8192, device="meta"),))
    assert sum(row.size_bytes for row in step.parameters) == 4 * 15 * 2 * 8192 * 286720 > 280e9
    assert step.memory is not None
    assert step.memory.optimizer > 2 * 280e9


def test_memory_of_one_layer_is_what_a_page_of_arithmetic_says():
    size = 1024 * 1024 * 4
    layer = nn.Linear(1024, 1024, bias=False)
    step = capture_step(layer, (torch.empty(1024, 1024, requires_grad=False),), optimizer="sgd")
    memory = step.memory
    assert memory is not None
    assert (memory.parameters, memory.buffers, memory.gradients, memory.optimizer) == (size, 0, size, 0)
    # the input, the result and the scalar loss: the input is kept for the weight's gradient
    assert memory.saved == 2 * size + 512
    # weight, input and the weight's gradient; of the result, which nobody holds, nothing; the loss and a one
    assert memory.peak == 3 * size + 2 * 512


def test_adam_holds_two_numbers_for_each_parameter():
    layer = nn.Linear(1000, 1000, bias=False)
    step = capture_step(layer, (torch.empty(2, 1000),), optimizer="adam")
    assert step.memory is not None
    assert step.memory.optimizer == pytest.approx(2 * 4e6, abs=64)
    assert Counter(name for name, _ in called(step, "optimizer"))["aten::_foreach_addcdiv_"] == 1


def test_checkpoints_compute_again_in_the_backward_phase():
    from torch.utils.checkpoint import checkpoint

    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint(self.block, x, use_reentrant=False)

    plain = capture_step(Again().block, (torch.empty(256, 64),))
    again = capture_step(Again(), (torch.empty(256, 64),))
    assert ("aten::gelu", "block.1") in called(again, "backward")
    assert again.flops > plain.flops
    assert plain.memory is not None
    assert again.memory is not None
    assert again.memory.saved < plain.memory.saved


def test_dropout_is_one_kernel_as_on_devices():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1))
    step = capture_step(model, (torch.empty(2, 8),), optimizer=None)
    assert ("aten::native_dropout", "1") in called(step, "forward")
    assert ("aten::native_dropout_backward", "1") in called(step, "backward")
    assert not [name for name, _ in called(step, "forward") if "bernoulli" in name]


def test_attention_with_dropout_stays_fused_and_says_so():
    class Attends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)

    step = capture_step(Attends(), (torch.empty(2, 4, 128, 64),), train=False)
    assert [name.startswith("aten::_scaled_dot_product") for name, _ in called(step, "forward")] == [True]
    assert step.notes == (golden(),)
    assert "dropout" in step.notes[0]


def test_recurrent_layers_are_their_formula_and_say_so():
    step = capture_step(nn.LSTM(8, 16), (torch.empty(5, 2, 8),), optimizer=None)
    assert Counter(name for name, _ in called(step, "forward"))["aten::addmm"] >= 5
    assert step.notes[0] == golden()


def test_half_types_come_from_autocast():
    step = capture_step(nn.Linear(64, 64), (torch.empty(8, 64),), precision="bf16", optimizer=None)
    products = [one for one in step.operations if "mm" in one.operation.operator]
    assert {one.work.arithmetic for one in products if one.work} == {"bfloat16"}
    assert step.notes
    assert step.parameters[0].element == "float32"


def test_a_loss_and_an_optimizer_may_be_functions():
    target = torch.zeros(4, dtype=torch.int64)
    step = capture_step(
        Net(),
        IMAGES,
        loss=lambda y: nn.functional.cross_entropy(y, target),
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    )
    assert ("aten::nll_loss_forward", "") in called(step, "forward")
    assert [name for name, _ in called(step, "optimizer")] == ["aten::_foreach_mul_"] + [
        "aten::_foreach_add_"
    ] * 2
    assert step.memory is not None
    assert step.memory.optimizer == step.memory.parameters


def test_inference_has_one_phase_and_no_gradients():
    step = capture_step(Net().eval(), IMAGES, train=False)
    assert {one.phase for one in step.operations} == {"forward"}
    assert not step.trains
    assert step.parameters == ()


@pytest.mark.parametrize("name", ["adam", "AdamW", "rmsprop", "adagrad", "nadam", "radam", "adafactor"])
def test_named_optimizers_go_through_all_parameters(name: str):
    rows, state_bytes = capture_optimizer({"w": ((64, 64), "float32"), "b": ((64,), "float32")}, name)
    assert rows
    assert {one.phase for one in rows} == {"optimizer"}
    assert all(one.work is not None for one in rows)
    assert state_bytes >= 0


def test_values_that_decide_are_a_reason_to_refuse():
    class Depends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum() > 0 else x

    with raises(CaptureError, "aten._local_scalar_dense.default", "forward", "daceml.profile"):
        capture_step(Depends(), (torch.empty(3),), train=False)


def test_wrong_shapes_say_what_torch_says():
    with raises(CaptureError, "RuntimeError: ", exact=False):
        capture_step(nn.Linear(4, 4), (torch.empty(2, 3),))


def test_a_model_without_gradients_has_no_training_step():
    with raises(CaptureError, "backward"):
        capture_step(nn.Flatten(), (torch.empty(2, 3),))


def test_unknown_names_are_answered_with_those_there_are():
    with raises(CaptureError, "'adamm'", "torch.optim", "adadelta, ", "sgd", exact=False):
        capture_step(nn.Linear(2, 2), (torch.empty(2, 2),), optimizer="adamm")
    with raises(CaptureError, "'int4'", "bf16"):
        capture_step(nn.Linear(2, 2), (torch.empty(2, 2),), precision="int4")
