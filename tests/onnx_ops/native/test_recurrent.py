"""RNN, GRU and LSTM against torch: directions, lengths, layouts; what torch has not against ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dace.sdfg.nodes import MapEntry
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from daceml.errors import NoImplementationError
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import raises
from tests.support.operator_programs import lowered as lowered_text
from tests.support.operator_programs import program
from tests.support.sampling import slowed

KINDS: dict[str, Any] = {"RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}
# torch's gates in ONNX's order
ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 3, 1, 2]}


def weights(module: nn.Module, kind: str, suffixes: list[str]) -> tuple[np.ndarray, ...]:
    def gates(name: str) -> np.ndarray:
        chunks = getattr(module, name).detach().chunk(len(ORDER[kind]))
        return torch.cat([chunks[i] for i in ORDER[kind]]).numpy()

    w, r = (np.stack([gates(f"weight_{p}_l0{s}") for s in suffixes]) for p in ("ih", "hh"))
    b = np.stack([np.concatenate([gates(f"bias_{p}_l0{s}") for p in ("ih", "hh")]) for s in suffixes])
    return w, r, b


def network(
    kind: str,
    *,
    direction: str = "forward",
    lengths: list[int] | None = None,
    states: bool = False,
    layout: int = 0,
    hidden: int = 3,
    steps: int = 5,
    dtype: torch.dtype = torch.float32,
) -> Case:
    torch.manual_seed(1)
    both = direction == "bidirectional"
    module = KINDS[kind](4, hidden, bidirectional=both, batch_first=False).to(dtype)
    x = torch.from_numpy(random(steps, 2, 4)).to(dtype)
    state = torch.from_numpy(random(1 + both, 2, hidden, seed=2)).to(dtype)
    start: Any = (state, state * 0.5) if kind == "LSTM" else state
    given = pack_padded_sequence(x, lengths, enforce_sorted=False) if lengths else x
    with torch.no_grad():
        y, last = module(given, start) if states else module(given)
        if lengths:
            y, _ = pad_packed_sequence(y, total_length=steps)
    y = y.reshape(steps, 2, 1 + both, hidden).permute(0, 2, 1, 3)
    finals = [last] if kind != "LSTM" else list(last)
    initial = ([state, state * 0.5] if kind == "LSTM" else [state]) if states else []
    if layout:
        x, y = x.transpose(0, 1), y.permute(2, 0, 1, 3)
        finals, initial = ([t.transpose(0, 1) for t in side] for side in (finals, initial))
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "layout": layout}
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    inputs = [x.contiguous().numpy(), *weights(module, kind, ["", "_reverse"][: 1 + both])]
    inputs += [None if lengths is None else np.array(lengths, np.int32)]
    inputs += [t.contiguous().numpy() for t in initial]
    expected = [t.contiguous().numpy() for t in (y, *finals)]
    return Case(op=kind, inputs=inputs, attributes=attributes, expected=expected, atol=1e-5)


def symbolic(case: Case, sizes: dict[int, str]) -> Case:
    case.symbolic = sizes
    return case


def special(kind: str, gates: int, peepholes: bool = False, **attributes: Any) -> Case:
    x, w, r = random(3, 2, 4), random(1, gates * 2, 4, seed=1), random(1, gates * 2, 2, seed=2)
    inputs: list[np.ndarray | None] = [x, w, r, random(1, 2 * gates * 2, seed=3)]
    if peepholes:
        inputs += [None, None, None, random(1, 6, seed=4)]
    attributes = {"hidden_size": 2, **attributes}
    return Case(op=kind, inputs=inputs, attributes=attributes, outputs=2, version=14)


CASES = {
    **{kind: network(kind) for kind in KINDS},
    **{
        f"{kind}, both ways, lengths": network(kind, direction="bidirectional", lengths=[3, 5])
        for kind in KINDS
    },
    **{f"{kind}, states, batch first": network(kind, states=True, layout=1) for kind in KINDS},
    "LSTM, everything": network("LSTM", direction="bidirectional", lengths=[5, 1], states=True, layout=1),
    "one unit": network("LSTM", hidden=1),
    "symbolic batch": symbolic(network("LSTM", lengths=[3, 5], states=True), {2: "N"}),
    "symbolic steps": symbolic(network("GRU", steps=7, direction="bidirectional", hidden=5), {7: "T"}),
    "one step": network("GRU", steps=1, states=True),
    "double": network("LSTM", dtype=torch.float64, lengths=[2, 4]),
    "GRU, reset before": special("GRU", 3),
    "LSTM, peepholes": special("LSTM", 4, peepholes=True),
}


# parts of cases that stay
SLOW = (*KINDS, "RNN, states, batch first", "GRU, states, batch first", "one unit")


@pytest.mark.parametrize("title", slowed(CASES, *SLOW))
def test_values(outcome: Outcome) -> None:
    outcome.check()


def activated(x: np.ndarray, w: float, function: Any) -> np.ndarray:
    h, results = 0.0, []
    for value in x.reshape(-1):
        h = float(function(value * w + h * 0.5))
        results.append(h)
    return np.array(results, np.float32).reshape(-1, 1, 1, 1)


def sequence(names: list[str], function: Any, **attributes: Any) -> tuple[Case, Any]:
    x = np.linspace(-3, 3, 9, dtype=np.float32).reshape(9, 1, 1)
    inputs = [x, np.full((1, 1, 1), 1.5, np.float32), np.full((1, 1, 1), 0.5, np.float32)]
    attributes = {"hidden_size": 1, "activations": names, **attributes}
    expected = [activated(x, 1.5, function)]
    return Case(op="RNN", inputs=inputs, attributes=attributes, expected=expected), function


EXTRA = {
    "Relu": sequence(["Relu"], lambda v: max(v, 0)),
    "Affine": sequence(["Affine"], lambda v: 0.3 * v + 0.1, activation_alpha=[0.3], activation_beta=[0.1]),
    "LeakyRelu": sequence(["LeakyRelu"], lambda v: v if v >= 0 else 0.2 * v, activation_alpha=[0.2]),
    "HardSigmoid": sequence(["HardSigmoid"], lambda v: min(max(0.2 * v + 0.5, 0), 1)),
    "Elu": sequence(["Elu"], lambda v: v if v >= 0 else np.exp(v) - 1),
    "Softplus": sequence(["softplus"], lambda v: np.log1p(np.exp(v))),
    "Softsign": sequence(["Softsign"], lambda v: v / (1 + abs(v))),
    "ScaledTanh": sequence(
        ["ScaledTanh"], lambda v: 2 * np.tanh(0.7 * v), activation_alpha=[2.0], activation_beta=[0.7]
    ),
    "clipped": sequence(["Tanh"], lambda v: np.tanh(np.clip(v, -0.4, 0.4)), clip=0.4),
}
CASES |= {title: case for title, (case, _) in EXTRA.items()}


@pytest.mark.parametrize("title", EXTRA)
def test_activations(outcome: Outcome) -> None:
    outcome.check()


TEXT = (
    "g (float[7, 8, 4] X, float[1, 64, 4] W, float[1, 64, 16] R) "
    "=> (float[7, 1, 8, 16] Y, float[1, 8, 16] H) "
    "{ Y, H = LSTM <hidden_size = 16> (X, W, R) }"
)


def test_sequences_of_a_batch_run_beside_each_other() -> None:
    network = lowered_text(TEXT, ("native",))[1].network
    lanes = [n.map for n in network.state.nodes() if isinstance(n, MapEntry) and n.label == "LSTM_steps"]
    assert len(lanes) == 1, "the steps are one loop, however many there are"
    x, w, r = torch.randn(7, 8, 4), torch.randn(1, 64, 4), torch.randn(1, 64, 16)
    module = nn.LSTM(4, 16, bias=False)
    for name, value in (("weight_ih_l0", w), ("weight_hh_l0", r)):
        i, o, f, c = value[0].chunk(4)
        getattr(module, name).data = torch.cat([i, f, c, o])
    with torch.no_grad():
        expected, (last, _) = module(x)
    y, h = program(TEXT, ("native",))([x, w, r])
    torch.testing.assert_close(y[:, 0], expected)
    torch.testing.assert_close(h, last)


@pytest.mark.parametrize(
    ("attributes", "facts"),
    [({"activations": ["Swish"]}, ["activation", "'Swish'"]), ({"direction": "up"}, ["direction", "'up'"])],
)
def test_what_is_not_known_is_refused(attributes: dict[str, Any], facts: list[str]) -> None:
    case = network("RNN")
    case.attributes = {**case.attributes, **attributes}
    with raises(NoImplementationError, "RNN", *facts):
        lowered(case)
