"""The program of a network that hands out copies of its intermediate values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.scratch_program import scratch_program
from daceml.runtime.program import Program

if TYPE_CHECKING:
    import torch

    from daceml.sdfg.network import Network
    from daceml.transformations.recipe import Recipe

# Of the copies: nodes of their own, so that the operators around a value keep their implementations.
SEEN = "::seen"


@contextmanager
def instrumented(
    network: Network,
    state: Callable[[Sequence[str]], Mapping[str, torch.Tensor]],
    *,
    levels: bool = True,
    recipe: Recipe | None = None,
) -> Generator[tuple[Program, dict[str, str]]]:
    """The program of a network of ONNX nodes, and ONNX value -> the implementation that computes it.

    It is built outside the cache of programs and removed afterwards; kernels are cached as ever.

    Args:
        network: of ONNX nodes; changed.
        state: tensors for the program's weights, by their keys; buffers among them change when it runs.
        levels, recipe: as in `optimise`.
    """
    stages = Stages()
    optimised = optimise(network, stages, levels=levels, recipe=recipe)
    found = [
        (network.signature[array], report.chosen)
        for report in optimised.lowering.nodes
        for array in report.writes
        if array in network.signature
    ]
    # a copy that is gone left its name to what writes the value
    chosen = {name.removesuffix(SEEN): by for name, by in found if name.endswith(SEEN)}
    chosen |= {name: by for name, by in found if not name.endswith(SEEN)}
    with scratch_program(optimised, stages, state) as program:
        yield program, chosen
