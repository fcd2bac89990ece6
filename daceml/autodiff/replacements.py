"""Operators that a network is given before it is differentiated, for what their gradients need.

Each row says: this operator, where the condition holds, becomes that one of `daceml.onnx_ops.domain.saving`,
which computes the same and can give more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import dace

from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.domain.saving import saving
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import node_class
from daceml.onnx_ops.tracing.tensor import Output, Tensor

if TYPE_CHECKING:
    from daceml.sdfg.network import Network


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """One row.

    Attributes:
        op_type: ONNX's operator.
        target: operator of the domain "daceml".
        when: takes operands and attributes by name; None where the row applies, else the reason.
        connectors: those of the target, where they have other names.
        attributes: of the target, made of the node; those of the node itself where None.
    """

    op_type: str
    target: str
    when: Callable[..., str | None]
    connectors: dict[str, str]
    attributes: Callable[[ONNXNode], dict[str, Any] | None] | None = None


_rows: dict[str, Replacement] = {}


def _becomes_saving(op_type: str) -> Callable[[Callable[..., str | None]], Callable[..., str | None]]:
    def register(when: Callable[..., str | None]) -> Callable[..., str | None]:
        _rows[op_type] = Replacement(op_type=op_type, target=saving(op_type), when=when, connectors={})
        return when

    return register


@_becomes_saving("BatchNormalization")
def _batch(training_mode: int | None, since_version: int) -> str | None:
    if since_version < 14:
        return "before opset 14 the statistics have other names"
    return None if training_mode else "in inference the statistics are operands"


@_becomes_saving("LayerNormalization")
def _layer(X: Tensor, stash_type: int) -> str | None:
    if X.dtype != dace.float64 and stash_type == 1:
        return "ONNX's operator gives its statistics"
    return None


@_becomes_saving("GroupNormalization")
def _group(since_version: int) -> str | None:
    return "before opset 21 it has one scale for each group" if since_version < 21 else None


@_becomes_saving("InstanceNormalization")
def _instance(since_version: int) -> str | None:
    return "before opset 6 it has attributes of another kind" if since_version < 6 else None


@_becomes_saving("RMSNormalization")
def _root_mean_square() -> str | None:
    return None


@_becomes_saving("Attention")
def _attention(
    past_key: Tensor | None,
    past_value: Tensor | None,
    nonpad_kv_seqlen: Tensor | None,
    present_key: Output | None,
    present_value: Output | None,
    qk_matmul_output: Output | None,
    softcap: float | None,
    softmax_precision: int | None,
    left_window_size: int | None,
    right_window_size: int | None,
) -> str | None:
    if any(t is not None for t in (past_key, past_value, nonpad_kv_seqlen, present_key, present_value)):
        return "it has a cache of keys and values"
    if qk_matmul_output is not None:
        return "its scores are a result"
    if softcap or softmax_precision is not None:
        return "its scores are capped, or of a type of their own"
    if any(size not in (None, -1) for size in (left_window_size, right_window_size)):
        return "it looks at a window of keys"
    return None


def _recurrent(since_version: int) -> str | None:
    return "before opset 7 it has other attributes" if since_version < 7 else None


for _op_type in ("RNN", "GRU", "LSTM"):
    _becomes_saving(_op_type)(_recurrent)


def _embedding(data: Tensor, axis: int) -> str | None:
    return "rows are not along the first dimension" if axis not in (0, -data.rank) else None


def _embedding_attributes(node: ONNXNode) -> dict[str, Any] | None:
    row = cast("int | None", node.padding_row)
    if row is None and not node.divided_by_counts:
        return None
    padding = -1 if row is None else row
    return {"padding": padding, "by_frequency": int(node.divided_by_counts)}


_rows["Gather"] = Replacement(
    op_type="Gather",
    target="Embedding",
    when=_embedding,
    connectors={"data": "weight", "indices": "indices", "output": "result"},
    attributes=_embedding_attributes,
)


def replace_for_training(network: Network) -> int:
    """Apply every row to the nodes that have no implementation yet. Mutates the network.

    Returns:
        the number of nodes replaced.
    """
    nodes = [n for n in network.state.nodes() if isinstance(n, ONNXNode) and not n.implementation]
    return sum(_replaced(node, network) for node in nodes)


def refusal(node: ONNXNode, network: Network) -> str | None:
    """Why a node stays what it is; None where a row applies."""
    row = None if node.domain else _rows.get(node.op_type)
    if row is None:
        return "no row replaces it"
    if row.attributes is not None and row.attributes(node) is None:
        return "its gradient needs nothing more"
    return bind(node, network).call_by_name(row.when)


def _replaced(node: ONNXNode, network: Network) -> bool:
    if refusal(node, network) is not None:
        return False
    row, state = _rows[node.op_type], network.state
    cls = node_class(row.target, domain="daceml")
    if row.attributes is not None:
        attributes = row.attributes(node) or {}
    else:
        attributes = {n: v for n, v in node.attribute_values().items() if n in cls.schema.attributes}

    def renamed(connector: str) -> str:
        return row.connectors.get(connector, connector)

    made = cls(
        node.label,
        inputs=[renamed(c) for c in node.in_connectors],
        outputs=[renamed(c) for c in node.out_connectors],
        onnx_name=node.onnx_name,
        module_path=node.module_path,
        source=node.source,
        position=node.position,
        **{n: v for n, v in attributes.items() if v is not None},
    )
    made.lowest_index = node.lowest_index
    state.add_node(made)
    for edge in state.in_edges(node):
        state.add_edge(edge.src, edge.src_conn, made, edge.dst_conn and renamed(edge.dst_conn), edge.data)
    for edge in state.out_edges(node):
        state.add_edge(made, edge.src_conn and renamed(edge.src_conn), edge.dst, edge.dst_conn, edge.data)
    state.remove_node(node)
    return True
