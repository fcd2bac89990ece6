"""The program of a network that hands out copies of its intermediate values."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.config import config
from daceml.frontend.pipeline import Stages, build, optimise
from daceml.runtime.cache import Cache
from daceml.runtime.program import Program, StoredProgram

if TYPE_CHECKING:
    import torch

    from daceml.sdfg.network import Network

# Of the copies: nodes of their own, so that the operators around a value keep their implementations.
SEEN = "::seen"


@contextmanager
def instrumented(
    network: Network, state: Callable[[Sequence[str]], Mapping[str, torch.Tensor]], *, levels: bool = True
) -> Generator[tuple[Program, dict[str, str]]]:
    """The program of a network of ONNX nodes, and ONNX value -> the implementation that computes it.

    It is built outside the cache of programs and removed afterwards; kernels are cached as ever.

    Args:
        network: of ONNX nodes; changed.
        state: tensors for the program's weights, by their keys; buffers among them change when it runs.
        levels: as in `optimise`.
    """
    stages = Stages()
    optimised = optimise(network, stages, levels=levels)
    chosen = {
        network.signature[array]: report.chosen
        for report in optimised.lowering.nodes
        for array in report.writes
        if array in network.signature
    }
    cache = Cache(config().cache_folder)
    # where the cache removes what a killed process left
    parent = cache.root / "building"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="verify-", dir=parent))
    try:
        build(optimised, cache, folder, stages)
        stored = StoredProgram(folder)
        yield stored.bind(state(stored.manifest.weights)), chosen
    finally:
        shutil.rmtree(folder, ignore_errors=True)
