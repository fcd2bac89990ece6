"""A program of symbolic sizes next to eager PyTorch: compared once for each class of sizes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

from daceml.module.inference_results import outside_inference_mode
from daceml.tuning.chosen_program import ChosenProgram, comparison_elsewhere
from daceml.tuning.comparison_record import EagerComparison, size_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daceml.compiler.program_builder import Making


class ComparedSizes:
    """What comparisons have found, by class of sizes.

    Where a program changes tensors of the module, what was found first holds for all: other threads may be
    calling it, and a comparison would put these tensors back.

    Args:
        first: the program, and what was found at the sizes of `inputs`.
        plain: how it is made without any choice.
        state: key -> tensor of the module.
    """

    def __init__(
        self,
        first: ChosenProgram,
        plain: Making,
        state: Mapping[str, torch.Tensor],
        inputs: Sequence[torch.Tensor],
    ) -> None:
        self._first, self._plain, self._state = first, plain, state
        self._known: dict[tuple[int, ...], EagerComparison | None] = {size_class(inputs): first.eager}
        self._lock = threading.Lock()

    def __call__(self, inputs: Sequence[torch.Tensor]) -> EagerComparison | None:
        """How fast eager PyTorch is for these inputs; measured at the first call of their class."""
        if self._first.program.changed:
            return self._first.eager
        sizes = size_class(inputs)
        if sizes not in self._known:
            with self._lock:
                if sizes not in self._known:
                    self._known[sizes] = self._compared(inputs)
        return self._known[sizes]

    def _compared(self, inputs: Sequence[torch.Tensor]) -> EagerComparison | None:
        with _disable_current_modes(), outside_inference_mode():
            given = [x.detach().contiguous() for x in inputs]
            return comparison_elsewhere(self._first, self._plain, self._state, given)
