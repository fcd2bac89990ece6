"""Backward passes that earlier compilers of this kind got wrong, silently or with a crash.

Each test trains one module of several such computations; a failure names the computation, its gradient or
its buffer. `test_known_defects.py` has the forward passes.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.errors import PositionError
from tests.support.computations import Several
from tests.support.golden import golden, raises

DOUBLE = 1e-10
"""Relative to the largest element: some thousand roundings of float64."""


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def step(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor | None]:
    """Results, and the gradients of inputs and parameters for each result on its own; buffers.

    On its own: the gradients that the other results bring in are zero. One backward program does them all.
    """
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    wanted = {f"input {n}": x for n, x in enumerate(leaves) if x.requires_grad}
    wanted |= {name: p for name, p in module.named_parameters() if p.requires_grad}
    results = module(*leaves)
    found: dict[str, torch.Tensor | None] = {f"{name}": y.detach() for name, y in results.items()}
    differentiable = {name: y for name, y in results.items() if y.requires_grad}
    for name, y in differentiable.items():
        weights = torch.linspace(-1, 1.3, max(y.numel(), 1), dtype=torch.float64)[: y.numel()]
        given = {other: torch.zeros_like(z) for other, z in differentiable.items()}
        given[name] = weights.reshape(y.shape).to(y.dtype)
        gradients = torch.autograd.grad(
            list(differentiable.values()), list(wanted.values()), list(given.values()),
            retain_graph=True, allow_unused=True,
        )  # fmt: skip
        found |= {f"{name}: {k}": g for k, g in zip(wanted, gradients, strict=True)}
    return found | {name: buffer.clone() for name, buffer in module.named_buffers()}


def trains(
    module: nn.Module, *calls: tuple[torch.Tensor, ...], tolerance: float = DOUBLE, **options: Any
) -> Any:
    """Train with each of the inputs beside eager; everything that both give is the same, and finite."""
    module.train()
    compiled: Any = daceml.compile(copy.deepcopy(module), **options)
    for inputs in calls:
        ours, theirs = step(compiled, inputs), step(module, inputs)
        assert ours.keys() == theirs.keys()
        for name, want in theirs.items():
            got = ours[name]
            if want is None or got is None:
                # torch tells no dependence from a gradient of zero by operator, daceml by element
                rest = got if want is None else want
                assert rest is None or not rest.abs().sum(), name
                continue
            assert (got.shape, got.dtype) == (want.shape, want.dtype), name
            scale = float(want.abs().max()) if want.numel() else 0.0
            torch.testing.assert_close(
                got, want, rtol=0, atol=tolerance * max(scale, 1e-3),
                msg=lambda text, name=name: f"{name}: {text}",
            )  # fmt: skip
    assert any(variant.backward is not None for variant in compiled.session.variants)
    return compiled


@pytest.fixture(autouse=True)
def _compiled(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A module that would rather train eagerly shows nothing."""
    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING, logger="daceml"):
        yield
    assert not [record for record in caplog.get_records("call") if record.name == "daceml.module.session"]


def test_convolutions_of_images_that_are_not_square() -> None:
    module = Several(
        padded=nn.Conv2d(3, 4, 3, padding=1),
        asymmetric=nn.Sequential(nn.ZeroPad2d((0, 1, 2, 0)), nn.Conv2d(3, 2, 3)),
        dilated=nn.Conv2d(3, 2, 3, dilation=2, padding=(2, 1)),
        grouped=nn.Conv2d(3, 6, (3, 2), stride=(2, 1), groups=3, bias=False),
        same=nn.Conv2d(3, 2, (4, 3), padding="same"),
        transposed=nn.ConvTranspose2d(3, 2, (3, 2), stride=2, padding=1, output_padding=(1, 0)),
    ).double()
    trains(module, (draw(2, 3, 6, 10),))


