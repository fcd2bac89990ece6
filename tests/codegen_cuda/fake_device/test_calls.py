"""Calls on the fake device that are not plain: views, odd sizes, half types, draws, and bad calls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from benchmarks.gpu.precisions import PRECISIONS, compare
from daceml.errors.compiler import ExportRuntimeError
from daceml.runtime.cuda_graphs import Replays
from tests.codegen_cuda.fake_device.networks import NETWORKS, Attention, Peers, inputs_of, step
from tests.codegen_cuda.fake_device.streams import Order, order, replays
from tests.support.golden import raises


class Scaled(nn.Module):
    """One pointwise kernel, one sum along rows, and a product."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))
        self.out = nn.Linear(columns, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.softmax(functional.silu(x) * self.weight, -1))


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.t().contiguous().t(),
    "every other column": lambda x: x.repeat_interleave(2, dim=1)[:, ::2],
    "from an odd element on": lambda x: functional.pad(x.flatten(), (1, 0))[1:].view_as(x),
    "rows of a larger one": lambda x: functional.pad(x, (3, 2, 1, 1))[1:-1, 3:-2],
    "expanded": lambda x: x[:1].expand_as(x),
}


def compared(module: nn.Module, call: nn.Module, x: torch.Tensor) -> None:
    """A step of a module of a device, with x as it lies there, against eager and float64 on the processor."""
    network = NETWORKS["mlp"]
    peers = Peers(network, module.cpu())
    module.cuda()
    cotangent = torch.randn(peers.eager(x.cpu()).shape)
    peers.check(step(call, module, x, cotangent.cuda()), x.cpu(), cotangent)


@pytest.mark.parametrize("graphs", [False, True], ids=["calls", "replays"])
@pytest.mark.parametrize("view", VIEWS)
def test_views_of_inputs(view: str, graphs: bool):
    module = Scaled(33).cuda()
    compiled = daceml.compile(module, cuda_graphs=graphs)
    for _ in range(3):
        compared(module, compiled, VIEWS[view](torch.randn(7, 33).cuda()))


@pytest.mark.parametrize("rows", [0, 1, 3, 1025])
@pytest.mark.parametrize("columns", [1, 2, 37, 128])
def test_odd_and_empty_sizes(rows: int, columns: int):
    module = Scaled(columns).cuda()
    compared(module, daceml.compile(module), torch.randn(rows, columns).cuda())


def test_sizes_that_change():
    module = Scaled(24).cuda()
    compiled = daceml.compile(module, dynamic=True)
    for rows in (5, 1, 64, 5):
        compared(module, compiled, torch.randn(rows, 24).cuda())


def replayed_from_two_streams() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What replays from two streams give, which share memory; and what they have to give."""
    module = nn.Mish().cuda()
    compiled = daceml.compile(module, backward=False, cuda_graphs=True)
    xs = [torch.randn(3, 37, device="cuda") for _ in range(6)]
    torch.cuda.synchronize()
    users = [torch.cuda.Stream(), torch.cuda.Stream()]
    found: list[torch.Tensor] = []
    for number, x in enumerate(xs):
        with torch.cuda.stream(users[number % 2]), torch.no_grad():
            found.append(compiled(x))
    torch.cuda.synchronize()
    return [(y.cpu(), functional.mish(x.cpu())) for x, y in zip(xs, found, strict=True)]


@pytest.mark.parametrize("wanted", list(Order))
def test_replays_from_two_streams(wanted: Order):
    with order(wanted):
        for found, expected in replayed_from_two_streams():
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("half", ["bf16", "fp16"])
@pytest.mark.parametrize("features", [16, 24])
@pytest.mark.parametrize("length", [19, 64])
def test_attention_in_half_types(half: str, features: int, length: int):
    """torch's flash attention, forward and backward, with lengths of whole and of ragged tiles."""
    precision = PRECISIONS[half]
    module = Attention(2 * features, 2).to(precision.dtype)
    peers = Peers(NETWORKS["attention"], module)
    x = torch.randn(3, length, 2 * features).to(precision.dtype)
    cotangent = torch.randn_like(x)
    module.cuda()
    found = step(daceml.compile(module), module, x.cuda(), cotangent.cuda())
    eager = step(peers.eager, peers.eager, x, cotangent)
    exact = step(peers.exact, peers.exact, x.double(), cotangent.double())
    on_host = {name: one.cpu() for name, one in found.items()}
    seen = compare(on_host, eager, exact, precision=precision, depth=12)
    assert not seen.failures, [(one.name, one.error, one.limit) for one in seen.failures]


