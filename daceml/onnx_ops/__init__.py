"""ONNX operators as library nodes of an SDFG: schemas, node classes, operands and implementations."""

from __future__ import annotations

from daceml._bare_name import refuse_bare_name

refuse_bare_name(__name__)
