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

from daceml.errors import UnsupportedProgramError


def program_order(state: dace.SDFGState, draws: Sequence[Any]) -> list[Any]:
    """Nodes of a state in topological order.

    Args:
        draws: nodes that draw; they come in this order.
    Raises:
        UnsupportedProgramError: one of them needs what comes after a later one, or steps need each other.
    """
    order = list(dfs_topological_sort(state))
    if len(order) < state.number_of_nodes():
        left = set(state.nodes()).difference(order)
        raise UnsupportedProgramError(
            "steps need each other's results",
            where=", ".join(sorted(str(node) for node in left)[:3]),
            why="a transformation has joined what stands before and behind another step",
            fix="compile with auto_optimize=False, or without the transformation of yours that did so",
        )
    drawing = set(draws)
    if [node for node in order if node in drawing] == list(draws):
        return order
    position = {node: i for i, node in enumerate(order)}
    following = dict(itertools.pairwise(draws))
    waiting = {node: state.in_degree(node) for node in order}
    for node in draws[1:]:
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
    if len(sorted_nodes) < len(order):
        raise UnsupportedProgramError(
            "random numbers would be drawn in another order than the model's",
            where=", ".join(str(node) for node in draws if waiting[node]),
            why="a transformation has joined what stands before and behind a draw",
            fix="compile with auto_optimize=False, or without the transformation of yours that did so",
        )
    return sorted_nodes
