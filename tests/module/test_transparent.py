"""A compiled module has the manners of the module: every way to call it, alias, state and side effect."""

from __future__ import annotations

import enum
import logging
from typing import NamedTuple

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import CallError, ConfigurationError, PositionError, RecompileError
from daceml.module.module import compile_module
from tests.support.golden import golden, raises
from tests.support.sampling import sampled

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def no_gradients():
    with torch.no_grad():
        yield


def compiled_of(module: nn.Module, **options):
    return compile_module(module, backward=False, **options)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


class Pair(NamedTuple):
    """A structure of the user."""

    left: torch.Tensor
    right: torch.Tensor


class Mode(enum.Enum):
    """A constant of the user."""

    ADD = 1
    MULTIPLY = 2


class Anyhow(nn.Module):
    """Takes arguments of every kind."""

    def forward(self, pair, *more, times: int = 2, mode=Mode.ADD, mask=None, **named):
        y = pair.left + pair.right if mode is Mode.ADD else pair.left * pair.right
        for extra in more:
            y = y + extra
        for extra in named.values():
            y = y - extra["x"][0]
        if mask is not None:
            y = torch.where(mask, y, torch.zeros_like(y))
        return {"y": y * times, "pair": Pair(y, pair.right), "times": times, "nothing": None}


def test_arguments_of_every_kind():
    eager = Anyhow()
    compiled = compiled_of(eager)
    a, b, c = (torch.randn(3, 4) for _ in range(3))
    calls = [
        ((Pair(a, b),), {}),
        ((Pair(a, b), c, c), {"times": 3}),
        ((Pair(a, b),), {"times": -0.0, "mode": Mode.MULTIPLY}),
        ((Pair(a, b),), {"times": 0.0, "mode": Mode.MULTIPLY, "mask": a > 0}),
        ((Pair(a, b), c), {"first": {"x": [a]}, "second": {"x": [b]}}),
    ]
    for args, kwargs in calls:
        ours, theirs = compiled(*args, **kwargs), eager(*args, **kwargs)
        close(ours["y"], theirs["y"])
        assert torch.equal(torch.signbit(ours["y"]), torch.signbit(theirs["y"]))
        close(ours["pair"].left, theirs["pair"].left)
        assert isinstance(ours["pair"], Pair)
        assert ours["pair"].right is b
        assert ours["times"] == kwargs.get("times", 2)
        assert ours["nothing"] is None
    assert len(compiled.session.variants) == len(calls)


def test_contents_of_lists_and_dicts_are_guarded():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = [2.0, {"bias": torch.ones(3)}]

        def forward(self, x):
            return x * self.scales[0] + self.scales[1]["bias"]

    eager = Scaled()
    compiled = compiled_of(eager)
    x = torch.randn(2, 3)
    close(compiled(x), eager(x))
    eager.scales[0] = 3.0
    close(compiled(x), eager(x))
    eager.scales[1]["bias"].mul_(5)
    close(compiled(x), eager(x))
    eager.scales[1]["bias"] = torch.zeros(3)
    close(compiled(x), eager(x))


