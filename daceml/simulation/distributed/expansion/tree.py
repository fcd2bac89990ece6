"""All-reduce up and down trees: a chain inside each node, and two binary trees of nodes that share the work.

Source: Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan (Parallel
Computing '09), as NVIDIA/nccl@01afd20a builds them (src/graph/trees.cc): who is inside one tree is a leaf of
the other, so that each node sends and receives the array twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from daceml.simulation.distributed.expansion.transfers import Transfer

# Share of the time in which the first piece still goes up or the last one down: it decides how many there are
FILLING = 0.05
# Pieces that a connection holds before its receiver has passed one on: NCCL's NCCL_STEPS
HELD = 8


def tree_all_reduce(size_bytes: float, nodes: Sequence[Sequence[int]]) -> tuple[Transfer, ...]:
    """Pieces follow each other up to a root, where they are whole, and down again.

    Args:
        size_bytes: of the whole array.
        nodes: devices of each node, those that begin the chains first.
    """
    depth = len(nodes[0]) - 1 + max(1, math.ceil(math.log2(max(len(nodes), 2))))
    pieces = 2 * math.ceil(depth / FILLING / 2)
    trees = tuple(_joined(tree(len(nodes)), nodes) for tree in (_tree, _other_tree))
    made: list[Transfer] = []
    passed: list[dict[int, int]] = []  # of each piece: device -> the transfer by which it passed it on
    for piece in range(pieces):
        held = passed[piece - 2 * HELD] if piece >= 2 * HELD else {}
        passed.append(_one_piece(made, trees[piece % 2], size_bytes / pieces, held))
    return tuple(made)


def _one_piece(
    made: list[Transfer], parents: Mapping[int, int], size_bytes: float, held: Mapping[int, int]
) -> dict[int, int]:
    """Up from the leaves, each device behind all that come to it, and down from the root.

    Args:
        held: the transfers by which devices passed on the piece whose room this one takes.
    Returns:
        those of this piece.
    """
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    root = next(parent for parent in children if parent not in parents)
    order = [root]
    for device in order:
        order += children.get(device, ())
    up: dict[int, int] = {}
    for device in reversed(order[1:]):
        up[device] = len(made)
        parent = parents[device]
        after = (*(up[child] for child in children.get(device, ())), *([held[parent]] if held else []))
        made.append(Transfer(source=device, target=parent, size_bytes=size_bytes, after=after))
    passed = {**up, root: len(made)}
    down: dict[int, tuple[int, ...]] = {root: tuple(up[child] for child in children[root])}
    for device in order:
        for child in children.get(device, ()):
            made.append(Transfer(source=device, target=child, size_bytes=size_bytes, after=down[device]))
            down[child] = (len(made) - 1,)
    return passed


def _joined(parents: Mapping[int, int], nodes: Sequence[Sequence[int]]) -> dict[int, int]:
    """Parents of devices: the one before in the chain of a node; of its first, the first of another node."""
    found = {nodes[child][0]: nodes[parent][0] for child, parent in parents.items()}
    for chain in nodes:
        found |= dict(zip(chain[1:], chain[:-1], strict=True))
    return found


def _tree(count: int) -> dict[int, int]:
    """Parents of all but 0: the lowest bit that is set moves up by one place, so odd numbers are leaves."""
    parents: dict[int, int] = {}
    for number in range(1, count):
        bit = number & -number
        parent = (number ^ bit) | (bit << 1)
        parents[number] = parent if parent < count else number ^ bit
    return parents


def _other_tree(count: int) -> dict[int, int]:
    """The same, from the other end, or where that would leave leaves leaves, moved by one."""
    if count % 2 == 0:
        return {count - 1 - child: count - 1 - parent for child, parent in _tree(count).items()}
    return {(child + 1) % count: (parent + 1) % count for child, parent in _tree(count).items()}
