"""A whole training step as one program: forward, loss, backward, and the optimizer's update.

Nothing between the parts is kept for torch: no gradient is a tensor of its own, and no graph of autograd is
built. `parameter.grad` is left as it is. Parameters and the optimizer's state are written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from daceml.compiler.guards import input_key
from daceml.compiler.keys.program_key import program_key
from daceml.compiler.options import ModuleOptions, module_options
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.warm_up import warm
from daceml.config import config
from daceml.errors import CallError, ConfigurationError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.call_device import autocast_types, without_autocast
from daceml.frontend.capture.capture import capture
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.extremum_gradients import read_chosen_extremes
from daceml.frontend.capture.gradients.gradient_changes import refuse_changes
from daceml.frontend.capture.gradients.gradient_stops import mark_gradient_stops
from daceml.frontend.capture.gradients.scatter_gradients import give_scatter_gradients
from daceml.frontend.capture.trace_lock import tracing
from daceml.frontend.capture.traceable import refuse_script
from daceml.garbage_collection import without_collection
from daceml.module.module_watch import ModuleWatch, watch_traced
from daceml.module.whole_step.optimizer_table import STATE, HeldTensors, Row, UpdatedRows, layouts, rows_of
from daceml.module.whole_step.optimizers import refuse_hooks, rule_of
from daceml.runtime.program import Program
from daceml.runtime.records.gradients import Wanted
from daceml.runtime.stored_program import StoredProgram
from daceml.toolchain.cache import Cache, digest

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from daceml.transformations.recipe import Recipe
    from daceml.tuning.decision import Decision


class _Function(nn.Module):
    """A function as a submodule, so that its operators have the path of a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> torch.Tensor:
        return self.function(*given)