def test_convolutions_of_sequences() -> None:
    module = Several(
        plain=nn.Conv1d(3, 4, 3),
        dilated=nn.Conv1d(3, 4, 2, dilation=3, padding=2),
        grouped=nn.Conv1d(3, 3, 3, stride=2, groups=3),
        transposed=nn.ConvTranspose1d(3, 2, 3, stride=2),
    ).double()
    trains(module, (draw(2, 3, 9),))


def test_normalisations_and_their_running_statistics() -> None:
    """Two steps: eager's running variance is the unbiased one, and is kept, not replaced."""
    module = Several(
        images=nn.BatchNorm2d(4),
        sequences=nn.Sequential(nn.Flatten(2), nn.BatchNorm1d(4, momentum=0.3)),
        rows=nn.Sequential(nn.Flatten(), nn.BatchNorm1d(60)),
        groups=nn.GroupNorm(2, 4),
        plain=nn.GroupNorm(1, 4, affine=False),
        layers=nn.LayerNorm((3, 5)),
    ).double()
    trains(module, (draw(3, 4, 3, 5) * 3 + 1,), (draw(3, 4, 3, 5, seed=1) - 2,))


def test_powers_that_are_not_whole() -> None:
    module = Several(
        root=lambda x: x**0.5,
        three_halves=lambda x: x**1.5,
        square=lambda x: x**2,
        inverse=lambda x: x**-1,
        of_a_number=lambda x: 2.5**x,
        by_itself=lambda x: x**x,
    )
    trains(module, (draw(3, 5).abs() + 0.1,))


def test_softmax_over_inner_dimensions_and_losses() -> None:
    labels = torch.tensor([[[0, 1, 2, 1, 0]] * 4, [[2, 2, 0, 1, 0]] * 4])
    module = Several(
        channels=lambda x, i: x.softmax(1),
        rows=lambda x, i: x.softmax(2),
        logarithm=lambda x, i: functional.log_softmax(x, 1),
        mean=functional.cross_entropy,
        sum=lambda x, i: functional.cross_entropy(x, i, reduction="sum"),
        smooth=lambda x, i: functional.cross_entropy(x, i, ignore_index=2, label_smoothing=0.1),
    )
    trains(module, (draw(2, 3, 4, 5) * 5, labels))


def test_activations_of_large_numbers() -> None:
    """Gradients are finite far from zero, where exp(x) is not."""
    x = torch.tensor([-1e4, -800.0, -100.0, -1.0, 1.0, 30.0, 100.0, 800.0, 1e4], dtype=torch.float64)
    module = Several(
        softplus=functional.softplus,
        mish=functional.mish,
        spelled_out=lambda x: x * torch.tanh(functional.softplus(x)),
        log_sigmoid=functional.logsigmoid,
        sigmoid=torch.sigmoid,
        silu=functional.silu,
        logsumexp=lambda x: x.logsumexp(0),
    )
    compiled = trains(module, (x,))
    assert all(bool(g.isfinite().all()) for g in step(compiled, (x,)).values() if g is not None)


def test_activations_and_choices() -> None:
    """Numbers away from kinks, and those at them: 0, the bounds, and equal elements."""
    module = Several(
        gelu=functional.gelu,
        gelu_of_tanh=lambda x: functional.gelu(x, approximate="tanh"),
        elu=lambda x: functional.elu(x, 0.7),
        at_least=lambda x: x.clamp(min=-0.25),
        at_most=lambda x: x.clamp(max=0.25),
        between=lambda x: x.clamp(-0.25, 0.25),
        chosen=lambda x: torch.where(x > 0, x * x, x * 0.1),
        masked=lambda x: x * (x > 0.1),
        relu6=functional.relu6,
        leaky=functional.leaky_relu,
        absolute=lambda x: x.abs(),
        amax=lambda x: x.amax(1),
        amin=lambda x: x.amin((0, 1)),
    )
    x = draw(4, 6)
    x[0] = torch.tensor([0.0, -0.25, 0.25, 6.0, 6.0, -0.0])
    x[1] = 1.5
    trains(module, (x,))


