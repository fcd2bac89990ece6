"""Steps of training: optimizers, statistics, random masks, changing sizes, other types, frozen parts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from tests.support.sampling import sampled
from tests.support.trained_twins import compiled_backward, double, same, trains_like, twins


class Net(nn.Module):
    """A convolution with statistics, a random mask and a layer."""

    def __init__(self, p: float = 0.3) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2, momentum=0.25)
        self.drop, self.out = nn.Dropout(p), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.drop(functional.relu(self.norm(self.conv(x)))).flatten(1))


def net(p: float = 0.3) -> nn.Module:
    torch.manual_seed(0)
    return Net(p).double()


def batch(size: int = 4) -> torch.Tensor:
    return torch.randn(size, 1, 3, 3, dtype=torch.float64)


# momentum and eps are float32 in ONNX
NORMED = 1e-6


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01),
    ],
    ids=["sgd", "adamw"],
)
def test_steps_are_those_of_eager_masks_and_statistics_included(optimizer: Any):
    compiled, eager = twins(net())
    ours, theirs = optimizer(compiled.parameters()), optimizer(eager.parameters())
    torch.manual_seed(1)
    batches = [batch() for _ in range(4)]
    for seed, x in enumerate(batches):
        if seed == 2:  # training goes on with a copy, as after a checkpoint was loaded
            state = ours.state_dict()
            compiled = copy.deepcopy(compiled)
            ours = optimizer(compiled.parameters())
            ours.load_state_dict(state)
        losses = []
        for module, steps in ((compiled, ours), (eager, theirs)):
            steps.zero_grad()
            torch.manual_seed(seed)
            loss = functional.cross_entropy(module(x), torch.arange(len(x)) % 2)
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            steps.step()
            losses.append(loss)
        same(losses[0], losses[1], NORMED)
        same([*compiled.state_dict().values()], [*eager.state_dict().values()], NORMED)
    assert compiled_backward(compiled)
    compiled.eval(), eager.eval()
    same(compiled(batches[0]), eager(batches[0]), NORMED)


def test_masks_are_reproducible():
    compiled = daceml.compile(net())
    x = batch()
    with torch.random.fork_rng():
        found = []
        for seed in (3, 4, 3):
            compiled.zero_grad()
            torch.manual_seed(seed)
            compiled(x).sum().backward()
            found.append(compiled.out.weight.grad.clone())
    assert torch.equal(found[0], found[2]) and not torch.equal(found[0], found[1])


def test_copies_train_apart():
    compiled = daceml.compile(net(p=0.0))
    x = batch()
    compiled(x).sum().backward()
    before = compiled.out.weight.grad.clone()
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        other(x).sum().backward()
        same(other.out.weight.grad, before)
        same(compiled.out.weight.grad, before)
        assert compiled_backward(other)


def backward_outputs(compiled: Any) -> int:
    """How many gradients the newest backward program computes."""
    return len(compiled.session.latest.backward.program.manifest.outputs)


def test_frozen_parameters_cost_nothing_and_may_thaw():
    torch.manual_seed(0)
    compiled, eager = twins(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double())
    x = double(5, 3)

    def agree() -> None:
        for module in (compiled, eager):
            module.zero_grad()
            module(x).pow(2).sum().backward()
        same([p.grad for p in compiled.parameters()], [p.grad for p in eager.parameters()])

    for module in (compiled, eager):
        module[0].requires_grad_(False)
    agree()
    assert backward_outputs(compiled) == 2
    for module in (compiled, eager):
        module[0].weight.requires_grad_(True)
        module[2].requires_grad_(False)
    agree()
    assert backward_outputs(compiled) == 1
    for module in (compiled, eager):
        module.requires_grad_(True)
    agree()
    trains_like(compiled, eager, x, steps=1)
    for module in (compiled, eager):
        module.requires_grad_(False)
    assert not compiled(x).requires_grad
    trains_like(compiled, eager, x, steps=1)


NAMED: dict[str, Any] = {"dynamic_shapes": {"x": {0: "batch"}}}


@pytest.mark.parametrize("options", sampled([{"dynamic": True}, NAMED], NAMED), ids=str)
def test_sizes_may_change(options: dict[str, Any]):
    compiled, eager = twins(net(), **options)
    for size in (4, 7, 2):
        trains_like(compiled, eager, batch(size), steps=1, tolerance=NORMED)
    assert len(compiled.session.variants) == 1 and compiled_backward(compiled)


EMPTY: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "layers": (nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)), double(0, 4)),
    "transformer": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), double(0, 5, 8)),
    "recurrent": (nn.LSTM(4, 3), double(5, 0, 4)),
    "frozen statistics": (Net(0.0).eval(), double(0, 1, 3, 3)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_batch_has_gradients_of_zero(name: str):
    module, x = EMPTY[name]
    pair = twins(module.double())
    trains_like(*pair, x, steps=1, tolerance=0.0)
    assert compiled_backward(pair[0])
    assert not any(p.grad.any() for p in pair[0].parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_scaled_losses(dtype: torch.dtype):
    """Half types round in other places; against float64, at most three times as far off as eager."""
    torch.manual_seed(0)

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.up(x)
            with torch.no_grad():  # inside autocast
                scale = y.abs().mean()
            return functional.softmax(
                self.down(functional.gelu(y) / scale) + self.down(functional.gelu(y)).detach(), -1
            )

    compiled, eager = twins(Mixed())
    exact = copy.deepcopy(eager).double()
    x = torch.randn(6, 8)
    found: list[list[torch.Tensor]] = []
    kinds: list[torch.dtype] = []
    for module, given in ((compiled, x), (eager, x), (exact, x.double())):
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        with torch.autocast("cpu", dtype, enabled=module is not exact):
            y = module(given)
        kinds.append(y.dtype)
        scaler.scale(y[:, 0].pow(2).sum()).backward()
        scaler.unscale_(optimizer)
        found.append([p.grad.double() for p in module.parameters()])
        scaler.step(optimizer)
        scaler.update()
    assert kinds[0] == kinds[1]
    assert compiled_backward(compiled)
    for ours, theirs, right in zip(*found, strict=True):
        error, usual = (torch.linalg.norm(g - right) / torch.linalg.norm(right) for g in (ours, theirs))
        assert error <= 3 * usual + 1e-6, (error, usual)
