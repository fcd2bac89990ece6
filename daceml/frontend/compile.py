"""The whole way: module -> ExportedProgram -> ONNX -> SDFG -> kernels -> a program bound to the module.

ONNX and DaCe are imported only where a program is not in the cache yet.
"""

from __future__ import annotations

import gc
import logging
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from daceml.config import config
from daceml.frontend.arguments import Arguments
from daceml.frontend.capture import Capture, capture
from daceml.frontend.guards import Modes
from daceml.frontend.module_watch import ModuleWatch
from daceml.frontend.program_key import program_key
from daceml.frontend.results import result_template
from daceml.frontend.same_graph import same_graph
from daceml.frontend.tracing import tracing
from daceml.frontend.variant import Variant
from daceml.runtime.cache import Cache, digest
from daceml.runtime.manifest import EXAMPLE_SIZE
from daceml.runtime.program import StoredProgram
from daceml.runtime.progress import publish

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from daceml.frontend.dynamic_shapes import SizeGuard
    from daceml.frontend.session import Session
    from daceml.onnx_ops.lowering import LoweringReport
    from daceml.runtime.program import Program
    from daceml.sdfg.network import Network
    from daceml.transformations.local.map_fusion import FusionReport

log = logging.getLogger(__name__)


@dataclass
class Stages:
    """Seconds spent in each stage of one compilation."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Add the time of the block to a stage."""
        publish(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, kw_only=True)
class Optimised:
    """A network after all levels, and what happened on the way."""

    network: Network
    lowering: LoweringReport
    fusion: FusionReport
    unfused: dict[str, int]


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
    with tracing(), torch.autocast("cpu", enabled=False):
        with stages.stage("export"):
            captured = _capture(session, arguments, modes, symbolic)
        if isinstance(captured, Variant):
            return captured
        exported = captured.program
        state = _tensors(module) | captured.held
        watch = _watch(module, captured)
        cache = Cache(config().cache_folder)
        levels = options["auto_optimize"]
        hooked: list[Network] = []
        with torch.no_grad():
            with stages.stage("key"):
                key = program_key(exported, auto_optimize=levels)
            if session.hooks:
                log.info("not looked up in the cache: what hooks do is not part of its key")
                key = digest(key, uuid.uuid4().hex)

            def make(folder: Path) -> None:
                with warming(cache), without_collection():
                    optimised = optimised_network(
                        exported, stages, levels=levels, hooks=session.run_hooks if session.hooks else None
                    )
                    build(optimised, cache, folder, stages)
                if session.hooks:
                    hooked.append(optimised.network)

            folder = cache.get("programs", key, make)
            with stages.stage("bind"):
                program = StoredProgram(folder).bind(state)
    return Variant(
        program=program,
        exported=exported,
        watch=watch,
        template=result_template(exported, state),
        sizes=captured.sizes,
        writes=_writes(exported, program, state),
        assigned=captured.assigned,
        optimised=hooked[0] if hooked else None,
        auto_optimize=levels,
        stages_s=stages.seconds,
    )


def _capture(
    session: Session, arguments: Arguments, modes: Modes, symbolic: Sequence[Variant]
) -> Capture | Variant:
    """Trace the module, with symbolic sizes where they are wanted and right for these sizes."""
    import torch

    module, options = session.eager, session.options
    wanted, everything = options["dynamic_shapes"], options["dynamic"]
    shapes = [tensor.shape for tensor in arguments.tensors]
    with torch.set_grad_enabled(modes.grad_enabled):

        def fixed() -> Capture:
            return capture(module, arguments, autocast=modes.autocast)

        for variant in symbolic:
            if variant.sizes is not None and variant.sizes.problem(shapes, ones=True) is None:
                plain = fixed()
                return variant if _agree(variant.exported, plain.program, variant.sizes, shapes) else plain
        if not everything and wanted is None:
            return fixed()
        open_sizes = capture(
            module, arguments, dynamic_shapes=wanted, dynamic=everything, autocast=modes.autocast
        )
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


def _watch(module: nn.Module, captured: Capture) -> ModuleWatch:
    """The module as this trace found it.

    A tensor in the place of another one that forward assigned is no change. One in the place of None is: the
    next call may take another way, as where a state begins.
    """
    results = [made for made in captured.assigned if made.holds_tensors and made.held_tensors]
    return ModuleWatch(module, results, () if captured.values_read else tuple(captured.held.values()))


