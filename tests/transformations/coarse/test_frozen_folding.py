"""fold_frozen_weights: what is computed when a program is bound, eager's numbers with it, and what stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import daceml
from tests.support.golden import golden
from tests.transformations.frozen_networks import frozen

Body = Callable[["Holder", torch.Tensor], torch.Tensor]
_NAN, _INF = float("nan"), float("inf")


class Holder(nn.Module):
    """Parameters w [7, 5], v [5] with all kinds of numbers, p [5] > 0, s (), rows and a mask."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w, self.s = nn.Parameter(torch.randn(7, 5)), nn.Parameter(torch.tensor(0.7))
        self.v = nn.Parameter(torch.tensor([_NAN, _INF, -_INF, -0.0, 1e-40]))
        self.p = nn.Parameter(torch.rand(5) + 0.5)
        self.register_buffer("rows", torch.tensor([[3, -1, 0], [6, 6, -7]]))
        self.register_buffer("mask", torch.tensor([True, False, True, True, False]))
        self.body = body

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.body(self, *inputs)


def record(compiled: daceml.DaceModule) -> tuple[dict[str, int], list[str]]:
    found = next(p for p in compiled.session.latest.network.passes if p.name == "fold_frozen_weights")
    return found.applied, [r.reason for r in found.refused]


def prepared(compiled: daceml.DaceModule) -> list[str]:
    """Functions of the arrays that the program reads."""
    return [made.function for made in compiled.session.latest.program.manifest.prepared if made.read]


FOLDED: dict[str, Body] = {
    "abs": lambda m, x: x + m.v.abs(),
    "add": lambda m, x: x + (m.v + m.p),
    "ceil": lambda m, x: x + torch.ceil(m.w)[:1],
    "chain": lambda m, x: x * torch.exp(-functional.softplus(m.p) * m.s),
    "clamp": lambda m, x: x + m.v.clamp(-1.5, 1.5),
    "concat": lambda m, x: x + torch.cat([m.v[:2], m.p[2:]]),
    "cos": lambda m, x: x + torch.cos(m.p),
    "div": lambda m, x: x + m.v / m.v,
    "erf": lambda m, x: x + torch.erf(m.v),
    "exp": lambda m, x: x + torch.exp(m.v),
    "floor": lambda m, x: x + torch.floor(m.v),
    "gather": lambda m, x: x + m.w[m.rows].sum((0, 1)),
    "log": lambda m, x: x + torch.log(m.v),
    "log_softmax": lambda m, x: x + torch.log_softmax(m.p, 0),
    "matmul": lambda m, x: x + m.w.T @ m.w,
    "maximum": lambda m, x: x + torch.maximum(m.v, m.p),
    "minimum": lambda m, x: x + torch.minimum(m.p, m.v),
    "mean": lambda m, x: x + m.w.mean(0),
    "max": lambda m, x: x + m.w.amax(1, keepdim=True)[:5],
    "min": lambda m, x: x + m.v.amin(),
    "norm": lambda m, x: x / m.w.norm(dim=0, keepdim=True),
    "pow": lambda m, x: x + m.p**m.v,
    "reciprocal": lambda m, x: x + 1 / m.v,
    "relu": lambda m, x: x + torch.relu(m.v),
    "round": lambda m, x: x + torch.round(3 * m.v),
    "sigmoid": lambda m, x: x + torch.sigmoid(m.v),
    "sin": lambda m, x: x + torch.sin(m.p),
    "slice": lambda m, x: x + m.w[1:6:2, -3:].sum(),
    "softmax": lambda m, x: x + torch.softmax(m.w, 0)[2],
    "split": lambda m, x: x * m.w.split([2, 4, 1])[1].sum(0) + m.w.split([2, 4, 1])[2],
    "sqrt": lambda m, x: x + torch.sqrt(m.v),
    "sub": lambda m, x: x + (m.v - m.s),
    "sum": lambda m, x: x + m.w.sum(),
    "sum of squares": lambda m, x: x + (m.w * m.w).sum((0, 1)),
    "tanh": lambda m, x: x + torch.tanh(m.v),
    "transpose": lambda m, x: x + (m.w.T * 2)[:, :5],
    "where": lambda m, x: x + torch.where(m.mask, m.v, m.p),
    "comparison": lambda m, x: x + torch.where((m.v < m.p) | (m.p > 1) & ~m.mask, m.p, -m.v),
    "cast": lambda m, x: x * m.mask.to(x.dtype) + m.rows.sum().to(x.dtype),
    "half": lambda m, x: x + m.p.to(torch.bfloat16).to(x.dtype),
}


