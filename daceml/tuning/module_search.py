"""The search for a module's recipe: candidates are other programs of the same call."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from daceml.codegen.planning.plan import make_plan
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.value_difference import limit_of
from daceml.garbage_collection import without_collection
from daceml.onnx_ops.external import external_call
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.toolchain.cache import digest
from daceml.tuning.decision import Decision
from daceml.tuning.decision_store import stored_decision
from daceml.tuning.greedy_search import decide
from daceml.tuning.machine_speeds import this_machine
from daceml.tuning.program_run import ProgramRun, own_state, undisturbed
from daceml.tuning.step_features import Predictor, identity, program_facts, symbol_values
from daceml.tuning.variant_recipes import choices_for, varied_recipe, varied_recomputation

if TYPE_CHECKING:
    import torch

    from daceml.compiler.program_builder import Making
    from daceml.frontend.capture.sizes.dynamic_shapes import SizeGuard
    from daceml.transformations.recipe import Situation
    from daceml.tuning.step_features import StepFacts


def search_module(
    making: Making,
    tensors: Sequence[torch.Tensor],
    state: Mapping[str, torch.Tensor],
    *,
    sizes: SizeGuard | None,
    budget_s: float | None,
) -> tuple[Making, Decision]:
    """What makes the fastest variation of the standard recipe for a call, and how it was found.

    Args:
        making: with the standard recipe.
        tensors: of the call; read and not changed.
        state: key -> tensor of the module; what programs change is copied.
        sizes: of programs with symbolic sizes, which are measured at those of the call.
        budget_s: seconds; None for the option of the environment.
    """
    plain = replace(making, sample=None, made=[], known_key="", stages=Stages())
    shapes = str([tuple(tensor.shape) for tensor in tensors])

    def search(budget_s: float) -> Decision:
        names = [choice.name for choice in choices_for(situation_of(making), making.recomputation)]
        with undisturbed():
            found = decide(ModuleTask(plain, tensors, state), names, budget_s=budget_s)
        return replace(found, machine=fingerprint(), sizes=shapes, key=varied(plain, found.choices).key())

    with making.stages.stage("search"):
        key = digest(plain.key(), shapes if sizes is not None else "")
        decision = stored_decision(making.cache, key, budget_s, search)
    chosen = varied(making, decision.choices)
    if making.sample is None:
        chosen.known_key = decision.key
    return chosen, decision


def situation_of(making: Making) -> Situation:
    """What is compiled."""
    return "training" if making.wanted is not None else "frozen" if making.freeze else "inference"


def varied(making: Making, choices: Sequence[str]) -> Making:
    """The same with some choices, not built yet."""
    return replace(
        making,
        recipe=functools.partial(varied_recipe, tuple(choices)),
        recomputation=varied_recomputation(choices, making.recomputation),
        made=[],
        record=None,
        known_key="",
    )


@dataclass(kw_only=True)
class _Candidate:
    """Programs that have been lowered; see `Candidate`."""

    making: Making
    identity: str
    facts: tuple[StepFacts, ...]
    limit: float


class ModuleTask:
    """What the search asks for; see `Task`."""

    def __init__(
        self, making: Making, tensors: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> None:
        self.making, self.tensors, self.state = making, tensors, state
        self.predictor = Predictor(this_machine(making.cache))

    def lower(self, choices: tuple[str, ...]) -> _Candidate:
        """The programs of some choices, not compiled."""
        making = replace(varied(self.making, choices), stages=Stages(), ahead=False, objects=None)
        with without_collection():
            networks = [one.network for one in making.optimised()]
            given = [None]
            if making.record is not None:
                given = [(), making.record.saved_of(networks[1].inputs)]
            plans = [make_plan(n, external_call, given=g) for n, g in zip(networks, given, strict=True)]
            sizes = symbol_values(networks[0], [x.shape for x in self.tensors])
            facts = program_facts(plans, sizes)
        return _Candidate(
            making=making, identity=identity(plans), facts=facts, limit=max(map(limit_of, networks))
        )

    def predicted_ms(self, candidate: _Candidate) -> float:
        """Of a call."""
        return self.predictor.us(candidate.facts) / 1e3

    def compile(self, candidate: _Candidate) -> ProgramRun:
        """The programs, apart from the module."""
        making = candidate.making
        mutated = making.stored()[0].manifest.mutated
        requiring = () if making.wanted is None else making.wanted.state
        program, backward = making.bind(own_state(self.state, mutated, requiring))
        making.made = []  # what was built goes
        return ProgramRun(program, backward, self.tensors, limit=candidate.limit)

    def learn(self, candidate: _Candidate, run: ProgramRun) -> None:
        """Let later predictions know what the steps took."""
        took_us = run.profile()
        if len(took_us) == len(candidate.facts):
            self.predictor.learn(candidate.facts, took_us, run.call_us())
