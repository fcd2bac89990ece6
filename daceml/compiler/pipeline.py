"""The stages of a compilation: ExportedProgram -> ONNX -> SDFG -> kernels in a folder.

ONNX and DaCe are imported only where a stage runs: a program that is in the cache needs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from daceml.compiler.stages.differentiation import differentiate
from daceml.compiler.stages.lowered_network import Optimised, chosen_recipe, optimise, transform_operators
from daceml.compiler.stages.memory_budget import within_budget
from daceml.compiler.stages.recomputation import Recomputation
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.verify_passes import verify_inference, verify_training
from daceml.errors import ExportError, ShapeError
from daceml.frontend.capture.data_dependence import decided_by_data
from daceml.frontend.onnx_export.chosen_implementations import chosen_implementations
from daceml.frontend.onnx_export.chosen_kernels import traced_names
from daceml.frontend.onnx_export.export import to_onnx
from daceml.frontend.onnx_import.importer import import_model
from daceml.runtime.records.gradients import GradientRecord, Wanted
from daceml.sdfg.relayout import relayout_weights

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from daceml.compiler.stages.differentiation import TrainingNetworks
    from daceml.compiler.verification.verify_passes import Sample
    from daceml.sdfg.network import Device, Network
    from daceml.transformations.recipe import Recipe


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
    try:
        with stages.stage("onnx"):
            model = to_onnx(exported)
        with stages.stage("sdfg"):
            network = import_model(model, name="network")
            network.traced = traced_names(model)
            network.preferred = chosen_implementations(exported)
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
    stages, how = stages or Stages(), recomputation or Recomputation()
    network = onnx_network(exported, stages, hooks=hooks, device=device, architecture=architecture)

    def halves(network: Network, limit_bytes: int | None = None) -> TrainingNetworks:
        return differentiate(
            network, wanted, recompute=how.mode, limit_bytes=limit_bytes, prefer_native=prefer_native
        )

    if sample is not None:
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
