"""Compiled modules inside DaCe programs, against eager PyTorch in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import dace
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.errors import (
    DacemlError,
    GradientError,
    NoImplementationError,
    SignatureError,
    UnsupportedProgramError,
)
from tests.support.golden import raises
from tests.support.quick_programs import quick_programs

pytestmark = [
    # Of dace's own nodes.
    pytest.mark.filterwarnings("ignore:Using sets for connectors"),
    pytest.mark.filterwarnings("ignore:Variable-length array"),
]
N = dace.symbol("N")


@pytest.fixture(autouse=True, scope="module")
def quick_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_programs(tmp_path_factory.mktemp("programs")):
        yield


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 3, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(functional.max_pool2d(functional.relu(self.first(x)), 2)).flatten(1)


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.norm(self.linear(x)))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(x, x, x, need_weights=False)[0]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.step = nn.Sequential(nn.Linear(8, 12), nn.SiLU(), nn.Linear(12, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.step(self.norm(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(6, 6), nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.scale * self.linear(x)
        with torch.no_grad():
            z = y * 2
        return y * y.detach() + z


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (Mlp, (4, 6)),
    "images": (Images, (2, 2, 8, 8)),
    "normalized": (Normalized, (3, 6)),
    "encoder": (Encoder, (2, 5, 8)),
    "recurrent": (Recurrent, (2, 3, 3)),
    "tied": (Tied, (4, 6)),
    "detached": (Detached, (4, 6)),
    "batch_norm": (lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)), (5, 6)),
}


def pair(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """A compiled module, and an eager one with the same state."""
    torch.manual_seed(0)
    eager = make().double()
    return daceml.compile(copy.deepcopy(eager)), eager


def close(found: Any, expected: torch.Tensor) -> None:
    wanted = expected.detach().numpy()
    np.testing.assert_allclose(np.asarray(found).reshape(wanted.shape), wanted, rtol=1e-12, atol=1e-13)


def gradients_are_equal(compiled: nn.Module, eager: nn.Module) -> None:
    for (name, found), expected in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        assert found.grad is not None, name
        assert expected.grad is not None, name
        close(found.grad, expected.grad)


@pytest.mark.parametrize("name", NETWORKS)
def test_values_gradients_and_buffers_are_those_of_torch(name: str):
    net, eager = pair(NETWORKS[name][0])
    x = torch.randn(NETWORKS[name][1], dtype=torch.float64)

    def step(x):
        x.requires_grad_()
        y = net(np.tanh(x))
        loss = np.sum(y * np.sin(y))
        loss.backward()
        return loss, x.grad

    step.__name__ = f"step_{name}"
    loss, gradient = dace.program(step)(x.clone())
    x.requires_grad_()
    y = eager(torch.tanh(x))
    expected = (y * torch.sin(y)).sum()
    expected.backward()
    close(loss, expected)
    close(gradient, x.grad)
    gradients_are_equal(net, eager)
    for found, wanted in zip(net.buffers(), eager.buffers(), strict=True):
        close(found, wanted)


def test_gradients_are_added_to_those_that_are_there():
    net, eager = pair(Mlp)
    x = torch.randn(4, 6, dtype=torch.float64)

    @dace.program
    def added(x):
        loss = np.mean(net(x))
        loss.backward()

    for _ in range(2):
        added(x)
        eager(x).mean().backward()
    gradients_are_equal(net, eager)
    net.zero_grad(set_to_none=True)
    eager.zero_grad()
    added(x)
    eager(x).mean().backward()
    gradients_are_equal(net, eager)


def test_a_program_without_backward_leaves_gradients_alone():
    net, eager = pair(Mlp)
    x = torch.randn(4, 6, dtype=torch.float64)

    @dace.program
    def values(x):
        return net(x)

    close(values(x), eager(x))
    assert all(p.grad is None for p in net.parameters())


def test_changed_and_replaced_parameters_are_seen():
    net, eager = pair(Mlp)
    x = torch.randn(4, 6, dtype=torch.float64)

    @dace.program
    def seen(x):
        return net(x) + 1

    close(seen(x), eager(x) + 1)
    for module in (net, eager):
        with torch.no_grad():
            module[0].weight.mul_(1.5)  # pyright: ignore[reportIndexIssue]
    close(seen(x), eager(x) + 1)
    for module in (net, eager):
        module[2].bias = nn.Parameter(torch.ones(3, dtype=torch.float64))  # pyright: ignore[reportIndexIssue]
    close(seen(x), eager(x) + 1)


def test_another_mode_is_another_program():
    net, eager = pair(lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.0)))
    x = torch.randn(4, 6, dtype=torch.float64)

    @dace.program
    def of_a_mode(x):
        return net(x)

    for mode in (False, True, False):
        net.train(mode)
        eager.train(mode)
        net[2].eval()  # pyright: ignore[reportIndexIssue]
        close(of_a_mode(x), eager(x))


def test_a_frozen_parameter_gets_no_gradient():
    net, eager = pair(Mlp)
    x = torch.randn(4, 6, dtype=torch.float64)

    @dace.program
    def tuned(x):
        loss = np.sum(net(x))
        loss.backward()

    tuned(x)
    for module in (net, eager):
        module.zero_grad()
        module[0].requires_grad_(False)  # pyright: ignore[reportIndexIssue]
    tuned(x)
    eager(x).sum().backward()
    assert net[0].weight.grad is None  # pyright: ignore[reportIndexIssue]
    close(net[2].weight.grad, eager[2].weight.grad)  # pyright: ignore[reportIndexIssue]


def test_two_modules_one_of_them_called_twice():
    body, eager_body = pair(Mlp)
    head, eager_head = pair(lambda: nn.Linear(3, 2))
    x = torch.randn(4, 6, dtype=torch.float64)

    @dace.program
    def contrast(x):
        a = head(body(x))
        b = head(body(x * 2))
        loss = np.mean(a * b)
        loss.backward()
        return loss

    expected = (eager_head(eager_body(x)) * eager_head(eager_body(x * 2))).mean()
    expected.backward()
    close(contrast(x), expected)
    gradients_are_equal(body, eager_body)
    gradients_are_equal(head, eager_head)


def test_two_modules_that_share_a_parameter_and_strides_of_any_order():
    first, eager_first = pair(lambda: nn.Linear(6, 6))
    second, eager_second = pair(lambda: nn.Linear(6, 6))
    for one, two in ((first, second), (eager_first, eager_second)):
        one.weight = nn.Parameter(torch.arange(36.0, dtype=torch.float64).reshape(6, 6).T / 36)
        two.weight = one.weight

    @dace.program
    def shared(x: dace.float64[N, 6], y: dace.float64[N, 6]):
        loss = np.sum(second(first(x)) * y)
        loss.backward()
        return loss

    x, y = torch.randn(2, 4, 6, dtype=torch.float64)
    expected = (eager_second(eager_first(x)) * y).sum()
    expected.backward()
    close(shared(x.contiguous(), y.clone()), expected)
    gradients_are_equal(first, eager_first)
    gradients_are_equal(second, eager_second)


def test_two_sizes_may_be_symbols():
    net, eager = pair(lambda: nn.Linear(6, 3))
    rows = dace.symbol("rows")

    @dace.program
    def of_two_sizes(x: dace.float64[rows, N, 6]):
        return net(x)

    for shape in ((2, 3, 6), (5, 2, 6)):
        x = torch.randn(shape, dtype=torch.float64)
        close(of_two_sizes(x), eager(x))


def test_a_module_in_a_program_that_another_program_calls():
    net, eager = pair(Mlp)
    x = torch.randn(4, 6, dtype=torch.float64)

    @dace.program
    def loss_of(x: dace.float64[4, 6]):
        return np.sum(net(x) * net(x))

    @dace.program
    def step_of(x: dace.float64[4, 6]):
        loss = loss_of(x)
        loss.backward()
        return loss

    expected = (eager(x) ** 2).sum()
    expected.backward()
    close(step_of(x), expected)
    gradients_are_equal(net, eager)


def test_the_batch_may_have_any_size():
    net, eager = pair(Attending)

    @dace.program
    def of_any_size(x: dace.float64[N, 5, 8]):
        loss = np.sum(net(x))
        loss.backward()
        return loss

    for size in (2, 7):
        x = torch.randn(size, 5, 8, dtype=torch.float64)
        net.zero_grad()
        eager.zero_grad()
        expected = eager(x).sum()
        expected.backward()
        close(of_any_size(x), expected)
        gradients_are_equal(net, eager)


def test_several_results_constants_and_names():
    class Several(nn.Module):
        def forward(
            self, x: torch.Tensor, y: torch.Tensor, scale: float = 1.0, *, flip: bool = False
        ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            return (y - x if flip else x - y) * scale, x + y, x

    net = daceml.compile(Several())
    x, y = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)

    @dace.program
    def several(x, y):
        a, b, same = net(x, y=y, scale=2.0, flip=True)
        return a, b, same

    a, b, same = several(x, y)
    close(a, (y - x) * 2)
    close(b, x + y)
    close(same, x)


def test_an_argument_that_forward_changes_is_changed():
    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return x + 1

    net = daceml.compile(Doubling())

    @dace.program
    def doubled(x: dace.float64[3]):
        return net(x)

    x = torch.arange(3.0, dtype=torch.float64)
    close(doubled(x), 2 * torch.arange(3.0, dtype=torch.float64) + 1)
    close(x, 2 * torch.arange(3.0, dtype=torch.float64))


def test_a_decorated_class_and_integers():
    @daceml.dace_module
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4, padding_idx=2)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.table(words).mean(1)

    net = Words().double()
    words = torch.tensor([[1, 2, 2], [3, 1, 9]])

    @dace.program
    def of_words(words):
        y = net(words)
        loss = np.sum(y * y)
        loss.backward()
        return y

    table = net.table.weight.detach().clone().requires_grad_()
    expected = functional.embedding(words, table, padding_idx=2).mean(1)
    close(of_words(words), expected)
    (expected**2).sum().backward()
    close(net.table.weight.grad, table.grad)


def too_many(net: nn.Module) -> Callable[..., Any]:
    def called(x: dace.float64[4, 6]):
        return net(x, x)

    return called


def too_few(net: nn.Module) -> Callable[..., Any]:
    def called(x: dace.float64[4, 6]):
        return net()

    return called


def named_wrongly(net: nn.Module) -> Callable[..., Any]:
    def called(x: dace.float64[4, 6]):
        return net(y=x)

    return called


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (too_many, ["Mlp", "too many arguments", "forward(input)"]),
        (too_few, ["Mlp", "'input'"]),
        (named_wrongly, ["Mlp", "'input'"]),
    ],
)
def test_arguments_that_forward_does_not_take(make: Callable[..., Any], facts: list[str]):
    with raises(SignatureError, *facts):
        dace.program(make(pair(Mlp)[0])).to_sdfg()


class Structured(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x + 1}


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x * 2
        return x + 1


class FixedSize(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(12, 2).sum(1)


class Unregistered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(6.0, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (Structured, ["Structured", "dict"]),
        (Counting, ["Counting", "last"]),
        (Unregistered, ["Unregistered", "register_buffer"]),
    ],
)
def test_a_module_that_is_no_part_of_a_program_says_why(make: Callable[[], nn.Module], facts: list[str]):
    net = daceml.compile(make())

    @dace.program
    def refused(x: dace.float64[4, 6]):
        return net(x)

    with raises(UnsupportedProgramError, *facts):
        refused.to_sdfg()


def test_a_module_elsewhere_is_refused():
    net = daceml.compile(nn.Linear(6, 3, device="meta"))

    @dace.program
    def elsewhere(x: dace.float32[4, 6]):
        return net(x)

    with raises(UnsupportedProgramError, "weight lies on meta"):
        elsewhere.to_sdfg()


def test_a_size_that_forward_fixes_cannot_be_a_symbol():
    net = daceml.compile(FixedSize())

    @dace.program
    def fixed(x: dace.float64[N, 6]):
        return net(x)

    with raises(DacemlError, "FixedSize", exact=False):
        fixed.to_sdfg()


def test_random_numbers_are_refused_by_the_operator_that_draws_them():
    net = daceml.compile(nn.Dropout(0.5))

    @dace.program
    def dropped(x: dace.float64[4, 6]):
        return net(x)

    with raises(NoImplementationError, "Dropout", "module.eval()", exact=False):
        dropped.to_sdfg()


def test_a_gradient_of_its_own_is_not_replaced_by_another():
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.round(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return gradient

    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(6, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Straight.apply(x * self.scale)  # pyright: ignore[reportReturnType]

    net = daceml.compile(Quantized())

    @dace.program
    def quantized(x: dace.float64[4, 6]):
        loss = np.sum(net(x))
        loss.backward()
        return loss

    with raises(GradientError, "autograd.Function", exact=False):
        quantized.to_sdfg()
