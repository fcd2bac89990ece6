"""One call of a module, captured, and what its programs are to be made of."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from daceml.codegen_cuda.toolchain import device_architecture
from daceml.compiler.gradient_request import gradients_wanted, wanted_gradients
from daceml.compiler.guards import Modes
from daceml.compiler.module_request import ModuleRequest
from daceml.compiler.program_builder import Making
from daceml.compiler.stages.recomputation import Recomputation
from daceml.compiler.stages.stage_timer import Stages
from daceml.config import config
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.call_device import device_of, without_autocast
from daceml.frontend.capture.capture import Capture, capture
from daceml.frontend.capture.gradients.extremum_gradients import read_chosen_extremes
from daceml.frontend.capture.gradients.gradient_changes import refuse_changes
from daceml.frontend.capture.gradients.gradient_stops import mark_gradient_stops
from daceml.frontend.capture.gradients.result_gradients import with_result_gradients
from daceml.frontend.capture.gradients.scatter_gradients import give_scatter_gradients
from daceml.frontend.capture.refused_traces import refuse_moved
from daceml.frontend.capture.sizes.same_graph import same_graph
from daceml.frontend.capture.trace_lock import tracing
from daceml.toolchain.cache import Cache

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from daceml.compiler.verification.verify_passes import Sample
    from daceml.frontend.capture.sizes.dynamic_shapes import SizeGuard

log = logging.getLogger(__name__)


def making_of_call(
    request: ModuleRequest, arguments: Arguments, modes: Modes
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
        captured = capture_call(request, arguments, modes)
        return *making_of(request, arguments, modes, captured, Stages()), captured


def making_of(
    request: ModuleRequest, arguments: Arguments, modes: Modes, captured: Capture, stages: Stages
) -> tuple[Making, dict[str, torch.Tensor]]:
    """How the programs of a captured call are made, and the tensors of the module that they share."""
    exported, options = captured.program, request.options
    state = _tensors(request.module) | captured.held
    wanted = wanted_gradients(request, arguments, modes, state)
    if wanted is not None:
        mark_gradient_stops(exported)
        read_chosen_extremes(exported)
        give_scatter_gradients(exported)
        refuse_changes(exported, wanted)
        wanted = with_result_gradients(exported, wanted, captured.moving)
    making = Making(
        exported=exported,
        stages=stages,
        hooks=request.hooks,
        autodiff_hooks=request.autodiff_hooks,
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
    if wanted is not None:
        making.averaging = request.averaging
        making.exchange = request.exchange
    if making.target != "cpu":
        refuse_moved(exported, making.device)
        making.architecture = device_architecture(making.device)
    return making, state


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


def capture_call(
    request: ModuleRequest,
    arguments: Arguments,
    modes: Modes,
    changing: Sequence[frozenset[int]] | None = None,
) -> Capture:
    """Trace the module, with symbolic sizes where they are wanted and right for these sizes.

    Args:
        changing: of each tensor, dimensions that are symbolic where the options say nothing of sizes and the
            module allows it.
    Raises:
        RunsEagerlyError, ExportError: see `capture`.
    """
    wanted, everything = request.options["dynamic_shapes"], request.options["dynamic"]
    if not everything and wanted is None and changing is None:
        return trace_call(request, arguments, modes)
    shapes = [tensor.shape for tensor in arguments.tensors]
    dynamic: Any = everything or (changing if wanted is None else None) or False
    open_sizes = trace_call(request, arguments, modes, dynamic_shapes=wanted, dynamic=dynamic)
    if open_sizes.sizes is None or open_sizes.sizes.problem(shapes) is None:
        return open_sizes
    plain = trace_call(request, arguments, modes)
    problem = open_sizes.sizes.problem(shapes, ones=True)
    if problem is None:
        if agree(open_sizes.program, plain.program, open_sizes.sizes, shapes):
            return open_sizes
        problem = "a size of 1 is something else"
    log.info("compiling %s for these sizes alone: %s", type(request.module).__name__, problem)
    return plain


def agree(
    symbolic: ExportedProgram, fixed: ExportedProgram, sizes: SizeGuard, shapes: Sequence[Sequence[int]]
) -> bool:
    """Whether a program with symbolic sizes does at these sizes what the one for them alone does."""
    values = sizes.bind(shapes)
    return not isinstance(values, str) and same_graph(symbolic, fixed, values)


def trace_call(request: ModuleRequest, arguments: Arguments, modes: Modes, **sizes: Any) -> Capture:
    """Trace the module for the sizes of these arguments, unless options of `capture` leave some symbolic."""
    import torch

    with torch.set_grad_enabled(modes.grad_enabled), _unhooked(), _unwound():
        return capture(
            request.module,
            arguments,
            autocast=modes.autocast,
            gradients=gradients_wanted(request, arguments, modes),
            output=not request.options["fullgraph"],  # it prints once, while it is traced
            **sizes,
        )


@contextmanager
def _unhooked() -> Generator[None]:
    """Keep hooks around the call, such as those of a checkpoint, from what tracing saves."""
    import torch

    hooks: Any = torch._C._autograd  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    if hooks._top_saved_tensors_default_hooks(True) is None:
        yield  # functional transforms refuse even hooks that do nothing
        return
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        yield


@contextmanager
def _unwound() -> Generator[None]:
    """End functional transforms that a failed trace leaves open: calls in a graph of Dynamo begin them."""
    import torch

    transforms: Any = torch._C._functorch  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    hooks: Any = torch._C._autograd  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    depth = transforms.get_dynamic_layer_stack_depth()
    refused = hooks._saved_tensors_hooks_get_disabled_error_message()
    try:
        yield
    except BaseException:
        transforms.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if refused is None:
            hooks._saved_tensors_hooks_enable()
        else:
            hooks._saved_tensors_hooks_disable(refused)
        raise