def test_extremes_are_found_again_whatever_vectors_the_loops_have() -> None:
    # forward and backward compute what is compared once more, in loops that have other vectors
    def below_the_largest(x: torch.Tensor) -> torch.Tensor:
        squares = (torch.log_softmax(x, 1) * 0.1).tanh().square()
        swish = functional.silu((squares - squares.amax(1, keepdim=True)).abs())
        return swish - swish.mean(0)

    for columns in (2, 3, 5):
        trains(Several(below_the_largest=below_the_largest), (draw(5, columns),))


def test_positions_from_the_end() -> None:
    module = Several(
        last=lambda x, i: x[:, -1],
        strided=lambda x, i: x[:, 1:-1, ::2],
        cut=lambda x, i: x[..., -3:],
        constant=lambda x, i: x[:, torch.tensor([-1, 0, -1])],
        chosen=lambda x, i: x[i],
        embedded=lambda x, i: functional.embedding(i.clamp(min=0), x[:, :, 0]),
        # its derivative is zero: only what is chosen has one
        argmax=lambda x, i: x.gather(1, x.argmax(1, keepdim=True)),
    )
    trains(module, (draw(4, 5, 7), torch.tensor([-1, 0, -4, 3, 0])))


def test_positions_that_an_operator_does_not_take() -> None:
    """Eager refuses them, and so does the compiled module: no gradient goes anywhere."""
    module = Several(
        embedded=lambda x, i: functional.embedding(i, x),
        gathered=lambda x, i: x.gather(0, i.unsqueeze(1)),
        selected=lambda x, i: x.index_select(0, i),
    )
    x = draw(4, 2)
    compiled = trains(module, (x, torch.tensor([3, 0])))
    for outside in (4, -1):
        with raises(PositionError, "[0, 4)", "Gather", exact=False) as refusal:
            compiled(x.requires_grad_(), torch.tensor([0, outside]))
        assert refusal.value.why.partition(":")[0] == golden()


def test_joined_and_spread_shapes() -> None:
    module = Several(
        expanded=lambda x, y: x.expand(2, 3, 4, 5),
        rows=lambda x, y: y.expand(-1, -1, 4, -1) * x,
        joined=lambda x, y: torch.cat([x.expand(-1, -1, 5), y[:, 0].expand(3, 2, 5)[:, :1]], dim=1),
        mean=lambda x, y: (x + y).mean((0, 2)),
        padded=lambda x, y: functional.pad(x, (1, 2, 0, 1), value=0.5),
        cut_off=lambda x, y: functional.pad(x, (0, 0, -1, 0)),
        reflected=lambda x, y: functional.pad(x, (0, 0, 1, 2), mode="reflect"),
    )
    trains(module, (draw(3, 4, 1), draw(1, 1, 1, 5)))


def test_pools_with_padding_and_interpolation() -> None:
    module = Several(
        most=lambda x: functional.max_pool2d(x, 3, 2, padding=1),
        of_negative_numbers=lambda x: functional.max_pool2d(-x.abs() - 1, 3, 2, padding=1),
        mean=lambda x: functional.avg_pool2d(x, 3, 2, padding=1),
        mean_of_what_is_there=lambda x: functional.avg_pool2d(
            x, (3, 2), 2, padding=1, count_include_pad=False
        ),
        whole=lambda x: functional.adaptive_avg_pool2d(x, 1),
        bilinear=lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        of_corners=lambda x: functional.interpolate(x, size=(7, 3), mode="bilinear", align_corners=True),
        nearest=lambda x: functional.interpolate(x, scale_factor=2),
    )
    trains(module, (draw(2, 3, 7, 9),))


def test_other_batches_than_that_of_the_first_call() -> None:
    module = Several(perceptron=nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))).double()
    trains(module, (draw(3, 4),), (draw(5, 4),), (draw(2, 4),), dynamic=True)


