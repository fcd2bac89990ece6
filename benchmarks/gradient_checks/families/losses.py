"""Losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.nn import functional

from benchmarks.gradient_checks.draws import Draw, apart, real, tied, uses
from benchmarks.operators.draws import Array, Chance


def _reduction(c: Chance) -> str:
    return c.of(("mean", "sum", "none"))


_DISTANCES: dict[str, Callable[[Chance], dict[str, Any]]] = {
    "mse_loss": lambda c: {},
    "l1_loss": lambda c: {},
    "smooth_l1_loss": lambda c: {"beta": c.of((1.0, 0.5, 0.0))},
    "huber_loss": lambda c: {"delta": c.of((1.0, 0.5))},
    "soft_margin_loss": lambda c: {},
}


@uses(*_DISTANCES)
def distances(c: Chance, name: str) -> Draw:
    shape = c.shape(empty=False)
    ties = c.one_in(3)
    pair = [tied(c, shape), tied(c, shape)] if ties else [real(c, shape), real(c, shape)]
    attributes = {**_DISTANCES[name](c), "reduction": _reduction(c)}
    fixed = frozenset({1}) if name == "soft_margin_loss" else frozenset[int]()
    smooth = name == "mse_loss"  # two random numbers may lie beside a kink of the others
    call = getattr(functional, name)
    return Draw(call=call, tensors=pair, attributes=attributes, smooth=smooth, fixed=fixed)


def _classes(c: Chance) -> tuple[tuple[int, ...], int, Array]:
    """Shape of the scores, how many classes, and the right ones."""
    classes = c.between(1, 6)
    n, rest = c.between(1, 4), c.shape(0, 2, empty=False)
    if not rest and c.one_in(4):
        return (classes,), classes, c.indices((), classes, negative=False).astype(np.int64)
    return (n, classes, *rest), classes, c.indices((n, *rest), classes, negative=False).astype(np.int64)


def _weighted(
    c: Chance, function: Callable[..., Any], classes: int
) -> tuple[Callable[..., Any], list[Array]]:
    if c.one_in(2):
        return function, []
    call = lambda x, y, w, **attributes: function(x, y, weight=w, **attributes)  # noqa: E731
    return call, [c.positive((classes,), "float64")]


@uses("cross_entropy", "nll_loss", "cross_entropy with label smoothing", "cross_entropy with ignored classes")
def cross_entropy(c: Chance, name: str) -> Draw:
    shape, classes, target = _classes(c)
    attributes: dict[str, Any] = {"reduction": _reduction(c)}
    if "smoothing" in name:
        attributes["label_smoothing"] = c.of((0.1, 0.5, 1.0))
    if "ignored" in name:
        attributes["ignore_index"] = c.of((0, classes - 1))
    call, weight = _weighted(
        c, functional.nll_loss if name == "nll_loss" else functional.cross_entropy, classes
    )
    return Draw(
        call=call, tensors=[real(c, shape), target, *weight], attributes=attributes, fixed=frozenset({2})
    )


@uses("cross_entropy with probabilities")
def soft_cross_entropy(c: Chance, name: str) -> Draw:
    shape, classes, _ = _classes(c)
    attributes = {"reduction": _reduction(c), "label_smoothing": c.of((0.0, 0.2))}
    call, weight = _weighted(c, functional.cross_entropy, classes)
    tensors = [real(c, shape), c.positive(shape, "float64"), *weight]
    return Draw(call=call, tensors=tensors, attributes=attributes, fixed=frozenset({2}))


@uses("binary_cross_entropy", "binary_cross_entropy_with_logits")
def binary(c: Chance, name: str) -> Draw:
    shape = c.shape(empty=False)
    x = c.within(shape, "float64", 0.05, 0.95) if name == "binary_cross_entropy" else tied(c, shape) + 0.1
    weight = [c.positive(c.broadcast(shape), "float64")] if c.one_in(2) else []
    function = getattr(functional, name)
    attributes: dict[str, Any] = {"reduction": _reduction(c)}
    call = lambda x, y, *w, **attributes: function(x, y, *w, **attributes)  # noqa: E731
    if name.endswith("logits") and weight and c.one_in(2):
        call = lambda x, y, w, **attributes: function(x, y, pos_weight=w, **attributes)  # noqa: E731
    target = c.within(shape, "float64", 0.0, 1.0)
    return Draw(call=call, tensors=[x, target, *weight], attributes=attributes, fixed=frozenset({2}))


@uses("kl_div", "poisson_nll_loss")
def divergence(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    flag = {"log_target" if name == "kl_div" else "log_input": c.one_in(2)}
    target = c.within(shape, "float64", 0.0, 1.0)
    if name == "poisson_nll_loss":
        flag["full"] = c.one_in(3)
    elif c.one_in(3):
        target = np.round(target)
    attributes = {**flag, "reduction": _reduction(c)}
    x = c.positive(shape, "float64")
    return Draw(call=getattr(functional, name), tensors=[x, target], attributes=attributes, smooth=False,
                fixed=frozenset({1}) if name == "poisson_nll_loss" else frozenset())  # fmt: skip


@uses("hinge_embedding_loss", "margin_ranking_loss", "cosine_embedding_loss", "gaussian_nll_loss")
def margins(c: Chance, name: str) -> Draw:
    n, d = c.between(1, 5), c.between(2, 4)
    sign = np.where(c.values((n,), "bool"), 1.0, -1.0)
    attributes = {"reduction": _reduction(c)}
    match name:
        case "hinge_embedding_loss":
            tensors, fixed = [apart(c, (n,)), sign], {1}
        case "margin_ranking_loss":
            tensors, fixed, attributes = (
                [tied(c, (n,)), tied(c, (n,)), sign],
                {2},
                {**attributes, "margin": 0.5},
            )
        case "cosine_embedding_loss":
            tensors, fixed = [real(c, (n, d)), real(c, (n, d)), sign], {2}
        case _:
            tensors, fixed = [real(c, (n, d)), real(c, (n, d)), c.positive((n, d), "float64")], set[int]()
    return Draw(
        call=getattr(functional, name),
        tensors=tensors,
        attributes=attributes,
        fixed=frozenset(fixed),
        smooth=False,
    )


@uses("triplet_margin_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss")
def several(c: Chance, name: str) -> Draw:
    n, d = c.between(1, 5), c.between(2, 4)
    attributes = {"reduction": _reduction(c)}
    classes = c.indices((n, d) if "label" in name else (n,), d, negative=False).astype(np.int64)
    match name:
        case "triplet_margin_loss":
            tensors = [real(c, (n, d)) for _ in range(3)]
        case "multilabel_soft_margin_loss":
            tensors = [real(c, (n, d)), np.round(c.within((n, d), "float64", 0, 1))]
        case _:
            tensors = [real(c, (n, d)), classes]
    fixed = frozenset({1}) if name == "multilabel_soft_margin_loss" else frozenset[int]()
    return Draw(
        call=getattr(functional, name), tensors=tensors, attributes=attributes, smooth=False, fixed=fixed
    )
