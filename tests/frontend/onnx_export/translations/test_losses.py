"""Losses under every argument that they take: none is dropped on the way to ONNX."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from daceml.errors import ExportError
from tests.support.compiled_functions import same_as_eager
from tests.support.eager_twin import unlike_eager
from tests.support.exported_models import Lambda, onnx_of, tensor
from tests.support.golden import golden, raises
from tests.support.sampling import sampled

REDUCTIONS = ("mean", "sum", "none")
WEIGHT = torch.arange(1.0, 6.0)
CLASSES = torch.tensor([0, 1, 4, 1])


OF_CLASSES = list(product(((4, 5), (2, 5, 2)), REDUCTIONS))


@pytest.mark.parametrize(("shape", "reduction"), sampled(OF_CLASSES, *OF_CLASSES[:3], ((2, 5, 2), "none")))
def test_cross_entropy_of_classes(shape: tuple[int, ...], reduction: str):
    def losses(x: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.cross_entropy(x, t, weight=w, ignore_index=i, reduction=reduction, label_smoothing=s)
            for w, i, s in product((None, WEIGHT), (-100, 1), (0.0, 0.1))
        ]

    same_as_eager(losses, tensor(*shape), CLASSES.reshape(shape[0], *shape[2:]))


def test_cross_entropy_of_probabilities_and_of_one_sample():
    def losses(x: torch.Tensor, p: torch.Tensor) -> list[torch.Tensor]:
        several = [
            F.cross_entropy(x, p.softmax(1), weight=w, reduction=r, label_smoothing=s)
            for r, w, s in product(REDUCTIONS, (None, WEIGHT), (0.0, 0.1))
        ]
        return [
            *several,
            *(F.cross_entropy(x[0], CLASSES[2], weight=WEIGHT, reduction=r) for r in REDUCTIONS),
        ]

    same_as_eager(losses, tensor(4, 5), tensor(4, 5) + 1)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(4, 5), (2, 5, 2)])
def test_likelihoods_of_changing_sizes(shape: tuple[int, ...], reduction: str):
    def losses(x: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.nll_loss(x, t, weight=w, ignore_index=i, reduction=reduction)
            for w, i in product((None, WEIGHT), (-100, 1))
        ]

    classes = CLASSES.reshape(shape[0], *shape[2:])
    assert unlike_eager(losses, tensor(*shape), classes, gradients=True, dynamic=True) == []


def test_cross_entropy_without_smoothing_stays_one_node():
    model = onnx_of(Lambda(lambda x, t: F.cross_entropy(x, t, weight=WEIGHT)), tensor(4, 5), CLASSES)
    assert [node.op_type for node in model.graph] == ["SoftmaxCrossEntropyLoss"]


def _likelihoods(x: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
    return [
        F.nll_loss(x, t, weight=w, ignore_index=i, reduction=r)
        for r, w, i in product(REDUCTIONS, (None, WEIGHT), (-100, 1))
    ]


def _entropies(x: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
    hard = (x > 0).float()
    logits = [
        F.binary_cross_entropy_with_logits(x, hard, weight=w, pos_weight=p, reduction=r)
        for r, w, p in product(REDUCTIONS, (None, WEIGHT), (None, 2 * WEIGHT))
    ]
    plain = [
        F.binary_cross_entropy(x.sigmoid(), hard, weight=w, reduction=r)
        for r in REDUCTIONS
        for w in (None, WEIGHT)
    ]
    return [*logits, *plain, F.binary_cross_entropy(hard, (x > 0.5).float())]


def _divergences(x: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
    p = (x + 1).softmax(1)
    kinds = product((*REDUCTIONS, "batchmean"), (False, True))
    return [F.kl_div(x.log_softmax(1), p.log() if l else p, reduction=r, log_target=l) for r, l in kinds]  # noqa: E741


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.parametrize("losses", [_likelihoods, _entropies, _divergences])
def test_losses(losses: Any):
    same_as_eager(losses, tensor(4, 5), CLASSES)


# one program each: the time that DaCe takes grows with the square of the losses
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_distances(reduction: str):
    def losses(x: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
        y, z = x.flip(0), x.flip(1)
        signs = (t - 1).sign() * 2 + 1
        r = reduction
        return [
            *(f(x, y, reduction=r) for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)),
            F.smooth_l1_loss(x, y, beta=0.3, reduction=r),
            F.huber_loss(x, y, delta=0.3, reduction=r),
            F.triplet_margin_loss(x, y, z, margin=0.7, p=3, reduction=r),
            F.triplet_margin_loss(x, y, z, swap=True, reduction=r),
            F.margin_ranking_loss(x[:, 0], y[:, 0], signs.sign(), margin=0.3, reduction=r),
            F.cosine_embedding_loss(x, y, signs.sign(), margin=0.2, reduction=r),
            F.multi_margin_loss(x, t, reduction=r),
            F.multilabel_soft_margin_loss(x, (x > 0).float(), weight=WEIGHT, reduction=r),
            F.poisson_nll_loss(x.abs(), y.abs(), log_input=False, full=True, reduction=r),
        ]

    same_as_eager(losses, tensor(4, 5), CLASSES)


def test_what_torch_decomposes_wrongly_is_refused(no_fallback: None):
    targets = torch.tensor([[0, 2, -1, 1, 1]] * 4)
    with raises(ExportError, "multilabel_margin_loss", exact=False) as refusal:
        onnx_of(Lambda(F.multilabel_margin_loss), tensor(4, 5), targets)
    assert refusal.value.why == golden()


@pytest.mark.parametrize(
    ("how", "fact"),
    [
        ({"scale_factor": 0.3}, "recompute_scale_factor=True"),
        ({"size": (4, 5), "align_corners": True}, "align_corners"),
    ],
    ids=["a factor", "corners"],
)
def test_antialias_that_the_exporter_gets_wrong(how: dict[str, Any], fact: str, no_fallback: None):
    with raises(ExportError, "antialias", fact, exact=False) as refusal:
        onnx_of(
            Lambda(lambda x: F.interpolate(x, mode="bilinear", antialias=True, **how)), tensor(1, 1, 11, 13)
        )
    assert refusal.value.why == golden()
