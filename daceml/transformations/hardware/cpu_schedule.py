"""Which loops of a kernel run in parallel on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dace
import sympy
from dace.sdfg import nodes

from daceml.config import config
from daceml.sdfg.blocks import block_last_loop
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.scopes import exit_of, scope_nodes
from daceml.sdfg.sizes import Size, product, size, size_bytes

# Chunks that a parallel loop should have, so that threads of unequal speed end together
_CHUNKS = 32
# Elements of a block of a loop: several vectors of any type
_NARROWEST = 256


def schedule_maps(network: Network, *, fewest_iterations: int | None = None) -> int:
    """Set schedule and collapse of every top-level map; returns how many run in parallel. Mutates the SDFG.

    Opening a parallel region costs some microseconds, so short loop nests stay on one thread. Of the others
    the leading dimensions are collapsed until there are enough chunks; the innermost one is left whole, so
    that it vectorises; where everything outside it is too small it is cut into blocks, which are collapsed.

    Args:
        fewest_iterations: of a nest that runs in parallel; None for `Config.parallel_threshold`.
    """
    state = network.state
    scopes, children = state.scope_dict(), state.scope_children()
    parallel = 0
    refused: list[Refusal] = []
    threshold = config().parallel_threshold if fewest_iterations is None else fewest_iterations
    for node in state.nodes():
        if not isinstance(node, nodes.MapEntry) or scopes[node] is not None:
            continue
        extents = [size(e) for e in node.map.range.size()]
        iterations = product(extents) * _inner_iterations(children, node)
        few = _less(iterations, threshold)
        if few or (threshold > 1 and product(extents) == 1):
            why = f"{iterations} iterations are fewer than {threshold} (DACEML_PARALLEL_THRESHOLD)"
            node.map.schedule = dace.ScheduleType.Sequential
            refused.append(_refusal(state, node, why if few else "its iterations depend on each other"))
            continue
        node.map.schedule = dace.ScheduleType.CPU_Multicore
        node.map.collapse = _collapse(extents)
        width = _width(extents) if node.map.collapse == len(extents) else None
        if width is not None and _is_flat(state, node):
            block_last_loop(network.sdfg, state, node, width)
        parallel += 1
    applied = {"parallel loops": parallel} if parallel else {}
    network.passes.append(
        PassRecord(level="hardware", name="schedule_maps", applied=applied, refused=tuple(refused))
    )
    return parallel


def _refusal(state: dace.SDFGState, entry: nodes.MapEntry, why: str) -> Refusal:
    written = [e.data.data for e in state.out_edges(exit_of(state, entry)) if e.data.data is not None]
    descs = [state.sdfg.arrays[array] for array in written]
    return Refusal(
        subject=written[0] if written else entry.map.label,
        reason=f"{why}, so one thread runs them",
        size_bytes=sum(map(size_bytes, descs), start=0),
    )


def _collapse(extents: list[Size]) -> int:
    for count in range(1, len(extents)):
        if not _less(product(extents[:count]), _CHUNKS):
            return count
    return len(extents)


def _width(extents: list[Size]) -> int | None:
    """How wide blocks of the innermost loop are, for enough chunks; None where it stays in one piece."""
    *outer, last = extents
    rows = product(outer)
    if not outer or not isinstance(last, int) or not isinstance(rows, int):
        return None
    blocks = -(-_CHUNKS // max(rows, 1))
    width = -(-last // (blocks * _NARROWEST)) * _NARROWEST
    return width if width < last else None


def _is_flat(state: dace.SDFGState, entry: nodes.MapEntry) -> bool:
    """Whether there are no further loops inside, which vectorise themselves."""
    return not any(isinstance(n, nodes.MapEntry) for n in scope_nodes(state, entry)[1:])


def _inner_iterations(children: Mapping[Any, Sequence[nodes.Node]], node: nodes.MapEntry) -> Size:
    """Iterations of the loops within a loop: the most of those that follow each other."""
    most: Size = 1
    for nested in children[node]:
        if isinstance(nested, nodes.MapEntry):
            extents = map(_full, nested.map.range.size())
            iterations = product(extents) * _inner_iterations(children, nested)
            if _less(most, iterations):
                most = iterations
    return most


def _full(extent: object) -> Size:
    """The size of a loop, for one over a tile the size of a whole tile, `Min(16, n - b0)`."""
    found = size(extent)
    parts: tuple[Any, ...] = found.args if isinstance(found, sympy.Min) else ()
    return min((int(part) for part in parts if part.is_Integer), default=found)


def _less(a: Size, b: Size) -> bool:
    """Whether a < b; symbolic sizes count as large."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return isinstance(a, int)
