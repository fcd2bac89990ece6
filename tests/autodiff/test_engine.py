"""The engine on whole networks: gradients of every kind of access, by rules and from the lowered form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from daceml.autodiff.engine import add_gradients
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.program_folder import build
from daceml.compiler.stages.stage_timer import Stages
from daceml.config import config
from daceml.errors import GradientError
from daceml.frontend.capture.gradients.gradient_stops import mark_gradient_stops
from daceml.frontend.onnx_export.export import export_program, to_onnx
from daceml.frontend.onnx_import.importer import import_model
from daceml.runtime.program import Program
from daceml.runtime.stored_program import StoredProgram
from daceml.sdfg.network import Network
from daceml.toolchain.cache import Cache
from tests.support.golden import golden, raises


class Apply(nn.Module):
    """Several functions of the same tensors, all results returned."""

    def __init__(self, *functions: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(*tensors) for function in self.functions)


def network_of(module: nn.Module, *inputs: torch.Tensor) -> Network:
    exported = export_program(module, inputs)
    mark_gradient_stops(exported)
    with torch.no_grad():
        return import_model(to_onnx(exported), name="network")


def check(
    tmp_path: Path,
    module: nn.Module,
    *inputs: torch.Tensor,
    prefer_native: bool = False,
    formula: nn.Module | None = None,
) -> Network:
    """Compare the gradients of all float inputs and parameters with eager's, for a random cotangent.

    Args:
        formula: what eager runs instead of a module without parameters.
    """
    torch.manual_seed(1)
    network = network_of(module, *inputs)
    parameters = dict(module.named_parameters())
    wanted = [a for a, x in zip(network.inputs, inputs, strict=True) if x.is_floating_point()]
    wanted += [a for a, key in network.weights.items() if key in parameters]
    outputs = list(dict.fromkeys(network.outputs))
    gradients = add_gradients(network, outputs, wanted, prefer_native=prefer_native)
    found = [gradients.arrays[a] for a in wanted]
    for array in found:
        assert array is not None, "every output depends on every input here"
        network.sdfg.arrays[array].transient = False
    results = len(network.outputs)
    network.outputs = (*network.outputs, *found)  # pyright: ignore
    network.inputs = (*network.inputs, *gradients.cotangents.values())
    optimised = optimise(network, Stages())
    build(optimised, Cache(config().cache_folder), tmp_path, Stages())
    program = Program(StoredProgram(tmp_path), dict(module.state_dict(keep_vars=True)))

    tracked = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    eager = (formula or module)(*tracked)
    cotangents = [torch.randn_like(y) for y in eager]
    with torch.no_grad():
        ours = program([*inputs, *cotangents])
    leaves = [
        *(x for x in tracked if x.requires_grad),
        *(parameters[network.weights[a]] for a in wanted if a in network.weights),
    ]
    expected = torch.autograd.grad(eager, leaves, cotangents)
    for mine, reference in zip(ours[results:], expected, strict=True):
        # sums of at most a few hundred float64 products of numbers around 1
        torch.testing.assert_close(mine, reference, rtol=1e-10, atol=1e-11)
    return network


def double(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


INDEX_MAPS = (
    lambda x, y: x[:, 1:-1, ::2] * 2,
    lambda x, y: x.flip(1) * x.transpose(0, 1).reshape(2, 6, 5),
    lambda x, y: torch.cat([x, x * x], 1).sin(),
    lambda x, y: functional.pad(x, (2, 1, 0, 3)) + 1,
    lambda x, y: functional.pad(x, (1, 2), mode="reflect") * 3,
    lambda x, y: x.reshape(4, 15).t() @ x.reshape(4, 15) * 0.1,
    lambda x, y: x * y + y / (x * x + 1),
    lambda x, y: y.expand(3, 2, 6, 5) * x.mean(),
    lambda x, y: torch.diagonal(x, 0, 1, 2).exp(),
    lambda x, y: x[:, [0, 2, 2]] * 0.5,
    lambda x, y: torch.stack([x.unbind(0)[0], x[1]]).roll(1, 0),
    lambda x, y: x.repeat(1, 2, 1).tril(),
)
REDUCTIONS = (
    lambda x, y: (x * x).sum(1).sqrt(),
    lambda x, y: x.mean((0, 2)) * x.sum(),
    lambda x, y: x.round().amax(1) + x.amin(0).sum(),
    lambda x, y: x.prod(2),
    lambda x, y: (x.round() * 1.0).prod(1),
    lambda x, y: x.var(1) + x.std(0).sum(),
    lambda x, y: x.softmax(1) * x.log_softmax(0),
    lambda x, y: x.logsumexp((0, 1)) * y,
    lambda x, y: x.norm(dim=2) + x.abs().sum(2),
    lambda x, y: x.cumsum(1),
    lambda x, y: torch.einsum("aij,aik->jk", x, x),
)
POINTWISE = (
    lambda x, y: x * torch.tanh(functional.softplus(x)),
    lambda x, y: functional.gelu(x) + functional.silu(y),
    lambda x, y: torch.where(x > 0, x * x, x.exp()),
    lambda x, y: torch.maximum(x, y) * torch.minimum(x, y * 2),
    lambda x, y: (x * x + 1) ** 1.5 + (x * x + 1) ** y,
    lambda x, y: torch.atan2(x, y) + torch.erf(x),
    lambda x, y: x.clamp(-0.5, 0.5) + functional.hardtanh(x) + functional.leaky_relu(x, 0.2),
    lambda x, y: functional.elu(x) + functional.hardswish(3 * x) + functional.softshrink(x),
    lambda x, y: (x.detach() * x).sin() + x.round() * x,
)


def test_hardsigmoid(tmp_path: Path) -> None:
    """Exact, while torch's own gradient multiplies by a sixth of 24 binary digits in float64, too."""
    formula = Apply(lambda x: functional.relu6(x + 3) / 6)
    check(tmp_path, Apply(functional.hardsigmoid), 3 * double(4, 5), formula=formula)


