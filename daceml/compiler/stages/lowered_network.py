"""From a network of ONNX nodes to one of loops and calls: the recipe, and lowering between its levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from daceml.compiler.stages.stage_timer import Stages
from daceml.onnx_ops.lowering import lower
from daceml.runtime.records.manifest import EXAMPLE_SIZE
from daceml.sdfg.network_costs import maps_cost
from daceml.transformations import standard
from daceml.transformations.layout.watched_weights import watch_weights
from daceml.transformations.recipe import LOOPS
from daceml.transformations.standard import absorbed_arrays
from daceml.transformations.validation import check_pass

if TYPE_CHECKING:
    from daceml.onnx_ops.lowering import LoweringReport, NodeReport
    from daceml.sdfg.network import Device, Network
    from daceml.transformations.recipe import Recipe, Situation, Step


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


def chosen_recipe(
    recipe: Recipe | None, situation: Situation, *, levels: bool = True, device: Device = "cpu"
) -> Recipe:
    """The passes of a compilation, level by level.

    Args:
        recipe: the user's, in the place of the standard one.
        levels: see `optimise`.
    """
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
        if situation == "inference" and network.prepared and network.weight_check is None:
            watch_weights(network)  # not the recipe's to leave out: changed weights would not be seen
    return Optimised(
        network=network, lowering=lowering, unfused={"kernels": count, **asdict(moved)}, absorbed=absorbed
    )
