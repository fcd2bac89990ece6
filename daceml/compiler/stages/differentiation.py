"""A network and its backward pass, each optimised as a program of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dace.sdfg import nodes

from daceml.autodiff.activity import CONTINUOUS, active_arrays, outputs_reached, reads
from daceml.autodiff.checkpointing.recompute import plan_recomputation
from daceml.autodiff.engine import add_gradients
from daceml.autodiff.partition import partition
from daceml.autodiff.replacements import replace_for_training
from daceml.runtime.records.gradients import GradientRecord, Reader, Source, StorageRecord, Wanted

if TYPE_CHECKING:
    from daceml.autodiff.checkpointing.recompute import Decision
    from daceml.autodiff.partition import Partition
    from daceml.compiler.stages.recomputation import Recompute
    from daceml.sdfg.network import Network

NEXT = "::next"
"""How the name of an output ends that is the new value of an input or a parameter."""
GRADIENT, PARAMETER = "gradient of ", "parameter "
"""How a backward network's signature names results: `gradient of x`, `gradient of parameter layer.weight`."""


@dataclass(frozen=True, kw_only=True)
class TrainingNetworks:
    """Forward and backward pass before the levels that follow differentiation."""

    forward: Network
    backward: Network
    record: GradientRecord


def differentiate(
    network: Network,
    wanted: Wanted,
    *,
    recompute: Recompute = "none",
    limit_bytes: int | None = None,
    prefer_native: bool = False,
) -> TrainingNetworks:
    """Forward and backward pass of a network of ONNX nodes. Mutates the network.

    Args:
        recompute: what the backward pass computes again.
        limit_bytes: for "budget", of everything that is stored for it.
        prefer_native: derive every gradient from the lowered form.
    Raises:
        GradientError: a step that gradients flow through has no derivative, or the budget cannot be kept.
    """
    replace_for_training(network)
    by_key = {key: array for array, key in network.weights.items()}
    inputs = [a for a, wants in zip(network.inputs, wanted.inputs, strict=True) if wants]
    arrays = [*inputs, *(by_key.get(key) for key in wanted.state)]
    outputs = [a for a in dict.fromkeys(network.outputs) if network.sdfg.arrays[a].dtype in CONTINUOUS]
    results = network.outputs
    written = [a for a in results if network.signature.get(a, a).endswith(NEXT)]
    active = _reachable(network, [a for a in arrays if a is not None])
    # what forward writes back is no result that gradients come from
    still = {a for a, sources in zip(results, wanted.reaching, strict=False) if sources is None}
    outputs = [a for a in outputs if a in active and a not in written and a not in still]
    if wanted.outputs is not None:
        outputs = [a for a in outputs if results.index(a) in wanted.outputs]
    reached = outputs_reached(network.sdfg, network.state, [a for a in arrays if a is not None], outputs)
    gradients = add_gradients(
        network, outputs, [a for a in dict.fromkeys(arrays) if a is not None], prefer_native=prefer_native
    )
    several = sum(network.sdfg.arrays[a].dtype in CONTINUOUS and a not in written for a in set(results)) > 1
    decisions = plan_recomputation(network, recompute, limit_bytes=limit_bytes, narrowable=several)
    parts = partition(network, gradients)
    signature, parameters = parts.backward.signature, arrays[len(inputs) :]
    names = [signature.get(a, a) for a in inputs] + [f"{PARAMETER}{key}" for key in wanted.state]
    for array, name in zip([*inputs, *parameters], names, strict=True):
        gradient = None if array is None else parts.gradients[array]
        if gradient in parts.backward.outputs:
            signature[gradient] = GRADIENT + name
    record = replace(
        _record(parts, results, arrays, outputs, reached, _flat(results, outputs, arrays, reached, wanted)),
        storage=tuple(map(_storage, decisions)),
        by_rule=gradients.by_rule,
        lowered=gradients.lowered,
    )
    return TrainingNetworks(forward=parts.forward, backward=parts.backward, record=record)


def _storage(decision: Decision) -> StorageRecord:
    return StorageRecord(
        array=decision.array, bytes=decision.bytes, stored=decision.stored, reason=decision.reason
    )


