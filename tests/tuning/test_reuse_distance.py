"""Reuse distances of arrays: what was touched lately is near, what the last call touched is far."""

from __future__ import annotations

import torch
from torch import nn

from daceml.codegen.planning.plan import Plan, make_plan
from daceml.compiler.pipeline import optimised_network
from daceml.frontend.capture.capture import export_program
from daceml.onnx_ops.external import external_call
from daceml.tuning.reuse_distance import DISTANCES, footprint_bytes, past_the_caches, reaches

MEGABYTE = 2**20


class Chain(nn.Module):
    """Two loops with an array between them, where they are not fused."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.sin(x))


def planned(module: nn.Module, x: torch.Tensor) -> Plan:
    with torch.no_grad():
        exported = export_program(module.eval(), (x,))
        return make_plan(optimised_network(exported, levels=False).network, external_call)


def test_what_the_step_before_wrote_is_nearer_than_what_the_last_call_read():
    plan = planned(Chain(), torch.empty(4 * MEGABYTE))  # 16 MiB an array
    first, second = reaches(plan, {})[:2]
    assert footprint_bytes(plan, {}) == 48 * MEGABYTE
    # x was read by the call before: 48 MiB ago; the workspace is the array between
    assert first[_place(48)] == 16 * MEGABYTE and first[_place(16)] == 16 * MEGABYTE
    # the array between: the first step has touched 32 MiB since; the result is the last call's
    assert second[_place(32)] == 16 * MEGABYTE and second[_place(48)] == 16 * MEGABYTE


def test_another_program_of_the_call_is_in_between():
    plan = planned(Chain(), torch.empty(4 * MEGABYTE))
    (first, *_) = reaches(plan, {}, elsewhere_bytes=400 * MEGABYTE)
    assert first[-1] == 16 * MEGABYTE


def test_small_programs_stay_in_the_near_caches():
    for reach in reaches(planned(Chain(), torch.empty(100)), {}):
        assert reach[0] == sum(reach)


def test_what_goes_past_the_caches_is_what_is_farthest():
    assert past_the_caches((5, 0, 7), 3) == (5, 0, 4)
    assert past_the_caches((5, 0, 7), 9) == (3, 0, 0)


def _place(megabytes: int) -> int:
    return next(i for i, distance in enumerate(DISTANCES) if megabytes * MEGABYTE <= distance)
