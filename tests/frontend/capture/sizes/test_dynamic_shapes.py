"""One compilation for every size, and another one where that would be wrong."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from copy import copy

import pytest
import torch
from torch import nn
from torch.export import Dim

from daceml.errors import ConfigurationError, DacemlError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.capture import capture
from daceml.frontend.capture.sizes import dynamic_shapes
from daceml.module.module import compile_module
from tests.support.eager_twin import Function
from tests.support.golden import raises
from tests.support.sampling import sampled

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def no_gradients():
    with torch.no_grad():
        yield


class Net(nn.Module):
    """Layers as networks have them: a convolution, a norm, a pooling, attention over pixels, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        pixels = x.flatten(2).transpose(1, 2)
        mixed, _ = self.attention(pixels, pixels, pixels, need_weights=False)
        return torch.softmax(self.head(mixed.mean(1)), -1), x.size(0)


def agree(compiled, eager, *args):
    ours, theirs = compiled(*args), eager(*args)
    if isinstance(theirs, tuple):
        assert ours[1:] == theirs[1:]
        ours, theirs = ours[0], theirs[0]
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("train", "first"), sampled(itertools.product([False, True], [1, 3]), (False, 1), (True, 3))
)
def test_a_named_batch_is_compiled_once(first: int, train: bool):
    eager = Net().train(train)
    compiled = compile_module(eager, backward=False, dynamic_shapes={"x": {0: "batch"}})
    for batch in (first, 1, 3, 8, 5):
        agree(compiled, eager, torch.randn(batch, 3, 6, 8))
    assert len(compiled.session.variants) == 1


FLATTENING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU()), "input"),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), "src"),
}


@pytest.mark.parametrize(
    ("layer", "open_dim"),
    sampled(itertools.product(FLATTENING, [0, 1]), ("linear", 0), ("linear", 1), ("encoder", 1)),
)
def test_one_of_two_leading_sizes_is_named(layer: str, open_dim: int):
    """Linear layers flatten rows and unfold them again: of what is open, -1 says no number."""
    make, name = FLATTENING[layer]
    eager = make().eval()
    compiled = compile_module(eager, backward=False, dynamic_shapes={name: {open_dim: "n"}})
    for size in (3, 1, 5):
        shape = [2, 7, 16]
        shape[open_dim] = size
        agree(compiled, eager, torch.randn(shape))
    assert len(compiled.session.variants) == 1


def test_every_size_may_be_open():
    eager = Net().eval()
    compiled = compile_module(eager, backward=False, dynamic=True)
    for shape in ((2, 3, 6, 8), (5, 3, 6, 8), (3, 3, 9, 7), (1, 3, 5, 5), (4, 3, 12, 4)):
        agree(compiled, eager, torch.randn(shape))
    assert len(compiled.session.variants) == 1


class Branches(nn.Module):
    """Asks for its sizes."""

    def forward(self, x, y):
        if x.shape[0] == 1:
            return x * 2 + y
        if x.shape[0] > 6:
            return x - y
        return (x + y).squeeze(0)


def test_branches_on_sizes_are_guards(caplog: pytest.LogCaptureFixture):
    eager = Branches()
    compiled = compile_module(eager, backward=False, dynamic=True)
    with caplog.at_level(logging.INFO, logger="daceml"):
        for rows in (3, 5, 1, 8, 9, 6, 1):
            agree(compiled, eager, torch.randn(rows, 2), torch.randn(rows, 2))
    assert len(compiled.session.variants) == 3
    assert "is 8, " in caplog.text and "2 to 6" in caplog.text


class Squeeze(nn.Module):
    def forward(self, x):
        return x.squeeze(0) + 1


@pytest.mark.parametrize("first", [1, 4])
def test_squeeze_is_not_taken_for_granted(first: int):
    compiled = compile_module(Squeeze(), backward=False, dynamic_shapes=({0: Dim("rows")},))
    for rows in (first, 1, 4, 2):
        agree(compiled, Squeeze(), torch.randn(rows, 3))
    assert len(compiled.session.variants) == 2


