"""The whole way: module -> ExportedProgram -> ONNX -> SDFG -> kernels -> a program bound to the module.

ONNX and DaCe are imported only where a program is not in the cache yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from daceml.compiler.call import agree, capture_call, making_of, trace_call
from daceml.compiler.freeze_check import check_frozen
from daceml.compiler.gradient_request import requirements
from daceml.compiler.guards import Modes
from daceml.compiler.module_request import ModuleRequest
from daceml.compiler.program_builder import Making
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.warm_up import warm
from daceml.config import config
from daceml.errors import ConfigurationError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.call_device import without_autocast
from daceml.frontend.capture.capture import Capture
from daceml.frontend.capture.trace_lock import tracing
from daceml.module.compiled_variant import Variant
from daceml.module.module_watch import watch_traced
from daceml.module.result_memory import with_whole_memory
from daceml.module.results import result_template
from daceml.toolchain.cache import Cache

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from daceml.module.other_ranks import OtherRanks
    from daceml.runtime.autograd import BackwardPass
    from daceml.runtime.program import Program
    from daceml.tuning.decision import Decision


def compile_variant(
    request: ModuleRequest,
    arguments: Arguments,
    modes: Modes,
    symbolic: Sequence[Variant] = (),
    *,
    changing: Sequence[frozenset[int]] | None = None,
    ranks: OtherRanks | None = None,
) -> Variant:
    """Compile a module as it stands for these arguments, or load what an earlier process compiled.

    Args:
        symbolic: variants with symbolic sizes that may be right for these arguments.
        changing: of each tensor, dimensions that should be symbolic if the module allows it.
        ranks: have to agree to the buckets of gradients that are averaged.
    Returns:
        a new variant, or one of `symbolic` that turns out to be right.
    Raises:
        ExportError, NoImplementationError, ShapeError, BuildError: the stage that could not go on says why.
        RunsEagerlyError: forward does something that no program can repeat.
    """
    import torch

    stages = Stages()
    module, options = request.module, request.options
    freeze = options["freeze"]
    if freeze:
        check_frozen(module, arguments.tensors, modes, backward=options["backward"])
    warm(Cache(config().cache_folder))
    with tracing(), without_autocast():
        with stages.stage("export"):
            captured = _captured(request, arguments, modes, symbolic, changing)
        if isinstance(captured, Variant):
            return captured
        captured, replaced = with_whole_memory(captured, eager_strides=request.before_eager)
        exported = captured.program
        watch = watch_traced(module, captured)
        making, state = making_of(request, arguments, modes, captured, stages)
        with torch.no_grad():
            decision = None
            if options["auto_optimize"] == "search":
                making, decision = _searched(request, making, captured, arguments, state)
            with stages.stage("key"):
                making.key()
            known, plain = None, making
            compares = ranks is None and _may_run_eagerly(request)
            if compares:
                from daceml.tuning.comparison_record import remembered

                making, known = remembered(making, arguments.tensors)
            program, backward = making.bind(state)
            if ranks is not None and backward is not None and not ranks.agree(backward.record.buckets):
                making = making.averaging_as(ranks.averaging)
                program, backward = making.bind(state)
        if options["cuda_graphs"]:
            _use_graphs(making, program, backward)
    eager = known
    if compares and (making.made if known is None else known.is_doubtful):
        from daceml.tuning.chosen_program import ChosenProgram, compare_again

        chosen = ChosenProgram(making=making, program=program, backward=backward, eager=known)
        with without_autocast(), torch.no_grad():
            if known is None:
                from daceml.tuning.program_choice import choose_program

                chosen = choose_program(chosen, state, arguments.tensors)
            else:
                chosen = compare_again(chosen, plain, state, arguments.tensors)
        making, program, backward, eager = chosen.making, chosen.program, chosen.backward, chosen.eager
    compare = None
    if eager is not None and captured.sizes is not None:
        from daceml.module.compared_sizes import ComparedSizes
        from daceml.tuning.chosen_program import ChosenProgram

        kept = replace(making, made=[])  # what was built goes
        first = ChosenProgram(making=kept, program=program, backward=backward, eager=eager)
        compare = ComparedSizes(first, replace(plain, made=[]), state, arguments.tensors)
    return Variant(
        program=program,
        exported=making.exported,
        watch=watch,
        template=result_template(exported, state, replaced),
        sizes=captured.sizes,
        writes=_writes(exported, program, state),
        assigned=captured.assigned,
        changes=captured.changes,
        optimised=making.made[0].network if request.hooks is not None and making.made else None,
        auto_optimize=making.levels,
        freeze=freeze,
        recipe=making.recipe,
        device=making.target,
        architecture=making.architecture,
        decision=decision,
        eager=eager,
        compare=compare,
        stages_s=stages.seconds,
        backward=backward,
        requiring=requirements(request, modes),
        reads=tuple(read for read in captured.reads if isinstance(read.source, int)),
    )


def _may_run_eagerly(request: ModuleRequest) -> bool:
    """Whether eager PyTorch may run a call that it runs faster: the user asks for no particular program."""
    options = request.options
    plain = request.hooks is None and options["auto_optimize"] is True and options["recompute"] == "cheap"
    asked = ("fullgraph", "prefer_native", "verify", "cuda_graphs", "recipe", "memory_budget_bytes")
    return plain and all(options[name] in (None, False) for name in asked)


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
    request: ModuleRequest,
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
    if request.hooks is not None:
        raise ConfigurationError(
            'hooks and auto_optimize="search" were both given',
            why="hooks see every network once, and a search makes many",
            fix="remove the hooks, or leave auto_optimize out",
        )
    return search_module(
        making, arguments.tensors, state, sizes=captured.sizes, budget_s=request.options["search_budget_s"]
    )


def _captured(
    request: ModuleRequest,
    arguments: Arguments,
    modes: Modes,
    symbolic: Sequence[Variant],
    changing: Sequence[frozenset[int]] | None,
) -> Capture | Variant:
    """A trace of the call, or the variant with symbolic sizes that turns out to be right for it."""
    shapes = [tensor.shape for tensor in arguments.tensors]
    for variant in symbolic:
        if variant.sizes is not None and variant.sizes.problem(shapes, ones=True) is None:
            plain = trace_call(request, arguments, modes)
            return variant if agree(variant.exported, plain.program, variant.sizes, shapes) else plain
    return capture_call(request, arguments, modes, changing)


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
