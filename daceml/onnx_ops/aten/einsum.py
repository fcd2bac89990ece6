"""Einsum of two operands, and its gradients, as products of matrices over views where it is one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from daceml.onnx_ops.aten.views import GRADIENTS, float_operands, no_empty_operand, view
from daceml.onnx_ops.native.contraction import einsum_terms
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall, TensorView
from daceml.sdfg.sizes import Size, product, row_major

Labelled = tuple[str, Tensor]
LabelledShape = tuple[str, tuple[Size, ...]]
# Size and stride
Dim = tuple[Size, Size | None]
# result, left and right operand
Product = tuple[TensorView, TensorView, TensorView]


def product_dims(
    result: LabelledShape, left: LabelledShape, right: LabelledShape
) -> tuple[bool, list[list[Dim]]] | str:
    """Dimensions of a product: [batch, rows, columns] = [batch, rows, inner] [batch, inner, columns].

    Returns:
        whether the operands change places, and a list for the result and each operand; else a sentence why
        they are no product of matrices over views.
    """
    sizes: dict[str, Size] = {}
    for labels, shape in (result, left, right):
        if len(set(labels)) != len(labels):
            return f"a label comes twice in {labels!r}"
        for label, extent in zip(labels, shape, strict=True):
            if not same(sizes.setdefault(label, extent), extent):
                return f"operands are repeated along {label}"
    batch = [x for x in result[0] if x in left[0] and x in right[0]]
    rest = [x for x in result[0] if x not in batch]
    swapped = bool(rest) and rest[0] in right[0]
    if swapped:
        left, right = right, left
    rows, columns = ([x for x in rest if x in side[0]] for side in (left, right))
    inner = [x for x in left[0] if x in right[0] and x not in batch]
    for labels, _ in (left, right):
        if alone := [x for x in labels if x not in (*batch, *rows, *columns, *inner)]:
            return f"{', '.join(alone)} is in one operand only"
    if len(rows) + len(columns) != len(rest):
        return "the result has labels that no operand has"
    found: list[list[Dim]] = []
    for side, groups in (
        (result, (batch, rows, columns)),
        (left, (batch, rows, inner)),
        (right, (batch, inner, columns)),
    ):
        dims = [_merged(group, side, sizes) for group in groups]
        if any(d is None for d in dims):
            return f"labels of {side[0]!r} are in an order that no view gives"
        found.append([d for d in dims if d is not None])
    return swapped, found


def _product(result: Labelled, left: Labelled, right: Labelled) -> Product | str:
    """Views [batch, rows, columns] = [batch, rows, inner] [batch, inner, columns], or why there are none."""
    found = product_dims(*((labels, tensor.shape) for labels, tensor in (result, left, right)))
    if isinstance(found, str):
        return found
    swapped, (y, a, b) = found
    first, second = (right, left) if swapped else (left, right)
    return _matrices(result[1], y), _matrices(first[1], a), _matrices(second[1], b)


def _merged(group: Sequence[str], side: LabelledShape, sizes: dict[str, Size]) -> Dim | None:
    """Size and stride of several labels as one dimension, in this order; the stride of nothing is None."""
    labels, shape = side
    strides = dict(zip(labels, row_major(shape), strict=True))
    kept = [x for x in group if not same(sizes[x], 1)]
    for outer, inner in pairwise(kept):
        if not same(strides[outer], strides[inner] * sizes[inner]):
            return None
    return product(sizes[x] for x in kept), strides[kept[-1]] if kept else None


def _matrices(tensor: Tensor, dims: Sequence[Dim]) -> TensorView:
    """A dimension without a stride has size 1: any stride that a matrix may have will do."""
    (batch, step), (rows, row), (columns, column) = dims
    row = (columns * column if column is not None else 1) if row is None else row
    column = (rows * row if not same(row, 1) else 1) if column is None else column
    return view(tensor, (batch, rows, columns), (rows * columns if step is None else step, row, column))


def _refusal(Inputs: tuple[Tensor, ...], Output: Tensor, equation: str) -> str | None:
    if len(Inputs) != 2:
        return "not two operands"
    terms, result = einsum_terms(equation, [t.rank for t in Inputs])
    found = _product((result, Output), (terms[0], Inputs[0]), (terms[1], Inputs[1]))
    if isinstance(found, str):
        return found
    return no_empty_operand(*Inputs) or float_operands(*Inputs, Output)


@implements("Einsum", kind="aten", name="bmm", when=_refusal)
def einsum(Inputs: tuple[Tensor, ...], Output: Output, *, equation: str) -> AtenCall:
    terms, result = einsum_terms(equation, [t.rank for t in Inputs])
    found = _product((result, Output), (terms[0], Inputs[0]), (terms[1], Inputs[1]))
    assert not isinstance(found, str), "refused before"
    return AtenCall(function="bmm_out", arguments=found, writes=Output.name, flops=_flops(found))


def _flops(found: Product) -> Size:
    return 2 * product((*found[1].sizes, found[2].sizes[2]))


def _gradients(
    dOutput: Tensor, Inputs: tuple[Tensor, ...], dInputs: tuple[Output | None, ...], equation: str
) -> list[Product] | str:
    terms, result = einsum_terms(equation, [t.rank for t in Inputs])
    found: list[Product] = []
    for number, target in enumerate(dInputs):
        if target is None:
            continue
        other = 1 - number
        one = _product((terms[number], target), (result, dOutput), (terms[other], Inputs[other]))
        if isinstance(one, str):
            return one
        found.append(one)
    return found


def _gradient_refusal(
    dOutput: Tensor, Inputs: tuple[Tensor, ...], dInputs: tuple[Output | None, ...], equation: str
) -> str | None:
    if len(Inputs) != 2:
        return "not two operands"
    found = _gradients(dOutput, Inputs, dInputs, equation)
    if isinstance(found, str):
        return found
    return no_empty_operand(dOutput, *Inputs) or float_operands(dOutput, *Inputs)


@implements("EinsumGrad", domain=GRADIENTS, kind="aten", name="bmm", when=_gradient_refusal)
def einsum_gradients(
    dOutput: Tensor, Inputs: tuple[Tensor, ...], dInputs: tuple[Output | None, ...], *, equation: str
) -> AtenCall:
    found = _gradients(dOutput, Inputs, dInputs, equation)
    assert not isinstance(found, str), "refused before"
    writes = [d.name for d in dInputs if d is not None]
    return AtenCall(
        function="bmm_out" if len(found) == 1 else "bmm_pair_out",
        arguments=tuple(v for one in found for v in one),
        writes=writes[0],
        more=tuple(writes[1:]),
        flops=sum((_flops(one) for one in found), start=0),
    )
