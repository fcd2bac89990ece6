"""A program next to eager PyTorch: when it has lost, and what calls do then."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn

import daceml
from daceml.config import config
from daceml.module.compiled_variant import Variant
from daceml.module.partial.region_ledger import recorded_regions
from daceml.report.explanation.explanation import Explanation
from daceml.transformations.standard import standard_recipe
from daceml.tuning import eager_comparison, program_choice
from daceml.tuning.comparison_record import EagerComparison
from daceml.tuning.eager_comparison import timed
from daceml.tuning.program_run import ProgramRun
from tests.support.golden import golden


class Clock:
    """Time that passes in what is timed alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0

    def __call__(self) -> float:
        return self.now

    def takes(self, *seconds: float) -> Callable[[], None]:
        """Something that takes so long, call by call; the last time stands for all that follow."""
        left = list(seconds)

        def run() -> None:
            self.calls += 1
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


@pytest.fixture(autouse=True)
def quiet(new_programs: None, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setenv("DACEML_MEASURE", "1")
    config.cache_clear()
    monkeypatch.setattr(eager_comparison, "disturbing", lambda share: False)
    yield
    config.cache_clear()


@pytest.mark.parametrize(
    ("program_s", "eager_s", "slower"),
    [
        (0.004, 0.003, True),
        (0.003, 0.004, False),
        (0.0031, 0.003, False),  # within noise
        (0.00029, 0.0001, False),  # the start of a call
        (0.0005, 0.0002, True),
    ],
)
def test_who_is_faster(program_s: float, eager_s: float, slower: bool):
    clock = Clock()
    found = timed(clock.takes(program_s), clock.takes(eager_s), limit_s=1.0, clock=clock)
    assert found.slower is slower
    assert found.program_ms == pytest.approx(program_s * 1e3)
    assert found.eager_ms == pytest.approx(eager_s * 1e3)
    assert (found.limit_s, found.disturbed) == (1.0, False)


def test_one_disturbed_round_says_nothing():
    clock = Clock()
    program = clock.takes(0.003, 0.003, 0.009, 0.003)
    assert not timed(program, clock.takes(0.003), limit_s=1.0, clock=clock).slower


def test_what_the_first_call_makes_ready_does_not_count():
    clock = Clock()
    found = timed(clock.takes(0.5, 0.1), clock.takes(0.2), limit_s=1.0, clock=clock)
    assert not found.slower and found.program_ms == pytest.approx(100)


def test_no_round_begins_after_the_limit():
    clock = Clock()
    found = timed(clock.takes(2.0), clock.takes(0.1), limit_s=1.0, clock=clock)
    assert found.rounds == 0 and not found.slower
    assert clock.calls == 1  # of the program alone


def test_long_calls_are_compared_by_few_rounds_and_a_large_difference():
    clock = Clock()
    assert timed(clock.takes(0.5), clock.takes(0.2), limit_s=1.0, clock=clock).slower
    clock = Clock()
    assert not timed(clock.takes(0.5), clock.takes(0.45), limit_s=1.0, clock=clock).slower


def test_disturbed_rounds_need_a_large_difference(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eager_comparison, "disturbing", lambda share: True)
    clock = Clock()
    assert not timed(clock.takes(0.0036), clock.takes(0.003), limit_s=1.0, clock=clock).slower
    clock = Clock()
    found = timed(clock.takes(0.0042), clock.takes(0.003), limit_s=1.0, clock=clock)
    assert found.slower and found.disturbed
    assert found.circumstances == "9 rounds, disturbed by other processes"
    clock = Clock()
    assert not timed(
        clock.takes(0.5), clock.takes(0.2), limit_s=1.0, clock=clock
    ).slower  # and several rounds


class Layers(nn.Module):
    """Changes buffers and draws numbers while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 7)
        self.norm = nn.BatchNorm1d(7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.dropout(self.norm(self.linear(x)), 0.5, self.training)


def compiled(module: nn.Module, **options: object) -> nn.Module:
    return daceml.compile(module, **{"fullgraph": False, "verify": False, **options})


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets a comparison end as the test says, after both have run three times."""
    seen: list[str] = []

    def both(
        program: Callable[[], object], eager: Callable[[], object], *, limit_s: float
    ) -> EagerComparison:
        for _ in range(3):
            program()
            eager()
        seen.append("compared")
        return EagerComparison(program_ms=4.0, eager_ms=3.0, rounds=9, slower=True)

    monkeypatch.setattr(eager_comparison, "timed", both)
    monkeypatch.setattr(program_choice, "_faster_choices", lambda *_: [])
    return seen


def drawn(seed: int, batch: int = 5) -> torch.Tensor:
    return torch.randn(batch, 12, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("training", [False, True])
def test_calls_run_eagerly_and_a_comparison_leaves_no_trace(
    training: bool, ran: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Variant, "__call__", lambda *_, **__: pytest.fail("the program ran"))
    torch.manual_seed(3)
    module, twin = Layers(), Layers()
    twin.load_state_dict(module.state_dict())
    ours = compiled(module.train(training))
    twin.train(training)
    for seed in range(3):
        x, y = drawn(seed).requires_grad_(), drawn(seed).requires_grad_()
        torch.manual_seed(seed)
        with caplog.at_level(logging.WARNING):
            got = ours(x)
        torch.manual_seed(seed)
        expected = twin(y)
        assert torch.equal(got, expected)
        got.square().sum().backward()
        expected.square().sum().backward()
        assert torch.equal(x.grad, y.grad)  # pyright: ignore[reportArgumentType]
        for mine, theirs in zip(module.parameters(), twin.parameters(), strict=True):
            assert torch.equal(mine.grad, theirs.grad)  # pyright: ignore[reportArgumentType]
    for key, tensor in twin.state_dict().items():
        assert torch.equal(module.state_dict()[key], tensor), key
    assert ran == ["compared"]
    assert [record.getMessage() for record in caplog.records] == [golden()]


def test_explain_and_the_ledger_say_so(ran: list[str]):
    ours = compiled(Layers().eval())
    with torch.no_grad():
        x = drawn(0)
        ours(x)
        said = daceml.explain(ours, x)
        assert isinstance(said, Explanation)
        assert said.slower == golden()
        assert said.slower in str(said) and "DACEML_MEASURE=0" in str(said)
        assert said.slower in said._repr_html_()
        assert said.steps  # what the program would do
        with recorded_regions() as ledger:
            ours(x)
    (region,) = ledger.regions.values()
    assert [cut.what for cut in region.cuts] == [said.slower]
    assert ledger.compiled_flops == 0 < ledger.eager_flops


def test_a_later_compilation_takes_the_comparison_from_the_cache(ran: list[str]):
    module, x = Layers().eval(), drawn(0, batch=9)
    with torch.no_grad():
        compiled(module)(x)
        again = compiled(module)
        again(x)
    assert ran == ["compared"]
    assert again.session.latest.eager.slower  # pyright: ignore


def test_what_others_disturbed_is_compared_again(monkeypatch: pytest.MonkeyPatch):
    lost = EagerComparison(program_ms=4.0, eager_ms=3.0, rounds=3, slower=True, disturbed=True, limit_s=0.5)
    won = replace(lost, program_ms=3.0, slower=False, disturbed=False)
    waiting, limits = [lost, replace(lost, rounds=0), won], list[float]()

    def timed(*_: object, limit_s: float) -> EagerComparison:
        limits.append(limit_s)
        return waiting.pop(0)

    monkeypatch.setattr(eager_comparison, "timed", timed)
    module, x = Layers().eval(), drawn(0, batch=13)
    seen: list[EagerComparison] = []
    with torch.no_grad():
        expected = module(x)
        for _ in range(5):
            ours = compiled(module)
            torch.testing.assert_close(ours(x), expected)
            seen.append(ours.session.latest.eager)  # pyright: ignore
    # what no round has measured changes nothing, and what nobody disturbed stands
    assert seen == [lost, replace(lost, tries=2), *[replace(won, tries=3)] * 3]
    assert limits[1:] == [0.5, 0.5]


def test_a_machine_that_never_is_quiet_is_asked_five_times(monkeypatch: pytest.MonkeyPatch):
    lost = EagerComparison(program_ms=4.0, eager_ms=3.0, rounds=3, slower=True, disturbed=True)
    calls: list[float] = []

    def timed(*_: object, limit_s: float) -> EagerComparison:
        calls.append(limit_s)
        return lost

    monkeypatch.setattr(eager_comparison, "timed", timed)
    module = Layers().eval()
    with torch.no_grad():
        for _ in range(7):
            compiled(module)(drawn(0, batch=14))
    assert len(calls) == 5


def test_frozen_weights_are_compared_too(ran: list[str]):
    module = Layers().eval()
    ours = compiled(module, freeze=True, backward=False)
    with torch.no_grad():
        torch.testing.assert_close(ours(drawn(0, batch=16)), module(drawn(0, batch=16)))
    assert ran == ["compared"] and ours.session.latest.loses is not None  # pyright: ignore


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows with which programs were compared; eager PyTorch is faster for less than 32."""
    seen: list[int] = []

    def timed(
        program: Callable[[], object], eager: Callable[[], object], *, limit_s: float
    ) -> EagerComparison:
        assert isinstance(program, ProgramRun)
        program()
        eager()
        seen.append(len(program.inputs[0]))
        return EagerComparison(program_ms=4.0, eager_ms=3.0, rounds=9, slower=seen[-1] < 32)

    monkeypatch.setattr(eager_comparison, "timed", timed)
    monkeypatch.setattr(program_choice, "_faster_choices", lambda *_: [])
    return seen


@pytest.mark.parametrize("training", [False, True])
def test_symbolic_sizes_are_compared_in_classes(
    training: bool, sizes: list[int], monkeypatch: pytest.MonkeyPatch
):
    module = nn.Sequential(nn.Linear(12, 7), nn.Tanh())
    twin = copy.deepcopy(module)
    ran_compiled: list[int] = []
    run = Variant.__call__

    def noted(self: Variant, tensors: Sequence[torch.Tensor], *rest: object, **more: object) -> object:
        ran_compiled.append(len(tensors[0]))
        return run(self, tensors, *rest, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Variant, "__call__", noted)
    for model in (module, copy.deepcopy(twin)):  # the second one finds the comparisons in the cache
        ours = compiled(model, dynamic=True)
        ran_compiled.clear()
        for batch in (9, 12, 100, 16, 70, 9):
            x, y = (drawn(batch, batch=batch).requires_grad_(training) for _ in range(2))
            with torch.set_grad_enabled(training):
                got, expected = ours(x), twin(y)
            torch.testing.assert_close(got, expected)
            if training:
                got.square().sum().backward()
                expected.square().sum().backward()
                torch.testing.assert_close(x.grad, y.grad)
        (variant,) = ours.session.variants  # pyright: ignore
        assert variant.sizes is not None
        assert ran_compiled == [100, 70]
        assert sizes == [9, 100]


def test_a_program_that_changes_buffers_is_compared_once(sizes: list[int]):
    module = Layers().train()
    ours = compiled(module, dynamic=True, backward=False)
    for batch in (9, 100, 1000):
        ours(drawn(0, batch=batch))
    assert sizes == [9] and int(module.norm.num_batches_tracked) == 3  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "options",
    [
        {"fullgraph": True},
        {"auto_optimize": False},
        {"prefer_native": True},
        {"recompute": "none"},
        {"recipe": standard_recipe()},
    ],
    ids=lambda options: next(iter(options)),
)
def test_who_asks_for_a_program_gets_it(options: dict[str, object], ran: list[str]):
    ours = compiled(Layers().eval(), **options)
    with torch.set_grad_enabled("recompute" in options):
        ours(drawn(0, batch=6))
    assert ran == [] and ours.session.latest.loses is None  # pyright: ignore


def test_nothing_is_measured_where_the_environment_says_so(ran: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACEML_MEASURE", "0")
    config.cache_clear()
    with torch.no_grad():
        compiled(Layers().eval())(drawn(0, batch=11))
    assert ran == []


def test_hooks_on_gradients_see_no_comparison(ran: list[str]):
    module, seen = Layers(), list[int]()
    module.linear.weight.register_hook(lambda _: seen.append(1))
    ours = compiled(module)
    ours(drawn(0, batch=7)).sum().backward()
    assert ran == [] and seen == [1]


class Unusual(nn.Module):
    """Changes its argument and a buffer, takes numbers and a dict, and gives several results."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor, scale: float, more: dict[str, torch.Tensor]) -> Sequence[torch.Tensor]:
        x.add_(more["shift"])
        self.seen.add_(x.sum(0))
        return x * scale, self.seen.clone()


def test_arguments_that_forward_changes_are_changed_once(ran: list[str]):
    ours, twin = compiled(Unusual(), backward=False), Unusual()
    for _ in range(2):
        x, y, shift = torch.ones(3, 4), torch.ones(3, 4), torch.full((4,), 2.0)
        got, expected = ours(x, 1.5, {"shift": shift}), twin(y, 1.5, {"shift": shift})
        assert torch.equal(x, y)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
        assert torch.equal(ours.get_buffer("seen"), twin.get_buffer("seen"))
    assert ran == ["compared"]
