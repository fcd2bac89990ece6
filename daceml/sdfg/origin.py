"""Where a computation comes from: the ONNX nodes that it is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NodeOrigin:
    """An ONNX node that a step computes, or computes a part of.

    Attributes:
        operator: its type; the domain `daceml.grad` has the gradients.
        onnx_name: in the model; what a rewrite or derivative made of a node has that name and "/" after it.
        module_path: of the module that it came from; empty for the outermost, and where nobody knows.
    """

    operator: str
    onnx_name: str
    module_path: str
