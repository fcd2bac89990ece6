"""Times of networks and blocks on the device: eager, torch.compile and daceml, called and replayed."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.blocks.definitions import BLOCKS
from benchmarks.gpu.case import Case
from benchmarks.gpu.correctness import compared
from benchmarks.gpu.precisions import PRECISIONS, computing_in
from benchmarks.gpu.subject import block_batch, elements_of, subject_of
from benchmarks.gpu.target import Target, steps_of, target_of
from benchmarks.gpu.timing import GRAPHS, Step, measure, measured_twice, rounds_of, row_of
from benchmarks.gpu.ways import WAYS, ways_of


def times(case: Case) -> dict[str, Any]:
    """A network next to eager and torch.compile, or to what torch.compile chooses by measurements."""
    ways = ways_of(case)
    with computing_in(PRECISIONS[case.precision]):
        built = {name: partial(ways.build, name) for name in ways.names}
        seen = measured_twice(built, ways.target, rounds=rounds_of(case))
        traffic = ways.traffic()
    return {**{name: row_of(measurement) for name, measurement in seen.items()}, "traffic": traffic}


def values(case: Case) -> dict[str, Any]:
    """The values of a block or of a small module, and eager's, both against float64."""
    subject = subject_of(case)
    return compared(
        subject.spec,
        target_of(emulated=case.emulated),
        PRECISIONS[case.precision],
        training=subject.training,
        train_mode=subject.train_mode,
    )


def block(case: Case) -> dict[str, Any]:
    """A block: its values, then its times."""
    return {**values(case), **replays(case)}


def replays(case: Case) -> dict[str, Any]:
    """Replayed graphs of a block, its peers, and a copy of one of its tensors."""
    found, ways = BLOCKS[case.name], ways_of(case)
    elements = elements_of(found, block_batch(found, emulated=case.emulated))

    def replayed(name: str) -> Step:
        return ways.target.replay(ways.build(name))

    with computing_in(PRECISIONS[case.precision]):
        seen = measure(
            {name: partial(replayed, name) for name in ways.names}
            | {"copy": partial(copying, ways.target, elements)},
            ways.target.batch_us,
            rounds=rounds_of(case),
        )
        traffic = ways.traffic()
    tensors = found.forward_tensors if case.mode == "inference" else found.step_tensors
    return {"replays": row_of(seen), "elements": elements, "large_tensors": tensors, "traffic": traffic}


def prepare(case: Case) -> dict[str, Any]:
    """Run every way of a case once, so that what it compiles is in the caches of later processes."""
    if case.kind not in WAYS:
        return {"outside": []}
    ways = ways_of(case)
    with computing_in(PRECISIONS[case.precision]):
        for name in ways.names:
            if name != "eager" and not name.endswith(GRAPHS):
                ways.build(name)()
                ways.target.release()
    return {"outside": []}


def compile_only(case: Case) -> dict[str, Any]:
    """Compile the programs of a case and run nothing."""
    ways = ways_of(case, drawn_on="cpu")
    module = ways.target.compile(ways.module, training=ways.training)
    with computing_in(PRECISIONS[case.precision]), torch.set_grad_enabled(ways.training):
        steps = steps_of(module, ways.inputs)
    return {"outside": [], "steps": steps}


def copying(target: Target, elements: int) -> Step:
    """A copy of so many float32 numbers, random ones, from one array into another."""
    source = torch.randn(elements, device=target.device)
    return partial(torch.empty_like(source).copy_, source)