class _Loss(nn.Module):
    """The loss as a module over the model."""

    def __init__(self, model: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss if isinstance(loss, nn.Module) else _Function(loss)

    def forward(self, inputs: tuple[Any, ...], targets: tuple[Any, ...]) -> torch.Tensor:
        return self.loss(self.model(*inputs), *targets)


@dataclass(kw_only=True)
class _Compiled:
    """A program, and what it is bound to.

    Attributes:
        tensors: of the module, by key.
        layouts: strides of the optimizer's tensors for which it was compiled.
        stages_s: seconds of each stage of the compilation, where this process compiled it.
        bound: the optimizer's tensors, in the order of `rows.held`.
    """

    stored: StoredProgram
    watch: ModuleWatch
    rows: UpdatedRows
    tensors: Mapping[str, torch.Tensor]
    layouts: Mapping[str, Mapping[str, tuple[int, ...]]]
    stages_s: Mapping[str, float]
    program: Program | None = None
    bound: Sequence[torch.Tensor | None] = ()

    def fits(self) -> bool:
        """Whether it is bound to what the optimizer holds now."""
        tensors = self.rows.tensors()
        same = len(tensors) == len(self.bound) and all(map(is_, tensors, self.bound))
        return self.program is not None and same

    def bind(self) -> Program:
        """The program, bound to the module's tensors and the optimizer's."""
        if self.program is None or not self.fits():
            tensors = self.rows.tensors()
            held: dict[str, Any] = {
                STATE + key: tensor for (key, _, _), tensor in zip(self.rows.held, tensors, strict=True)
            }
            self.program, self.bound = Program(self.stored, {**self.tensors, **held}), tensors
        return self.program


class CompiledStep:
    """`step(inputs, targets)`: one step of training, compiled; returns the loss, detached.

    Args:
        model: in training mode where it has dropout or batch norms.
        loss: takes the model's output and the targets; gives a scalar.
        optimizer: SGD, Adam or AdamW; its learning rates and other numbers are read at every step, and its
            state is kept where it keeps it.
        options: auto_optimize, search_budget_s, recipe, verify, ranges: as for `daceml.compile`.
    Raises:
        ConfigurationError: something else than these three, an optimizer that has no rule, or one for
            parameters of another model.
        ExportError: the model is TorchScript.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., torch.Tensor],
        optimizer: torch.optim.Optimizer,
        **options: Any,
    ) -> None:
        self.options = _step_options(options)
        _refuse_other_kinds(model, loss, optimizer)
        refuse_script(model)
        self.module = _Loss(model, loss)
        self.optimizer = optimizer
        refuse_hooks(optimizer)
        rows_of(optimizer, self._keys())
        self._programs: dict[Any, _Compiled] = {}
        self.decision: Decision | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has: its own model and optimizer; programs are bound to the tensors of one."""
        return {**self.__dict__, "_programs": {}}

    def __call__(self, inputs: Any, targets: Any = ()) -> torch.Tensor:
        """One step; where it raises, parameters and the optimizer's state are what they were.

        Args:
            inputs: the model's tensor, or a tuple of its arguments.
            targets: what the loss takes besides the output, a tensor or a tuple.
        """
        arguments = _arguments(inputs, targets)
        compiled = self._compiled(arguments)
        made = [] if compiled.fits() else compiled.rows.prepare()
        try:
            program = compiled.bind()
            with torch.no_grad():
                tensors = [x.detach().contiguous() for x in arguments.tensors]
                (loss, *_) = program([*tensors, compiled.rows.numbers()])
                compiled.rows.count()
        except BaseException:
            for parameter, name in made:
                del self.optimizer.state[parameter][name]
                if not self.optimizer.state[parameter]:
                    del self.optimizer.state[parameter]
            compiled.rows.forget()
            raise
        # what schedulers of learning rates look at
        self.optimizer._opt_called = True  # pyright: ignore[reportAttributeAccessIssue]
        return loss

    def compiled(self, inputs: Any, targets: Any = ()) -> tuple[StoredProgram, Mapping[str, float]]:
        """The program of a step with these arguments, compiled if need be and not run.

        Returns:
            the program, and the seconds of each stage in which this process compiled it.
        """
        found = self._compiled(_arguments(inputs, targets))
        return found.stored, found.stages_s

    def _keys(self) -> dict[int, str]:
        return {id(p): key for key, p in self.module.named_parameters()}

    def _compiled(self, arguments: Arguments) -> _Compiled:
        """The program for these arguments and the optimizer as it is, its state included."""
        rules = tuple(
            (
                rule_of(self.optimizer, g),
                bool(g.get("maximize")),
                tuple((id(p), p.requires_grad) for p in g["params"]),
            )
            for g in self.optimizer.param_groups
        )
        key = (input_key(arguments.leaves), rules)
        known = self._programs.get(key)
        if known is not None and known.watch.unchanged():
            fits = known.fits()
            if not fits:
                known.rows.forget()
            if known.rows.even() and (fits or self._layouts(known.rows.rows) == known.layouts):
                return known
        refuse_hooks(self.optimizer)
        found = self._programs[key] = self._compile(arguments)
        found.rows.even()
        return found

    def _layouts(self, rows: tuple[Row, ...]) -> dict[str, dict[str, tuple[int, ...]]]:
        return layouts(self.optimizer, rows, dict(self.module.named_parameters()))

    def _compile(self, arguments: Arguments) -> _Compiled:
        try:
            return self._compiled_for(arguments)
        except RunsEagerlyError as reason:
            raise CallError(
                "this training step cannot be one program",
                why=str(reason),
                fix="compile the module alone (daceml.compile): it runs eagerly where it must",
            ) from reason

    def _compiled_for(self, arguments: Arguments) -> _Compiled:
        cache = Cache(config().cache_folder)
        warm(cache)
        rows = rows_of(self.optimizer, self._keys())
        with tracing(), without_autocast():
            with torch.enable_grad():
                captured = capture(self.module, arguments, gradients=True)
            exported = captured.program
            _refuse_other_results(exported)
            if captured.changes:
                raise CallError(
                    "the model changes objects, lists or dicts among its arguments",
                    why="a whole step has inputs and targets, and keeps nothing in between",
                    fix="compile the module alone (daceml.compile)",
                )
            if captured.assigned:
                raise CallError(
                    "the model assigns attributes in its forward pass",
                    why=f"for example {captured.assigned[0].name!r}; a whole step keeps nothing in between",
                    fix="compile the module alone (daceml.compile)",
                )
            if names := [read.name for read in captured.reads if isinstance(read.source, int)]:
                raise CallError(
                    f"the model reads the value of its argument {names[0]} in its forward pass",
                    why="the value configures the program, and a step is compiled for all values",
                    fix="pass a number of Python, or compile the module alone (daceml.compile)",
                )
            mark_gradient_stops(exported)
            read_chosen_extremes(exported)
            give_scatter_gradients(exported)
            refuse_changes(exported, _wanted(rows, arguments))
            order = self._layouts(rows)
            with torch.no_grad():
                parameters = dict(self.module.named_parameters())
                tensors = parameters | dict(self.module.named_buffers()) | captured.held
                stages = Stages()
                stored = self._stored(cache, exported, rows, order, arguments, tensors, stages)
            updated = UpdatedRows(self.optimizer, rows, parameters, frozenset(stored.manifest.mutated))
            return _Compiled(
                stored=stored,
                watch=watch_traced(self.module, captured),
                rows=updated,
                tensors=tensors,
                layouts=order,
                stages_s=stages.seconds,
            )

    def _stored(
        self,
        cache: Cache,
        exported: ExportedProgram,
        rows: tuple[Row, ...],
        order: dict[str, dict[str, tuple[int, ...]]],
        arguments: Arguments,
        state: Mapping[str, torch.Tensor],
        stages: Stages,
    ) -> StoredProgram:
        wanted, levels = _wanted(rows, arguments), bool(self.options["auto_optimize"])

        def key_of(recipe: Recipe | None, *, verify: bool = False, ranges: bool = False) -> str:
            program = program_key(
                exported, auto_optimize=levels, wanted=wanted, recipe=recipe, verify=verify, ranges=ranges
            )
            return digest(program, "step", repr(rows), repr(order))

        recipe = self.options["recipe"]
        if self.options["auto_optimize"] == "search":
            from daceml.module.whole_step.step_network import step_network
            from daceml.tuning.step_search import StepMaking, search_step
            from daceml.tuning.variant_recipes import varied_recipe

            held = HeldTensors(self.optimizer, rows, order, state)
            making = StepMaking(
                cache=cache,
                key=key_of,
                network=lambda recipe: step_network(exported, rows, order, Stages(), recipe=recipe),
                state=held.state,
                inputs=lambda mutated: [*arguments.tensors, held.numbers(mutated)],
            )
            self.decision = search_step(making, self.options["search_budget_s"])
            recipe = varied_recipe(self.decision.choices)

        def make(folder: Path) -> None:
            with without_collection():
                sample = None
                with stages.stage("import"):
                    from daceml.compiler.stages.program_folder import build
                    from daceml.module.whole_step.step_network import step_network
                if self.options["verify"]:
                    from daceml.compiler.verification.verify_passes import Sample

                    sample = Sample.like(arguments.tensors, state)
                network = step_network(
                    exported, rows, order, stages, levels=levels, recipe=recipe, sample=sample
                )
                build(network, cache, folder, stages, ranges=self.options["ranges"])

        key = key_of(recipe, verify=self.options["verify"], ranges=self.options["ranges"])
        return StoredProgram(cache.get("programs", key, make))


def _arguments(inputs: Any, targets: Any) -> Arguments:
    if any(autocast_types()):
        raise CallError(
            "a compiled step was called under autocast",
            why="it would run in the types of the parameters",
            fix="enter autocast inside the model's forward, or compile the module alone (daceml.compile)",
        )
    return Arguments(tuple(x if isinstance(x, tuple) else (x,) for x in (inputs, targets)), {})


_OPTIONS = ("auto_optimize", "ranges", "recipe", "search_budget_s", "verify")


def _step_options(given: dict[str, Any]) -> ModuleOptions:
    if unknown := given.keys() - set(_OPTIONS):
        raise ConfigurationError(
            f"unknown option {min(unknown)!r} of compile_step",
            why=f"options are {', '.join(_OPTIONS)}",
            fix="compile the module alone (daceml.compile) for the others",
        )
    return module_options(given)


def _refuse_other_kinds(model: object, loss: object, optimizer: object) -> None:
    """Arguments in another order, and classes in the place of their instances."""
    kinds = (
        ("model", model, isinstance(model, nn.Module), "an nn.Module"),
        ("loss", loss, callable(loss) and not isinstance(loss, type), "a function of output and targets"),
        ("optimizer", optimizer, isinstance(optimizer, torch.optim.Optimizer), "one of torch.optim"),
    )
    for name, given, fits, kind in kinds:
        if not fits:
            what = (
                f"the class {given.__name__}"
                if isinstance(given, type)
                else f"of type {type(given).__name__}"
            )
            raise ConfigurationError(
                f"the {name} of a compiled step must be {kind}",
                why=f"it is {'None' if given is None else what}",
                fix="call compile_step(model, loss, optimizer), with instances where these are of classes",
            )


def _refuse_other_results(exported: ExportedProgram) -> None:
    from torch.export.graph_signature import OutputKind, TensorArgument

    signature = exported.module_call_graph[0].signature
    assert signature is not None, "a trace has one"
    structure = signature.out_spec
    assert structure is not None, "a trace has the structure of its result"
    results = [s.arg for s in exported.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    if structure.is_leaf() and isinstance(results[0], TensorArgument):
        return
    made = f"a {structure.type.__name__}" if not structure.is_leaf() else "a plain value of Python"
    raise CallError(
        "the loss of a compiled step must be a tensor",
        why=f"the loss function returns {made}",
        fix="return the loss alone, as a tensor: without .item(), float() or further results",
    )


def _wanted(rows: tuple[Row, ...], arguments: Arguments) -> Wanted:
    members = tuple(key for row in rows for key in row.members)
    return Wanted(inputs=(False,) * len(arguments.tensors), state=members)


def compile_step(
    model: nn.Module, loss: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer, **options: Any
) -> CompiledStep:
    """Forward, loss, backward and optimizer update of one training step as one compiled program.

    With `step = daceml.compile_step(model, loss, optimizer)`, `step(inputs, targets)` does for a batch what
    `optimizer.zero_grad(); l = loss(model(inputs), targets); l.backward(); optimizer.step()` does, and
    returns the loss.

    Args:
        model, loss, optimizer, options: see `CompiledStep`.
    """
    return CompiledStep(model, loss, optimizer, **options)
