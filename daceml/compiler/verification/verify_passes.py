"""`verify=True`: a recipe's passes change no values, or the one that does is named.

The network before the recipe, lowered only, and the network after it run on the same inputs. Where they
differ the pass is found by bisection, and of a rewrite the place. This happens in float64, so that rounding
hides no fault, and in the network's own types, for which some passes are made. Hooks behind differentiation
are not run.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from daceml.compiler.stages.lowered_network import Optimised
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.float64_network import widened
from daceml.compiler.verification.scratch_program import scratch_program
from daceml.compiler.verification.value_difference import Difference, largest_difference, limit_of
from daceml.errors import ConfigurationError, DacemlError, PassError
from daceml.onnx_ops.lowering import LoweringReport, lower
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.transformations.recipe import LOOPS, Recipe, fewest_wrong
from daceml.transformations.rewriting.rewrite import Rewrite
from daceml.transformations.validation import check_pass

if TYPE_CHECKING:
    from daceml.compiler.stages.differentiation import TrainingNetworks
    from daceml.sdfg.network import Network

log = logging.getLogger(__name__)

SEED = 0
Values = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What networks are run on.

    Attributes:
        inputs: tensors of the call, in its order.
        state: parameters and buffers by their keys; never changed.
    """

    inputs: tuple[torch.Tensor, ...]
    state: Mapping[str, torch.Tensor]

    @classmethod
    def like(cls, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> Sample:
        """The values of a call in another order, so that positions and domains stay what they are.

        Floats that are all equal are spread over [value, value + 1).
        """
        generator = torch.Generator().manual_seed(SEED)

        def draw(tensor: torch.Tensor) -> torch.Tensor:
            given = tensor.detach()
            flat = given.reshape(-1)
            if given.is_floating_point() and flat.numel() > 1 and bool((flat == flat[0]).all()):
                spread = torch.rand(given.shape, generator=generator, dtype=torch.float64)
                return (given.double() + spread).to(given.dtype)
            return flat[torch.randperm(flat.numel(), generator=generator)].reshape(given.shape)

        return cls(inputs=tuple(map(draw, inputs)), state={key: t.detach() for key, t in state.items()})

    def double(self) -> Sample:
        """The same numbers in float64."""
        return Sample(inputs=tuple(map(_double, self.inputs)), state=_map(_double, self.state))


def verify_inference(network: Network, recipe: Recipe, sample: Sample) -> None:
    """Verify the passes of a network without gradients, which is not changed.

    Raises:
        PassError: a pass changes values; the message names it, the worst array and the difference.
    """
    for check in _checks(network, sample):
        check.passes(check.network, _with_lowering(recipe), "forward pass", check.sample.inputs)


def verify_training(
    network: Network, recipe: Recipe, sample: Sample, halves: Callable[[Network], TrainingNetworks]
) -> None:
    """Verify the passes in front of differentiation, and those over forward and backward pass.

    Args:
        halves: differentiates a network.
    Raises:
        PassError: see `verify_inference`.
    """
    for check in _checks(network, sample):
        parts = halves(check.before_differentiation(recipe))
        behind, inputs = _with_lowering(recipe, behind=True), check.sample.inputs
        values = check.passes(parts.forward, behind, "forward pass", inputs)
        outputs, record = list(values.values()), parts.record
        generator = torch.Generator().manual_seed(SEED)
        given = [
            torch.randn(outputs[i].shape, generator=generator, dtype=torch.float64).to(outputs[i].dtype)
            for i in record.cotangents
        ]
        given += [outputs[i] for i in record.saved]
        state = check.sample.state
        given += [inputs[at] if isinstance(at, int) else state[at] for _, at in record.reads]
        check.passes(parts.backward, behind, "backward pass", given)


def verify_step(
    network: Network, recipe: Recipe, sample: Sample, differentiate: Callable[[Network], None]
) -> None:
    """Verify the passes of a whole training step; its update follows when they are done.

    Args:
        differentiate: lets a network of the loss give the gradients, too, in place.
    Raises:
        PassError: see `verify_inference`.
    """
    for check in _checks(network, sample):
        whole = check.before_differentiation(recipe)
        differentiate(whole)
        check.passes(whole, _with_lowering(recipe, behind=True), "training step", check.sample.inputs)


def _with_lowering(recipe: Recipe, *, behind: bool = False) -> Recipe:
    """The passes of a recipe with lowering in its place; with `behind`, those behind differentiation."""
    ahead = recipe.at("operators") if behind else recipe.at("coarse", "operators")
    return ahead + Recipe(lower) + recipe.at(*LOOPS)


def _checks(network: Network, sample: Sample) -> list[_Check]:
    """One check in float64, where the network runs so, and one in its own types."""
    own = _Check(network, sample)
    if (wide := widened(network)) is None:
        return [own]
    check = _Check(wide, sample.double())
    try:
        wide.sdfg.validate()
        check.run(copy.deepcopy(wide), check.sample.inputs)
    except (DacemlError, RuntimeError) as reason:
        log.info("passes are verified in the network's own types alone, not in float64: %s", reason)
        return [own]
    return [check, own]


class _Check:
    """A network before its recipe, and what it runs on."""

    def __init__(self, network: Network, sample: Sample) -> None:
        self.network, self.sample = network, sample
        self.limit = limit_of(network)

    def before_differentiation(self, recipe: Recipe) -> Network:
        """A copy behind the passes that come before differentiation, which are verified."""
        first = recipe.at("coarse")
        self.passes(self.network, first, "network before differentiation", self.sample.inputs)
        changed = copy.deepcopy(self.network)
        first(changed)
        return changed

    def passes(self, network: Network, recipe: Recipe, part: str, inputs: Sequence[torch.Tensor]) -> Values:
        """Verify the passes over one network, which is not changed; gives its values.

        Raises:
            PassError: one changes values.
        """
        expected = self.run(copy.deepcopy(network), inputs)

        def difference(count: int) -> Difference | None:
            changed = copy.deepcopy(network)
            recipe[:count](changed, check_pass)
            return largest_difference(self.run(changed, inputs), expected, self.limit)

        try:
            count = fewest_wrong(len(recipe), lambda count: difference(count) is None)
        except ConfigurationError as error:
            raise ConfigurationError(
                "the passes of this network cannot be verified",
                where=part,
                why="without any pass it gives other values in every run",
                fix="leave verify=True out",
            ) from error
        if count is None:
            log.info("%d passes over the %s keep its values", len(recipe), part)
            return expected
        found = difference(count)
        assert found is not None, "bisection has seen it"
        place = self._place(network, recipe, count, inputs, expected)
        raise PassError(
            f"pass {recipe[count - 1].name} changes values",
            where=", ".join(filter(None, (part, place))),
            why=f"{network.signature.get(found.array, found.array)} {found.sentence}",
            fix="mend the pass, or leave it out: recipe.without(name)",
        )

    def _place(
        self,
        network: Network,
        recipe: Recipe,
        count: int,
        inputs: Sequence[torch.Tensor],
        expected: Mapping[str, torch.Tensor],
    ) -> str:
        """Where a rewrite goes wrong; empty for other passes."""
        rewrite = recipe[count - 1].run
        if not isinstance(rewrite, Rewrite):
            return ""
        before = copy.deepcopy(network)
        recipe[: count - 1](before)

        def right(most: int) -> bool:
            changed = copy.deepcopy(before)
            rewrite.first_places(changed, most)
            return largest_difference(self.run(changed, inputs), expected, self.limit) is None

        places = _places(rewrite, before)
        number = fewest_wrong(len(places), right)
        assert number is not None, "all of them together are wrong"
        return f"place {number} of {len(places)}: {places[number - 1]}"

    def run(self, network: Network, inputs: Sequence[torch.Tensor]) -> Values:
        """What a network gives and what it writes in place, by array; lowers it where it is not."""
        if any(isinstance(n, ONNXNode) and not n.implementation for n in network.state.nodes()):
            lower(network)
        optimised = Optimised(network=network, lowering=LoweringReport(nodes=()), unfused={})
        state = _map(torch.Tensor.clone, self.sample.state)
        with scratch_program(optimised, Stages(), lambda _: state) as program, torch.no_grad():
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(SEED)
                outputs = program([x.clone() for x in inputs])
            names = [f"{number} {array}" for number, array in enumerate(network.outputs)]
            return dict(zip(names, outputs, strict=True)) | dict(
                zip(program.manifest.mutated, program.mutated, strict=True)
            )


def _places(rewrite: Rewrite, network: Network) -> tuple[str, ...]:
    return rewrite.first_places(copy.deepcopy(network))


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _map(change: Callable[[torch.Tensor], torch.Tensor], state: Mapping[str, torch.Tensor]) -> Values:
    return {key: change(tensor) for key, tensor in state.items()}
