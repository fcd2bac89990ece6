"""The stages of a compilation: ExportedProgram -> ONNX -> SDFG -> kernels in a folder.

ONNX and DaCe are imported only where a stage runs: a program that is in the cache needs neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

from daceml.compiler.stages.recomputation import Recomputation
from daceml.errors import DacemlError, ExportError, ShapeError
from daceml.runtime.progress import publish
from daceml.runtime.records.gradients import GradientRecord, Wanted
from daceml.runtime.records.manifest import EXAMPLE_SIZE
from daceml.toolchain.cache import Cache

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from daceml.codegen.kernel_objects import KernelObjects
    from daceml.compiler.stages.differentiation import TrainingNetworks
    from daceml.compiler.verification.verify_passes import Sample
    from daceml.onnx_ops.lowering import LoweringReport, NodeReport
    from daceml.sdfg.network import Device, Network
    from daceml.transformations.recipe import Recipe, Situation, Step


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
    """A network after all levels, and what happened on the way.

    Attributes:
        unfused: kernels and amounts before loops were joined.
        absorbed: array that a loop writes -> the arrays that disappeared into that loop.
    """

    network: Network
    lowering: LoweringReport
    unfused: dict[str, int]
    absorbed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


def onnx_network(
    exported: ExportedProgram,
    stages: Stages,
    *,
    hooks: Callable[[Network], None] | None = None,
    device: Device = "cpu",
    architecture: int | None = None,
) -> Network:
    """The network of ONNX nodes of an exported program, after the user's hooks.

    Args:
        device: where its tensors will lie, wherever those of the export did.
        architecture: of that device, see `Network`.
    """
    with stages.stage("import"):
        from daceml.frontend.capture.data_dependence import decided_by_data
        from daceml.frontend.onnx_export.export import to_onnx
        from daceml.frontend.onnx_import.importer import import_model
        from daceml.sdfg.relayout import relayout_weights
    try:
        with stages.stage("onnx"):
            model = to_onnx(exported)
        with stages.stage("sdfg"):
            network = import_model(model, name="network")
    except (ExportError, ShapeError) as error:
        reason = decided_by_data(exported, error)
        if reason is error:
            raise
        raise reason from error
    network.device, network.architecture = device, architecture
    with stages.stage("sdfg"):
        relayout_weights(network, _strides(exported))
    if hooks is not None:
        with stages.stage("hooks"):
            hooks(network)
    return network


def optimised_network(
    exported: ExportedProgram,
    stages: Stages | None = None,
    *,
    levels: bool = True,
    freeze: bool = False,
    live: bool = False,
    hooks: Callable[[Network], None] | None = None,
    autodiff_hooks: Callable[[Network], None] | None = None,
    recipe: Recipe | None = None,
    sample: Sample | None = None,
    device: Device = "cpu",
    architecture: int | None = None,
) -> Optimised:
    """The network of an exported program after all levels.

    Args:
        levels, freeze, recipe: see `optimise`.
        live: each call reads the weights, and nothing is prepared of them.
        hooks, autodiff_hooks: change the network of ONNX nodes in place before that.
        sample: what passes are verified on.
        device, architecture: see `onnx_network`.
    Raises:
        PassError: a pass leaves an invalid network, or one that gives other values for the sample.
    """
    stages = stages or Stages()
    network = onnx_network(exported, stages, hooks=hooks, device=device, architecture=architecture)
    network.live = live
    if sample is not None:
        from daceml.compiler.verification.verify_passes import verify_inference

        with stages.stage("verify"):
            situation = "frozen" if freeze else "inference"
            verify_inference(network, chosen_recipe(recipe, situation, levels=levels, device=device), sample)
    if autodiff_hooks is not None:
        with stages.stage("hooks"):
            autodiff_hooks(network)
    return optimise(network, stages, levels=levels, freeze=freeze, recipe=recipe)


def training_networks(
    exported: ExportedProgram,
    wanted: Wanted,
    stages: Stages | None = None,
    *,
    levels: bool = True,
    hooks: Callable[[Network], None] | None = None,
    autodiff_hooks: Callable[[Network, Network], None] | None = None,
    recomputation: Recomputation | None = None,
    prefer_native: bool = False,
    recipe: Recipe | None = None,
    sample: Sample | None = None,
    ahead: Callable[[Network], None] | None = None,
    device: Device = "cpu",
    architecture: int | None = None,
) -> tuple[list[Optimised], GradientRecord]:
    """Forward and backward pass of an exported program after all levels.

    Args:
        wanted: what requires a gradient.
        levels, hooks, recipe, sample, device, architecture: see `optimised_network`.
        autodiff_hooks: change forward and backward pass in place before they are optimised.
        recomputation: what the backward pass computes again.
        prefer_native: derive every gradient from the lowered form.
        ahead: is called with each network that is done, while there is something left to do.
    Raises:
        GradientError: a step that gradients flow through has no derivative, or the budget cannot be kept.
        PassError: see `optimised_network`.
    """
    from daceml.compiler.stages.differentiation import differentiate
    from daceml.compiler.stages.memory_budget import within_budget

    stages, how = stages or Stages(), recomputation or Recomputation()
    network = onnx_network(exported, stages, hooks=hooks, device=device, architecture=architecture)

    def halves(network: Network, limit_bytes: int | None = None) -> TrainingNetworks:
        return differentiate(
            network, wanted, recompute=how.mode, limit_bytes=limit_bytes, prefer_native=prefer_native
        )

    if sample is not None:
        from daceml.compiler.verification.verify_passes import verify_training

        with stages.stage("verify"):
            verify_training(
                network, chosen_recipe(recipe, "training", levels=levels, device=device), sample, halves
            )
    transform_operators(network, stages, levels=levels, recipe=recipe)

    def made(network: Network, limit_bytes: int | None = None) -> tuple[list[Optimised], GradientRecord]:
        with stages.stage("differentiate"):
            parts = halves(network, limit_bytes)
        both = (parts.forward, parts.backward)
        if autodiff_hooks is not None:
            with stages.stage("hooks"):
                autodiff_hooks(*both)
        done: list[Optimised] = []
        for part in both:
            done.append(optimise(part, stages, levels=levels, training=True, recipe=recipe))
            if ahead is not None and how.budget_bytes is None:  # a budget is tried several times
                with stages.stage("kernels"):
                    ahead(part)
        return done, parts.record

    if how.budget_bytes is not None:
        return within_budget(network, how.budget_bytes, made)
    return made(network)


def _strides(exported: ExportedProgram) -> dict[str, tuple[int, ...]]:
    """Strides of the parameters and buffers that are not in row-major order."""
    signature = exported.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    tensors = {
        keys[n.name]: n.meta["val"] for n in exported.graph.nodes if n.op == "placeholder" and n.name in keys
    }
    return {key: tuple(t.stride()) for key, t in tensors.items() if not t.is_contiguous()}


def chosen_recipe(
    recipe: Recipe | None, situation: Situation, *, levels: bool = True, device: Device = "cpu"
) -> Recipe:
    """The passes of a compilation, level by level.

    Args:
        recipe: the user's, in the place of the standard one.
        levels: see `optimise`.
    """
    from daceml.transformations import standard

    on_device = device != "cpu"
    if not levels:
        return standard.unoptimised_recipe(on_device=on_device)
    if recipe is None:
        recipe = standard.device_recipe() if on_device else standard.standard_recipe()
    return recipe.ordered().when(situation)


def transform_operators(
    network: Network, stages: Stages, *, levels: bool = True, recipe: Recipe | None = None
) -> None:
    """Apply what belongs in front of differentiation. Mutates the network; see `optimise` for the rest."""
    with stages.stage("transform"):
        passes = chosen_recipe(recipe, "training", levels=levels, device=network.device).at("coarse")
        passes(network, _checker(recipe))


def _checker(recipe: Recipe | None) -> Callable[[Step, Network], None] | None:
    """What looks at a network after each pass; the standard passes are tested for that."""
    from daceml.transformations.validation import check_pass

    return None if recipe is None or not recipe.checked else check_pass


def optimise(
    network: Network,
    stages: Stages,
    *,
    levels: bool = True,
    freeze: bool = False,
    training: bool = False,
    recipe: Recipe | None = None,
) -> Optimised:
    """Lower a network of ONNX nodes and apply the levels. Mutates the network.

    Args:
        levels: False lowers only: every operator stays a loop of its own.
        freeze: weights do not change any more.
        training: the network has gone through `transform_operators`, and been differentiated.
        recipe: the user's, in the place of the standard one; each pass leaves a valid network, or is named.
    Raises:
        PassError: a pass of the user's recipe leaves a network that cannot be compiled.
    """
    from daceml.onnx_ops.lowering import lower
    from daceml.sdfg.network_costs import maps_cost
    from daceml.transformations.recipe import LOOPS
    from daceml.transformations.standard import absorbed_arrays

    situation = "training" if training else "frozen" if freeze else "inference"
    passes = chosen_recipe(recipe, situation, levels=levels, device=network.device)
    check = _checker(recipe)
    with stages.stage("transform"):
        ahead = passes.at(*(() if training else ("coarse",)), "operators")(network, check)
    with stages.stage("lower"):
        lowering = lower(network)
        chosen: tuple[NodeReport, ...] = ahead.get("prefer_implementations", ())
        lowering = replace(lowering, nodes=(*chosen, *lowering.nodes))
    with stages.stage("transform"):
        count, cost = maps_cost(network)
        moved = cost.at(dict.fromkeys(network.sdfg.symbols, EXAMPLE_SIZE))
        absorbed = absorbed_arrays(passes.at(*LOOPS)(network, check))
    return Optimised(
        network=network, lowering=lowering, unfused={"kernels": count, **asdict(moved)}, absorbed=absorbed
    )


def build(
    optimised: Optimised,
    cache: Cache,
    folder: Path,
    stages: Stages,
    *,
    given: Collection[str] | None = None,
    objects: KernelObjects | None = None,
    ranges: bool = False,
) -> None:
    """Write everything that a stored program consists of into `folder`.

    Args:
        given: see `make_plan`.
        objects, ranges: see `build_program`.
    """
    from daceml.codegen.build import build_program
    from daceml.codegen.constants import save_constants
    from daceml.codegen.kernel_objects import KernelObjects
    from daceml.codegen.planning.plan import make_plan
    from daceml.compiler.stages.launch_records import built_launches
    from daceml.compiler.stages.manifest_writer import make_manifest, save_fallbacks
    from daceml.onnx_ops.external import external_call

    with stages.stage("plan"):
        outliner = None if objects is None else objects.outliner
        plan = make_plan(optimised.network, external_call, given=given, outliner=outliner)
        constants = save_constants(plan, folder)
        fallbacks = save_fallbacks(plan, folder)
    made_for = optimised.network
    kernels = KernelObjects(cache, made_for.device, made_for.architecture) if objects is None else objects
    try:
        with stages.stage("kernels"):
            build_program(plan, cache, folder, kernels, ranges=ranges)
        launches = built_launches(plan, kernels)
    finally:
        if objects is None:
            kernels.close()
    manifest = make_manifest(
        plan,
        optimised.lowering,
        absorbed=optimised.absorbed,
        constants=constants,
        fallbacks=fallbacks,
        launches=launches,
    )
    replace(
        manifest,
        unfused=optimised.unfused,
        stages_s=stages.seconds,
    ).save(folder)


def warm(cache: Cache) -> Thread | None:
    """Let the compiler make what every program needs, once for each machine, while Python is still busy.

    What fails here fails again, and is reported, where it is needed.

    Returns:
        who does it; None where this process did it before.
    """
    with _warmed_lock:
        if cache.root in _warmed:
            return None
        _warmed.add(cache.root)
    thread = Thread(target=_make_ready, args=(cache,), name="daceml-warm")
    thread.start()
    return thread


def _make_ready(cache: Cache) -> None:
    from daceml.runtime.launcher import make_ready

    with suppress(DacemlError, OSError):
        make_ready(cache)


_warmed_lock = Lock()
_warmed: set[Path] = set()
