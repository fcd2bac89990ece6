"""Which loops run in parallel."""

from __future__ import annotations

import dace
import pytest
import torch
from torch import nn

import daceml
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from tests.support.sampling import sampled
from tests.support.small_networks import elementwise


def entry(shape: tuple[int, ...]) -> dace.nodes.MapEntry:
    network = elementwise(["_out = _a"], shape)
    schedule_maps(network)
    return next(n for n in network.state.nodes() if isinstance(n, dace.nodes.MapEntry))


def test_a_small_loop_stays_on_one_thread():
    assert entry((8, 32)).map.schedule is dace.ScheduleType.Sequential


@pytest.mark.parametrize(
    ("shape", "collapse"),
    [
        ((8, 32, 112, 112), 2),  # 256 chunks
        ((1, 64, 1024), 2),  # the batch alone is one chunk
        ((65536,), 1),
        ((2, 3, 65536), 3),  # six rows are too few: the inner dimension is split as well
    ],
)
def test_a_large_loop_is_collapsed_until_there_are_enough_chunks(shape: tuple[int, ...], collapse: int):
    scheduled = entry(shape).map
    assert scheduled.schedule is dace.ScheduleType.CPU_Multicore
    assert scheduled.collapse == collapse


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((2, 3, 65536), (6, 11008)),  # 36 chunks of whole vectors
        ((1, 70001), (31, 2304)),
        ((31, 1000), (2, 512)),
    ],
)
def test_few_long_rows_are_cut_into_blocks_that_vectorise(shape: tuple[int, ...], blocks: tuple[int, int]):
    network = elementwise(["_out = _a"], shape)
    schedule_maps(network)
    network.sdfg.validate()
    scopes = network.state.scope_dict()
    outer, inner = sorted(
        (n for n in network.state.nodes() if isinstance(n, dace.nodes.MapEntry)),
        key=lambda n: scopes[n] is not None,
    )
    assert outer.map.range.size()[-1] == blocks[0]
    assert inner.map.range.size()[-1] in (
        blocks[1],
        dace.symbolic.pystr_to_symbolic(f"Min({blocks[1]}, {shape[-1]} - b0)"),
    )
    assert inner.map.schedule is dace.ScheduleType.Sequential


def test_many_rows_and_short_ones_stay_whole():
    for shape in [(64, 4096), (200, 100), (70000,)]:
        network = elementwise(["_out = _a"], shape)
        schedule_maps(network)
        assert sum(isinstance(n, dace.nodes.MapEntry) for n in network.state.nodes()) == 1


class Rows(nn.Module):
    """Broadcasts, a transposed operand, positions and a gather, in loops over few rows."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, s: torch.Tensor, t: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        places = torch.arange(x.shape[-1]) % 7
        return x * s + y.mT.tanh(), s[..., :1] * x.exp() + places, t[:, places] - x.sin()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    sampled(
        [((1, 20011), torch.float32), ((2, 5, 4099), torch.float64), ((31, 1000), torch.float64)],
        ((1, 20011), torch.float32),
        ((2, 5, 4099), torch.float64),
    ),
)
def test_numbers_of_blocks_are_those_of_torch(shape: tuple[int, ...], dtype: torch.dtype):
    torch.manual_seed(0)
    x, y = torch.rand(shape, dtype=dtype), torch.rand(shape, dtype=dtype).mT.contiguous()
    s, t = torch.rand((*shape[:-1], 1), dtype=dtype), torch.rand(shape[-2], 7, dtype=dtype)
    given = [v.requires_grad_() for v in (x, y, s, t)]
    found, wanted = daceml.compile(Rows())(*given), Rows()(*given)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(sum(v.square().sum() for v in some), given) for some in (found, wanted)]
    if dtype is torch.float64:
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=0)
        return
    # parts of a gradient cancel, as different ones on each processor: float64 says which of both is right
    exact = [v.detach().double().requires_grad_() for v in given]
    results = Rows()(*exact)
    expected = torch.autograd.grad(sum(v.square().sum() for v in results), exact)
    for ours, eager, value in zip(*gradients, expected, strict=True):
        error, allowed = (float((g - value).abs().max()) for g in (ours, eager))
        assert error <= 2 * allowed, (error, allowed)
