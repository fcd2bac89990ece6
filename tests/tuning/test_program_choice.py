"""Operators that torch's own kernels run because that was measured to be faster."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

import daceml
from daceml.config import config
from daceml.frontend.onnx_export.chosen_kernels import functional_form, may_choose
from daceml.module.compiled_variant import Variant
from daceml.report.explanation.explanation import Explanation
from daceml.runtime.program import Program
from daceml.runtime.records.gradients import Wanted
from daceml.runtime.records.manifest import StepRecord
from daceml.sdfg.origin import NodeOrigin
from daceml.toolchain.cache import Cache
from daceml.tuning import chosen_program, eager_comparison, program_choice
from daceml.tuning.comparison_record import EagerComparison, TorchKernel
from daceml.tuning.program_run import ProgramRun
from daceml.tuning.torch_kernels import EagerNodes, slower_operators, steps_by_node, time_by_node
from tests.support.eager_twin import assert_same_step
from tests.support.golden import golden


@pytest.fixture(autouse=True)
def measuring(new_programs: None, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setenv("DACEML_MEASURE", "1")
    config.cache_clear()
    monkeypatch.setattr(eager_comparison, "disturbing", lambda share: False)
    monkeypatch.setattr(program_choice, "disturbing", lambda share: False)
    yield
    config.cache_clear()


def compared(program_ms: float, eager_ms: float) -> EagerComparison:
    return EagerComparison(
        program_ms=program_ms, eager_ms=eager_ms, rounds=9, slower=program_ms > 1.05 * eager_ms
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[EagerComparison]:
    """What comparisons find, in this order: the program and eager PyTorch, the program without a choice and
    with it, the program with it and eager PyTorch. What is found is taken off the list."""
    waiting = [compared(4.0, 3.0), compared(4.0, 2.0), compared(2.0, 3.0)]

    def timed(
        program: Callable[[], object], eager: Callable[[], object], *, limit_s: float
    ) -> EagerComparison:
        program()
        eager()
        return waiting.pop(0)

    monkeypatch.setattr(eager_comparison, "timed", timed)
    return waiting


def named(name: str) -> TorchKernel:
    return TorchKernel(node=name, operator=f"aten.{name}.default", where="", program_us=3000, torch_us=1000)


def choose(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let measurement find these nodes slow; none: all that may be chosen."""

    def faster(chosen: Any, *_: object) -> Sequence[TorchKernel]:
        nodes = functional_form(chosen.making.exported).graph.nodes
        found = [named(node.name) for node in nodes if may_choose(node)]
        return [kernel for kernel in found if not names or kernel.node in names]

    monkeypatch.setattr(program_choice, "_faster_choices", faster)


def compiled(module: nn.Module, **options: object) -> nn.Module:
    return daceml.compile(module, **{"fullgraph": False, "verify": False, **options})


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


class Slow(nn.Module):
    """Has an operator in the middle that turns out to be slow."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)).cumsum(1).tanh())


def called(steps: Sequence[StepRecord]) -> list[str]:
    """The operators that torch's kernels run by name."""
    return [step.title for step in steps if step.kind == "torch"]


def steps_of(run: ProgramRun) -> int:
    return len(run.program.manifest.steps)


def latest(module: nn.Module) -> Variant:
    return module.session.latest  # pyright: ignore


def test_a_step_of_several_operators_is_divided_as_eagers_time_is():
    assert time_by_node([6.0, 1.0], [{"a", "b"}, {"a"}], {"a": 1.0, "b": 2.0}) == {"a": 3.0, "b": 4.0}


def test_a_step_knows_the_nodes_of_the_trace():
    origins = [("Conv_1", "conv"), ("Relu_2/gradient", "relu"), ("Copy_3", None)]
    step = StepRecord(
        kind="kernel",
        label="step",
        nodes=tuple(NodeOrigin(operator="", onnx_name=name, module_path="") for name, _ in origins),
    )
    assert steps_by_node([step], {"Conv_1": "conv", "Relu_2": "relu"}) == [{"conv", "relu"}]