class Tied(nn.Module):
    """An embedding whose weight is the last layer's, around attention; dropout that drops nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, i: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embedding(i)
        y = functional.scaled_dot_product_attention(x, x * 0.5, x, attn_mask=mask)
        causal = functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return {"logits": self.head(self.dropout(self.norm(x + y))), "causal": causal}


def test_tied_weights_attention_and_dropout_of_nothing() -> None:
    mask = torch.tensor([[True, False, True], [True, True, False], [False, False, True]])
    trains(Tied().double(), (torch.tensor([[0, 2, 4], [1, 1, 3]]), mask))


class Attends(nn.Module):
    """Attention as PyTorch has it, and spelled out with a mask."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = (q @ k.mT * -0.25).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
        return {
            "fused": functional.scaled_dot_product_attention(q, k, v, scale=-0.5),
            "spelled": functional.softmax(scores, -1) @ v,
        }


def test_attention_with_a_negative_scale() -> None:
    trains(
        Attends(), tuple(torch.randn(2, 3, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    )


def test_products_and_activations_in_bfloat16() -> None:
    """Eager rounds after each operator, to 2^-9; so many roundings lie between its gradients and others."""
    module = Several(
        perceptron=nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)),
        normed=nn.LayerNorm(8),
        product=lambda x: torch.relu(x @ x.t()),
    ).bfloat16()
    trains(module, (draw(4, 8).bfloat16(),), tolerance=6 * 2**-8)


def test_what_is_computed_again_is_not_stored() -> None:
    """`recompute` really saves memory: fewer bytes wait for the backward pass, and gradients are the same."""
    module = Several(chain=lambda x, y: torch.tanh(torch.exp(x * y).sin() * y).sum(0))
    inputs = (draw(50, 20), draw(50, 20, seed=1))
    stored: list[int] = []
    budget = {"recompute": "budget", "memory_budget_bytes": 2**20}
    for options in ({"recompute": "none"}, {"recompute": "cheap"}, budget):
        compiled = trains(module, inputs, **options)
        (variant,) = compiled.session.variants
        record = variant.backward.record
        kept = [row for row in record.storage if row.stored]
        # the program that runs gives no more than the plan says
        assert len(variant.program.manifest.outputs) - record.results <= len(kept)
        stored.append(sum(row.bytes for row in kept))
    assert stored[1] < stored[0]


def test_bounds_that_are_tensors_and_met_exactly() -> None:
    numbers = torch.tensor([-2.0, -1, 0, 1, 2], dtype=torch.float64)
    x, low, high = (g.reshape(-1) for g in torch.meshgrid(numbers, numbers, numbers, indexing="ij"))
    module = Several(
        above=lambda x, low, high: torch.clamp(x, min=low),
        below=lambda x, low, high: torch.clamp(x, max=high),
        between=torch.clamp,
        largest=lambda x, low, high: torch.maximum(x, low),
        spread=lambda x, low, high: torch.clamp(x.view(5, 25), low[::5], high.view(5, 25)[:, :1]),
    )
    trains(module, (x, low, high))


def test_one_of_equal_extremes_deviations_of_nothing_and_angles() -> None:
    x = torch.randint(-2, 3, (5, 6), generator=torch.Generator().manual_seed(0)).double()
    x[2] = 0
    module = Several(
        largest=lambda x: x.max(1)[0],
        least=lambda x: x.min(0, keepdim=True).values,
        in_the_middle=lambda x: x.view(5, 2, 3).max(1).values,
        shared=lambda x: x.amax(1),
        deviation=lambda x: x.std(1),
        deviation_and_mean=lambda x: torch.std_mean(x, 1, correction=0)[0],
        angle=lambda x: torch.atan2(x, x.flip(1)),
        norm=lambda x: x.norm(3, dim=1),
        largest_magnitude=lambda x: x.norm(float("inf"), dim=1),
    )
    trains(module, (x,))
