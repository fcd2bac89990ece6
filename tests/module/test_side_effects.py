"""What a call does besides computing: results alias as eager's do, and what forward changes is changed."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import CallError
from daceml.module.module import compile_module
from tests.support.golden import golden, raises

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


class Aliases(nn.Module):
    """Returns what it was given, parts of it, and the same thing twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        y = x * self.weight
        return x, x[1:, ::2], x.t(), self.weight, y, y, y.view(-1), self.count


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_alias_what_eagers_alias(dynamic: bool):
    eager = Aliases()
    compiled = compiled_of(copy.deepcopy(eager), dynamic=dynamic)
    for x in (torch.randn(3, 4), torch.randn(5, 4), torch.randn(8, 5, 4)[:, 2]):
        given = x.clone()[:] if x.is_contiguous() else x
        ours, theirs = compiled(given), eager(x)
        for a, b in zip(ours, theirs, strict=True):
            close(a, b)
        assert ours[0] is given
        assert ours[3] is compiled.weight
        assert ours[4] is ours[5]
        assert ours[7] is compiled.count
        given.zero_()
        assert not ours[1].any()
        assert not ours[2].any()
        ours[4].fill_(7)
        assert (ours[6] == 7).all()


class ReturnsWhatItIsGiven(nn.Module):
    """Operators that give their argument back where they have nothing to do."""

    def forward(self, x):
        y = nn.functional.dropout(x, 0.5, training=False)
        return (
            y,
            x.contiguous(),
            x.to(x.dtype),
            x.float(),
            nn.functional.dropout(x, 0.0),
            x.double(),
            x.clone(),
        )


def test_operators_that_do_nothing_return_their_argument():
    eager = ReturnsWhatItIsGiven()
    x = torch.randn(3)
    same = [y is x for y in eager(x)]
    assert same == [True] * 5 + [False] * 2
    assert [y is x for y in compiled_of(eager)(x)] == same


class Stores(nn.Module):
    """Changes its input, a buffer and a parameter in place."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("total", torch.zeros(4, dtype=torch.float64))

    def forward(self, x, y):
        x.mul_(2).add_(self.weight)
        self.total += x.sum(0)
        self.weight.mul_(0.5)
        y[:, 1] = x[:, 0]
        return torch.relu_(x) + y


def test_tensors_that_forward_changes_are_changed():
    eager = Stores()
    module = copy.deepcopy(eager)
    compiled = compiled_of(module)
    for layout in (torch.Tensor.contiguous, lambda t: t.t().contiguous().t()):
        inputs = [layout(torch.randn(3, 4)) for _ in range(2)]
        mine, reference = [t.clone(memory_format=torch.preserve_format) for t in inputs], inputs
        close(compiled(*mine), eager(*reference))
        for a, b in zip(
            (*mine, module.weight, module.total), (*reference, eager.weight, eager.total), strict=True
        ):
            close(a, b)
    x = torch.randn(3, 4)
    with raises(CallError, "memory"):
        compiled(x, x)


class Remembers(nn.Module):
    """Assigns attributes as it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.calls = 0
        self.last = None

    def forward(self, x):
        self.inner.calls += 1
        self.last = {"x": x * 2, "calls": self.inner.calls}
        return x + self.inner.calls


def test_attributes_that_forward_assigns_are_assigned(caplog: pytest.LogCaptureFixture):
    eager = Remembers()
    module = copy.deepcopy(eager)
    compiled = compiled_of(module)
    for step in range(10):  # compiled eight times, and no more than that
        x = torch.randn(3)
        with caplog.at_level(logging.WARNING):
            close(compiled(x), eager(x))
        assert module.inner.calls == eager.inner.calls == step + 1
        close(module.last["x"], eager.last["x"])
    for message in caplog.messages:
        assert "Remembers" in message and "8 times" in message and message == golden()


def test_hooks_of_submodules_see_every_call():
    eager = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    compiled = compiled_of(eager)
    seen = []
    handle = eager[1].register_forward_hook(lambda module, args, result: seen.append(result))
    x = torch.randn(2, 3)
    for calls in (1, 2):
        close(compiled(x), seen[-1])
        assert len(seen) == calls
        assert type(seen[-1]) is torch.Tensor
    handle.remove()
    close(compiled(x), eager(x))
    assert len(compiled.session.variants) == 1


def test_errors_leave_nothing_behind():
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            self.inner.seen = x
            if x.shape[0] == 2:
                raise ValueError("two rows")
            return self.inner(x)

    eager = Fails()
    compiled = compiled_of(eager)
    with pytest.raises(ValueError, match="two rows"):
        compiled(torch.randn(2, 3))
    assert eager.steps == 0
    assert not hasattr(eager.inner, "seen")
    x = torch.randn(4, 3)
    close(compiled(x), eager.inner(x))
    assert eager.steps == 1
    assert torch.equal(eager.inner.seen, x)


def test_an_input_that_is_a_buffer_of_the_module_is_refused_where_it_changes():
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.ones(4))

        def forward(self, x):
            self.total.add_(1)
            return x * 2

    eager = Counts()
    compiled = compiled_of(eager)
    assert not compiled(torch.zeros(4)).any()
    with raises(CallError, "memory"):
        compiled(eager.total)
    assert (eager.total == 2).all()  # nothing was changed