class Rows(nn.Module):
    def forward(self, x):
        return x.reshape(x.shape[0] // 2, -1) * 2


def test_reshapes_hold_for_their_sizes_only():
    compiled = compile_module(Rows(), backward=False, dynamic=True)
    for shape in ((4, 6), (6, 6), (7, 6)):
        agree(compiled, Rows(), torch.randn(shape))
    with raises((DacemlError, RuntimeError), "shape", exact=False):
        compiled(torch.randn(9, 7))


def test_empty_batches_have_a_variant_of_their_own():
    eager = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    compiled = compile_module(eager, backward=False, dynamic_shapes=({0: "rows"},))
    for rows in (3, 0, 2):
        agree(compiled, eager, torch.randn(rows, 3))


def test_broadcasting_sizes_are_told_apart():
    class Add(nn.Module):
        def forward(self, x, y):
            return x + y

    compiled = compile_module(Add(), backward=False, dynamic=True)
    for a, b in (((4, 3), (4, 3)), ((5, 2), (5, 2)), ((4, 3), (1, 3)), ((1, 3), (4, 3)), ((1, 3), (1, 3))):
        agree(compiled, Add(), torch.randn(a), torch.randn(b))


@pytest.mark.parametrize(
    ("shapes", "facts"),
    [
        ({"z": {0: "n"}}, ["z"]),
        (({3: "n"},), ["dimension 3"]),
        (({0: "no name"},), ["'no name'"]),
        (({0: 7},), ["dimension 0", 7, 4]),
        ("n", ["str"]),
        ([0], ["is 0"]),
        ({"input": "n"}, ["input", "'n'"]),
    ],
    ids=["argument", "dimension", "name", "size", "text", "number in a list", "text of an argument"],
)
def test_specifications_that_do_not_fit_are_refused(shapes: object, facts: list[object]):
    compiled = compile_module(nn.ReLU(), backward=False, dynamic_shapes=shapes)
    with raises(ConfigurationError, "dynamic_shapes", *facts):
        compiled(torch.randn(4, 3))


def test_a_gradient_needs_the_size_of_an_input_and_nothing_else_of_it():
    """The gradient of a sum needs the size of what was summed; the tensor may change before it runs."""

    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2).sum(1)

    compiled = compile_module(Sum(), backward=True, dynamic=True)
    for size in (4, 7, 1, 0):
        x = torch.randn(3, size, requires_grad=True)
        with torch.enable_grad():
            taken = x * 1
            y = compiled(taken)
            with torch.no_grad():
                taken.add_(1)
            y.sum().backward()
        assert torch.equal(x.grad, torch.full((3, size), 2.0))
    assert len(compiled.session.variants) <= 3, "sizes of 0 and 1 may have their own"


