"""NaN, ties, infinities and zero divisors as torch has them."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F  # noqa: N812

import daceml
from tests.support.compiled_functions import same_as_eager
from tests.support.exported_models import tensor

NAN, INF = math.nan, math.inf
NUMBERS = torch.tensor([[1.0, NAN, 3, -INF], [INF, 2, 2, -1]])


def test_sorting_counts_nan_as_the_largest():
    def sorts(x: torch.Tensor):
        return (
            x.sort(1),
            x.sort(0, descending=True),
            torch.sort(x, stable=True),
            x.argsort(1, descending=True),
            x.topk(2),
            x.topk(3, largest=False),
            x.kthvalue(2, 1),
            torch.msort(x),
        )

    same_as_eager(sorts, NUMBERS)
    same_as_eager(lambda x: x.topk(1), torch.tensor(2.0))
    same_as_eager(sorts, torch.tensor([[3, 1, 3, 2], [0, 0, 0, 0]]))


def test_equal_elements_come_in_the_order_of_torchs_kernel():
    """Which is not that of ONNX, lowest index first."""
    x = torch.tensor([[2, 1, 2, 2, 1, 2, 0, 2, 2, 1]]).repeat(3, 1).float()
    assert x.topk(3).indices.tolist() != [[0, 2, 3]] * 3
    same_as_eager(lambda x: (x.topk(3), x.topk(5, largest=False), x.T.topk(1, 0, sorted=False)), x)


def test_scans_extremes_and_medians():
    def scans(x: torch.Tensor):
        return x.cummax(1), x.cummin(0), x.cumprod(1), x.median(), x.median(1), x.max(1), x.argmax(1)

    same_as_eager(scans, NUMBERS)
    same_as_eager(lambda x: scans(x)[:5], torch.tensor([[3, 1, 3, 2], [0, -2, 5, 7]]))
    same_as_eager(lambda x: (x.logcumsumexp(1), x.cumprod(0, dtype=torch.float64)), tensor(3, 4))


def test_quotients_and_remainders():
    def divided(a: torch.Tensor, b: torch.Tensor):
        modes = (torch.div(a, b, rounding_mode=m) for m in ("trunc", "floor"))
        return a // b, a % b, torch.fmod(a, b), *modes, 7 // b, 7 % b, a // -2, a % 3

    dividends = torch.tensor([7.5, -7.5, 0.0, -0.0, INF, -INF, NAN, 1, -1, 1, 3e30, 5, -5, 0.1, -0.3])
    divisors = torch.tensor([2, 2, 3, 3, 2, 2, 1, 0, 0, INF, 1e-3, -3, INF, -INF, 1.0])
    same_as_eager(divided, dividends, divisors)
    same_as_eager(divided, dividends.double(), divisors.double())
    for kind in (torch.int64, torch.int8):
        same_as_eager(
            divided, torch.tensor([7, -7, 7, -7, 0, 6]).to(kind), torch.tensor([2, 2, -2, -2, 5, -3]).to(kind)
        )


def test_small_numbers_survive_log1p_and_expm1():
    def functions(x: torch.Tensor):
        return (
            torch.log1p(x),
            torch.expm1(x),
            torch.hypot(x, x.flip(0)),
            torch.fmax(x, x.flip(0)),
            torch.fmin(x, 2 * x),
        )

    x = torch.tensor([1e-8, -1e-9, 0.0, NAN, INF, -INF, 2.0])
    # relative: an absolute tolerance would let the small ones be zero
    same_as_eager(lambda x: tuple(1e8 * y for y in functions(x)), x)
    same_as_eager(lambda x: tuple(1e8 * y for y in functions(x)), x.double(), tolerance=1e-13)


def test_whole_numbers_and_booleans():
    same_as_eager(
        lambda a: (a.round(), a.floor(), a.ceil(), a.trunc(), -a, a << 1, a >> 1, a.isnan()),
        torch.tensor([1, 2, 200], dtype=torch.uint8),
    )
    same_as_eager(
        lambda a: (a < ~a, a >= ~a, a.max(), a.amax(), a.min(0), torch.maximum(a, ~a), torch.minimum(a, ~a)),
        torch.tensor([True, False, True]),
    )


def test_writes_through_a_mask():
    def written(x: torch.Tensor, rows: torch.Tensor):
        y = x.clone()
        y[y > 0] = -1
        y[rows] = 7.0
        z = x.clone()
        z[:, 0][z[:, 0] < 0] = 3
        return y, z

    same_as_eager(written, tensor(3, 4), torch.tensor([True, False, True]))


def test_searches_pools_and_distances():
    def found(x: torch.Tensor, bounds: torch.Tensor):
        return (
            torch.bucketize(x, bounds),
            torch.bucketize(x, bounds, right=True, out_int32=True),
            torch.searchsorted(bounds, x, side="right"),
            F.adaptive_max_pool2d(x[None], (2, 3), return_indices=True),
            F.adaptive_max_pool1d(x, 2),
            *(torch.cdist(x, 2 * x, p=p) for p in (1.0, 2.0, INF)),
        )

    same_as_eager(found, tensor(5, 6), torch.tensor([-1.0, 0, 1]))


def test_half_inputs_under_float32_weights():
    w, c = tensor(6), tensor(4)

    def normalised(x: torch.Tensor):
        low = x.bfloat16()
        return (
            F.layer_norm(low, (6,), w, w),
            F.layer_norm(low, (6,), w),
            F.group_norm(low, 2, c, c),
            F.instance_norm(low, weight=c, bias=c),
            F.layer_norm(x.half(), (6,), w, w),
        )

    # one rounding to bfloat16 is 2^-8
    same_as_eager(normalised, tensor(2, 4, 6), tolerance=2**-7)


def test_of_equal_numbers_the_first_takes_the_whole_gradient():
    """Of a maximum both share it; fmax and fmin choose, and choose a number before a NaN."""

    class Chosen(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.fmax(x, y), torch.fmin(x, y), torch.maximum(x, y)

    values = torch.tensor([math.nan, 0.0, 1.0, -2.0, math.inf, -math.inf], dtype=torch.float64)
    given = [values[:, None].clone().requires_grad_(), values[None].clone().requires_grad_()]
    cotangents = [torch.arange(36.0, dtype=torch.float64).view(6, 6) + 100 * i for i in range(3)]
    found = []
    for module in (Chosen(), daceml.compile(Chosen())):
        results = module(*given)
        found.append([*results, *torch.autograd.grad(results, given, cotangents)])
    for ours, eager in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)