class Times(EagerNodes):
    """Torch's kernels take as long as the test says."""

    def __init__(self, **kernel_us: float | None) -> None:
        exported = torch.export.export(Slow(), (drawn(4, 12),))
        self.nodes = {node.name: node for node in functional_form(exported).graph.nodes}
        self.timed: list[str] = []
        self._kernel_us = kernel_us

    def kernel_us(self, name: str, patience_s: float) -> float | None:
        self.timed.append(name)
        return self._kernel_us[name]


def test_operators_that_lose_much_are_chosen():
    eager = Times(cumsum=100, tanh=450, relu=None)
    program_us = {"cumsum": 600.0, "tanh": 500.0, "relu": 400.0, "linear": 15.0}
    (found,) = slower_operators(eager, program_us, 2000, limit_s=10)
    assert (found.node, found.operator, found.program_us, found.torch_us) == (
        "cumsum", "aten.cumsum.default", 600, 100,
    )  # fmt: skip
    assert eager.timed == ["cumsum", "tanh", "relu"]  # what takes no time cannot lose any


def test_none_is_chosen_that_takes_too_long():
    assert slower_operators(Times(cumsum=100), {"cumsum": 600.0}, 2000, limit_s=-1) == []


@pytest.mark.parametrize(("lost_us", "chosen"), [(900.0, True), (50.0, False)])
def test_little_is_not_worth_a_compilation(
    lost_us: float, chosen: bool, clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch
):
    kernel = replace(named("cumsum"), program_us=1000 + lost_us)
    monkeypatch.setattr(program_choice, "_faster_kernels", lambda *_, **__: [kernel])
    monkeypatch.setattr(ProgramRun, "profile", lambda self, *_: [1000.0, *[0.0] * 20][: steps_of(self)])
    module = Slow().eval()
    with torch.no_grad():
        compiled(module)(drawn(14, 12))
    assert (clock == []) is chosen


@pytest.mark.parametrize("training", [False, True])
def test_torchs_kernels_are_timed_with_their_derivatives(training: bool):
    exported = torch.export.export(Slow(), (drawn(4, 12),))
    wanted = None
    if training:
        wanted = Wanted(state=("first.weight",), inputs=(False,), outputs=None)
    eager = EagerNodes(exported, dict(Slow().state_dict()), [drawn(4, 12)], wanted)
    assert eager.forward_us()["cumsum"] > 0
    assert (eager.kernel_us("cumsum", 1.0) or 0) > 0
    assert eager.kernel_us("output", 1.0) is None


class Target(nn.Module):
    """Has an operand that torch gives no gradient to."""

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cosine_embedding_loss(x, x * 2, target, reduction="none")


@pytest.mark.parametrize("moves", [False, True])
def test_an_operand_without_gradient_gets_no_zeros(moves: bool):
    given = (drawn(4, 12), torch.ones(4))
    wanted = Wanted(state=(), inputs=(True, moves), outputs=None)
    eager = EagerNodes(torch.export.export(Target(), given), {}, given, wanted)
    eager.forward_us()
    assert (eager.kernel_us("cosine_embedding_loss", 1.0) is None) is moves


