"""The whole way: module -> ExportedProgram -> ONNX -> SDFG -> kernels -> a program bound to the module.

ONNX and DaCe are imported only where a program is not in the cache yet.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import nn

from daceml.codegen_cuda.toolchain import device_architecture
from daceml.compiler.freeze_check import check_frozen
from daceml.compiler.gradient_request import gradients_wanted, requirements, wanted_gradients
from daceml.compiler.guards import Modes
from daceml.compiler.pipeline import Stages, warm
from daceml.compiler.program_builder import Making
from daceml.compiler.stages.recomputation import Recomputation
from daceml.config import config
from daceml.errors import ConfigurationError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.call_device import device_of, without_autocast
from daceml.frontend.capture.capture import Capture, capture
from daceml.frontend.capture.extremum_gradients import read_chosen_extremes
from daceml.frontend.capture.gradient_changes import refuse_changes
from daceml.frontend.capture.gradient_stops import mark_gradient_stops
from daceml.frontend.capture.moved_tensors import refuse_moved
from daceml.frontend.capture.same_graph import same_graph
from daceml.frontend.capture.trace_lock import tracing
from daceml.module.compiled_variant import Variant
from daceml.module.module_watch import watch_traced
from daceml.module.results import result_template
from daceml.toolchain.cache import Cache

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from daceml.compiler.verification.verify_passes import Sample
    from daceml.frontend.capture.dynamic_shapes import SizeGuard
    from daceml.module.session import Session
    from daceml.runtime.autograd import BackwardPass
    from daceml.runtime.program import Program
    from daceml.tuning.decision import Decision

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
    warm(Cache(config().cache_folder))
    with tracing(), without_autocast():
        with stages.stage("export"):
            captured = _capture(session, arguments, modes, symbolic)
        if isinstance(captured, Variant):
            return captured
        exported = captured.program
        watch = watch_traced(module, captured)
        making, state = making_of(session, arguments, modes, captured, stages)
        with torch.no_grad():
            decision = None
            if options["auto_optimize"] == "search":
                making, decision = _searched(session, making, captured, arguments, state)
            with stages.stage("key"):
                making.key()
            program, backward = making.bind(state)
            parallel = session.data_parallel
            if parallel is not None and backward is not None and not parallel.agree(backward.record.buckets):
                making = making.averaging_as(parallel.averaging)
                program, backward = making.bind(state)
        if options["cuda_graphs"]:
            _use_graphs(making, program, backward)
    return Variant(
        program=program,
        exported=exported,
        watch=watch,
        template=result_template(exported, state),
        sizes=captured.sizes,
        writes=_writes(exported, program, state),
        assigned=captured.assigned,
        optimised=making.made[0].network if session.hooks and making.made else None,
        auto_optimize=making.levels,
        freeze=freeze,
        recipe=making.recipe,
        device=making.target,
        architecture=making.architecture,
        decision=decision,
        stages_s=stages.seconds,
        backward=backward,
        requiring=requirements(session, modes, module),
    )


def making_of_call(
    session: Session, arguments: Arguments, modes: Modes
) -> tuple[Making, dict[str, torch.Tensor], Capture]:
    """How the programs of a call would be made; none is made.

    Returns:
        the making, the tensors of the module that its programs share, and the trace: its `sizes` and
        `assigned` say for which calls the programs would be right, and which results are none of forward's.
    Raises:
        RunsEagerlyError: forward does something that no program can repeat.
        ExportError, NoImplementationError, ShapeError: see `compile_variant`.
    """
    with tracing(), without_autocast():
        captured = _capture(session, arguments, modes, ())
        assert not isinstance(captured, Variant), "none was given"
        return *making_of(session, arguments, modes, captured, Stages()), captured


def making_of(
    session: Session, arguments: Arguments, modes: Modes, captured: Capture, stages: Stages
) -> tuple[Making, dict[str, torch.Tensor]]:
    """How the programs of a captured call are made, and the tensors of the module that they share."""
    exported, options = captured.program, session.options
    state = _tensors(session.eager) | captured.held
    wanted = wanted_gradients(session, arguments, modes, state)
    if wanted is not None:
        mark_gradient_stops(exported)
        read_chosen_extremes(exported)
        refuse_changes(exported, wanted)
    making = Making(
        exported=exported,
        stages=stages,
        hooks=session.run_hooks if session.hooks else None,
        autodiff_hooks=session.run_autodiff_hooks if session.hooks else None,
        wanted=wanted,
        cache=Cache(config().cache_folder),
        levels=bool(options["auto_optimize"]),
        freeze=options["freeze"],
        recomputation=Recomputation(mode=options["recompute"], budget_bytes=options["memory_budget_bytes"]),
        prefer_native=options["prefer_native"],
        ranges=options["ranges"],
        recipe=lambda: options["recipe"],
        sample=(lambda: _sample(arguments, state)) if options["verify"] else None,
        device=device_of(_named(arguments, captured, state)),
    )
    if session.data_parallel is not None and wanted is not None:
        making.averaging = session.data_parallel.averaging
        making.exchange = session.data_parallel.exchange
    if making.target != "cpu":
        refuse_moved(exported, making.device)
        making.architecture = device_architecture(making.device)
    return making, state


def _use_graphs(making: Making, program: Program, backward: BackwardPass | None) -> None:
    if making.target != "cuda":
        raise ConfigurationError(
            "cuda_graphs=True was given",
            why=f"the tensors lie on {making.device}",
            fix="move module and inputs to a CUDA device, or leave the option out",
        )
    if backward is None:
        program.use_graphs()
        return
    record = backward.record
    program.use_graphs(lent=[place for place in record.saved if place >= record.results])
    backward.program.use_graphs(standing=backward.saved_places)


def _searched(
    session: Session,
    making: Making,
    captured: Capture,
    arguments: Arguments,
    state: Mapping[str, torch.Tensor],
) -> tuple[Making, Decision]:
    """What the search for a recipe has chosen for this call, in this process or in an earlier one."""
    from daceml.tuning.module_search import search_module

    if making.target != "cpu":
        raise ConfigurationError(
            'auto_optimize="search" is for the CPU',
            why=f"the tensors lie on {making.device}, and variations are measured on the processor only",
            fix="leave auto_optimize out: the recipe for devices is applied",
        )
    if session.hooks:
        raise ConfigurationError(
            'hooks and auto_optimize="search" were both given',
            why="hooks see every network once, and a search makes many",
            fix="remove the hooks, or leave auto_optimize out",
        )
    return search_module(
        making, arguments.tensors, state, sizes=captured.sizes, budget_s=session.options["search_budget_s"]
    )


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
    from daceml.compiler.verification.verify_passes import Sample

    return Sample.like(arguments.tensors, state)


def _named(
    arguments: Arguments, captured: Capture, state: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The arguments, and what forward reads of the module."""
    yield from ((f"argument {place}", tensor) for place, tensor in enumerate(arguments.tensors))
    signature = captured.program.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    for node in captured.program.graph.nodes:
        if node.op == "placeholder" and node.users and keys.get(node.name) in state:
            yield keys[node.name], state[keys[node.name]]


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    parameters = module.named_parameters(remove_duplicate=False)
    return dict(parameters) | dict(module.named_buffers(remove_duplicate=False))