def test_results_are_detached_where_gradients_are_enabled():
    compiled = compiled_of(nn.Linear(3, 2))
    with torch.enable_grad():
        assert not compiled(torch.randn(2, 3, requires_grad=True)).requires_grad


def test_inference_mode_may_come_first():
    eager = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    compiled = compiled_of(eager)
    x = torch.randn(2, 4)
    with torch.inference_mode():
        close(compiled(x), eager(x))
    close(compiled(x), eager(x))


def test_a_compiled_part_may_be_used_twice():
    part = compiled_of(nn.Linear(4, 4))
    eager = nn.Sequential(part.session.eager, part.session.eager)
    x = torch.randn(2, 4)
    close(compiled_of(nn.Sequential(part, part))(x), eager(x))


def test_layers_that_cache_their_weights_are_compiled():
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 5)

        def forward(self, x):
            return self.lstm(x)[0]

    eager = Last()
    close(compiled_of(eager)(torch.ones(3, 2, 4)), eager(torch.ones(3, 2, 4)))


class CachedBias(nn.Module):
    """Attention biases of timm's models: looked up once in evaluation, and again after training."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 9))
        self.register_buffer("places", torch.arange(16) % 9)
        self.cache: dict[str, torch.Tensor] = {}

    def train(self, mode: bool = True):
        super().train(mode)
        if mode:
            self.cache = {}
        return self

    def forward(self, x):
        if self.training:
            return x @ self.table[:, self.places]
        if str(x.device) not in self.cache:
            self.cache[str(x.device)] = self.table[:, self.places]
        return x @ self.cache[str(x.device)]


def test_a_cache_is_filled_by_an_eager_call_and_then_read_by_a_program(caplog: pytest.LogCaptureFixture):
    eager, x = CachedBias().eval(), torch.randn(3, 4)
    compiled = compiled_of(eager)
    with caplog.at_level(logging.INFO, logger="daceml"):
        for _ in range(3):  # epochs, after each of which the weights are others
            for _ in range(3):
                close(compiled(x), x @ eager.table[:, eager.places])
            assert list(eager.cache) == ["cpu"]
            compiled.train()
            close(compiled(x), x @ eager.table[:, eager.places])
            eager.table += 1
            compiled.eval()
    assert compiled.session.variants
    said = [record.getMessage() for record in caplog.records]
    assert sum("runs eagerly once" in text for text in said) == 3
    assert not any("is not one program" in text for text in said)


def test_a_model_that_has_still_to_fill_its_cache_is_explained():
    eager, x = CachedBias().eval(), torch.randn(3, 4)
    compiled = daceml.compile(eager, backward=False, fullgraph=False)
    assert "1 program" in str(daceml.explain(compiled, x))
    eager.cache.clear()
    for _ in range(2):
        close(compiled(x), x @ eager.table[:, eager.places])
    assert compiled.session.variants


def test_what_needs_one_program_asks_for_a_first_call_where_a_cache_is_empty():
    eager, x = CachedBias().eval(), torch.randn(3, 4)
    compiled = daceml.compile(eager, backward=False)
    with pytest.raises(CallError) as refusal:
        daceml.verify(compiled, x)
    assert refusal.value.code == "DML203" and "call the module once" in refusal.value.fix
    compiled(x)
    assert daceml.verify(compiled, x).passed


def test_a_dict_that_grows_at_every_call_stays_eager():
    class History(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.calls = nn.Linear(4, 4), dict[int, int]()

        def forward(self, x):
            self.calls[len(self.calls)] = 1
            return self.linear(x)

    eager, x = History(), torch.randn(2, 4)
    compiled = compiled_of(eager)
    for call in range(4):
        close(compiled(x), eager.linear(x))
        assert len(eager.calls) == call + 1


def test_a_hook_that_assigns_to_the_model_is_called_at_every_call():
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
            self.body[0].register_forward_hook(self.keep)

        def keep(self, module: nn.Module, given: object, result: torch.Tensor) -> None:
            self.kept = result.detach()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

    eager = Kept().eval()
    compiled = daceml.compile(eager, backward=False, fullgraph=False)
    for _ in range(4):
        x = torch.randn(2, 8)
        close(compiled(x), eager.kept.relu())
        close(eager.kept, nn.functional.linear(x, eager.body[0].weight, eager.body[0].bias).detach())  # pyright: ignore


KEPT: list[torch.Tensor] = []  # a global variable: of one in a closure only the part with the hook is cut


def test_lines_that_are_another_graph_at_every_call_are_given_up(caplog: pytest.LogCaptureFixture):
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.gate = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Sigmoid())
            self.gate[0].register_forward_hook(lambda module, given, result: KEPT.append(result.detach()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x).relu()
            return self.gate(x) * x

    eager = Gated().eval()
    compiled = daceml.compile(eager, backward=False, fullgraph=False)
    with caplog.at_level(logging.INFO, logger="daceml"):
        for _ in range(13):
            x = torch.randn(2, 8)
            ours, count = compiled(x), len(KEPT)
            close(ours, eager(x))
            close(KEPT[count - 1], KEPT[count])
    said = [record.getMessage() for record in caplog.records]
    assert sum("runs eagerly from now on" in text for text in said) == 1
    assert sum("graph" in text and "first call" in text for text in said) < 13
