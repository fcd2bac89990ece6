"""What a benchmark has to know of a network: how to build it, what to feed it, how deep it is."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils import _pytree as pytree

# Batch norms whose statistics can be set.
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Inputs(Protocol):
    """Makes one set of inputs, tensors or lists of tensors, on the device of the generator.

    `batch` is another batch size than usual.
    """

    def __call__(
        self, generator: torch.Generator, dtype: torch.dtype, batch: int | None = None
    ) -> tuple[Any, ...]: ...


def symbolic_batch(inputs: tuple[Any, ...]) -> Any:
    """torch.export's dynamic_shapes that leave the first size of every tensor open: one batch for all."""
    batch = torch.export.Dim("batch")
    return pytree.tree_map_only(torch.Tensor, lambda _: {0: batch}, inputs)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A network with random weights.

    Attributes:
        name: the word for it on the command line.
        build: makes the module; its weights come from torch's global generator.
        inputs: makes one set of inputs from a generator, in the given floating-point type.
        depth: contractions and elementwise operators on the longest path, each of which may round once;
            the accuracy metric allows an error that grows with its square root.
        source: where the network is defined.
        autocast: the type under which CPU autocast runs the network; None runs it as it is.
        dynamic_shapes: torch.export's dynamic_shapes for inputs whose batch is left open.
        calibration: inputs by which batch norms get their statistics; `inputs` where None.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    depth: int
    source: str
    autocast: torch.dtype | None = None
    dynamic_shapes: Callable[[tuple[Any, ...]], Any] = symbolic_batch
    calibration: Inputs | None = None

    def module(self, seed: int = 0) -> nn.Module:
        """The network in eval mode, weights fixed by the seed; leaves torch's generator alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.build().eval()
            if any(isinstance(child, _BATCH_NORMS) for child in module.modules()):
                usual = self if self.calibration is None else replace(self, inputs=self.calibration)
                randomise_batch_norms(module, usual.example(seed))
        return module

    def example(
        self,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        batch: int | None = None,
        device: str = "cpu",
    ) -> tuple[Any, ...]:
        """Inputs, the same for the same seed and device, with the usual batch or another.

        They are drawn on the device: half a gigabyte takes a second on a processor.
        """
        # Weights and inputs from one seed would be the same numbers; any constant keeps them apart.
        return self.inputs(torch.Generator(device).manual_seed(seed + 7919), dtype, batch)

    def casting(self) -> AbstractContextManager[Any]:
        """The region in which eager and compiled calls run; the float64 reference runs outside."""
        return nullcontext() if self.autocast is None else torch.autocast("cpu", self.autocast)


def randomise_batch_norms(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Give batch norms in `module`, in place, statistics and weights that a wrong formula would not survive.

    Fresh ones have mean 0, variance 1, weight 1 and bias 0, for which dropping the operator changes almost
    nothing. One scale for all channels of a norm is that of the values that arrive: without it, values would
    grow at every residual block and saturate each gate and activation behind it. Statistics of each channel
    would be a mistake, too: in a deep network with random weights they enlarge rounding errors at every norm,
    some hundredfold in all in YOLOv4, and as far as eager is wrong, so may the compiled network be.

    Args:
        module: in eval mode; it runs once, each norm is set just before it runs.
        inputs: of a call.
    """
    norms = [child for child in module.modules() if isinstance(child, _BATCH_NORMS)]
    if not norms:
        return
    handles = [norm.register_forward_pre_hook(_randomise) for norm in norms]
    try:
        with torch.no_grad():
            module(*inputs)
    finally:
        for handle in handles:
            handle.remove()


def _randomise(norm: nn.Module, arguments: tuple[Any, ...]) -> None:
    """A forward pre-hook: random affine parameters, and statistics at the scale of the argument."""
    assert isinstance(norm, _BATCH_NORMS)
    with torch.no_grad():
        if norm.running_mean is not None and norm.running_var is not None:
            mean_square = float(arguments[0].square().mean())
            norm.running_mean.normal_(0.0, 0.1 * math.sqrt(mean_square))
            norm.running_var.uniform_(0.5 * mean_square, 1.5 * mean_square)
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(0.0, 0.1)


def in_float64(module: nn.Module) -> nn.Module:
    """A copy with every floating-point weight and buffer in float64: the reference of the accuracy metric."""
    return copy.deepcopy(module).double()


def as_float64(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same numbers in float64; indices and masks stay what they are."""
    return pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, inputs
    )


def with_weights(build: Callable[[], nn.Module], fill: Callable[[nn.Module], Any]) -> Callable[[], nn.Module]:
    """A builder whose module is filled in place by `fill`, submodule by submodule, without gradients."""

    def built() -> nn.Module:
        module = build()
        with torch.no_grad():
            module.apply(fill)
        return module

    return built


def he_normal(module: nn.Module, *, slope: float = 0.0) -> None:
    """Weights of one convolution or linear layer that keep the scale of values, biases that are not 0.

    Source: He et al., Delving Deep into Rectifiers (ICCV 2015), eq. 15; `slope` of the rectifier's left side.
    """
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(module.weight, a=slope)
        if module.bias is not None:
            nn.init.normal_(module.bias, 0.0, 0.1)


he_normal_leaky = partial(he_normal, slope=0.1)