class Modal(nn.Module):
    """Depends on torch's modes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x) + torch.full((4,), 0.1)
        if torch.is_grad_enabled():
            with torch.no_grad():
                y = y * 3
        return y


def test_modes_of_torch_are_guarded():
    eager = Modal()
    compiled = compiled_of(eager)
    x = torch.randn(3, 4)
    close(compiled(x), eager(x))
    with torch.enable_grad():
        close(compiled(x), eager(x).detach())
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = compiled(x), eager(x)
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    with torch.inference_mode():
        close(compiled(x), eager(x))
    assert len(compiled.session.variants) == 3


def test_a_compiled_part_of_a_compiled_module():
    inner = nn.Linear(4, 4)
    outer = compiled_of(nn.Sequential(compiled_of(inner), nn.Tanh()))
    x = torch.randn(3, 4)
    close(outer(x), torch.tanh(inner(x)))
    assert len(outer[0].session.variants) == 0


def test_transforms_of_functions_run_eagerly():
    eager = nn.Linear(4, 2)
    compiled = compiled_of(eager)
    x = torch.randn(5, 3, 4)
    close(torch.vmap(compiled)(x), torch.vmap(eager)(x))
    jacobian = torch.func.jacrev(compiled)(x[0, 0])
    close(jacobian, eager.weight)


def test_channels_last_inputs_and_weights():
    eager = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU()).eval()
    x = torch.randn(2, 3, 6, 7)
    expected = eager(x)
    close(compiled_of(eager)(x.to(memory_format=torch.channels_last)), expected)
    eager.to(memory_format=torch.channels_last)
    compiled = compiled_of(eager)
    close(compiled(x), expected)
    eager[0].weight.mul_(2)
    close(compiled(x), eager(x))


def test_stances(caplog: pytest.LogCaptureFixture):
    eager = nn.Linear(4, 2)
    compiled = compiled_of(eager)
    compiled(torch.randn(3, 4))
    other = torch.randn(2, 4)
    with daceml.stance("fail_on_recompile"):
        compiled(torch.randn(3, 4))
        with raises(
            RecompileError, "Linear", "input", "(2, 4)", "(3, 4)", "fail_on_recompile", "dynamic=True"
        ):
            compiled(other)
    with daceml.stance("eager_on_recompile"):
        close(compiled(other), eager(other))
    with daceml.stance("force_eager"):
        close(compiled(other), eager(other))
    assert len(compiled.session.variants) == 1
    with caplog.at_level(logging.INFO, logger="daceml"):
        compiled(other)
    message = caplog.messages[0]
    assert "Linear" in message and "(2, 4)" in message and "(3, 4)" in message and message == golden()
    with raises(ConfigurationError, "'fail'", "force_eager", "eager_on_recompile", "fail_on_recompile"):
        daceml.stance("fail")


def test_the_number_of_variants_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    from daceml import config as options

    monkeypatch.setenv("DACEML_VARIANTS", "2")
    options.config.cache_clear()
    try:
        eager = nn.ReLU()
        compiled = compiled_of(eager)
        with caplog.at_level(logging.WARNING, logger="daceml"):
            for size in (1, 2, 3, 2):
                x = torch.randn(size)
                close(compiled(x), eager(x))
    finally:
        options.config.cache_clear()
    assert len(compiled.session.variants) == 2
    (message,) = caplog.messages
    assert "ReLU" in message and message == golden()


def test_options_are_checked_where_they_are_given():
    wrong = [
        ({"dynamics": True}, ("'dynamics'", "'dynamic'")),
        ({"dynamic": 1}, ("'dynamic'", "is 1", "dynamic=True")),
        ({"dynamic": True, "dynamic_shapes": ({0: "n"},)}, ("dynamic=True", "dynamic_shapes")),
    ]
    for options, facts in wrong:
        with raises(ConfigurationError, *facts):
            daceml.compile(nn.ReLU(), **options)
        with raises(ConfigurationError, *facts):
            daceml.dace_module(**options)


@pytest.mark.parametrize(
    ("argument", "kind"),
    [
        (torch.randn(3).to_sparse(), "sparse_coo"),
        (torch.randn(3, device="meta"), "meta"),
        (torch._neg_view(torch.randn(3)), "negated"),
        (torch.randn(3).numpy(), "ndarray"),
        (object(), "object"),
        ({1, 2}, "set"),
    ],
)
def test_arguments_that_a_program_would_misread_are_refused(argument: object, kind: str):
    with raises(CallError, kind) as error:
        compiled_of(nn.ReLU())(argument)
    assert error.value.fix


def test_moving_a_module_to_another_type_compiles_it_anew():
    eager = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    compiled = compiled_of(eager)
    x = torch.randn(2, 4)
    close(compiled(x), eager(x))
    compiled.double()
    close(compiled(x.double()), eager(x.double()))
    compiled.float()
    close(compiled(x), eager(x))
    eager[0].weight.data = eager[0].weight.data.t().contiguous().t()
    close(compiled(x), eager(x))


def test_what_forward_returns_beside_tensors():
    class Sizes(nn.Module):
        def forward(self, x):
            return x.shape[0], x.shape[0] * 2 + 1, [x + 1, "text", None]

    eager = Sizes()
    compiled = compiled_of(eager, dynamic_shapes=({0: "rows"},))
    for rows in (1, 3, 8, 5):
        ours, theirs = compiled(torch.ones(rows, 2)), eager(torch.ones(rows, 2))
        assert ours[:2] == theirs[:2]
        assert isinstance(ours[1], int)
        close(ours[2][0], theirs[2][0])
        assert ours[2][1:] == ["text", None]
    assert len(compiled.session.variants) == 1


class Inside(nn.Module):
    """Computes in a region that torch.export puts into a graph of its own."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x * self.factor
        return y + 1


def test_programs_differ_by_what_is_inside_regions():
    x = torch.randn(3)
    for factor in (2.0, 3.0):
        close(compiled_of(Inside(factor))(x), Inside(factor)(x))


def test_an_embedding_has_no_negative_rows():
    eager = nn.Embedding(5, 3)
    compiled = compiled_of(eager)
    close(compiled(torch.tensor([0, 4])), eager(torch.tensor([0, 4])))
    for position in (-1, 5):
        with raises(PositionError, "[0, 5)", "Gather", exact=False) as refusal:
            compiled(torch.tensor([0, position]))
        assert refusal.value.why == golden()


class Places(nn.Module):
    """Reads and writes at positions that torch counts from 0 only."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x, i):
        match self.name:
            case "gather":
                return x.gather(0, i)
            case "index_select":
                return x.index_select(0, i)
            case "scatter":
                return x.scatter(0, i, 9.0)
            case "index_add":
                return x.index_add(0, i, x[:1])
            case "index_copy":
                return x.index_copy(0, i, x[:1])
            case _:
                return x.scatter_add(0, i, x[:1])


@pytest.mark.parametrize(
    "name",
    sampled(
        ["gather", "index_select", "scatter", "scatter_add", "index_add", "index_copy"],
        "gather",
        "scatter_add",
        "index_copy",
    ),
)
def test_positions_count_from_zero_where_torch_says_so(name: str):
    eager = Places(name)
    compiled = compiled_of(eager)
    x, last, before = torch.arange(5.0), torch.tensor([4]), torch.tensor([-1])
    close(compiled(x, last), eager(x, last))
    with pytest.raises((IndexError, RuntimeError)) as error:
        eager(x, before)
    with raises(PositionError, "[0, 5)", exact=False) as refusal:
        compiled(x, before)
    assert isinstance(refusal.value, error.type)
    assert refusal.value.why.partition(":")[0] == golden()
