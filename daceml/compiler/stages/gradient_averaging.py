"""All-reduces in a backward program: which gradients they take, and what the record says of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from daceml.codegen.planning.plan import make_plan
from daceml.compiler.averaging import Averaging
from daceml.compiler.stages.differentiation import GRADIENT, PARAMETER
from daceml.errors import NotSynchronizedError
from daceml.onnx_ops.external import external_call
from daceml.runtime.records.gradients import BucketRecord, GradientRecord, Source, Wanted
from daceml.transformations.hardware.dist_data_parallel import average_gradients
from daceml.transformations.hardware.gradient_buckets import Bucket, Sendable, gradient_buckets

if TYPE_CHECKING:
    from daceml.compiler.stages.lowered_network import Optimised
    from daceml.sdfg.network import Network
    from daceml.sdfg.outline import Outliner


def with_all_reduces(
    optimised: Optimised,
    record: GradientRecord,
    wanted: Wanted,
    averaging: Averaging,
    outliner: Outliner,
) -> GradientRecord:
    """Add all-reduces to the network of a backward program. Mutates the network.

    Args:
        optimised: after all levels.
        record: of the network as it is.
        outliner: one that may have seen the network's scopes.
    Returns:
        the record of the network as it is then.
    Raises:
        NotSynchronizedError: a gradient that is in none of the agreed buckets.
    """
    network = optimised.network
    gradients = _gradients(network, record, wanted, averaging.parameters)
    buckets = _buckets(network, record, gradients, averaging, outliner)
    averaged = average_gradients(network, buckets, gradients)
    sources = _sources(record, wanted, network, averaged)
    return replace(
        record,
        gradients=sources,
        buckets=tuple(_record(network, bucket, averaged) for bucket in buckets),
    )


def _gradients(
    network: Network, record: GradientRecord, wanted: Wanted, averaged: Collection[str]
) -> dict[str, str]:
    """Parameter -> array with its gradient; without those that are zero everywhere."""
    found: dict[str, str] = {}
    for key, source in zip(wanted.state, record.gradients[sum(wanted.inputs) :], strict=True):
        if source is None or key not in averaged:
            continue
        kind, place = source
        if kind != "zero":
            found[key] = (network.outputs if kind == "output" else network.inputs)[place]
    return found


def _buckets(
    network: Network,
    record: GradientRecord,
    gradients: Mapping[str, str],
    averaging: Averaging,
    outliner: Outliner,
) -> tuple[Bucket, ...]:
    def sendable(key: str) -> Sendable:
        size_bytes, dtype = averaging.parameters[key]
        return Sendable(parameter=key, size_bytes=size_bytes, dtype=dtype)

    if averaging.agreed is None:
        ready = _ready_order(network, record, gradients, outliner)
        others = [key for key in reversed(list(averaging.parameters)) if key not in gradients]
        return gradient_buckets(map(sendable, ready + others * averaging.unused), averaging.limits)
    placed = {key for keys in averaging.agreed for key in keys}
    if missing := [key for key in gradients if key not in placed]:
        raise NotSynchronizedError(
            f"the gradient of {missing[0]} is in no bucket",
            why="the first backward pass had no gradient of it, and the ranks have agreed on buckets without",
            fix="pass find_unused_parameters=True to DistDataParallel, or freeze what is not trained before",
        )
    return tuple(
        Bucket(
            parameters=keys,
            size_bytes=sum(averaging.parameters[key][0] for key in keys),
            dtype=averaging.parameters[keys[0]][1],
            closed="the ranks have agreed on it",
        )
        for keys in averaging.agreed
    )


def _ready_order(
    network: Network, record: GradientRecord, gradients: Mapping[str, str], outliner: Outliner
) -> list[str]:
    """Parameters in the order in which the program's steps complete their gradients."""
    given = record.saved_of(network.inputs)
    plan = make_plan(network, external_call, given=given, outliner=outliner, sent=tuple(gradients.values()))
    complete: dict[str, int] = {}
    for place, step in enumerate(plan.steps):
        complete |= {plan.roots[array]: place for array in step.writes}
    return sorted(gradients, key=lambda key: complete.get(plan.roots[gradients[key]], -1))


def _sources(
    record: GradientRecord, wanted: Wanted, network: Network, averaged: Mapping[str, str]
) -> tuple[Source | None, ...]:
    """Where gradients are now; the network's outputs become these. Mutates the network."""
    before, first = network.outputs, sum(wanted.inputs)
    arrays: list[str | None] = [
        before[source[1]] if source is not None and source[0] == "output" else None
        for source in record.gradients
    ]
    for place, key in enumerate(wanted.state, first):
        arrays[place] = averaged.get(key, arrays[place])
    network.outputs = tuple(dict.fromkeys(array for array in arrays if array is not None))
    for array in before:
        network.sdfg.arrays[array].transient = array not in network.outputs
    for key, array in averaged.items():
        network.sdfg.arrays[array].transient = False
        network.signature[array] = f"{GRADIENT}{PARAMETER}{key}"
    return tuple(
        source if array is None else ("output", network.outputs.index(array))
        for source, array in zip(record.gradients, arrays, strict=True)
    )


def _record(network: Network, bucket: Bucket, averaged: Mapping[str, str]) -> BucketRecord:
    present = tuple(key for key in bucket.parameters if key in averaged)
    return BucketRecord(
        parameters=bucket.parameters,
        present=present,
        strides=tuple(_strides(network, averaged[key]) for key in present),
        size_bytes=bucket.size_bytes,
        dtype=bucket.dtype,
        closed=bucket.closed,
    )


def _strides(network: Network, array: str) -> tuple[int, ...]:
    return () if array in network.scalars else tuple(int(s) for s in network.sdfg.arrays[array].strides)
