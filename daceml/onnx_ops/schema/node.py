"""The library node of an ONNX operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NoReturn

import dace
import numpy as np
from dace.properties import Property, make_properties
from dace.sdfg.nodes import LibraryNode

from daceml.errors import InvalidNodeError
from daceml.onnx_ops.schema.checks import first_problem
from daceml.onnx_ops.schema.properties import TensorProperty, fits, tensor_to_json
from daceml.onnx_ops.schema.schema import UNSUPPORTED_KINDS, OperatorSchema


@make_properties
class ONNXNode(LibraryNode):
    """One ONNX operator in an SDFG state; `daceml.onnx_ops.schema.nodes` makes a subclass for each.

    Every attribute of the schema is a property of the same name; None means absent. `implementation` is
    `native:NAME`, `aten:NAME`, `alias:NAME` or `onnxruntime` once an implementation has been chosen.

    Args:
        name: label of the node; the operator's name where none is given.
        inputs: input connectors, in order.
        outputs: output connectors, in order.
        onnx_name: name of the node in the ONNX model.
        module_path: where in the user's module the operator came from, e.g. `layer1.0.conv1`.
        source: the user's line, e.g. `model.py:41`.
        position: place among the model's nodes; random numbers are drawn in this order. What takes a node's
            place has its position.
        lowest_index: smallest position that may be looked up, where it is not ONNX's.
        padding_row: row of a table that is padding and gets no gradient.
        divided_by_counts: whether a row's gradient is divided by how often the row was looked up.
        shapes_declared: whether the results' shapes are known from the model's word alone, as they depend on
            data.
        attributes: ONNX attributes by name.
    Raises:
        InvalidNodeError: an attribute that the operator does not have, or of the wrong kind.
    """

    op_type: ClassVar[str]
    domain: ClassVar[str]
    since_version: ClassVar[int]
    schema: ClassVar[OperatorSchema]
    # dace looks these up on every library node. Networks choose implementations themselves; for nodes in
    # other programs `daceml.onnx_ops.native_expansion` adds the one that they have there.
    implementations: ClassVar[dict[str, type]] = {}
    default_implementation: ClassVar[str | None] = None

    onnx_name = Property(
        dtype=str, default="", category="Frontend", desc="Name of the node in the ONNX model"
    )
    module_path = Property(dtype=str, default="", category="Frontend", desc="Path in the user's module")
    source = Property(dtype=str, default="", category="Frontend", desc="The user's line, file.py:41")

    position = Property(dtype=int, default=0, category="Frontend", desc="Place among the model's nodes")
    lowest_index = Property(
        dtype=int,
        allow_none=True,
        default=None,
        category="Frontend",
        desc="Smallest position that may be looked up",
    )
    padding_row = Property(
        dtype=int, allow_none=True, default=None, category="Frontend", desc="Row that gets no gradient"
    )
    divided_by_counts = Property(
        dtype=bool, default=False, category="Frontend", desc="Gradients of rows are divided by their counts"
    )
    shapes_declared = Property(
        dtype=bool,
        default=False,
        category="Frontend",
        desc="Shapes of the results are the model's word alone",
    )

    def __init__(
        self,
        name: str | None = None,
        *,
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        onnx_name: str = "",
        module_path: str = "",
        source: str = "",
        position: int = 0,
        **attributes: Any,
    ) -> None:
        super().__init__(name or self.op_type, inputs=dict.fromkeys(inputs), outputs=dict.fromkeys(outputs))
        self.onnx_name, self.module_path, self.source = onnx_name, module_path, source
        self.position = position
        for attribute, value in attributes.items():
            self.set_attribute(attribute, value)

    @property
    def title(self) -> str:
        """Operator and name."""
        return f"{self.op_type} {self.onnx_name}".rstrip()

    def attribute_values(self) -> dict[str, Any]:
        """Every attribute of the schema by name: the node's value, else the schema's default, else None.

        Lists come as tuples, tensors as numpy arrays.

        Raises:
            InvalidNodeError: the operator always has a body (a graph attribute).
        """
        values: dict[str, Any] = {}
        for name, attribute in self.schema.attributes.items():
            if attribute.kind == "graph" and attribute.required:
                self._refuse_kind(name, attribute.kind)
            value = None if attribute.kind in UNSUPPORTED_KINDS else getattr(self, name)
            values[name] = (
                attribute.default if value is None else tuple(value) if isinstance(value, list) else value
            )
        return values

    def where(self) -> str:
        """The node as messages name it: module path, the user's line, ONNX name."""
        origin = f"{self.module_path} ({self.source})" if self.module_path and self.source else ""
        origin = origin or self.module_path or self.source
        node = f"node {self.onnx_name or self.label}"
        return f"{origin}, {node}" if origin else node

    def validate(self, sdfg: dace.SDFG, state: dace.SDFGState) -> None:
        """Compare the node with its schema: arity, required attributes, element types.

        Raises:
            InvalidNodeError: the first rule that the node breaks.
        """
        problem = first_problem(self, sdfg, state)
        if problem is not None:
            raise InvalidNodeError(problem.what, where=self.where(), why=problem.why, fix=problem.fix)

    def expand(self, state_or_sdfg: Any, state_or_impl: Any = None, **kwargs: Any) -> str:
        """Expand the node in a DaCe program: to its loops, whatever a network has chosen for it."""
        node: Any = self
        chosen, node.implementation = node.implementation, None
        try:
            return super().expand(state_or_sdfg, state_or_impl, **kwargs)
        finally:
            node.implementation = chosen

    def to_json(self, parent: dace.SDFGState) -> dict[str, Any]:
        record: dict[str, Any] = super().to_json(parent)
        properties: dict[str, Property[Any]] = type(self).__properties__  # pyright: ignore[reportAttributeAccessIssue]
        for name, prop in properties.items():
            # dace compares a value with its default by ==, and takes an empty array for equal to None.
            if isinstance(prop, TensorProperty) and getattr(self, name) is not None:
                record["attributes"][name] = tensor_to_json(getattr(self, name))
        return record

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute to a Python or numpy value; None makes it absent.

        Raises:
            InvalidNodeError: the operator has no such attribute, or one of another kind.
        """
        attribute = self.schema.attributes.get(name)
        if attribute is None:
            known = ", ".join(sorted(self.schema.attributes)) or "none"
            raise InvalidNodeError(
                f"{self.schema.title} has no attribute {name!r}",
                where=self.where(),
                why=f"its attributes are: {known}",
                fix="remove the attribute, or set the opset version that has it",
            )
        if attribute.kind in UNSUPPORTED_KINDS:
            self._refuse_kind(name, attribute.kind)
        if value is not None and not fits(attribute.kind, value):
            raise InvalidNodeError(
                f"attribute {name!r} of {self.schema.title} must be of kind {attribute.kind}",
                where=self.where(),
                why=f"it is {type(value).__name__}: {_shorten(value)}",
                fix=f"give it a value of kind {attribute.kind}",
            )
        if isinstance(value, (list, tuple)):
            value = [item.item() if isinstance(item, np.generic) else item for item in value]
            value = [float(item) for item in value] if attribute.kind == "floats" else value
        setattr(self, name, value)

    def _refuse_kind(self, name: str, kind: str) -> NoReturn:
        reason = {
            "graph": "its body is a graph, and a network holds no control flow yet",
            "sparse_tensor": "a network holds dense tensors only",
            "type_proto": "a network holds tensors only, no optionals or sequences",
        }[kind]
        raise InvalidNodeError(
            f"attribute {name!r} of {self.schema.title} cannot be represented",
            where=self.where(),
            why=reason,
            fix="rewrite this part of the model without it: torch.where instead of if, an unrolled loop",
        )


def _shorten(value: object, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