BROADCAST = {
    "reshaped": (
        lambda x, y: x.view(-1, 2) * y.view(-1, 2),
        [(4, 4), (2, 4), (4, 2), (2, 2), (6, 6), (2, 6)],
    ),
    "sliced": (lambda x, y: x[: x.shape[0] // 2] * y, [(4, 2), (2, 2), (2, 5), (6, 3), (6, 1), (8, 4)]),
    "products": (lambda x, y: x.view(-1, 2, 2) @ y.view(-1, 2, 2), [(12, 12), (4, 12), (12, 4)]),
    "chosen": (lambda x, y: torch.where(x.view(-1, 2) > 0, 1.0, y.view(-1, 2)), [(4, 4), (2, 4), (4, 2)]),
    "changed": (lambda x, y: x.clone().view(-1, 2).add_(y.view(-1, 2)), [(4, 4), (4, 2), (2, 2)]),
}


def test_a_mean_over_a_strided_convolution_has_its_gradient():
    """It divides by a rounded quotient of sizes."""
    convolution = nn.Conv2d(3, 4, 3, stride=2, padding=1)
    module = Function(lambda x: convolution(x).relu().mean((2, 3)))
    compiled = compile_module(module, dynamic=True, fullgraph=True)
    for batch, size in [(2, 8), (3, 10), (2, 9)]:
        x = torch.randn(batch, 3, size, size).requires_grad_()
        y = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            found, expected = compiled(x), module(y)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
            found.sin().sum().backward()
            expected.sin().sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-5, atol=1e-6)
    assert len(compiled.session.variants) <= 2


@pytest.mark.parametrize(("function", "sizes"), BROADCAST.values(), ids=BROADCAST)
def test_a_size_that_is_computed_and_becomes_1_is_broadcast(function, sizes):
    compiled = compile_module(Function(function), backward=False, dynamic=True)
    for rows, others in [*sizes, *sizes]:
        x, y = torch.arange(1.0, rows + 1), torch.arange(1.0, others + 1)
        assert torch.equal(compiled(x, y), function(x, y))


def test_other_sizes_stay_open_where_one_that_is_computed_is_1():
    compiled = compile_module(
        Function(lambda x: x.unflatten(1, (-1, 2)) + x[:, :1, None]), backward=False, dynamic=True
    )
    for batch in (2, 3, 5):
        assert compiled(torch.ones(batch, 2)).shape == (batch, 1, 2)
    assert len(compiled.session.variants) == 1


def test_sizes_that_no_program_can_have_as_symbols_are_fixed():
    """Of a difference of sizes a program does not know whether it is positive, nor how a division rounds."""

    def overlapping(x: torch.Tensor) -> torch.Tensor:
        count = x.shape[0] - 12
        windows = x.cumsum(0).view(count, x.shape[0] // count, 4)
        size, strides = list(windows.size()), list(windows.stride())
        size[0], strides[0] = 2 * size[0] - 1, strides[0] // 2
        return windows.as_strided(size, strides) * 2

    compiled = compile_module(Function(overlapping), backward=False, dynamic=True, fullgraph=True)
    for length in (16, 18, 16):
        x = torch.arange(4.0 * length).view(length, 4)
        assert torch.equal(compiled(x), overlapping(x))
    assert [variant.sizes for variant in compiled.session.variants] == [None, None]


class Positions(nn.Module):
    """Tables of positions along two axes and along one: torch cannot solve what they ask of a size."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.tokens = nn.Parameter(torch.randn(1, 4, 8, 8)), nn.Parameter(torch.randn(1, 1, 4))
        self.halves = nn.Conv2d(3, 4, 7, stride=2, padding=3)

    def forward(self, x):
        places = nn.functional.max_pool2d(self.halves(x), 4) + self.map
        return nn.functional.max_pool2d(nn.functional.max_pool2d(places, 2), 2).flatten(2) + self.tokens


def test_the_batch_stays_open_where_torch_cannot_trace_every_size_as_a_symbol():
    eager = Positions()
    compiled = compile_module(eager, backward=False, dynamic=True, fullgraph=True)
    for batch in (2, 3, 1, 5):
        agree(compiled, eager, torch.randn(batch, 3, 64, 64))
    assert len(compiled.session.variants) == 1


def test_marks_of_symbolic_sizes_are_the_callers():
    x = torch.randn(2, 3, 64, 64)
    compile_module(Positions(), backward=False, dynamic=True)(x)
    assert not any("dynamo" in name for name in vars(x))
    torch._dynamo.mark_dynamic(x, 0)
    marks = {name: copy(value) for name, value in vars(x).items()}
    compile_module(Positions(), backward=False, dynamic=True)(x)
    assert vars(x) == marks


class Windows(nn.Module):
    """Attention within windows and within shifted ones, as in a Swin transformer."""

    def forward(self, x):
        for shift in (0, 2):
            batch, height, width, channels = x.shape
            below, right = -height % 4, -width % 4
            rolled = nn.functional.pad(x, (0, 0, 0, right, 0, below)).roll((-shift, -shift), (1, 2))
            rows, columns = (height + below) // 4, (width + right) // 4
            windows = (
                rolled.view(batch, rows, 4, columns, 4, channels).transpose(2, 3).reshape(-1, 16, channels)
            )
            mixed = (windows @ windows.transpose(1, 2)).softmax(-1) @ windows
            mixed = mixed.view(batch, rows, columns, 4, 4, channels).transpose(2, 3)
            mixed = mixed.reshape(batch, height + below, width + right, channels).roll((shift, shift), (1, 2))
            x = mixed[:, :height, :width].contiguous()
        return x


def test_sizes_with_many_conditions_stay_fixed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Tracing would take minutes otherwise; the batch stays open."""
    monkeypatch.setattr(dynamic_shapes, "_MOST_CONDITIONS", 6)  # so that it takes seconds here
    with caplog.at_level(logging.INFO, "daceml"):
        traced = capture(Windows(), Arguments((torch.randn(2, 8, 8, 3),), {}), dynamic=True)
    assert "sizes on which forward sets many conditions stay fixed" in caplog.text
    assert traced.sizes is not None
    assert traced.sizes.problem([(3, 8, 8, 3)]) is None
    assert traced.sizes.problem([(3, 4, 8, 3)]) == "a size is 4 instead of 8"


@pytest.mark.parametrize("first", [0, 1])
def test_torch_may_choose_a_size_that_is_small_at_first(first: int):
    """`Dim.AUTO` has no bounds."""
    module = nn.Linear(3, 2)
    compiled = compile_module(module, dynamic_shapes={"input": {0: Dim.AUTO}})
    for size in (first, 4, 6):
        agree(compiled, module, torch.randn(size, 3))
