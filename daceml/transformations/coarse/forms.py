"""Rewrites of one thing that is written in several ways: a form for each way, one record for all."""

from __future__ import annotations

from abc import ABC
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.transformations.rewriting.replacement import Value
from daceml.transformations.rewriting.rewrite import Rewrite


class Form(Rewrite, ABC):
    """One way in which something is written; subclasses take by name what they want, as of any rewrite.

    Args:
        title: of the pass.
    """

    shape_of = "x"

    def __init__(self, title: str) -> None:
        self.title = title

    @property
    def name(self) -> str:
        """That of the pass."""
        return self.title


def rewrite_forms(network: Network, forms: Sequence[Form], *, marks: Iterable[str]) -> int:
    """Rewrite every form, the first first. Mutates the network, which is not lowered yet.

    Args:
        forms: of one title.
        marks: every form has one of these operators; a network without any is not looked at.
    Returns:
        how many places were rewritten.
    """
    present = {n.op_type for n in network.state.nodes() if isinstance(n, ONNXNode)}
    records: list[PassRecord] = []
    if not present.isdisjoint(marks):
        before = len(network.passes)
        for form in forms:
            form(network)
        records = network.passes[before:]
        del network.passes[before:]
    applied = sum((Counter(record.applied) for record in records), Counter[str]())
    refused = dict.fromkeys(refusal for record in records for refusal in record.refused)
    network.passes.append(
        PassRecord(
            level="coarse",
            name=forms[0].name,
            applied=dict(applied),
            refused=tuple(refused),
            places=tuple(place for record in records for place in record.places),
        )
    )
    return applied.total()


def rounded_once(x: Value) -> str | None:
    """Why an operator may not compute what several did: one of a half type would round less often."""
    kind = x.dtype.to_string()
    return (
        None
        if kind in ("float32", "float64")
        else f"each of its steps rounds to {kind}, and overflows where it does"
    )


def is_nearly(constant: np.ndarray | None, number: float) -> bool:
    """Whether a constant of one element is a number, up to the rounding of one operation."""
    if constant is None or constant.size != 1 or constant.dtype.kind != "f":
        return False
    return bool(abs(float(constant.reshape(())) - number) <= np.finfo(constant.dtype).eps * abs(number))