@pytest.mark.parametrize("training", [False, True])
def test_a_slow_operator_alone_becomes_a_call_of_torchs_kernel(
    training: bool,
    clock: list[EagerComparison],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    def profile(self: ProgramRun, *_: object) -> list[float]:
        behind = () if self.backward is None else self.backward.program.manifest.steps
        steps = (*self.program.manifest.steps, *behind)
        return [3000.0 if "CumSum" in step.label else 10.0 for step in steps]

    monkeypatch.setattr(ProgramRun, "profile", profile)
    torch.manual_seed(0)
    module = Slow().train(training)
    twin, ours = copy.deepcopy(module), compiled(module)
    with caplog.at_level(logging.INFO, "daceml.tuning"):
        assert_same_step(ours, twin, drawn(6, 12), training=training)
    variant = latest(ours)
    assert clock == []
    assert variant.loses is None and variant.eager is not None
    assert [kernel.node for kernel in variant.eager.kernels] == ["cumsum"]
    assert called(variant.program.manifest.steps) == ["aten.cumsum.default"]
    (said,) = [record.getMessage() for record in caplog.records if "instead of" in record.getMessage()]
    assert said.partition(" (")[0] == "torch's kernel runs aten.cumsum.default"
    assert said.endswith("a call takes 2 ms instead of 4 ms; 9 rounds (DACEML_MEASURE)")


def test_a_later_compilation_takes_the_choice_from_the_cache(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch
):
    choose(monkeypatch, "cumsum")
    module, x = Slow().eval(), drawn(7, 12)
    with torch.no_grad():
        expected = module(x)
        compiled(module)(x)
        monkeypatch.setattr(chosen_program, "compared_with_eager", lambda *_, **__: pytest.fail("compared"))
        again = compiled(module)
        torch.testing.assert_close(again(x), expected)
    variant = latest(again)
    assert called(variant.program.manifest.steps) == ["aten.cumsum.default"]
    assert "lower" not in variant.stages_s  # nothing was compiled
    assert variant.eager == EagerComparison(
        program_ms=2.0, eager_ms=3.0, rounds=9, slower=False, kernels=(named("cumsum"),), without_ms=4.0
    )


def test_the_program_stays_if_the_choice_makes_it_no_faster(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch
):
    clock[1:] = [compared(4.0, 3.9)]
    choose(monkeypatch, "cumsum")
    ours = compiled(Slow().eval())
    with torch.no_grad():
        ours(drawn(8, 12))
    variant = latest(ours)
    assert clock == [] and called(variant.program.manifest.steps) == []
    assert variant.eager is not None and variant.eager.kernels == ()
    assert variant.loses is not None  # eager PyTorch is faster than both


def test_a_program_that_is_clearly_faster_is_not_looked_at(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch
):
    clock[:] = [compared(2.0, 3.0)]
    monkeypatch.setattr(program_choice, "_faster_choices", lambda *_: pytest.fail("operators were timed"))
    with torch.no_grad():
        compiled(Slow().eval())(drawn(9, 12))
    assert clock == []


def test_nothing_is_chosen_where_the_environment_says_so(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch
):
    choose(monkeypatch, "cumsum")
    module, x = Slow().eval(), drawn(10, 12)
    with torch.no_grad():
        compiled(module)(x)
        monkeypatch.setenv("DACEML_MEASURE", "0")
        config.cache_clear()
        ours = compiled(module)
        ours(x)
    assert called(latest(ours).program.manifest.steps) == []
    assert latest(ours).eager is None


def test_an_operator_that_fails_leaves_the_program_as_it_is(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fails(*_: object) -> list[TorchKernel]:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(program_choice, "_faster_choices", fails)
    ours = compiled(Slow().eval())
    with torch.no_grad(), caplog.at_level(logging.INFO, "daceml.tuning"):
        ours(drawn(11, 12))
    assert "no torch kernels chosen: RuntimeError: no such kernel" in caplog.messages
    assert called(latest(ours).program.manifest.steps) == []


def test_a_profile_that_fails_leaves_no_trace_in_the_module(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch
):
    """The program has run by then, and counted a batch."""
    profile = Program.profile

    def failing(*args: Any) -> list[float]:
        profile(*args)
        raise RuntimeError("interrupted")

    monkeypatch.setattr(Program, "profile", failing)
    monkeypatch.setattr(program_choice, "limit_s", lambda making: 1e6)
    module = nn.Sequential(nn.BatchNorm1d(12), nn.Tanh()).train()
    ours = compiled(module)
    ours(drawn(11, 12))
    assert int(module[0].num_batches_tracked) == 1


def test_a_full_disk_is_no_reason_to_fail(clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch):
    stored = Cache.get

    def full(self: Cache, kind: str, *rest: Any) -> Path:
        if kind == "decisions":
            raise OSError(28, "No space left on device")
        return stored(self, kind, *rest)

    monkeypatch.setattr(Cache, "get", full)
    module = Slow().eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(module)(drawn(11, 12)), module(drawn(11, 12)))


def test_explain_names_the_operators_and_both_times(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch
):
    choose(monkeypatch, "cumsum")
    ours = compiled(Slow().eval())
    with torch.no_grad():
        said = daceml.explain(ours, drawn(13, 12))
    assert isinstance(said, Explanation)
    assert said.torch_kernels == (named("cumsum"),)
    text = str(said)
    block = text[text.index("torch's kernels run") :].partition("\n\n")[0]
    assert block == golden()
    assert "aten.cumsum.default" in said._repr_html_()
    (step,) = [step for step in said.steps if step.kind == "torch"]
    outside = str(replace(said, torch_kernels=(replace(named("cumsum"), where=step.source),)))
    assert "measured to be faster than generated kernels" in outside and "no translation" not in outside
    assert said.to_json()["torch_kernels"][0]["torch_us"] == 1000


class Layers(nn.Module):
    """Layers whose training changes buffers and draws numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.lstm = nn.LSTM(12, 12, batch_first=True, bidirectional=True)
        self.attention = nn.MultiheadAttention(24, 2, dropout=0.2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(F.dropout(F.relu(self.norm(self.conv(x))), 0.3, self.training))
        return x + self.attention(x, x, x, need_weights=False)[0]


class InPlace(nn.Module):
    """Writes into parts of its values, an argument and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(12))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        y[:, 0].add_(1)
        y[:, 1:3].mul_(3)
        z = torch.zeros_like(y).index_add_(0, torch.tensor([1, 0, 1]), y).cumsum_(1)
        self.seen.add_(x.detach().sum((0, 1)))
        return y, y[0], z.view(-1), z.transpose(0, 1)


