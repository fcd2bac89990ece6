"""The whole way: module -> ExportedProgram -> ONNX -> SDFG -> kernels -> a program bound to the module.

ONNX and DaCe are imported only where a program is not in the cache yet.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from daceml.config import config
from daceml.errors import RecompileError
from daceml.frontend.arguments import Arguments
from daceml.frontend.backward import BackwardPass, Narrowed
from daceml.frontend.capture import Capture, capture
from daceml.frontend.chosen_extremes import read_chosen_extremes
from daceml.frontend.frozen import check_frozen
from daceml.frontend.gradient_changes import refuse_changes
from daceml.frontend.gradient_record import GradientRecord, Wanted
from daceml.frontend.gradient_stops import mark_gradient_stops
from daceml.frontend.guards import Modes
from daceml.frontend.module_watch import watch_traced
from daceml.frontend.pipeline import (
    Optimised,
    Stages,
    build,
    optimised_network,
    training_networks,
    warming,
    without_collection,
)
from daceml.frontend.program_key import program_key
from daceml.frontend.recomputation import Recomputation
from daceml.frontend.results import result_template
from daceml.frontend.same_graph import same_graph
from daceml.frontend.stance import current_stance
from daceml.frontend.tracing import tracing
from daceml.frontend.variant import Variant
from daceml.frontend.wanted import gradients_wanted, requirements, wanted_gradients
from daceml.runtime.cache import Cache, digest
from daceml.runtime.program import StoredProgram

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from daceml.frontend.dynamic_shapes import SizeGuard
    from daceml.frontend.pass_verification import Sample
    from daceml.frontend.session import Session
    from daceml.runtime.program import Program
    from daceml.sdfg.network import Network
    from daceml.transformations.recipe import Recipe

log = logging.getLogger(__name__)


def compile_variant(
    session: Session, arguments: Arguments, modes: Modes, symbolic: Sequence[Variant] = ()
) -> Variant:
    """Compile a module as it stands for these arguments, or load what an earlier process compiled.

    Args:
        symbolic: variants with symbolic sizes that may be right for these arguments.
    Returns:
        a new variant, or one of `symbolic` that turns out to be right.
    Raises:
        ExportError, NoImplementationError, ShapeError, BuildError: the stage that could not go on says why.
        RunsEagerlyError: forward does something that no program can repeat.
    """
    import torch

    stages = Stages()
    module, options = session.eager, session.options
    freeze = options["freeze"]
    if freeze:
        check_frozen(module, arguments.tensors, modes, backward=options["backward"])
    with tracing(), torch.autocast("cpu", enabled=False):
        with stages.stage("export"):
            captured = _capture(session, arguments, modes, symbolic)
        if isinstance(captured, Variant):
            return captured
        exported = captured.program
        state = _tensors(module) | captured.held
        watch = watch_traced(module, captured)
        cache = Cache(config().cache_folder)
        levels = options["auto_optimize"]
        wanted = wanted_gradients(session, arguments, modes, state)
        if wanted is not None:
            mark_gradient_stops(exported)
            read_chosen_extremes(exported)
            refuse_changes(exported, wanted)
        recomputation = Recomputation(mode=options["recompute"], budget_bytes=options["memory_budget_bytes"])
        native, recipe, verify = options["prefer_native"], options["recipe"], options["verify"]
        making = _Making(
            exported=exported,
            stages=stages,
            hooks=session.run_hooks if session.hooks else None,
            autodiff_hooks=session.run_autodiff_hooks if session.hooks else None,
            wanted=wanted,
            cache=cache,
            levels=levels,
            freeze=freeze,
            recomputation=recomputation,
            prefer_native=native,
            recipe=recipe,
            sample=(lambda: _sample(arguments, state)) if verify else None,
        )
        with torch.no_grad():
            with stages.stage("key"):
                how = None if wanted is None else recomputation
                key = program_key(
                    exported, auto_optimize=levels, freeze=freeze, wanted=wanted, recomputation=how,
                    prefer_native=native, recipe=recipe, verify=verify,
                )  # fmt: skip
            if session.hooks:
                log.info("not looked up in the cache: what hooks do is not part of its key")
                key = digest(key, uuid.uuid4().hex)
            folder = cache.get("programs", key, making.forward)
            behind = (
                None if wanted is None else cache.get("programs", digest(key, "backward"), making.backward)
            )
            with stages.stage("bind"):
                program = StoredProgram(folder).bind(state)
                if program.limited:
                    kept = replace(making, made=[], record=None, freeze=False, sample=None, stages=Stages())
                    program.substitute = functools.partial(_unlimited, kept, key, state)
                backward = None if behind is None else _backward_pass(behind, making, key, state)
    return Variant(
        program=program,
        exported=exported,
        watch=watch,
        template=result_template(exported, state),
        sizes=captured.sizes,
        writes=_writes(exported, program, state),
        assigned=captured.assigned,
        optimised=making.made[0].network if session.hooks and making.made else None,
        auto_optimize=levels,
        freeze=freeze,
        recipe=recipe,
        stages_s=stages.seconds,
        backward=backward,
        requiring=requirements(session, modes, module),
    )


@dataclass(kw_only=True)
class _Making:
    """Builds the programs of a variant where the cache has none; both come from one differentiation."""

    exported: ExportedProgram
    stages: Stages
    hooks: Callable[[Network], None] | None
    autodiff_hooks: Callable[..., None] | None
    wanted: Wanted | None
    cache: Cache
    levels: bool
    freeze: bool
    recomputation: Recomputation
    prefer_native: bool
    recipe: Recipe | None
    sample: Callable[[], Sample] | None
    made: list[Optimised] = field(default_factory=list[Optimised])
    record: GradientRecord | None = None

    def forward(self, folder: Path) -> None:
        with warming(self.cache), without_collection():
            given = None if self.wanted is None else ()
            build(self._optimised()[0], self.cache, folder, self.stages, given=given)

    def backward(self, folder: Path) -> None:
        with warming(self.cache), without_collection():
            optimised = self._optimised()[1]
            assert self.record is not None, "networks with a backward pass have a record"
            given = self.record.saved_of(optimised.network.inputs)
            build(optimised, self.cache, folder, self.stages, given=given)
        self.record.save(folder)

    def _optimised(self) -> list[Optimised]:
        if not self.made:
            hooks, autodiff_hooks = self.hooks, self.autodiff_hooks
            sample = None if self.sample is None else self.sample()
            if self.wanted is None:
                self.made = [
                    optimised_network(
                        self.exported,
                        self.stages,
                        levels=self.levels,
                        freeze=self.freeze,
                        hooks=hooks,
                        autodiff_hooks=autodiff_hooks,
                        recipe=self.recipe,
                        sample=sample,
                    )
                ]
            else:
                self.made, self.record = training_networks(
                    self.exported,
                    self.wanted,
                    self.stages,
                    levels=self.levels,
                    hooks=hooks,
                    autodiff_hooks=autodiff_hooks,
                    recomputation=self.recomputation,
                    prefer_native=self.prefer_native,
                    recipe=self.recipe,
                    sample=sample,
                )
        return self.made


def _unlimited(making: _Making, key: str, state: Mapping[str, torch.Tensor]) -> Program:
    """The program of weights that may change: it keeps NaN in activations, and needs no limits for that."""
    import torch

    with tracing(), torch.autocast("cpu", enabled=False), torch.no_grad():
        folder = making.cache.get("programs", digest(key, "unlimited"), making.forward)
        return StoredProgram(folder).bind(state)


def _backward_pass(
    folder: Path, making: _Making, key: str, state: Mapping[str, torch.Tensor]
) -> BackwardPass:
    record, wanted = GradientRecord.load(folder), making.wanted
    assert wanted is not None, "what is differentiated is wanted"
    # the second half of a budget's plan goes with its first, and a hook sees each pass once
    alone = making.recomputation.mode != "budget" and making.hooks is None
    kept = replace(making, made=[], record=None)  # what was built goes
    return BackwardPass(
        program=StoredProgram(folder).bind({}),
        record=record,
        wanted=wanted,
        state=tuple(state[key] for key in wanted.state),
        read={key: state[key] for _, key in record.reads if isinstance(key, str)},
        narrow=functools.partial(_narrowed, kept, key, record) if alone else lambda _: None,
    )


def _narrowed(making: _Making, key: str, whole: GradientRecord, places: tuple[int, ...]) -> Narrowed | None:
    """The backward program for cotangents of fewer results; None where it would read what is not kept."""
    import torch

    assert making.wanted is not None, "what is differentiated is wanted"
    if current_stance() == "fail_on_recompile":
        raise RecompileError(
            "a backward pass would have to be compiled",
            why=f"only the results at {list(places)} have cotangents, and the stance is fail_on_recompile",
            fix="run one such step before, or let the loss use every result",
        )
    fewer = replace(making, wanted=replace(making.wanted, outputs=places), stages=Stages(), sample=None)
    with tracing(), torch.autocast("cpu", enabled=False), torch.no_grad():
        folder = making.cache.get("programs", digest(key, "backward", repr(places)), fewer.backward)
        record = GradientRecord.load(folder)
        takes = record.places_in(whole)
        if takes is None:
            log.warning("zeros stand for the cotangents of unused results: what is stored is for all of them")
            return None
        log.info("a backward pass for the results at %s alone", list(places))
        return Narrowed(program=StoredProgram(folder).bind({}), record=record, takes=takes)


def _capture(
    session: Session, arguments: Arguments, modes: Modes, symbolic: Sequence[Variant]
) -> Capture | Variant:
    """Trace the module, with symbolic sizes where they are wanted and right for these sizes."""
    import torch

    module, options = session.eager, session.options
    wanted, everything = options["dynamic_shapes"], options["dynamic"]
    shapes = [tensor.shape for tensor in arguments.tensors]
    trace = functools.partial(
        capture, autocast=modes.autocast, gradients=gradients_wanted(session, arguments, modes)
    )
    # hooks around the call, such as those of a checkpoint, have no business with what tracing saves
    unhooked = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.set_grad_enabled(modes.grad_enabled), unhooked:

        def fixed() -> Capture:
            return trace(module, arguments)

        for variant in symbolic:
            if variant.sizes is not None and variant.sizes.problem(shapes, ones=True) is None:
                plain = fixed()
                return variant if _agree(variant.exported, plain.program, variant.sizes, shapes) else plain
        if not everything and wanted is None:
            return fixed()
        open_sizes = trace(module, arguments, dynamic_shapes=wanted, dynamic=everything)
        if open_sizes.sizes is None or open_sizes.sizes.problem(shapes) is None:
            return open_sizes
        plain = fixed()
        problem = open_sizes.sizes.problem(shapes, ones=True)
        if problem is None:
            if _agree(open_sizes.program, plain.program, open_sizes.sizes, shapes):
                return open_sizes
            problem = "a size of 1 is something else"
        log.info("compiling %s for these sizes alone: %s", type(module).__name__, problem)
        return plain


def _agree(
    symbolic: ExportedProgram, fixed: ExportedProgram, sizes: SizeGuard, shapes: Sequence[Sequence[int]]
) -> bool:
    values = sizes.bind(shapes)
    return not isinstance(values, str) and same_graph(symbolic, fixed, values)


def _writes(
    exported: ExportedProgram, program: Program, state: Mapping[str, torch.Tensor]
) -> tuple[tuple[int, int | torch.Tensor], ...]:
    """Outputs that are new values of inputs and parameters, and where they go."""
    inputs = [name for name in exported.graph_signature.user_inputs if isinstance(name, str)]
    found: list[tuple[int, int | torch.Tensor]] = []
    for index, record in enumerate(program.manifest.outputs):
        target, mark, _ = record.name.partition("::next")
        # a buffer's new value may be saved for the backward pass besides; the program writes it back itself
        if mark and target not in program.manifest.mutated:
            found.append((index, inputs.index(target) if target in inputs else state[target]))
    return tuple(found)


def _sample(arguments: Arguments, state: Mapping[str, torch.Tensor]) -> Sample:
    """What passes are verified on: inputs drawn for the shapes of a call, and the module's own state."""
    from daceml.frontend.pass_verification import Sample

    return Sample.like(arguments.tensors, state)


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    parameters = module.named_parameters(remove_duplicate=False)
    return dict(parameters) | dict(module.named_buffers(remove_duplicate=False))
