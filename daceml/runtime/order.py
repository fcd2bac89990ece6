"""The order of a program's steps: any topological one, with draws of random numbers as they were written.

Every draw moves torch's generator on, so two draws that do not depend on each other are still in an order.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any

import dace
from dace.sdfg.utils import dfs_topological_sort


def program_order(state: dace.SDFGState, draws: Sequence[Any]) -> list[Any]:
    """Nodes of a state in topological order.

    Args:
        draws: nodes that draw; they come in the order in which the state holds them, unless a fused map
            stands both before and after one of them.
    """
    order = list(dfs_topological_sort(state))
    wanted = sorted(draws, key=state.node_id)
    drawing = set(wanted)
    if [node for node in order if node in drawing] == wanted:
        return order
    position = {node: i for i, node in enumerate(order)}
    following = dict(itertools.pairwise(wanted))
    waiting = {node: state.in_degree(node) for node in order}
    for node in wanted[1:]:
        waiting[node] += 1
    ready = [position[node] for node in order if not waiting[node]]
    heapq.heapify(ready)
    sorted_nodes: list[Any] = []
    while ready:
        node = order[heapq.heappop(ready)]
        sorted_nodes.append(node)
        successors = [edge.dst for edge in state.out_edges(node)]
        for successor in (*successors, *([following[node]] if node in following else [])):
            waiting[successor] -= 1
            if not waiting[successor]:
                heapq.heappush(ready, position[successor])
    return sorted_nodes if len(sorted_nodes) == len(order) else order
