"""The search for the recipe of a whole training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.codegen.planning.plan import make_plan
from daceml.compiler.stages.program_folder import build
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.value_difference import limit_of
from daceml.garbage_collection import without_collection
from daceml.onnx_ops.external import external_call
from daceml.runtime.program import Program
from daceml.runtime.stored_program import StoredProgram
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.toolchain.cache import Cache
from daceml.tuning.decision import Decision
from daceml.tuning.decision_store import stored_decision
from daceml.tuning.greedy_search import decide
from daceml.tuning.machine_speeds import this_machine
from daceml.tuning.program_run import ProgramRun, own_state, undisturbed
from daceml.tuning.step_features import Predictor, identity, program_facts
from daceml.tuning.variant_recipes import choices_for, varied_recipe

if TYPE_CHECKING:
    import torch

    from daceml.compiler.stages.lowered_network import Optimised
    from daceml.transformations.recipe import Recipe
    from daceml.tuning.step_features import StepFacts


@dataclass(frozen=True, kw_only=True)
class StepMaking:
    """How the program of a step is made.

    Attributes:
        key: of the program with a recipe.
        network: the network after the levels of a recipe.
        state: key -> what the program is bound to: the model's tensors, and of the optimizer's those that
            there are, or zeros.
        inputs: of the program.
    """

    cache: Cache
    key: Callable[[Recipe | None], str]
    network: Callable[[Recipe | None], Optimised]
    state: Callable[[Sequence[str]], Mapping[str, torch.Tensor]]
    inputs: Callable[[Sequence[str]], Sequence[torch.Tensor]]


def search_step(making: StepMaking, budget_s: float | None) -> Decision:
    """What was found to be the fastest variation of the standard recipe for a step."""

    def search(budget_s: float) -> Decision:
        names = [choice.name for choice in choices_for("training")]
        with undisturbed():
            found = decide(StepTask(making), names, budget_s=budget_s)
        return replace(found, machine=fingerprint(), key=making.key(varied_recipe(found.choices)))

    return stored_decision(making.cache, making.key(None), budget_s, search)


@dataclass(kw_only=True)
class _Candidate:
    """A step that has been lowered; see `Candidate`."""

    recipe: Recipe | None
    optimised: Optimised | None
    identity: str
    facts: tuple[StepFacts, ...]
    limit: float


class StepTask:
    """What the search asks for; see `Task`."""

    def __init__(self, making: StepMaking) -> None:
        self.making = making
        self.predictor = Predictor(this_machine(making.cache))

    def lower(self, choices: tuple[str, ...]) -> _Candidate:
        """The step of some choices, not compiled."""
        recipe = varied_recipe(choices)
        with without_collection():
            optimised = self.making.network(recipe)
            plan = make_plan(optimised.network, external_call)
            facts = program_facts([plan], {})
        return _Candidate(
            recipe=recipe,
            optimised=optimised,
            identity=identity([plan]),
            facts=facts,
            limit=limit_of(optimised.network),
        )

    def predicted_ms(self, candidate: _Candidate) -> float:
        """Of a step."""
        return self.predictor.us(candidate.facts) / 1e3

    def compile(self, candidate: _Candidate) -> ProgramRun:
        """The step, apart from model and optimizer."""
        cache = self.making.cache

        def make(folder: Path) -> None:
            assert candidate.optimised is not None, "it is compiled once"
            with without_collection():
                build(candidate.optimised, cache, folder, Stages())

        stored = StoredProgram(cache.get("programs", self.making.key(candidate.recipe), make))
        candidate.optimised = None
        mutated = stored.manifest.mutated
        program = Program(stored, own_state(self.making.state(stored.manifest.weights), mutated))
        return ProgramRun(program, None, self.making.inputs(mutated), limit=candidate.limit)

    def learn(self, candidate: _Candidate, run: ProgramRun) -> None:
        """Let later predictions know what the calls took."""
        took_us = run.profile()
        if len(took_us) == len(candidate.facts):
            self.predictor.learn(candidate.facts, took_us, run.call_us())
