"""torch's recurrent layers: one operator for each layer, trained through time like eager's."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml
from daceml.errors import ExportError
from daceml.frontend.onnx_export.export import export_program, to_onnx
from tests.support.exported_models import Lambda
from tests.support.golden import golden, raises
from tests.support.sampling import sampled
from tests.support.trained_twins import compiled_backward, twins

# Some hundred roundings of float64
TOLERANCE = 1e-10
WIDTH = 3


class Layers(nn.Module):
    """Layers that stand beside each other, each with states of its own, or none."""

    def __init__(self, *layers: nn.RNNBase) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, states: Sequence[Any]) -> list[Any]:
        return [layer(x, state) for layer, state in zip(self.layers, states, strict=True)]

    def states(self, steps: int, batch: int, given: Sequence[bool]) -> list[Any]:
        """Initial states of the layers that are given some."""
        found: list[Any] = []
        for layer, here in zip(self.layers, given, strict=True):
            assert isinstance(layer, nn.RNNBase)
            count = layer.num_layers * (1 + layer.bidirectional)
            shape = (count, steps if layer.batch_first else batch, layer.hidden_size)
            pair = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(2)]
            found.append(None if not here else tuple(pair) if isinstance(layer, nn.LSTM) else pair[0])
        return found


def agrees(module: Layers, steps: int, batch: int, given: Sequence[bool]) -> None:
    """Results and every gradient are those of eager, going back from all results."""
    torch.manual_seed(0)
    compiled, eager = twins(module.double())
    x = torch.randn(steps, batch, WIDTH, dtype=torch.float64, requires_grad=True)
    states = module.states(steps, batch, given)
    found: list[list[torch.Tensor]] = []
    for one in (compiled, eager):
        results = pytree.tree_leaves(one(x, states))
        torch.manual_seed(1)
        cotangents = [torch.randn(y.shape, dtype=y.dtype) for y in results]
        leaves = [x, *pytree.tree_leaves([s for s in states if s is not None]), *one.parameters()]
        found.append([*results, *torch.autograd.grad(results, leaves, cotangents)])
    assert compiled_backward(compiled)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


def test_long_short_term_memory():
    layers = Layers(
        nn.LSTM(WIDTH, 5),
        nn.LSTM(WIDTH, 2, num_layers=2, bidirectional=True, batch_first=True),
        nn.LSTM(WIDTH, 1, bias=False),
    )
    agrees(layers, 4, 3, (False, True, True))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_a_step_of_many_products_is_shared_among_threads(layer: type[nn.RNNBase]):
    """Threads take columns of the product of a state apart, of an odd number here."""
    agrees(Layers(layer(WIDTH, 131)), 3, 21, (True,))


FUSED = {
    "plain": (nn.LSTM(24, 40), False),
    "states": (nn.LSTM(24, 40), True),
    "two layers, both ways": (nn.LSTM(24, 36, num_layers=2, bidirectional=True, batch_first=True), True),
    "no bias": (nn.LSTM(24, 48, bias=False, bidirectional=True), False),
    "projected": (nn.LSTM(24, 48, proj_size=16), False),
}


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("part", [0, 1])
def test_a_fused_layer_gives_what_is_wanted_of_it(ways: int, part: int):
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(24, 40, bidirectional=ways == 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sequence, (_, cells) = self.layer(x)
            return cells if part else sequence.relu()

    module, x = Part().eval(), torch.randn(31, 17, 24)
    with torch.no_grad():
        torch.testing.assert_close(daceml.compile(module, backward=False)(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUSED)
def test_an_evaluated_lstm_is_a_fused_layer(name: str):
    layer, given = FUSED[name]
    layer = copy.deepcopy(layer).eval()
    x = torch.randn(31, 17, 24)
    batch, count = x.shape[0 if layer.batch_first else 1], layer.num_layers * (1 + layer.bidirectional)
    widths = (layer.proj_size or layer.hidden_size, layer.hidden_size)
    states = tuple(torch.randn(count, batch, width) for width in widths) if given else None
    compiled = daceml.compile(layer, backward=False)
    for _ in range(2):
        with torch.no_grad():
            ours, theirs = compiled(x, states), copy.deepcopy(layer).double()(x.double(), _double(states))
            torch.testing.assert_close(
                pytree.tree_map(torch.Tensor.double, ours), theirs, rtol=1e-5, atol=1e-6
            )
            layer.weight_hh_l0 *= 1.5
    steps = compiled.session.variants[0].program.manifest.steps
    fused = sum("fused_lstm" in step.label for step in steps)
    assert fused == (0 if layer.proj_size else layer.num_layers)


def _double(states: tuple[torch.Tensor, ...] | None) -> tuple[torch.Tensor, ...] | None:
    return None if states is None else tuple(state.double() for state in states)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("train", [False, True])
def test_sequences_of_every_length_are_one_program(kind: str, train: bool):
    layer = getattr(nn, kind)(24, 40, bidirectional=True, batch_first=True).train(train)
    compiled = daceml.compile(layer, dynamic=True, backward=train)
    with torch.set_grad_enabled(train):
        for batch, steps in ((31, 17), (9, 20), (3, 2), (2, 1)):
            x = torch.randn(batch, steps, 24)
            found: list[list[torch.Tensor]] = []
            for one in (compiled, layer):
                results = pytree.tree_leaves(one(x))
                gradients = torch.autograd.grad(results[0].sum(), list(layer.parameters())) if train else ()
                found.append([*results, *gradients])
            for ours, theirs in zip(*found, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert len(compiled.session.variants) <= 2  # a sequence of one step has another graph


def test_what_torch_refuses_of_a_recurrent_layer_is_refused():
    class Given(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(6, 8)

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return torch.gru(x, h, self.layer._flat_weights, True, 1, 0.0, False, False, False)[0]

    module = Given()
    compiled = daceml.compile(module)
    for x, h in ((4, 3, 6), (1, 2, 8)), ((4, 3, 5), (1, 3, 8)), ((0, 3, 6), (1, 3, 8)):
        for one in (module, compiled):
            with pytest.raises(RuntimeError):
                one(torch.zeros(x), torch.zeros(h))


def test_gated_units():
    layers = Layers(nn.GRU(WIDTH, 5), nn.GRU(WIDTH, 2, num_layers=2, bidirectional=True, bias=False))
    agrees(layers, 4, 2, (True, False))


def test_plain_units():
    layers = Layers(
        nn.RNN(WIDTH, 4, nonlinearity="relu", bidirectional=True), nn.RNN(WIDTH, 2, batch_first=True)
    )
    agrees(layers, 5, 1, (True, False))


def test_one_step_of_one_sequence():
    agrees(Layers(nn.LSTM(WIDTH, 2), nn.GRU(WIDTH, 2)), 1, 1, (True, False))


def test_dropout_between_layers_draws_as_eager_does():
    compiled, eager = twins(nn.GRU(WIDTH, 4, num_layers=3, dropout=0.5).double())
    x = torch.randn(6, 5, WIDTH, dtype=torch.float64)
    found: list[list[torch.Tensor]] = []
    for module in (compiled, eager):
        torch.manual_seed(7)
        y, _ = module(x)
        found.append([y, *torch.autograd.grad(y.sum(), list(module.parameters()))])
    assert compiled_backward(compiled)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("kind", sampled([nn.LSTM, nn.GRU, nn.RNN], nn.LSTM))
def test_steps_and_loaded_values_need_no_other_program(kind: type[nn.RNNBase]):
    compiled, eager = twins(kind(WIDTH, 4).double())
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    for module in (compiled, eager):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            module(x)[0].pow(2).sum().backward()
            optimizer.step()
    assert len(compiled.session.variants) == 1
    for ours, theirs in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
    with torch.no_grad():
        for _ in range(2):
            other = kind(WIDTH, 4).double()
            compiled.load_state_dict(other.state_dict())
            torch.testing.assert_close(compiled(x), other(x), rtol=TOLERANCE, atol=TOLERANCE)
        assert len(compiled.session.variants) == 2, "one of training, one without gradients"
        compiled.weight_hh_l0 = nn.Parameter(torch.zeros_like(other.weight_hh_l0))
        other.weight_hh_l0.zero_()
        torch.testing.assert_close(compiled(x), other(x), rtol=TOLERANCE, atol=TOLERANCE)


def test_each_layer_is_one_operator_whatever_its_length():
    module = nn.LSTM(WIDTH, 4, num_layers=2, bidirectional=True)

    def operators(steps: int) -> list[str]:
        model = to_onnx(export_program(module, (torch.randn(steps, 2, WIDTH),)))
        return [node.op_type for node in model.graph]

    assert operators(50).count("LSTM") == 2
    assert operators(50) == operators(3)


def test_a_projection_is_torchs():
    eager = nn.LSTM(WIDTH, 4, proj_size=2)
    compiled, x = daceml.compile(eager), torch.randn(4, 2, WIDTH)
    (ours, (h, c)), (theirs, (h_, c_)) = compiled(x), eager(x)
    for pair in ((ours, theirs), (h, h_), (c, c_)):
        torch.testing.assert_close(*pair)
    gradients = [
        torch.autograd.grad(f(x)[0].square().sum(), list(eager.parameters())) for f in (compiled, eager)
    ]
    torch.testing.assert_close(*gradients)


def test_packed_sequences_are_refused_with_their_reason():
    layer = nn.GRU(WIDTH, 4)

    def packed(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return layer(nn.utils.rnn.pack_padded_sequence(x, lengths))[1]

    with raises(ExportError, "Lambda", "TypeError", exact=False) as refusal:
        daceml.compile(Lambda(packed))(torch.randn(4, 2, WIDTH), torch.tensor([4, 2]))
    assert [refusal.value.what, refusal.value.fix] == [golden(), golden()]


class Decoders(nn.Module):
    """Cells of every kind that are called in a loop, each on its own states."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList(
            [
                nn.GRUCell(WIDTH, 4),
                nn.LSTMCell(WIDTH, 4, bias=False),
                nn.RNNCell(WIDTH, 4),
                nn.RNNCell(WIDTH, 4, nonlinearity="relu"),
            ]
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for cell in self.cells:
            state: Any = None
            for step in x.unbind(1):
                state = cell(step, state)
            found.append(state[0] if isinstance(state, tuple) else state)
        return found


def test_cells_are_written_with_other_operators():
    torch.manual_seed(0)
    eager = Decoders().double()
    compiled = daceml.compile(copy.deepcopy(eager))
    x = torch.randn(5, 3, WIDTH, dtype=torch.float64)
    for module in (eager, compiled):
        torch.stack(module(x)).sin().sum().backward()
    for (name, ours), theirs in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=TOLERANCE, atol=TOLERANCE, msg=name)
    assert isinstance(compiled, daceml.DaceModule)
    steps = compiled.session.latest.program.manifest.steps
    assert not [step.label for step in steps if step.implementation == "aten:dispatcher"]
