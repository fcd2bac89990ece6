"""Einsum: products of two operands each, in the order that takes the fewest operations.

`ij,jk,kl->il` over all labels at once is a loop nest of their product; pairs are products of matrices. An
operand whose labels stand in an order that no matrix has is transposed first, as torch does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daceml.frontend.onnx_export.translations import translates
from daceml.frontend.onnx_export.translations.emit import Size, Value, op, rank_of, sizes_of, typed
from daceml.onnx_ops.aten.einsum import product_dims
from daceml.onnx_ops.native.contraction import einsum_terms

_MOST_EXACT = 6
"""Operands for which every order is compared; the number of orders grows with its factorial."""
_FEWEST_PRODUCTS = 2**14
"""Below, one loop nest is as fast as a product of matrices and what brings its operands into order."""
_EXAMPLE_SIZE = 64


@dataclass(frozen=True)
class _Term:
    """A tensor with a label for each dimension."""

    labels: str
    value: Value

    @property
    def sizes(self) -> dict[str, Size]:
        return dict(zip(self.labels, sizes_of(self.value), strict=True))


@translates("aten.einsum.default")
def einsum(equation: str, tensors: list[Value], *, path: object = None) -> Value:
    equation = equation.replace(" ", "")
    spelled, result = einsum_terms(equation, [rank_of(tensor) for tensor in tensors])
    terms = [_Term(labels, value) for labels, value in zip(spelled, tensors, strict=True)]
    if len(terms) < 2 or any(len(set(t.labels)) < len(t.labels) for t in terms):
        return op.Einsum(*tensors, equation=equation)
    sizes = _sizes(terms)
    terms = [_without_repetition(term, sizes) for term in terms]
    for pair in _order(terms, result, sizes)[:-1]:
        first, second = (terms.pop(i) for i in sorted(pair, reverse=True))
        others = {*result, *(label for term in terms for label in term.labels)}
        terms.append(_product(second, first, "".join(x for x in sizes if x in others), sizes))
    first, second = terms
    return _product(first, second, result, sizes, last=True).value


def _sizes(terms: Sequence[_Term]) -> dict[str, Size]:
    """The size of each label; operands in which it is 1 are repeated."""
    found: dict[str, Size] = {}
    for term in terms:
        for label, size in term.sizes.items():
            if found.get(label, 1) == 1:
                found[label] = size
    return found


def _without_repetition(term: _Term, sizes: dict[str, Size]) -> _Term:
    repeated = [label for label, size in term.sizes.items() if size == 1 != sizes[label]]
    if not repeated:
        return term
    return _named(op.Squeeze(term.value, sorted(map(term.labels.index, repeated))), term, repeated)


def _named(made: Value, term: _Term, gone: Sequence[str]) -> _Term:
    left = "".join(label for label in term.labels if label not in gone)
    return _Term(left, typed(made, term.value, shape=[term.sizes[label] for label in left]))


def _order(terms: Sequence[_Term], result: str, sizes: dict[str, Size]) -> list[tuple[int, int]]:
    """Which two operands are multiplied next; the product comes last."""
    if len(terms) == 2:
        return [(0, 1)]
    shapes = [[_extent(term.sizes[label]) for label in term.labels] for term in terms]
    equation = f"{','.join(term.labels for term in terms)}->{result}"
    way = "optimal" if len(terms) <= _MOST_EXACT else "greedy"
    # arrays without memory: the path follows from their shapes
    chosen = np.einsum_path(equation, *(np.broadcast_to(np.float32(0), s) for s in shapes), optimize=way)[0]
    pairs: list[tuple[int, int]] = []
    left = len(terms)
    for several in chosen[1:]:
        first, *rest = sorted(several, reverse=True)
        for other in rest:
            pairs.append((other, first))
            left -= 1
            first = left - 1
    return pairs


def _extent(size: Size) -> int:
    return size if isinstance(size, int) else _EXAMPLE_SIZE


def _product(left: _Term, right: _Term, kept: str, sizes: dict[str, Size], *, last: bool = False) -> _Term:
    """The product of two operands, summed over the labels that are not kept.

    Args:
        last: the result has the kept labels in their order; it may have them in any order otherwise.
    """
    result = kept if last else _natural(left.labels, right.labels, kept)
    inner = [x for x in left.labels if x in right.labels and x not in kept]
    volume = math.prod(_extent(sizes[x]) for x in {*left.labels, *right.labels})
    alone = [x for x in {*left.labels, *right.labels} if x not in (*kept, *inner)]
    if not inner or not result or volume < _FEWEST_PRODUCTS:
        return _multiplied(left, right, result, sizes)
    if alone:
        left, right = (_summed(term, [x for x in term.labels if x in alone]) for term in (left, right))
    matrices = _as_matrices(left, right, result, sizes)
    if matrices is not None:
        return _multiplied(*matrices, result, sizes)
    natural = _natural(left.labels, right.labels, kept)
    matrices = _as_matrices(left, right, natural, sizes)
    if matrices is None:
        return _multiplied(left, right, result, sizes)
    return _transposed(_multiplied(*matrices, natural, sizes), result)


def _natural(left: str, right: str, kept: str) -> str:
    """Labels of both operands, then those of the left one, then those of the right one."""
    both = [x for x in left if x in right and x in kept]
    rows = [x for x in left if x in kept and x not in right]
    return "".join([*both, *rows, *(x for x in right if x in kept and x not in left)])


def _as_matrices(
    left: _Term, right: _Term, result: str, sizes: dict[str, Size]
) -> tuple[_Term, _Term] | None:
    """The operands, transposed where no view of them is a matrix; None where that does not help."""
    batch = [x for x in result if x in left.labels and x in right.labels]
    rows, columns = ([x for x in result if x in term.labels and x not in batch] for term in (left, right))
    inner = [x for x in left.labels if x in right.labels and x not in batch]
    ordered = "".join([*batch, *rows, *inner]), "".join([*batch, *inner, *columns])
    for a, b in (
        (left.labels, right.labels),
        (ordered[0], right.labels),
        (left.labels, ordered[1]),
        ordered,
    ):
        sides = [(labels, tuple(_extent(sizes[x]) for x in labels)) for labels in (result, a, b)]
        if not isinstance(product_dims(*sides), str):
            return _transposed(left, a), _transposed(right, b)
    return None


def _multiplied(left: _Term, right: _Term, result: str, sizes: dict[str, Size]) -> _Term:
    made = op.Einsum(left.value, right.value, equation=f"{left.labels},{right.labels}->{result}")
    return _Term(result, typed(made, left.value, shape=[sizes[x] for x in result]))


def _summed(term: _Term, labels: Sequence[str]) -> _Term:
    if not labels:
        return term
    return _named(op.ReduceSum(term.value, list(map(term.labels.index, labels)), keepdims=0), term, labels)


def _transposed(term: _Term, labels: str) -> _Term:
    if labels == term.labels:
        return term
    made = op.Transpose(term.value, perm=[term.labels.index(x) for x in labels])
    return _Term(labels, typed(made, term.value, shape=[term.sizes[x] for x in labels]))
