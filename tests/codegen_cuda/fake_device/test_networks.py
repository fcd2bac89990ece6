"""Networks on the fake device, as a user runs them: calls, replays, other streams, other devices."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import daceml
from benchmarks.gpu.correctness import compared
from benchmarks.gpu.precisions import PRECISIONS
from benchmarks.gpu.target import Target
from benchmarks.models.named import spec_named
from tests.codegen_cuda.fake_device import streams
from tests.codegen_cuda.fake_device.networks import NETWORKS, Peers, forward, inputs_of, step
from tests.codegen_cuda.fake_device.streams import Order, launches, order, replays

every_network = pytest.mark.parametrize("name", NETWORKS)


@pytest.fixture(params=[Order.LATE, Order.OTHERS_FIRST], ids=lambda one: one.name.lower())
def in_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """In both orders of streams, neither of which is that of the calls."""
    with order(request.param):
        yield


def placed(name: str, device: str = "cuda:0", **options: bool) -> tuple[nn.Module, nn.Module, Peers]:
    """A module on a device, what daceml makes of it, and its peers on the processor."""
    network = NETWORKS[name]
    module = network.build()
    peers = Peers(network, module)
    module = module.to(device)
    return module, daceml.compile(module, **options), peers


def change(module: nn.Module, peers: Peers, seed: int) -> None:
    """Change the weights of all three in the same way, where they lie."""
    for one in (module, *peers.all):
        generator = torch.Generator().manual_seed(seed)
        for parameter in one.parameters():
            parameter.data.add_(torch.randn(parameter.shape, generator=generator).to(parameter), alpha=0.1)


@every_network
def test_calls(name: str, in_order: None):
    network = NETWORKS[name]
    module, compiled, peers = placed(name)
    before = launches("")
    for seed in range(2):
        x, cotangent = inputs_of(network, seed)
        found = step(compiled, module, x.cuda(), cotangent.cuda())
        peers.check(found, x, cotangent)
        change(module, peers, seed)
    x, _ = inputs_of(network, 2)
    for one in (module, compiled, *peers.all):
        one.eval()
    peers.check(forward(compiled, x.cuda()), x, None)
    assert launches("") > before


@every_network
def test_replays(name: str, in_order: None):
    """The first calls run, others are replayed: other inputs, weights that changed or moved."""
    network = NETWORKS[name]
    module, compiled, peers = placed(name, cuda_graphs=True)
    before, kept = replays(), []
    for seed in range(6):
        x, cotangent = inputs_of(network, seed)
        found = step(compiled, module, x.cuda(), cotangent.cuda())
        peers.check(found, x, cotangent)
        kept.append((found["result"], found["result"].clone()))
        change(module, peers, seed)
        if seed == 3:
            for parameter in module.parameters():
                parameter.data = parameter.data.clone()
    assert replays() - before >= 5
    assert all(torch.equal(result, copied) for result, copied in kept), (
        "a replay has written an earlier result"
    )


@every_network
def test_a_training_step_as_a_graph(name: str, in_order: None):
    """Captured as `benchmarks/gpu/target.py` does it; inputs and weights change where they lie."""
    network = NETWORKS[name]
    module, compiled, peers = placed(name)
    x, cotangent = (one.cuda() for one in inputs_of(network, 0))
    buffers = {key: one.clone() for key, one in module.named_buffers()}
    found: dict[str, torch.Tensor] = {}

    def once() -> None:
        found.update(step(compiled, module, x, cotangent))

    replay = Target().replay(once)
    before = replays()
    for key, one in module.named_buffers():
        one.copy_(buffers[key])
    for seed in range(1, 4):
        new, other = inputs_of(network, seed)
        x.copy_(new)
        cotangent.copy_(other)
        replay()
        peers.check(found, new, other)
        change(module, peers, seed)
    assert replays() == before + 3


@every_network
def test_a_second_stream(name: str, in_order: None):
    """Work on a stream of the user's is ordered with other work by the waits of the user alone."""
    network = NETWORKS[name]
    module, compiled, peers = placed(name)
    aside = torch.cuda.Stream()
    for seed in range(2):
        x, cotangent = inputs_of(network, seed)
        aside.wait_stream(torch.cuda.current_stream())  # for the weights
        with torch.cuda.stream(aside):
            found = step(compiled, module, x.cuda(non_blocking=True), cotangent.cuda(non_blocking=True))
        torch.cuda.current_stream().wait_stream(aside)
        peers.check(found, x, cotangent)
        change(module, peers, seed)


@pytest.mark.parametrize("graphs", [False, True], ids=["calls", "replays"])
@every_network
def test_a_second_device(name: str, graphs: bool):
    """Which is not the current one: kernels, copies and memory belong to the device of the tensors."""
    network = NETWORKS[name]
    module, compiled, peers = placed(name, "cuda:1", cuda_graphs=graphs)
    gc.collect()  # modules of earlier tests
    used = torch.cuda.memory_allocated(0)
    for seed in range(4):
        x, cotangent = inputs_of(network, seed)
        found = step(compiled, module, x.to("cuda:1"), cotangent.to("cuda:1"))
        assert {one.device for one in found.values()} == {torch.device("cuda:1")}
        peers.check(found, x, cotangent)
        change(module, peers, seed)
    assert torch.cuda.current_device() == 0 and torch.cuda.memory_allocated(0) == used


def test_one_program_serves_both_devices():
    """The program of a device's architecture is compiled once, and launched where its tensors lie."""
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        module, compiled, peers = placed("mlp", device)
        x, cotangent = inputs_of(NETWORKS["mlp"], 0)
        peers.check(step(compiled, module, x.to(device), cotangent.to(device)), x, cotangent)
    assert streams.refusals() == 0


@pytest.mark.parametrize(("name", "precision"), [("bert", "bf16"), ("dlrm", "fp32"), ("mbconv", "fp32")])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_networks_as_the_gpu_suite_compares_them(name: str, precision: str, training: bool):
    """Small replicas; here eager PyTorch runs on the device as well."""
    spec = spec_named(f"reduced:{name}")
    row = compared(spec, Target(), PRECISIONS[precision], training=training)
    assert row["outside"] == []
