"""Programs that run once, for a check: built outside the cache of programs, and removed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daceml.compiler.stages.lowered_network import Optimised
from daceml.compiler.stages.program_folder import build
from daceml.compiler.stages.stage_timer import Stages
from daceml.config import config
from daceml.runtime.program import Program
from daceml.runtime.stored_program import StoredProgram
from daceml.toolchain.cache import Cache

if TYPE_CHECKING:
    import torch


@contextmanager
def scratch_program(
    optimised: Optimised, stages: Stages, state: Callable[[Sequence[str]], Mapping[str, torch.Tensor]]
) -> Generator[Program]:
    """The program of a network; its kernels are cached as ever.

    Args:
        state: tensors for the program's weights, by their keys; buffers among them change when it runs.
    """
    cache = Cache(config().cache_folder)
    with cache.scratch() as folder:
        build(optimised, cache, folder, stages)
        stored = StoredProgram(folder)
        yield Program(stored, state(stored.manifest.weights))
