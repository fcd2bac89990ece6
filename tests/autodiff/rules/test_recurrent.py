"""Recurrent operators beside the same recurrence in torch: every option of ONNX, every gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from daceml.onnx_ops.domain.saving import STATE_PARTS
from tests.support.implementation_pairs import NATIVE, Case, agree

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "Relu": torch.relu,
    "Affine": lambda x: 0.5 * x + 0.25,
    "LeakyRelu": lambda x: functional.leaky_relu(x, 0.01),
    "HardSigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "Elu": functional.elu,
    "Softsign": functional.softsign,
    "Softplus": functional.softplus,
}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def reference(kind: str, attributes: dict[str, Any]) -> Callable[..., torch.Tensor]:
    """The equations of ONNX's documentation, a step at a time."""
    direction, layout = attributes.get("direction", "forward"), attributes.get("layout", 0)
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    clip = attributes.get("clip")
    names = attributes.get("activations") or DEFAULTS[kind] * len(ways)
    each = len(names) // len(ways)

    def bounded(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: FUNCTIONS[name](x if clip is None else x.clamp(-clip, clip))

    def layer(
        x: torch.Tensor,
        w: torch.Tensor,
        r: torch.Tensor,
        b: torch.Tensor,
        h: torch.Tensor,
        c: torch.Tensor,
        p: torch.Tensor,
        f: Sequence[Callable[[torch.Tensor], torch.Tensor]],
    ) -> list[torch.Tensor]:
        wb, rb = b.chunk(2)
        found: list[torch.Tensor] = []
        for step in x:
            a = step @ w.T + wb
            if kind == "RNN":
                h = f[0](a + h @ r.T + rb)
            elif kind == "GRU":
                (az, ar, an), (rz, rr, rn) = a.chunk(3, -1), r.chunk(3)
                bz, br, bn = rb.chunk(3)
                z, reset = f[0](az + h @ rz.T + bz), f[0](ar + h @ rr.T + br)
                after = attributes.get("linear_before_reset", 0)
                n = f[1](an + (reset * (h @ rn.T + bn) if after else (reset * h) @ rn.T + bn))
                h = (1 - z) * n + z * h
            else:
                i, o, forget, g = (a + h @ r.T + rb).chunk(4, -1)
                pi, po, pf = p.chunk(3)
                i = f[0](i + pi * c)
                forget = 1 - i if attributes.get("input_forget") else f[0](forget + pf * c)
                c = forget * c + i * f[1](g)
                h = f[0](o + po * c) * f[2](c)
            found.append(h)
        return found

    def run(
        X: torch.Tensor,
        W: torch.Tensor,
        R: torch.Tensor,
        B: torch.Tensor | None = None,
        sequence_lens: torch.Tensor | None = None,
        initial_h: torch.Tensor | None = None,
        initial_c: torch.Tensor | None = None,
        P: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = X.transpose(0, 1) if layout else X
        steps, batch = x.shape[:2]
        hidden = R.shape[2]
        starts = [
            torch.zeros(len(ways), batch, hidden, dtype=X.dtype)
            if s is None
            else s.transpose(0, 1)
            if layout
            else s
            for s in (initial_h, initial_c)
        ]
        y = torch.zeros(steps, len(ways), batch, hidden, dtype=X.dtype)
        rows: list[list[torch.Tensor]] = []
        for d, backward in enumerate(ways):
            f = [bounded(name) for name in names[d * each :][:each]]
            b = torch.zeros(2 * len(W[d]), dtype=X.dtype) if B is None else B[d]
            p = torch.zeros(3 * hidden, dtype=X.dtype) if P is None else P[d]
            columns: list[torch.Tensor] = []
            for n in range(batch):
                length = steps if sequence_lens is None else int(sequence_lens[n])
                part = x[:length, n]
                found = layer(
                    part.flip(0) if backward else part, W[d], R[d], b, starts[0][d, n], starts[1][d, n], p, f
                )
                found = found[::-1] if backward else found
                found += [torch.zeros(hidden, dtype=X.dtype)] * (steps - length)
                columns.append(torch.stack(found))
            rows.append(torch.stack(columns, 1))
        y = torch.stack(rows, 1)
        return y.permute(2, 0, 1, 3) if layout else y

    return run


def case(
    kind: str,
    *,
    steps: int = 4,
    batch: int = 2,
    width: int = 3,
    hidden: int = 5,
    bias: bool = True,
    starts: bool = False,
    peepholes: bool = False,
    lengths: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float64,
    symbolic: dict[int, str] | None = None,
    **attributes: Any,
) -> Case:
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    d = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * hidden
    layout = attributes.get("layout", 0)
    inputs: dict[str, torch.Tensor] = {
        "X": drawn(*((batch, steps) if layout else (steps, batch)), width),
        "W": drawn(d, rows, width),
        "R": drawn(d, rows, hidden),
    }
    if bias:
        inputs["B"] = drawn(d, 2 * rows)
    if starts:
        for name in ("initial_h", "initial_c")[: 1 + (kind == "LSTM")]:
            inputs[name] = drawn(*((batch, d) if layout else (d, batch)), hidden)
    if peepholes:
        inputs["P"] = drawn(d, 3 * hidden)
    wanted = tuple(inputs)
    if lengths is not None:
        inputs["sequence_lens"] = torch.tensor(lengths, dtype=torch.int32)
    y = drawn(*((batch, steps, d) if layout else (steps, d, batch)), hidden)
    state = torch.empty(d, steps + 1, batch, STATE_PARTS[kind] * hidden, dtype=dtype)
    return Case(
        op=f"{kind}Saving",
        domain="daceml",
        inputs=inputs,
        outputs={"Y": y, "State": state},
        attributes=attributes,
        reference=reference(kind, attributes),
        wanted=wanted,
        symbolic=symbolic or {},
    )


ANY = {
    "LSTM, both ways": case("LSTM", direction="bidirectional", starts=True, layout=1, lengths=[4, 2]),
    "GRU, both ways": case(
        "GRU", direction="bidirectional", starts=True, linear_before_reset=1, lengths=[1, 4]
    ),
    "GRU, reset before": case("GRU", starts=True, direction="reverse"),
    "RNN": case(
        "RNN",
        direction="bidirectional",
        activations=["Elu", "Affine"],
        activation_alpha=[1.0, 0.5],
        activation_beta=[0.25],
        clip=0.75,
    ),
    "LSTM, peepholes": case("LSTM", peepholes=True, starts=True, direction="bidirectional"),
    "LSTM, coupled gates": case("LSTM", input_forget=1, peepholes=True, bias=False, batch=1, hidden=1),
    "symbolic": case("GRU", batch=7, steps=9, symbolic={7: "N", 9: "T", 10: "T + 1"}, dtype=torch.float32),
}
PLAIN = {
    "LSTM": case("LSTM", direction="bidirectional", starts=True),
    "GRU": case("GRU", direction="bidirectional", starts=True, linear_before_reset=1),
    "RNN": case("RNN", direction="reverse", starts=True, activations=["Relu"]),
    "no bias": case("LSTM", direction="reverse", bias=False),
    "no bias of a GRU": case("GRU", bias=False, linear_before_reset=1),
    "one of everything": case("LSTM", steps=1, batch=1, width=1, hidden=1),
    "float32": case("LSTM", dtype=torch.float32, hidden=17, width=9, starts=True),
    "symbolic": case("GRU", batch=7, steps=9, symbolic={7: "N", 9: "T", 10: "T + 1"}, linear_before_reset=1),
    "tanh": case("RNN", hidden=1),
}


def test_gradients_are_those_of_the_equations():
    agree(ANY, forward=NATIVE, backward=NATIVE)


def test_products_of_torch_give_the_same():
    first, chosen = agree(PLAIN)
    assert set(first.chosen) == {"aten:products"}
    assert set(chosen) == {"aten:products_backward"}


def test_states_mean_the_same_to_every_implementation():
    # gradients of either kind from its own states are above, so one mixture is enough
    agree({title: PLAIN[title] for title in ("LSTM", "GRU", "RNN")}, forward=NATIVE)