class Kinds(nn.Module):
    """Values of several types and shapes, operators of several results."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = x.topk(3, -1)
        chunks = torch.stack([*x.split(4, -1)]).softmax(0)
        mean, deviation = torch.var_mean(x, (0, 1))[::-1]
        half = (x.bfloat16() @ x.bfloat16().transpose(1, 2)).float()
        picked = x.gather(-1, places).where(values > 0, x.new_tensor(0.5))
        mask = (x > 0).all(-1) | (x.sum(-1) < 1)
        loss = F.cross_entropy(x.flatten(0, 1), places[..., 0].flatten(), label_smoothing=0.1)
        one = torch.einsum("bij,bkj,bkl->bil", x, x, x).logsumexp((0, 1))
        return picked, places, chunks, mean * deviation, half, mask.sum(), loss, one, x.double().std()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("kind", "among"),
    [
        (Layers, "aten.lstm.input"),
        (InPlace, "aten.index_add.default"),
        (Kinds, "aten.cross_entropy_loss.default"),
    ],
    ids=["layers", "in place", "kinds"],
)
def test_every_operator_may_be_torchs(
    kind: type[nn.Module],
    among: str,
    training: bool,
    clock: list[EagerComparison],
    monkeypatch: pytest.MonkeyPatch,
):
    choose(monkeypatch)
    torch.manual_seed(0)
    module = kind().train(training)
    twin, ours = copy.deepcopy(module), compiled(module)
    x = drawn(3, 4, 12).requires_grad_(training)
    y = x.detach().clone().requires_grad_(training)
    got: list[Any] = []
    for model, given in ((ours, x), (twin, y)):
        torch.manual_seed(1)
        with torch.set_grad_enabled(training):
            results = model(given)
            results = results if isinstance(results, tuple) else (results,)
            flowing = [r for r in results if r.requires_grad]
            if flowing:
                sum(r.float().square().sum() for r in flowing).backward()
        more = [*(p.grad for p in model.parameters()), given.grad, *model.buffers(), torch.rand(2)]
        got.append([*results, *more])
    torch.testing.assert_close(got[0], got[1])
    names = called(latest(ours).program.manifest.steps)
    assert among in names and len(names) > 3
