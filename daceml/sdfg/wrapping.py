"""A map around another one: what passes the ends of the inner one passes those of the outer one first."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import dace
from dace import dtypes
from dace.memlet import Memlet
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.scalar import Index
from daceml.sdfg.scopes import exit_of


def wrap(
    state: dace.SDFGState,
    entry: nodes.MapEntry,
    box: Mapping[str, Index],
    schedule: dtypes.ScheduleType,
) -> nodes.MapEntry:
    """Put a map around another one. Mutates the state.

    Args:
        box: extent of every parameter, each from 0 on.
    """
    ranges = Range([(0, extent - 1, 1) for extent in box.values()])
    body = nodes.Map(entry.map.label, list(box), ranges, schedule)
    outer, outer_exit = nodes.MapEntry(body), nodes.MapExit(body)
    exit_: Any = exit_of(state, entry)
    state.add_nodes_from([outer, outer_exit])
    for edge in list(state.in_edges(entry)):
        state.remove_edge(edge)
        inner = edge.dst_conn
        if not inner:  # an order without data
            state.add_edge(edge.src, None, outer, None, edge.data)
            continue
        passed = _other_side(inner)
        outer.add_in_connector(inner)
        outer.add_out_connector(passed)
        state.add_edge(edge.src, edge.src_conn, outer, inner, edge.data)
        state.add_edge(outer, passed, entry, inner, copy.deepcopy(edge.data))
    if not state.in_degree(entry):
        state.add_edge(outer, None, entry, None, Memlet())
    for edge in list(state.out_edges(exit_)):
        state.remove_edge(edge)
        passed = "IN_" + edge.src_conn.removeprefix("OUT_")
        outer_exit.add_in_connector(passed)
        outer_exit.add_out_connector(edge.src_conn)
        state.add_edge(exit_, edge.src_conn, outer_exit, passed, copy.deepcopy(edge.data))
        state.add_edge(outer_exit, edge.src_conn, edge.dst, edge.dst_conn, edge.data)
    return outer


def _other_side(connector: str) -> str:
    if not connector.startswith("IN_"):
        raise ValueError(f"the range of a map depends on the data {connector}: it cannot be wrapped")
    return "OUT_" + connector.removeprefix("IN_")