def _writes(
    exported: ExportedProgram, program: Program, state: Mapping[str, torch.Tensor]
) -> tuple[tuple[int, int | torch.Tensor], ...]:
    """Outputs that are new values of inputs and parameters, and where they go."""
    inputs = [name for name in exported.graph_signature.user_inputs if isinstance(name, str)]
    found: list[tuple[int, int | torch.Tensor]] = []
    for index, record in enumerate(program.manifest.outputs):
        target, mark, _ = record.name.partition("::next")
        if mark:
            found.append((index, inputs.index(target) if target in inputs else state[target]))
    return tuple(found)


def optimised_network(
    exported: ExportedProgram,
    stages: Stages | None = None,
    *,
    levels: bool = True,
    hooks: Callable[[Network], None] | None = None,
) -> Optimised:
    """The network of an exported program after all levels.

    Args:
        levels: see `optimise`.
        hooks: change the network of ONNX nodes in place before that.
    """
    stages = stages or Stages()
    with stages.stage("import"):
        from daceml.frontend.export import to_onnx
        from daceml.frontend.importer import import_model
        from daceml.sdfg.relayout import relayout_weights
    with stages.stage("onnx"):
        model = to_onnx(exported)
    with stages.stage("sdfg"):
        network = import_model(model, name="network")
        relayout_weights(network, _strides(exported))
    if hooks is not None:
        with stages.stage("hooks"):
            hooks(network)
    return optimise(network, stages, levels=levels)


def _strides(exported: ExportedProgram) -> dict[str, tuple[int, ...]]:
    """Strides of the parameters and buffers that are not in row-major order."""
    signature = exported.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    tensors = {
        keys[n.name]: n.meta["val"] for n in exported.graph.nodes if n.op == "placeholder" and n.name in keys
    }
    return {key: tuple(t.stride()) for key, t in tensors.items() if not t.is_contiguous()}


def optimise(network: Network, stages: Stages, *, levels: bool = True) -> Optimised:
    """Lower a network of ONNX nodes and apply the levels. Mutates the network.

    Args:
        levels: False lowers only: every operator stays a loop of its own.
    """
    from daceml.onnx_ops.lowering import lower
    from daceml.sdfg.network_costs import maps_cost
    from daceml.transformations.coarse.convolution_padding import place_padding
    from daceml.transformations.hardware.cpu_schedule import schedule_maps
    from daceml.transformations.layout.channels_last import use_channels_last
    from daceml.transformations.local.map_fusion import FusionReport, fuse_maps

    if levels:
        with stages.stage("transform"):
            place_padding(network)
    with stages.stage("lower"):
        lowering = lower(network)
    with stages.stage("transform"):
        count, cost = maps_cost(network)
        moved = cost.at(dict.fromkeys(network.sdfg.symbols, EXAMPLE_SIZE))
        fusion = fuse_maps(network) if levels else FusionReport(fused=(), refused={})
        if levels:
            use_channels_last(network)
        schedule_maps(network)
    return Optimised(
        network=network, lowering=lowering, fusion=fusion, unfused={"kernels": count, **asdict(moved)}
    )


def build(optimised: Optimised, cache: Cache, folder: Path, stages: Stages) -> None:
    """Write everything that a stored program consists of into `folder`."""
    from daceml.frontend.record import make_manifest, save_fallbacks
    from daceml.onnx_ops.external import external_call
    from daceml.runtime.build import build_program
    from daceml.runtime.constants import save_constants
    from daceml.runtime.plan import make_plan

    with stages.stage("plan"):
        plan = make_plan(optimised.network, external_call)
        constants = save_constants(plan, folder)
        fallbacks = save_fallbacks(plan, folder)
    with stages.stage("kernels"):
        build_program(plan, cache, folder)
    manifest = make_manifest(
        plan,
        optimised.lowering,
        absorbed=optimised.fusion.absorbed,
        constants=constants,
        fallbacks=fallbacks,
    )
    replace(
        manifest,
        unfused=optimised.unfused,
        stages_s=stages.seconds,
    ).save(folder)


@contextmanager
def without_collection() -> Generator[None]:
    """Hold Python's cyclic garbage collector.

    A compilation makes millions of objects that live until its end, and every full collection walks them all,
    with everything that torch and SymPy hold.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def warming(cache: Cache) -> Generator[None]:
    """Let the compiler make what every program needs, once for each machine, while Python is still busy.

    What fails here fails again, and is reported, where it is needed.
    """
    from concurrent.futures import ThreadPoolExecutor

    from daceml.runtime.launcher import build_launcher
    from daceml.runtime.toolchain import precompiled_header

    # one after the other: on two cores, Python keeps one
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(precompiled_header, cache)
        pool.submit(build_launcher, cache)
        yield


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    parameters = module.named_parameters(remove_duplicate=False)
    return dict(parameters) | dict(module.named_buffers(remove_duplicate=False))
