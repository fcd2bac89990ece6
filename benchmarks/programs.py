"""What daceml makes of a network, as far as Python makes it: nothing is compiled or run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.models.spec import ModelSpec
from benchmarks.peers import Mode, tensors_of
from daceml.compiler.pipeline import optimised_network, training_networks
from daceml.compiler.stages.lowered_network import Optimised
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.capture import capture
from daceml.runtime.records.gradients import Wanted

if TYPE_CHECKING:
    from daceml.sdfg.network import Device
    from daceml.transformations.recipe import Recipe


def optimised(
    spec: ModelSpec,
    mode: Mode,
    *,
    levels: bool = True,
    train_mode: bool = False,
    recipe: Recipe | None = None,
    device: Device = "cpu",
    architecture: int | None = None,
) -> dict[str, Optimised]:
    """The networks of a call: `inference` alone, or `forward` and `backward` of a training step.

    Args:
        levels: False leaves every operator a loop of its own.
        train_mode: inference in train mode, for blocks that are something else in eval mode.
        recipe: passes in the place of the standard ones.
        device, architecture: of the tensors; see `daceml.compiler.pipeline.optimised_network`.
    """
    gradients = mode == "training"
    module, inputs = spec.module().train(gradients or train_mode), spec.example()
    autocast = (spec.autocast, None)
    with spec.casting():
        program = capture(module, Arguments(inputs, {}), autocast=autocast, gradients=gradients).program
    if not gradients:
        network = optimised_network(
            program, levels=levels, recipe=recipe, device=device, architecture=architecture
        )
        return {"inference": network}
    wanted = Wanted(
        inputs=tuple(x.is_floating_point() for x in tensors_of(inputs)),
        state=tuple(name for name, p in module.named_parameters() if p.requires_grad),
    )
    (forward, backward), _ = training_networks(
        program, wanted, levels=levels, recipe=recipe, device=device, architecture=architecture
    )
    return {"forward": forward, "backward": backward}
