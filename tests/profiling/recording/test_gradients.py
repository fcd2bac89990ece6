"""Gradients: how large they are, and in which order they become ready."""

from __future__ import annotations

import torch
from torch import nn

from daceml.profiling.recording.gradients import ReadyOrder, gradient_records, gradients_watched


def test_gradients_become_ready_from_the_last_layer_to_the_first():
    model = nn.Sequential(nn.Linear(8, 4, bias=False), nn.Linear(4, 2, bias=False))
    order = ReadyOrder()
    with gradients_watched(model, order):
        model(torch.randn(3, 8)).sum().backward()
        order.step()
    assert [
        (g.name, g.layer, g.size_bytes, g.dtype, g.ready) for g in gradient_records(model, order.latest)
    ] == [
        ("0.weight", "0", 8 * 4 * 4, "float32", 1),
        ("1.weight", "1", 4 * 2 * 4, "float32", 0),
    ]
    model(torch.randn(3, 8)).sum().backward()
    assert order.latest and not order._now, "nobody watches any more"


def test_a_step_without_a_backward_pass_changes_nothing():
    model = nn.Linear(2, 2)
    order = ReadyOrder()
    with gradients_watched(model, order):
        model(torch.randn(1, 2)).sum().backward()
        order.step()
        seen = order.latest
        order.step()
    assert order.latest == seen and len(seen) == 2


def test_of_accumulated_gradients_the_last_time_counts():
    model = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
    order = ReadyOrder()
    with gradients_watched(model, order):
        for layer in (model[0], model[1], model[0]):
            layer(torch.randn(1, 2)).sum().backward()
        order.step()
    assert order.latest == (model[1].weight, model[0].weight)


def test_frozen_parameters_have_none_and_half_precision_counts_half():
    model = nn.Linear(4, 4).to(torch.bfloat16)
    model.bias.requires_grad_(False)
    (gradient,) = gradient_records(model)
    assert (gradient.name, gradient.layer, gradient.size_bytes) == ("weight", "Linear", 32)
    assert (gradient.dtype, gradient.ready) == ("bfloat16", None)
    assert gradient_records(nn.ReLU()) == ()
