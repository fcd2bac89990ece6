"""Networks of ONNX's text form: the operators that they have, and the values that they give."""

from __future__ import annotations

import uuid

import torch

from daceml.config import config
from daceml.frontend.onnx_import.importer import import_model
from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.toolchain.cache import digest
from tests.support.operator_programs import parse
from tests.support.small_networks import build


def imported(text: str) -> Network:
    """The network of a graph, before any pass."""
    return import_model(parse(text), name="network")


def operators(network: Network) -> list[str]:
    """The type of each, in the order of the alphabet."""
    return sorted(n.op_type for n in network.state.nodes() if isinstance(n, ONNXNode))


def values(network: Network, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The results of the compiled network, which is lowered in place."""
    lower(network)
    return build(network, config().cache_folder, key=digest("test", uuid.uuid4().hex))(list(inputs))
