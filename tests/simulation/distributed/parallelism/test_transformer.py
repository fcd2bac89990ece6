"""A transformer's parameters and its work, against sums that papers state."""

from __future__ import annotations

import pytest

from daceml.errors import ParallelPlanError
from daceml.operations.models.products import products
from daceml.simulation.distributed.parallelism.layer_work import Block, Share, launches_of
from daceml.simulation.distributed.parallelism.transformer import Transformer
from tests.support.golden import raises

GPT2_MEDIUM = Transformer(layers=24, hidden=1024, heads=16, sequence=1024, vocabulary=50257)


def product_flops(blocks: tuple[Block, ...]) -> float:
    total = 0.0
    for operation in (one for block in blocks for one in block.operations):
        read = products([operation])
        if read is not None:
            total += float(2 * read.batch[0] * read.m[0] * read.n[0] * read.k[0])
    return total


def test_parameters_of_gpt2_medium():
    # Radford et al. (2019) call it 345 M; with 50257 made up to 50304 words
    model = GPT2_MEDIUM
    total = 24 * model.layer_parameters(1) + model.embedding_parameters(1) + model.position_parameters()
    assert total == 24 * (12 * 1024**2 + 13 * 1024) + (50304 + 1024) * 1024 == 354_869_248


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_products_of_a_layer_are_what_the_paper_counts(tensor: int):
    # Narayanan et al., SC '21: forward 24 B s h^2 + 4 B s^2 h, backward twice that, shared by the group
    share = Share(model=GPT2_MEDIUM, micro_batch=4, tensor=tensor)
    forward = 24 * 4 * 1024 * 1024**2 + 4 * 4 * 1024**2 * 1024
    assert product_flops(share.layer_forward()) == pytest.approx(forward / tensor)
    assert product_flops(share.layer_backward()) == pytest.approx(2 * forward / tensor)


def test_the_group_meets_twice_forward_and_twice_backward():
    share = Share(model=GPT2_MEDIUM, micro_batch=2, tensor=4)
    reduced = [block.reduced_bytes for block in (*share.layer_forward(), *share.layer_backward())]
    assert reduced == [2 * 1024 * 1024 * 2] * 4
    alone = Share(model=GPT2_MEDIUM, micro_batch=2, tensor=1)
    assert [block.reduced_bytes for block in alone.layer_forward()] == [0, 0]


def test_scores_that_the_fused_softmax_does_not_take_cost_more_launches():
    # two heads of one sample: no multiple of four matrices
    fused, unfused = (Share(model=GPT2_MEDIUM, micro_batch=b, tensor=8).layer_forward()[0] for b in (2, 1))
    assert unfused.launches == fused.launches + 4


def test_a_normalisation_backward_is_three_kernels():
    attention = Share(model=GPT2_MEDIUM, micro_batch=1, tensor=1).layer_backward()[1]
    assert sorted(map(launches_of, attention.operations))[-2:] == [3, 3]


def test_heads_that_ranks_cannot_share_are_refused():
    with raises(ParallelPlanError, "16", "3"):
        GPT2_MEDIUM.heads_of(3)
    with raises(ParallelPlanError, "10", "3"):
        Transformer(layers=1, hidden=10, heads=3, sequence=1, vocabulary=1)
    with raises(ParallelPlanError, "layers"):
        Transformer(layers=0, hidden=10, heads=2, sequence=1, vocabulary=1)
