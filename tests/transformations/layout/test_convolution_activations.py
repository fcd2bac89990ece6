"""fuse_activations: what is fused, eager's numbers with it, and NaN and infinities in every place."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.runtime.program import Program
from tests.support.golden import golden, raises
from tests.support.sampling import sampled
from tests.transformations.frozen_networks import applied, assert_same, frozen, trained


class Residual(nn.Module):
    """A depthwise, a dilated and a grouped convolution, and a residual that is read twice."""

    def __init__(self, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=2, dilation=2, groups=32, bias=False)
        self.grouped = nn.Conv2d(32, 32, 3, padding=1, groups=4)
        self.last = nn.Conv2d(32, 32, 1)
        self.activation = activation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.norm(self.first(x)))
        y = self.activation(self.grouped(self.activation(self.depthwise(x))))
        return functional.max_pool2d(self.activation(self.last(y) + x), 2)


@pytest.mark.parametrize(
    ("activation", "found"),
    [
        (nn.ReLU, {"relu": 3, "sum and relu": 1, "checks of magnitudes": 1}),
        (nn.ReLU6, {"clip": 3, "sum and clip": 1, "checks of magnitudes": 1}),
        (nn.SiLU, {"swish": 3, "sum and swish": 1}),
        (nn.Identity, {"sum and none": 1}),
        (nn.Hardswish, {}),
    ],
)
def test_what_is_fused_and_its_numbers(activation: type[nn.Module], found: dict[str, int]):
    torch.manual_seed(0)
    net, x = trained(Residual(activation)), torch.randn(2, 8, 40, 36)
    compiled = frozen(net)
    with torch.no_grad():
        y = compiled(x)
        exact = net.double()(x.double())
        eager = net.float()(x)
    assert applied(compiled) == found
    error, theirs = (y - exact).abs().max(), (eager - exact).abs().max()
    assert error <= 1.5 * theirs


def test_a_step_is_named_by_its_convolution():
    layers = [nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AvgPool2d(2)]
    compiled = frozen(trained(nn.Sequential(*layers)))
    with torch.no_grad():
        compiled(torch.randn(2, 8, 40, 36))
    steps = compiled.session.latest.program.manifest.steps
    named = [[node.operator for node in step.nodes] for step in steps if step.kind == "aten"]
    assert applied(compiled)["relu"] >= 1
    assert ["Conv", "Relu"] in named


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.SiLU])
@pytest.mark.parametrize(
    "values", [("nan",), ("inf",), ("-inf",), ("inf", "-inf"), ("1e38",), ("1e38", "-1e38"), ("3e20",)]
)
def test_nan_and_infinities_are_eagers(activation: type[nn.Module], values: tuple[str, ...]):
    net, x = trained(Residual(activation)), torch.randn(2, 8, 40, 36)
    compiled = frozen(net)
    with torch.no_grad():
        before = compiled(x)
        odd = x.clone()
        for place, value in enumerate(values):
            odd[0, 3, 7, 8 + place] = float(value)
        assert_same(compiled(odd), net(odd))
        assert torch.equal(compiled(x), before)


NAMES, VALUES = (
    ["first.weight", "grouped.bias", "last.weight", "norm.running_var"],
    ["nan", "inf", "-inf", "1e38"],
)


@pytest.mark.parametrize(
    ("name", "value"),
    sampled(
        [(name, value) for name in NAMES for value in VALUES],
        *((NAMES[0], value) for value in VALUES),
        *((name, "nan") for name in NAMES[1:]),
        ("norm.running_var", "1e38"),
    ),
)
def test_weights_that_are_not_finite(name: str, value: str):
    net, x = trained(Residual()), torch.randn(2, 8, 40, 36)
    with torch.no_grad():
        net.state_dict()[name].view(-1)[3] = float(value)
        y, expected = frozen(net)(x), net(x)
    assert_same(y, expected)


class Deep(nn.Module):
    """So many convolutions that a magnitude grows beyond every limit on the way."""

    def __init__(self, depth: int = 20) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return functional.avg_pool2d(x, 2)


def test_checks_stand_between_many_convolutions():
    torch.manual_seed(0)
    net, x = Deep().eval(), torch.randn(1, 16, 40, 40)
    compiled = frozen(net)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x))
        assert applied(compiled) == {"relu": 20, "checks of magnitudes": 3}
        program = compiled.session.latest.program
        assert program.conditional
        # infinity minus infinity, in the middle
        net.layers[9].weight.mul_(1e30)
        net.layers[10].weight.mul_(1e30)
        compiled = frozen(net)
        y = compiled(x)
        assert torch.equal(y.isnan(), net(x).isnan())
        assert y.isnan().any()


def test_a_network_that_draws_is_not_run_again():
    class Noisy(Deep):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.rand(x.shape[-1] // 2)

    compiled = frozen(Noisy(2).eval())
    with torch.no_grad():
        compiled(torch.randn(1, 16, 40, 40))
    record = next(p for p in compiled.session.latest.network.passes if p.name == "fuse_activations")
    assert record.applied == {}
    said = "\n".join(sorted({r.reason for r in record.refused}))
    assert said == golden()
    assert "random" in said


def test_the_program_alone_says_what_it_would_need():
    torch.manual_seed(0)
    compiled, x = frozen(Deep(2).eval()), torch.randn(1, 16, 40, 40)
    with torch.no_grad():
        compiled(x)
    stored = compiled.session.latest.program.stored
    program = Program(stored, dict(compiled.named_parameters()))
    x[0, 0, 0, 0] = float("nan")
    with raises(daceml.DacemlError, "magnitude"):
        program([x])


def layers(*convolutions: nn.Module) -> nn.Sequential:
    """Each with a batch norm and a relu behind it."""
    parts: list[nn.Module] = []
    for convolution in convolutions:
        channels: int = convolution.out_channels  # pyright: ignore[reportAssignmentType]
        parts += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*parts)


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (layers(nn.Conv2d(1, 1, 3), nn.Conv2d(1, 16, 1), nn.Conv2d(16, 1, 3, padding=1)), (2, 1, 33, 35)),
        (layers(nn.Conv2d(16, 16, 3, stride=2), nn.Conv2d(16, 32, (1, 5))), (1, 16, 41, 38)),
        (layers(nn.Conv2d(16, 16, 3), nn.ConvTranspose2d(16, 16, 3)), (1, 16, 20, 24)),
        (
            layers(nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 16, 5, padding=2, groups=16)),
            (1, 16, 24, 30),
        ),
        (layers(nn.Conv2d(16, 32, 3), nn.Conv2d(32, 16, 3)), (0, 16, 24, 30)),
        (layers(nn.Conv2d(16, 32, 3), nn.Conv2d(32, 16, 1)), (1, 16, 3, 3)),
    ],
)
def test_convolutions_of_every_kind(network: nn.Module, shape: tuple[int, ...]):
    net, x = trained(network), torch.randn(shape)
    compiled = frozen(net)
    for value in (0.0, float("nan"), 1e38):
        if x.numel():
            x[0, 0, 1, 1] = value
        with torch.no_grad():
            assert_same(compiled(x), net(x))
