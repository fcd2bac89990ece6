"""Peak memory of a training step, for any network and either of eager and daceml."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.live_bytes import high_water_bytes
from benchmarks.models.spec import ModelSpec
from benchmarks.peers import prepare, tensors_of


def peak_bytes(find: Callable[[], ModelSpec], way: str) -> int:
    """Most live bytes in torch's CPU allocator during a training step, parameters and gradients included.

    The first step compiles; what a program keeps from call to call is measured in a fresh one, which finds it
    in the cache.

    Args:
        find: gives the network.
        way: of `benchmarks.peers.WAYS`.
    """
    prepare(find, "training", way).step()
    ready = prepare(find, "training", way)
    if way == "daceml":
        import daceml

        with find().casting():
            daceml.explain(ready.run, *ready.inputs)  # pyright: ignore[reportArgumentType]  # binds, runs nothing
    held = [*ready.module.parameters(), *ready.module.buffers(), *tensors_of(ready.inputs)]
    return high_water_bytes(ready.step, held)
