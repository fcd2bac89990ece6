"""Views of a program whose frontend has not connected them yet."""

from __future__ import annotations

import copy
from typing import Any

import dace
from dace.sdfg import nodes

from daceml.sdfg.access import add_access


def finish_views(visitor: Any, sdfg: dace.SDFG) -> None:
    """Connect views to what they are views of, in all states so far. Mutates the SDFG.

    The frontend does so when it is done. In these states each view gets another name, under which
    differentiation makes it an array of its own; under its old name it stays a view for what follows.
    """
    views: dict[str, tuple[str, Any]] = visitor.views
    renamed: dict[str, str] = {}
    for state in sdfg.states():
        pending = [n for n in state.data_nodes() if n.data in views]
        while pending:  # views of views
            pending = [new for node in pending if (new := _connect(state, node, views)) and new.data in views]
        for name in {n.data for n in state.data_nodes()} & views.keys():
            if name not in renamed:
                renamed[name] = sdfg.add_datadesc(
                    f"{name}_so_far", sdfg.arrays[name].clone(), find_new_name=True
                )
            state.replace(name, renamed[name])


def _connect(
    state: dace.SDFGState, node: nodes.AccessNode, views: dict[str, tuple[str, Any]]
) -> nodes.AccessNode | None:
    viewed, memlet = views[node.data]
    if any(e.dst_conn == "views" for e in state.in_edges(node)):
        return None
    if any(e.src_conn == "views" for e in state.out_edges(node)):
        return None
    other = add_access(state, viewed)
    if state.in_degree(node) == 0:
        node.add_in_connector("views")
        state.add_edge(other, None, node, "views", copy.deepcopy(memlet))
    else:
        node.add_out_connector("views")
        state.add_edge(node, "views", other, None, copy.deepcopy(memlet))
    return other