@pytest.mark.parametrize("graphs", [False, True], ids=["calls", "replays"])
def test_dropout_drops_the_same_forward_and_backward(graphs: bool):
    compiled = daceml.compile(nn.Dropout(0.25).cuda(), cuda_graphs=graphs)
    masks: list[torch.Tensor] = []
    for _ in range(4):
        x = torch.ones(4096, device="cuda", requires_grad=True)
        y = compiled(x)
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(x))
        assert torch.equal(y, gradient) and 0.2 < float((y == 0).float().mean()) < 0.3
        masks.append(y.detach() == 0)
    assert not any(torch.equal(one, other) for one, other in pairwise(masks))


def test_memory_goes_back():
    """Workspaces and results of calls, whose memory is torch's."""
    network = NETWORKS["bert"]
    module = network.build().cuda()
    compiled = daceml.compile(module)
    x, cotangent = (one.cuda() for one in inputs_of(network, 0))
    seen: list[int] = []
    for _ in range(3):
        step(compiled, module, x, cotangent)
        torch.cuda.synchronize()
        seen.append(torch.cuda.memory_allocated())
    assert seen[0] == seen[1] == seen[2]


def test_a_module_and_an_input_on_two_devices():
    module = Scaled(8).cuda()
    for device in ("cpu", "cuda:1"):
        with raises(ExportRuntimeError, device, "cuda:0", exact=False):
            daceml.compile(module)(torch.ones(2, 8, device=device))


def test_a_program_is_not_called_with_tensors_of_another_device():
    """The launcher looks itself: whoever calls a program directly is refused, too."""
    module = Scaled(8).cuda()
    compiled = daceml.compile(module, backward=False)
    with torch.no_grad():
        compiled(torch.ones(2, 8, device="cuda"))
    number = compiled.session.latest.program.number
    with raises(RuntimeError, "input 0", "CUDA", exact=False):
        torch.ops.daceml.call([torch.ones(2, 8)], number)
    with raises(RuntimeError, "input 0", "cuda:1", "cuda:0", exact=False):
        torch.ops.daceml.call([torch.ones(2, 8, device="cuda:1")], number)


def test_a_position_outside_a_table_ends_the_work(refusing: None):
    """As with torch's own kernels the host goes on, and finds out where it waits."""
    module = nn.Embedding(5, 4).cuda()
    compiled = daceml.compile(module, backward=False)
    with torch.no_grad():
        assert torch.equal(compiled(torch.tensor([4, 0], device="cuda")), module.weight[[4, 0]])
        compiled(torch.tensor([1, 7], device="cuda"))
        with pytest.raises(RuntimeError, match=r"check_positions.*traps"):
            torch.cuda.synchronize()


def test_calls_that_wait_are_not_captured(caplog: pytest.LogCaptureFixture, refusing: None):
    """A call that a capture cannot have runs as it is, with one line that says why."""
    x = torch.randn(5, device="cuda")
    doubled = Replays()

    def call(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [2 * inputs[0] / inputs[0].abs().max().item() * inputs[0].abs().max()]

    before = replays()
    for _ in range(3):
        torch.testing.assert_close(doubled(call, [x], 0)[0], 2 * x)
    assert replays() == before
    assert "it is waited for" in caplog.text
