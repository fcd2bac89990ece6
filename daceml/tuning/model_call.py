"""A model and one call of it: variants are lowered without a compiler, and compiled to be measured."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.codegen.planning.plan import make_plan
from daceml.codegen.planning.step_memory import array_bytes, live_bytes
from daceml.compiler.call import making_of_call
from daceml.compiler.freeze_check import check_frozen
from daceml.compiler.guards import call_key, named_key
from daceml.compiler.module_request import ModuleRequest
from daceml.compiler.options import module_options
from daceml.compiler.stages.memory_budget import peak_bytes
from daceml.compiler.stages.recomputation import Recomputation
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.value_difference import limit_of
from daceml.errors import ConfigurationError, ExplorationError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.traceable import refuse_script
from daceml.garbage_collection import without_collection
from daceml.onnx_ops.external import external_call
from daceml.tuning.call_batch import samples, with_samples
from daceml.tuning.call_precision import in_precision
from daceml.tuning.program_run import ProgramRun, own_state
from daceml.tuning.step_features import identity, program_facts, symbol_values
from daceml.tuning.variant import Variant
from daceml.tuning.variant_recipes import recipe_of, recipe_to_lower, varied_recomputation

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan
    from daceml.compiler.program_builder import Making
    from daceml.tuning.step_features import StepFacts


@dataclass(kw_only=True, eq=False)
class Lowered:
    """Programs of a variant, not compiled.

    Attributes:
        identity: equal for programs that do the same in the same order.
        calls: of it, that have as many samples as the call that is explored; 1 unless the variant says how
            many samples one has.
        facts: of the steps of one call, forward then backward.
        memory_bytes: at its peak, with parameters, inputs and results.
        moved_bytes: read and written by all steps of so many calls, each array once a step.
        kernels: different ones.
        limit: how far results may be from those of another variant.
        plans: of its programs, forward then backward.
        sizes: of symbolic dimensions.
    """

    variant: Variant
    making: Making
    identity: str
    calls: float
    facts: tuple[StepFacts, ...]
    memory_bytes: int
    moved_bytes: int
    kernels: int
    limit: float
    plans: tuple[Plan, ...]
    sizes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Call:
    """A captured call, for one element type."""

    making: Making
    state: Mapping[str, torch.Tensor]
    tensors: Sequence[torch.Tensor]
    freezable: str  # why weights cannot be promised not to change; empty where they can


class Subject:
    """What is explored.

    Args:
        args, kwargs: of the call; read and not changed.
        training: whether a call is a forward and a backward pass.
    """

    def __init__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, training: bool
    ) -> None:
        self.module, self.args, self.kwargs, self.training = module, args, kwargs, training
        self._calls: dict[tuple[str, int | None], _Call] = {}
        self._standard_peak: int | None = None

    @property
    def not_freezable(self) -> str:
        """Why weights cannot be promised not to change; empty where they can."""
        return self._call(Variant()).freezable

    @property
    def key(self) -> str:
        """Of the standard program: the same model, inputs, options and versions have the same one."""
        return self._call(Variant()).making.key()

    @property
    def samples(self) -> int:
        """Of the call that is explored.

        Raises:
            ExplorationError: nobody can say.
        """
        return samples(self.args, self.kwargs)

    def require_processor(self) -> None:
        """Refuse what lies on another device.

        Raises:
            ExplorationError: a parameter or an input does.
        """
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        tensors = [
            *self.module.parameters(),
            *self.module.buffers(),
            *(x for x in leaves if isinstance(x, torch.Tensor)),
        ]
        elsewhere = next((x for x in tensors if x.device.type != "cpu"), None)
        if elsewhere is not None:
            raise ExplorationError(
                f"{type(self.module).__name__} lies on {elsewhere.device}",
                why="variants are measured on this machine's processor only",
                fix='move the model to the CPU; devices=["H100"] predicts it there',
            )

    def lower(self, variant: Variant) -> Lowered:
        """The programs of a variant.

        Raises:
            Exception: whatever a pass or an operator refuses; the message says why.
        """
        call = self._call(variant)
        making = self._making(variant, call)
        calls = 1.0 if variant.samples is None else self.samples / variant.samples
        with without_collection(), torch.no_grad():
            made = making.optimised()
            networks = [one.network for one in made]
            given = [None] if making.record is None else [(), making.record.saved_of(networks[1].inputs)]
            plans = [make_plan(n, external_call, given=g) for n, g in zip(networks, given, strict=True)]
            if making.record is not None:
                memory_bytes = peak_bytes(made, making.record, plans)
            else:
                (network,), (plan,) = networks, plans
                # the module holds its own weights, whatever was made of them
                held = array_bytes(network, (*network.inputs, *network.weights, *plan.weights))
                memory_bytes = held + max(live_bytes(plan), default=0)
            sizes = symbol_values(networks[0], [x.shape for x in call.tensors])
            facts = program_facts(plans, sizes)
        if variant == Variant():
            self._standard_peak = memory_bytes
        return Lowered(
            variant=variant,
            making=making,
            identity=identity(plans),
            calls=calls,
            facts=facts,
            memory_bytes=memory_bytes,
            moved_bytes=round(calls * sum(fact.unique_bytes for fact in facts)),
            kernels=sum(len(plan.kernels) for plan in plans),
            limit=max(map(limit_of, networks)),
            plans=tuple(plans),
            sizes=sizes,
        )

    def compile(self, lowered: Lowered) -> ProgramRun:
        """Its programs, apart from the module.

        Raises:
            Exception: the compiler refuses.
        """
        making, call = lowered.making, self._call(lowered.variant)
        with torch.no_grad():
            mutated = making.stored()[0].manifest.mutated
            requiring = () if making.wanted is None else making.wanted.state
            program, backward = making.bind(own_state(call.state, mutated, requiring))
        making.made = []  # what was built goes
        return ProgramRun(program, backward, call.tensors, limit=lowered.limit)

    def options(self, variant: Variant) -> dict[str, Any]:
        """What `daceml.compile` is given for a variant."""
        options: dict[str, Any] = {"backward": self.training}
        if variant.unoptimised:
            options["auto_optimize"] = False
        elif (recipe := recipe_of(variant)) is not None:
            options["recipe"] = recipe
        if variant.freeze:
            options["freeze"] = True
        recomputation = self._recomputation(variant, Recomputation())
        if self.training and recomputation != Recomputation():
            options["recompute"] = recomputation.mode
            if recomputation.budget_bytes is not None:
                options["memory_budget_bytes"] = recomputation.budget_bytes
        return options

    def _making(self, variant: Variant, call: _Call) -> Making:
        if variant.freeze and call.freezable:
            raise ExplorationError("weights cannot be frozen", why=call.freezable, fix="leave it out")
        return replace(
            call.making,
            levels=not variant.unoptimised,
            freeze=variant.freeze,
            recipe=functools.partial(recipe_to_lower, variant),
            recomputation=self._recomputation(variant, call.making.recomputation),
            made=[],
            record=None,
            known_key="",
            stages=Stages(),
            ahead=False,
            objects=None,
        )

    def _recomputation(self, variant: Variant, given: Recomputation) -> Recomputation:
        if variant.memory_share is None:
            return varied_recomputation(variant.choices, given)
        if self._standard_peak is None:
            self.lower(Variant())
        assert self._standard_peak is not None, "lowering notes it"
        return Recomputation(mode="budget", budget_bytes=round(variant.memory_share * self._standard_peak))

    def _call(self, variant: Variant) -> _Call:
        place = variant.precision, variant.samples
        if place not in self._calls:
            self._calls[place] = self._captured(variant)
        return self._calls[place]

    def _captured(self, variant: Variant) -> _Call:
        module, args, kwargs = self.as_variant(variant)
        refuse_script(module)
        request = ModuleRequest(module=module, options=module_options({"backward": self.training}))
        arguments = Arguments(args, kwargs)
        with torch.set_grad_enabled(self.training):
            key = named_key(call_key(arguments.leaves, None))
            making, state, _ = making_of_call(request, arguments, key.modes)
            try:
                check_frozen(module, arguments.tensors, key.modes, backward=self.training)
                freezable = ""
            except ConfigurationError as error:
                freezable = error.why or error.what
        if self.training and making.wanted is None:
            raise ExplorationError(
                f"{type(module).__name__} has nothing to train",
                why="neither a parameter nor an input requires a gradient, or gradients are disabled",
                fix="leave training out, or let something require a gradient",
            )
        return _Call(making=making, state=state, tensors=arguments.tensors, freezable=freezable)

    def as_variant(self, variant: Variant) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Module and call in a variant's precision, with as many samples as it says."""
        args, kwargs = self.args, self.kwargs
        if variant.samples is not None:
            args, kwargs = with_samples(args, kwargs, variant.samples)
        return in_precision(self.module, args, kwargs, variant.precision)
