"""What metadata says: parameters, mutated buffers, and where in the user's code a node came from."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from daceml.errors import OnnxFileError


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """The `daceml.*` entries of a model; all are empty for a foreign `.onnx` file.

    Attributes:
        state: initializers that are parameters or buffers, keys of the module's state_dict.
        mutations: graph output -> buffer whose new value it is.
    """

    state: frozenset[str]
    mutations: dict[str, str]

    @classmethod
    def read(cls, model: ir.Model) -> ModelMetadata:
        """Read the entries off a model."""
        entries = {**model.graph.metadata_props, **model.metadata_props}
        parameters = _parse(entries, "daceml.parameters", list)
        buffers = _parse(entries, "daceml.buffers", list)
        return cls(
            state=frozenset([*parameters, *buffers]),
            mutations=_parse(entries, "daceml.buffer_mutations", dict),
        )


def _parse(entries: dict[str, str], key: str, kind: type) -> Any:
    if key not in entries:
        return kind()
    try:
        value = json.loads(entries[key])
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise OnnxFileError(
            f"metadata {key!r} is malformed",
            where="model metadata",
            why=f"it should be a JSON {'list' if kind is list else 'object'}, it is {entries[key][:80]!r}",
            fix="export the model again, or remove the entry",
        )
    return value


def node_origin(node: ir.Node) -> tuple[str, str]:
    """Module path and source line of a node: daceml's own metadata, else that of torch's exporter."""
    entries = node.metadata_props
    module_path = entries.get("daceml.module") or _torch_scope(entries.get("pkg.torch.onnx.name_scopes", ""))
    source = entries.get("daceml.source") or _torch_line(entries.get("pkg.torch.onnx.stack_trace", ""))
    return module_path, source


def where(node: ir.Node) -> str:
    """A node as messages name it."""
    module_path, source = node_origin(node)
    origin = f"{module_path} ({source})" if module_path and source else module_path or source
    label = f"node {node.name}" if node.name else f"node of type {node.op_type}"
    return f"{origin}, {label}" if origin else label


def _torch_scope(text: str) -> str:
    """`['', 'layer1', 'layer1.conv', 'conv2d']` -> `layer1.conv`; the last entry is the operator itself."""
    try:
        scopes = ast.literal_eval(text) if text else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    if not isinstance(scopes, list) or len(scopes) < 2:
        return ""
    # torch gives nodes that belong to no module a scope of this name.
    return "" if "_empty_nn_module_stack" in str(scopes[-2]) else str(scopes[-2])


def _torch_line(text: str) -> str:
    """The innermost line of a stack trace, `file.py:41`."""
    found = re.findall(r'File "([^"]+)", line (\d+)', text)
    return f"{found[-1][0].rsplit('/', 1)[-1]}:{found[-1][1]}" if found else ""