@pytest.mark.parametrize("prefer_native", [False, True])
def test_index_maps(tmp_path: Path, prefer_native: bool) -> None:
    check(tmp_path, Apply(*INDEX_MAPS), double(2, 6, 5), double(5), prefer_native=prefer_native)


@pytest.mark.parametrize("prefer_native", [False, True])
def test_reductions(tmp_path: Path, prefer_native: bool) -> None:
    check(tmp_path, Apply(*REDUCTIONS), double(3, 4, 5), double(5), prefer_native=prefer_native)


def test_pointwise_functions(tmp_path: Path) -> None:
    check(tmp_path, Apply(*POINTWISE), double(3, 5), double(5))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, stride=2)
        self.grouped = nn.Conv2d(4, 4, (3, 1), padding=(2, 0), dilation=(2, 1), groups=2)
        self.norm = nn.GroupNorm(2, 4)
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = functional.relu(self.norm(self.grouped(self.conv(x))))
        pooled = functional.max_pool2d(y, 3, 2, 1).mean((2, 3)) + functional.avg_pool2d(y, 3, 2, 1).amax(
            (2, 3)
        )
        return self.linear(pooled), functional.layer_norm(y, y.shape[2:])


@pytest.mark.parametrize("prefer_native", [False, True])
def test_layers(tmp_path: Path, prefer_native: bool) -> None:
    network = check(tmp_path, Layers().double(), double(2, 3, 9, 7), prefer_native=prefer_native)
    whole = [n for n in network.state.nodes() if getattr(n, "domain", "") == "daceml.grad"]
    assert bool(whole) is not prefer_native


def test_an_input_on_which_nothing_depends_has_no_gradient_and_one_behind_a_step_has_zeros() -> None:
    network = network_of(Apply(lambda x, y: x.floor()), double(3), double(3))
    gradients = add_gradients(network, network.outputs, network.inputs)
    x, y = (gradients.arrays[a] for a in network.inputs)
    assert x is not None
    assert y is None


def test_gradients_of_a_single_reader_are_written_once_without_conflicts() -> None:
    network = network_of(Apply(lambda x, y: (x * y).sin()), double(4, 3), double(3))
    add_gradients(network, network.outputs, network.inputs)
    arrays = network.sdfg.arrays
    conflicts = [
        e for e in network.state.edges()
        if e.data.wcr is not None and str(arrays[e.data.data].storage) != "StorageType.Register"
    ]  # fmt: skip
    assert not conflicts
    writers = {n.data: network.state.in_degree(n) for n in network.state.data_nodes()}
    assert all(count <= 1 for count in writers.values())


def test_an_operator_without_gradient_is_named() -> None:
    class Largest(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.scatter_reduce(0, torch.tensor([0, 1, 0, 1, 3]), x * x, "amax")

    network = network_of(Largest(), double(5))
    # the line of the module moves with this file
    with raises(
        GradientError, "ScatterElements", "test_engine.py", '@vjp("ScatterElements")', exact=False
    ) as caught:
        add_gradients(network, network.outputs, network.inputs)
    error = caught.value
    assert [error.why, error.fix] == [golden(), golden()]
    assert "ScatterElements" in error.what and '@vjp("ScatterElements")' in error.fix
