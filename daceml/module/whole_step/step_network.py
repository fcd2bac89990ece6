"""The network of a whole training step: forward pass, loss, backward pass and update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from daceml.autodiff.engine import add_gradients
from daceml.autodiff.optimizers.optimizer_rules import RULES
from daceml.autodiff.optimizers.optimizer_steps import Updated, add_updates
from daceml.autodiff.replacements import replace_for_training
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.lowered_network import Optimised, chosen_recipe, optimise, transform_operators
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.verify_passes import verify_step
from daceml.errors import CallError, GradientError
from daceml.module.whole_step.optimizer_table import STATE, Row, table_width
from daceml.sdfg.builder import Builder, Computation, parameters
from daceml.sdfg.scalar import FLOATS, compute_type, literal

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from daceml.compiler.verification.verify_passes import Sample
    from daceml.sdfg.network import Network
    from daceml.transformations.recipe import Recipe

Layouts = Mapping[str, Mapping[str, tuple[int, ...]]]


def step_network(
    exported: ExportedProgram,
    rows: Sequence[Row],
    layouts: Layouts,
    stages: Stages,
    *,
    levels: bool = True,
    recipe: Recipe | None = None,
    sample: Sample | None = None,
) -> Optimised:
    """The network of a step after all levels.

    Args:
        exported: gives the loss.
        rows: the parameters that are updated if the loss depends on them.
        layouts: parameter -> name -> strides of the optimizer's tensors.
        levels, recipe, sample: see `optimised_network`.
    Raises:
        CallError: the loss is not a scalar, or of a type without gradients.
        GradientError: the loss depends on none of the parameters, or has no derivative.
    """
    network = onnx_network(exported, stages)
    keys = [key for row in rows for key in row.members]
    if sample is not None:
        with stages.stage("verify"):
            verify_step(
                network,
                chosen_recipe(recipe, "training", levels=levels),
                sample,
                lambda n: _gradients(n, keys),
            )
    transform_operators(network, stages, levels=levels, recipe=recipe)
    with stages.stage("differentiate"):
        gradients = _differentiate(network, keys)
    updated = _updated(network, rows, layouts, gradients)
    if not updated:
        raise GradientError(
            "a compiled step has nothing to update",
            why="the loss depends on no parameter that the optimizer has and that requires a gradient",
            fix="check requires_grad and the optimizer's parameters",
        )
    # nothing reads the gradients yet, and everything keeps what a network returns
    results = network.outputs
    network.outputs = (*results, *(change.gradient for change in updated))
    optimised = optimise(network, stages, levels=levels, training=True, recipe=recipe)
    network.outputs = results
    add_updates(network, updated, rows=len(rows), width=table_width(rows))
    return optimised


def _differentiate(network: Network, keys: Sequence[str]) -> dict[str, str]:
    """Add the backward pass of the loss; state_dict key -> array with the gradient."""
    replace_for_training(network)
    loss = network.outputs[0]
    if loss not in network.scalars:
        raise CallError(
            "the loss of a compiled step must be a scalar",
            why=f"it has shape {list(network.sdfg.arrays[loss].shape)}",
            fix="give it a reduction: loss.mean() or loss.sum()",
        )
    if (kind := network.sdfg.arrays[loss].dtype) not in FLOATS:
        raise CallError(
            "the loss of a compiled step must be of a floating type",
            why=f"it is of type {kind.to_string()}, from which no gradient can come",
            fix="make it of values that have gradients: no counts, comparisons or positions",
        )
    arrays = {key: array for array, key in network.weights.items()}
    reached = {key: arrays[key] for key in keys if key in arrays}
    gradients = add_gradients(network, [loss], list(reached.values()))
    seed = gradients.cotangents[loss]
    network.sdfg.arrays[seed].transient = True
    (place,) = parameters(1)
    one = literal(1.0, compute_type(network.sdfg.arrays[seed].dtype))
    Builder(network.sdfg, network.state).emit(
        Computation(label="seed", target=seed, index=(place,), params=(place,), extents=(1,), value=one)
    )
    found = {key: gradients.arrays.get(array) for key, array in reached.items()}
    return {key: array for key, array in found.items() if array is not None}


def _gradients(network: Network, keys: Sequence[str]) -> None:
    """Let a network of the loss give the gradients, too. Mutates it."""
    gradients = _differentiate(network, keys)
    network.outputs = (*network.outputs, *gradients.values())


def _updated(
    network: Network, rows: Sequence[Row], layouts: Layouts, gradients: Mapping[str, str]
) -> list[Updated]:
    arrays = {key: array for array, key in network.weights.items()}
    return [
        Updated(
            array=arrays[key],
            gradient=gradients[key],
            rule=row.rule,
            row=number,
            state={name: (f"{STATE}{key}.{name}", layouts[key][name]) for name in RULES[row.rule].state},
            maximize=row.maximize,
        )
        for number, row in enumerate(rows)
        for key in row.members
        if key in gradients
    ]