# operators that are folded, and arrays that are read, where they are more than one
OPERATORS = {
    "ceil": 2, "chain": 4, "concat": 3, "gather": 2, "max": 2, "round": 2, "slice": 3, "softmax": 2,
    "split": 2, "sum of squares": 2, "transpose": 3, "comparison": 7, "half": 2,
}  # fmt: skip
ARRAYS = {"split": 2}


@pytest.mark.parametrize("first", range(4))
def test_what_is_computed_once(first: int):
    """Every fourth body, all of them as one program with inputs of their own."""
    bodies = dict(list(FOLDED.items())[first::4])
    net = Holder(lambda m, *xs: {n: body(m, x) for (n, body), x in zip(bodies.items(), xs, strict=True)})
    net, inputs = net.eval().double(), [torch.randn(5, 5, dtype=torch.float64) for _ in bodies]
    compiled = frozen(net)
    with torch.no_grad():
        got, expected = compiled(*inputs), net(*inputs)
    torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-13, equal_nan=True)
    applied, _ = record(compiled)
    assert applied == {"operators": sum(OPERATORS.get(name, 1) for name in bodies)}
    assert len(prepared(compiled)) == sum(ARRAYS.get(name, 1) for name in bodies)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_results_are_rounded_once(dtype: torch.dtype):
    """A sum and a product that no wider type holds, of many exponents."""
    torch.manual_seed(0)
    net = Holder(lambda m, x: x * (m.w * m.p + m.s)).eval()
    with torch.no_grad():
        net.w.copy_(torch.randn(7, 5) * 2.0 ** torch.randint(-12, 12, (7, 5)))
        net = net.to(dtype)
        compiled, one = frozen(net), torch.ones(7, 5, dtype=dtype)
        assert torch.equal(compiled(one), net.w * net.p + net.s)
        assert record(compiled)[0] == {"operators": 2}


def test_bits_of_what_is_only_moved():
    net = Holder(lambda m, x: torch.where(x > 0, torch.cat([m.v, m.v])[5:], x)).eval()
    with torch.no_grad():
        net.v.view(torch.int32)[0] = 0x7FC01234
        compiled = frozen(net)
        bits = compiled(torch.ones(1, 5)).view(torch.int32)
    assert torch.equal(bits, net.v.view(torch.int32)[None])
    assert prepared(compiled) == ["Slice"]


class Low(nn.Module):
    """A weight with a correction of low rank."""

    def __init__(self, width: int = 1030) -> None:
        super().__init__()
        self.base = nn.Linear(width, 131)
        self.a, self.b = nn.Parameter(torch.randn(131, 3)), nn.Parameter(torch.randn(3, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.base.weight + 0.5 * (self.a @ self.b), self.base.bias)


def test_the_result_is_packed_like_a_weight():
    torch.manual_seed(0)
    net, x = Low().eval(), torch.randn(3, 5, 1030)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-4)
    assert record(compiled) == ({"operators": 3}, [])
    assert prepared(compiled) == ["product"]
    assert not compiled.session.latest.program.manifest.weights[1:]  # the bias alone


def test_parametrizations():
    torch.manual_seed(0)
    net = nn.Sequential(
        parametrizations.weight_norm(nn.Conv1d(3, 7, 3, dilation=2)),
        nn.Tanh(),
        parametrizations.spectral_norm(nn.Linear(11, 9)),
    )
    net, x = net.eval().double(), torch.randn(2, 3, 15, dtype=torch.float64)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-12, atol=1e-12)
    assert record(compiled)[0]["operators"] >= 5
    assert all(
        step.kind != "kernel" or "Div" not in step.label
        for step in compiled.session.latest.program.manifest.steps
    )


