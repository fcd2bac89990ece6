"""A module with its options, hooks and ranks: all that compiling it needs to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import nn

from daceml.compiler.options import ModuleOptions

if TYPE_CHECKING:
    from daceml.compiler.averaging import Averaging
    from daceml.runtime.autograd import GradientExchange
    from daceml.sdfg.network import Network


@dataclass(frozen=True, kw_only=True)
class ModuleRequest:
    """What is to be compiled, and how.

    Attributes:
        module: as the user wrote it.
        hooks: changes a network of ONNX nodes in place; None where the user has none.
        autodiff_hooks: changes the networks of both passes in place; None where the user has none.
        averaging: which gradients are averaged over all ranks; None in one process.
        exchange: runs the all-reduces of the backward programs; None in one process.
        before_eager: whether eager code of the user's reads the results, and may depend on their strides.
    """

    module: nn.Module
    options: ModuleOptions
    hooks: Callable[[Network], None] | None = None
    autodiff_hooks: Callable[..., None] | None = None
    averaging: Averaging | None = None
    exchange: GradientExchange | None = None
    before_eager: bool = False

    @property
    def backward(self) -> bool:
        """Whether results carry gradients where something requires them."""
        return self.options["backward"]

    def with_fixed_sizes(self) -> ModuleRequest:
        """The same, where no size is symbolic that the user has not named."""
        return replace(self, options={**self.options, "dynamic": False})
