"""The whole way: module -> ExportedProgram -> ONNX -> SDFG -> kernels -> a program bound to the module.

ONNX and DaCe are imported only where a program is not in the cache yet.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from daceml.config import config
from daceml.frontend.export import export_program
from daceml.frontend.exportable import exportable
from daceml.frontend.guards import ModuleWatch
from daceml.frontend.program_key import program_key
from daceml.frontend.results import result_template
from daceml.frontend.session import Variant
from daceml.runtime.cache import Cache
from daceml.runtime.manifest import EXAMPLE_SIZE
from daceml.runtime.program import StoredProgram

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from daceml.onnx_ops.lowering import LoweringReport
    from daceml.sdfg.network import Network
    from daceml.transformations.local.map_fusion import FusionReport


# torch.export patches torch for all threads while it runs
_exporting = threading.RLock()


@dataclass
class Stages:
    """Seconds spent in each stage of one compilation."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Add the time of the block to a stage."""
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
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any = None
) -> Variant:
    """Compile a module as it stands for these arguments, or load what an earlier process compiled.

    Raises:
        ExportError, NoImplementationError, ShapeError, BuildError: the stage that could not go on says why.
    """
    import torch

    stages = Stages()
    with _exporting, torch.no_grad():
        watch = ModuleWatch(module)
        with stages.stage("export"), exportable(module) as view:
            exported = export_program(view, args, kwargs, dynamic_shapes=dynamic_shapes)
        with stages.stage("key"):
            key = program_key(exported)
        cache = Cache(config().cache_folder)
        folder = cache.get("programs", key, lambda scratch: _build(exported, cache, scratch, stages))
        with stages.stage("bind"):
            program = StoredProgram(folder).bind(_tensors(module))
    return Variant(
        program=program,
        exported=exported,
        watch=watch,
        template=result_template(exported),
        stages_s=stages.seconds,
    )


def optimised_network(exported: ExportedProgram, stages: Stages | None = None) -> Optimised:
    """The network of an exported program after all levels."""
    stages = stages or Stages()
    with stages.stage("import"):
        from daceml.frontend.export import to_onnx
        from daceml.frontend.importer import import_model
    with stages.stage("onnx"):
        model = to_onnx(exported)
    with stages.stage("sdfg"):
        network = import_model(model, name="network")
    return optimise(network, stages)


def optimise(network: Network, stages: Stages) -> Optimised:
    """Lower a network of ONNX nodes and apply the levels. Mutates the network."""
    from daceml.onnx_ops.lowering import lower
    from daceml.sdfg.network_costs import maps_cost
    from daceml.transformations.hardware.cpu_schedule import schedule_maps
    from daceml.transformations.local.map_fusion import fuse_maps

    with stages.stage("lower"):
        lowering = lower(network)
    with stages.stage("transform"):
        count, cost = maps_cost(network)
        moved = cost.at(dict.fromkeys(network.sdfg.symbols, EXAMPLE_SIZE))
        fusion = fuse_maps(network)
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
        applied={"MapFusion": len(optimised.fusion.fused)},
        refused=optimised.fusion.sentences(),
        stages_s=stages.seconds,
    ).save(folder)


def _build(exported: ExportedProgram, cache: Cache, folder: Path, stages: Stages) -> None:
    with warming(cache), without_collection():
        build(optimised_network(exported, stages), cache, folder, stages)


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