def test_position_biases_are_looked_up_once():
    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(25, 3))
            self.register_buffer("places", torch.randint(0, 25, (9, 9)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            biases = self.table[self.places.view(-1)].view(9, 9, 3).permute(2, 0, 1).contiguous()
            return torch.softmax(x + biases, -1)

    net, x = Biased().eval().double(), torch.randn(2, 3, 9, 9, dtype=torch.float64)
    x[0, 1, 2, 3] = _NAN
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), equal_nan=True)
    assert prepared(compiled) == ["Transpose"]
    assert compiled.session.latest.program.manifest.kernels == 1


def test_weights_in_another_order_are_copied_once():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 3))
    net = net.eval().double().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 7, dtype=torch.float64)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-12, atol=1e-12)
    assert record(compiled) == ({"copies of weights": 2}, [])
    assert sorted(prepared(compiled)) == ["Identity", "folded_bias", "folded_weight"]
    compiled.reset_sdfg()
    with torch.no_grad():
        net[3].weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-12, atol=1e-12)


def outer(m: Holder) -> torch.Tensor:
    return m.w.reshape(35, 1, 1) * m.w.reshape(35, 1) * torch.cat([m.p, m.p, m.p, m.p])


STAYS: dict[str, tuple[Body, str]] = {
    "a result": (lambda m, x: (x + 1, m.w * 2)[1], "result"),
    "growth": (lambda m, x: x + (x.sum() * outer(m)).sum(), "196000 bytes"),
    "unknown": (lambda m, x: x + torch.atan(m.v), "Atan"),
    "float to int": (lambda m, x: x + m.p.to(torch.int32), "processor"),
    "int quotient": (lambda m, x: x + m.rows.sum() // 3, "floating-point"),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str):
    body, fact = STAYS[name]
    net, x = Holder(body).eval().double(), torch.randn(5, 5, dtype=torch.float64)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x), equal_nan=True)
    said = "\n".join(record(compiled)[1])
    assert said == golden()
    assert fact in said


def test_buffers_that_the_module_changes_stay():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * torch.exp(self.count)
            self.count += 1
            return y

    compiled = frozen(Counting().eval())
    with torch.no_grad():
        for step in range(3):
            torch.testing.assert_close(compiled(torch.ones(2, 3)), torch.full((2, 3), float(step)).exp())
    assert record(compiled) == ({}, [])


def test_weights_that_may_change_are_read_at_every_call():
    net, x = Holder(FOLDED["exp"]).eval(), torch.randn(5, 5)
    compiled = daceml.compile(net, backward=False)
    with torch.no_grad():
        compiled(x)
        net.v.fill_(0.5)
        torch.testing.assert_close(compiled(x), net(x))
    assert record(compiled) == ({}, ["it does more than copy, and its weights may change"])


def test_copies_of_whole_weights_are_prepared_and_watched():
    """The gates of a recurrent layer, which ONNX has in another order."""
    net, x = nn.LSTM(4, 8, 2).eval(), torch.randn(3, 2, 4)
    compiled = daceml.compile(net, backward=False)

    def agrees() -> bool:
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), net(x))
        return True

    assert agrees()
    assert set(prepared(compiled)) == {"Unsqueeze", "fingerprint"}
    counts, refused = record(compiled)
    assert counts["operators"] > 20 and not refused
    net.weight_hh_l1.data.mul_(-1.5)  # moves neither an address nor a version
    assert agrees()
    with torch.no_grad():
        net.bias_ih_l0.add_(1)
    assert agrees() and agrees()


def test_a_small_part_of_a_watched_weight_is_copied_at_every_call():
    net = Holder(lambda m, x: x + torch.cat([m.w[:1, :2], m.w[2:3, 2:5]], 1)).eval()
    compiled = daceml.compile(net, backward=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.ones(5, 5)), net(torch.ones(5, 5)))
    counts, refused = record(compiled)
    assert not counts and not prepared(compiled)
    assert any("takes longer" in reason for reason in refused)


def test_passes_are_verified():
    net = Holder(lambda m, x: x * (torch.softmax(m.w, 0) * m.mask.to(m.w.dtype))[:5] + m.p.exp()).eval()
    compiled = daceml.compile(net, backward=False, freeze=True, verify=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.ones(5, 5)), net(torch.ones(5, 5)))
    assert prepared(compiled)
