"""Operators that another implementation runs because that was measured to be faster."""

from __future__ import annotations

import copy
import logging
import uuid
from collections.abc import Callable, Generator
from dataclasses import replace

import pytest
import torch
from torch import nn

import daceml
from daceml.compiler.keys.program_key import program_key
from daceml.compiler.pipeline import optimised_network
from daceml.config import config
from daceml.frontend.onnx_export.chosen_implementations import with_implementations
from daceml.module.compiled_variant import Variant
from daceml.report.explanation.explanation import Explanation
from daceml.report.explanation.measured_choices_text import measured_choices_text
from daceml.runtime.records.manifest import StepRecord
from daceml.sdfg.network import Network
from daceml.sdfg.origin import NodeOrigin
from daceml.toolchain.cache import Cache
from daceml.tuning import eager_comparison, other_implementations, program_choice
from daceml.tuning.comparison_record import EagerComparison, OtherImplementation
from daceml.tuning.other_implementations import Candidate, candidates, faster_implementations
from daceml.tuning.program_run import ProgramRun
from tests.support.eager_twin import assert_same_step
from tests.support.golden import golden


class Small(nn.Module):
    """A product of small matrices, and a sum along a row."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.first(x)).cumsum(1)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def lowered(module: nn.Module, *shape: int) -> Network:
    with torch.no_grad():
        return optimised_network(torch.export.export(module.eval(), (drawn(*shape),))).network


def step(operator: str, name: str, implementation: str) -> StepRecord:
    origin = NodeOrigin(operator=operator, onnx_name=name, module_path="")
    return StepRecord(kind="aten", label=operator, implementation=implementation, nodes=(origin,))


def steps_of(network: Network) -> list[StepRecord]:
    """One step for each node that is left."""
    return [
        step(node.op_type, node.onnx_name, node.implementation)
        for node in network.state.nodes()
        if hasattr(node, "onnx_name")
    ]


@pytest.fixture
def found() -> list[Candidate]:
    network = lowered(Small(), 8, 6)
    steps = steps_of(network)
    return list(candidates(steps, [1000.0 * (i + 1) for i in range(len(steps))], network, call_us=3000.0))


def test_operators_that_take_much_and_have_another_implementation_are_candidates(found: list[Candidate]):
    assert {(one.node.op_type, one.node.implementation, one.other) for one in found} == {
        ("Gemm", "aten:addmm", "native:gemm"),
        ("CumSum", "aten:cumsum", "native:triangle"),
    }


def test_what_takes_little_or_shares_its_step_is_none():
    network = lowered(Small(), 8, 6)
    (gemm,) = [s for s in steps_of(network) if s.nodes[0].operator == "Gemm"]
    shared = replace(gemm, nodes=(*gemm.nodes, NodeOrigin(operator="Relu", onnx_name="r", module_path="")))
    assert list(candidates([gemm], [40.0], network, call_us=1000.0)) == []
    assert list(candidates([shared], [900.0], network, call_us=1000.0)) == []


def test_symbolic_sizes_are_not_timed_alone():
    exported = torch.export.export(
        Small().eval(), (drawn(8, 6),), dynamic_shapes=({0: torch.export.Dim.AUTO},)
    )
    with torch.no_grad():
        network = optimised_network(exported).network
    steps = steps_of(network)
    assert steps and list(candidates(steps, [1000.0] * len(steps), network, call_us=1000.0)) == []


def test_another_implementation_is_compiled_and_timed_alone_once(
    found: list[Candidate], monkeypatch: pytest.MonkeyPatch
):
    cache = Cache(config().cache_folder)
    monkeypatch.setattr(other_implementations, "disturbing", lambda share: False)
    own = uuid.uuid4().hex  # times that an earlier run has stored are another machine's
    monkeypatch.setattr(other_implementations, "fingerprint", lambda: own)
    slow = [replace(one, us=30_000.0) for one in found]
    chosen = faster_implementations(slow, cache, limit_s=60.0, margin=1.0)
    assert {choice.chosen for choice in chosen} == {"native:gemm", "native:triangle"}
    assert all(0 < choice.other_us < choice.program_us for choice in chosen)
    monkeypatch.setattr(other_implementations, "optimise", lambda *_, **__: pytest.fail("compiled"))
    again = [replace(one, us=30_001.0) for one in found]
    assert len(faster_implementations(again, cache, limit_s=60.0, margin=1.0)) == 2


def test_what_was_measured_while_others_disturbed_is_not_kept(
    found: list[Candidate], monkeypatch: pytest.MonkeyPatch
):
    cache, times = Cache(config().cache_folder), list[str]()
    monkeypatch.setattr(other_implementations, "disturbing", lambda share: True)
    monkeypatch.setattr(Candidate, "key", lambda self, _: f"disturbed-{self.node.title}".replace(" ", "-"))
    monkeypatch.setattr(ProgramRun, "profile", lambda *_: times.append("timed") or [1.0])
    for _ in range(2):
        assert len(faster_implementations(found, cache, limit_s=60.0, margin=1.0)) == 2
    assert len(times) == 4


@pytest.mark.parametrize(
    ("us", "other_us", "limit_s", "chosen"),
    [
        (1000.0, 500.0, 1.0, True),
        (1000.0, 900.0, 1.0, False),  # within the margin
        (30.0, 15.0, 1.0, False),  # too little
        (1000.0, None, 1.0, False),  # it cannot be compiled alone
        (1000.0, 500.0, -1.0, False),  # no time
        (200_000.0, 500.0, 1.0, False),  # one run of something slower would take too long
    ],
)
def test_what_is_chosen(
    us: float,
    other_us: float | None,
    limit_s: float,
    chosen: bool,
    found: list[Candidate],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(other_implementations, "_timed_alone", lambda *_: other_us)
    monkeypatch.setattr(Cache, "find", lambda *_: None)
    (gemm,) = [replace(one, us=us) for one in found if one.node.op_type == "Gemm"]
    choices = faster_implementations([gemm], Cache(config().cache_folder), limit_s=limit_s, margin=1.25)
    assert [(c.operator, c.before, c.chosen) for c in choices] == [
        ("Gemm", "aten:addmm", "native:gemm")
    ] * chosen


def test_the_fastest_of_several_is_chosen(found: list[Candidate], monkeypatch: pytest.MonkeyPatch):
    took = {"native:gemm": 500.0, "native:tiled": 300.0, "native:wide": 400.0}
    monkeypatch.setattr(other_implementations, "_timed_alone", lambda one, *_: took[one.other])
    monkeypatch.setattr(Cache, "find", lambda *_: None)
    gemm = next(one for one in found if one.node.op_type == "Gemm")
    several = [replace(gemm, us=1000.0, other=other) for other in took]
    (choice,) = faster_implementations(several, Cache(config().cache_folder), limit_s=1.0, margin=1.25)
    assert (choice.chosen, choice.lost_us) == ("native:tiled", 700.0)


def test_a_choice_is_part_of_the_key():
    exported = torch.export.export(Small().eval(), (drawn(8, 6),))
    keys = {
        program_key(with_implementations(exported, titles))
        for titles in ({}, {"Gemm g": "native:gemm"}, {"Gemm h": "native:gemm"}, {"Gemm g": "native:other"})
    }
    assert len(keys) == 4 and program_key(exported) in keys


@pytest.fixture
def clock(new_programs: None, monkeypatch: pytest.MonkeyPatch) -> Generator[list[EagerComparison]]:
    """What comparisons find: the program and eager PyTorch, both programs, the second one and eager."""
    monkeypatch.setenv("DACEML_MEASURE", "1")
    config.cache_clear()
    waiting = [
        EagerComparison(program_ms=a, eager_ms=b, rounds=9, slower=a > b)
        for a, b in ((4.0, 3.0), (4.0, 2.0), (2.0, 3.0))
    ]

    def timed(
        program: Callable[[], object], eager: Callable[[], object], *, limit_s: float
    ) -> EagerComparison:
        program()
        eager()
        return waiting.pop(0)

    monkeypatch.setattr(eager_comparison, "timed", timed)
    monkeypatch.setattr(eager_comparison, "disturbing", lambda share: False)
    monkeypatch.setattr(program_choice, "disturbing", lambda share: False)
    monkeypatch.setattr(program_choice, "_faster_kernels", lambda *_, **__: [])
    monkeypatch.setattr(other_implementations, "_timed_alone", lambda *_: 1.0)
    monkeypatch.setattr(Candidate, "key", lambda self, _: f"never-{id(self)}")
    monkeypatch.setattr(program_choice, "limit_s", lambda making: 1.0)

    def profile(self: ProgramRun, *_: object) -> list[float]:
        behind = () if self.backward is None else self.backward.program.manifest.steps
        return [1000.0] * len((*self.program.manifest.steps, *behind))

    monkeypatch.setattr(ProgramRun, "profile", profile)
    yield waiting
    config.cache_clear()


def latest(module: nn.Module) -> Variant:
    return module.session.latest  # pyright: ignore


def compiled(module: nn.Module) -> nn.Module:
    return daceml.compile(module, fullgraph=False, verify=False)


@pytest.mark.parametrize("training", [False, True])
def test_both_passes_run_what_was_chosen_and_so_does_a_later_process(
    training: bool, clock: list[EagerComparison], caplog: pytest.LogCaptureFixture
):
    torch.manual_seed(0)
    module = Small().train(training)
    twin, ours = copy.deepcopy(module), compiled(module)
    with caplog.at_level(logging.INFO, "daceml.tuning"):
        assert_same_step(ours, twin, drawn(5, 6), training=training)
    variant = latest(ours)
    assert clock == [] and variant.eager is not None
    chosen = {choice.operator: choice.chosen for choice in variant.eager.implementations}
    wanted = {"Gemm": "native:gemm", "CumSum": "native:triangle"}
    gradients = dict.fromkeys(("GemmGrad_A", "GemmGrad_B", "CumSumGrad"), "native:rule")
    assert chosen == {**wanted, **(gradients if training else {})}
    parts = [variant.program]
    if variant.backward is not None:
        parts.append(variant.backward.program)
    assert {s.kind for part in parts for s in part.manifest.steps} == {"kernel"}
    (said,) = [record.getMessage() for record in caplog.records if "instead of" in record.getMessage()]
    assert "native:triangle runs CumSum (" in said
    again = compiled(copy.deepcopy(twin))
    assert_same_step(again, copy.deepcopy(twin), drawn(5, 6), training=training)
    assert latest(again).eager == variant.eager
    assert "lower" not in latest(again).stages_s  # nothing was compiled


def test_explain_lists_the_choices(clock: list[EagerComparison]):
    ours = compiled(Small().eval())
    with torch.no_grad():
        said = daceml.explain(ours, drawn(7, 6))
    assert isinstance(said, Explanation)
    nowhere = [replace(choice, where="") for choice in said.choices]
    assert measured_choices_text(nowhere, said.gain) == golden()
    assert said.gain.split(",")[0] in str(said)
    assert "native:triangle" in said._repr_html_()
    assert {row["chosen"] for row in said.to_json()["implementations"]} == {"native:gemm", "native:triangle"}


def test_other_results_are_no_choice(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(ProgramRun, "difference", lambda *_: "y differs by 1")
    module = Small().eval()
    ours = compiled(module)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        torch.testing.assert_close(ours(drawn(9, 6)), module(drawn(9, 6)))
    assert any("results differ (y differs by 1)" in message for message in caplog.messages)
    seen = latest(ours).eager
    assert seen is not None and seen.implementations == () and len(clock) == 2


def test_torchs_kernel_takes_the_operator_from_another_implementation(
    clock: list[EagerComparison], monkeypatch: pytest.MonkeyPatch
):
    kernel = program_choice.TorchKernel(
        node="cumsum", operator="aten.cumsum.default", where="", program_us=1000.0, torch_us=100.0
    )
    monkeypatch.setattr(program_choice, "_faster_kernels", lambda *_, **__: [kernel])
    ours = compiled(Small().eval())
    with torch.no_grad():
        ours(drawn(10, 6))
    seen = latest(ours).eager
    assert seen is not None and seen.kernels == (kernel,)
    assert [choice.operator for choice in seen.implementations] == ["Gemm"]
    assert isinstance(seen.implementations[0], OtherImplementation)