def _reachable(network: Network, inputs: list[str]) -> frozenset[str]:
    return active_arrays(network.sdfg, network.state, inputs, network.outputs)


def _identities(network: Network, arrays: Iterable[str]) -> tuple[str, ...]:
    """What arrays are, apart from their names, which another differentiation may give to others."""
    scopes = network.state.scope_dict()
    places: dict[str, list[nodes.AccessNode]] = {}
    for node in network.state.data_nodes():
        places.setdefault(node.data, []).append(node)
    return tuple(_identity(network, array, places.get(array, []), scopes) for array in arrays)


def _identity(network: Network, array: str, places: list[nodes.AccessNode], scopes: Mapping[Any, Any]) -> str:
    state, desc = network.state, network.sdfg.arrays[array]
    kind = f"{desc.dtype.to_string()}{list(map(str, desc.shape))}"
    written = [e for n in places for e in state.in_edges(n)]
    if not written:
        return f"{array}: {kind}, which has no elements to write"
    edge = written[0]
    writer: nodes.Node = edge.src
    if isinstance(writer, nodes.MapExit):
        writer = scopes[writer]
    name = getattr(writer, "onnx_name", "") or str(getattr(writer, "label", writer))
    sources = sorted(reads(state, writer)) if not isinstance(writer, nodes.AccessNode) else [writer.data]
    return f"{array}: {kind}, {edge.src_conn} of {name} from {sources}"


def _flat(
    results: tuple[str, ...],
    outputs: list[str],
    arrays: list[str | None],
    reached: Mapping[str, Collection[str]],
    wanted: Wanted,
) -> dict[int, tuple[int, ...]]:
    """Where a gradient is zero for any cotangent: eager PyTorch computes it, and here nothing leads to it.

    Such are results that move with nothing, as of `sign`, and operands whose share is left out, as in
    `addmm(..., beta=0)` or of a tensor that is written over.

    Returns:
        place of the result -> places of the tensors that it gives zeros to.
    """

    found: dict[int, tuple[int, ...]] = {}
    for place, (sources, certain) in enumerate(zip(wanted.reaching, wanted.certain, strict=True)):
        result = results[place]
        if not sources or results.index(result) != place:
            continue
        if result not in outputs:
            found[place] = sources
        elif rest := tuple(s for s in certain if result not in reached.get(arrays[s] or "", ())):
            found[place] = rest
    return found


def _record(
    parts: Partition,
    results: tuple[str, ...],
    arrays: list[str | None],
    outputs: list[str],
    reached: Mapping[str, Collection[str]],
    flat: Mapping[int, Collection[int]],
) -> GradientRecord:
    forward, backward = parts.forward, parts.backward
    cotangents = list(parts.cotangents)
    flat_of = [tuple(i for i, sources in flat.items() if place in sources) for place in range(len(arrays))]

    def source(array: str | None, flat: Collection[int]) -> Source | None:
        gradient = None if array is None else parts.gradients[array]
        if gradient is None:
            # a derivative that is zero everywhere, or a sum over nothing
            return ("zero", 0) if flat or (array is not None and reached[array]) else None
        if gradient in backward.outputs:
            return "output", backward.outputs.index(gradient)
        names = list(parts.cotangents.values())
        return "cotangent", names.index(gradient)

    def reader(array: str) -> Reader:
        if array in forward.weights:
            return "state", forward.weights[array]
        return "input", forward.inputs.index(array)

    return GradientRecord(
        results=len(results),
        saved=tuple(forward.outputs.index(a) for a in parts.saved),
        saved_arrays=_identities(forward, parts.saved),
        reads=(
            *(reader(a) for a in parts.read),
            *(("sizes", forward.inputs.index(a)) for a in parts.sized),
        ),
        cotangents=tuple(results.index(a) for a in cotangents),
        differentiable=tuple(
            i in flat or (a in outputs and results.index(a) == i) for i, a in enumerate(results)
        ),
        gradients=tuple(map(source, arrays, flat_of)),
        reached=tuple(
            tuple(
                i for i, result in enumerate(results) if i in more or (a is not None and result in reached[a])
            )
            for a, more in zip(arrays, flat_of, strict=True)
        ),
    )
