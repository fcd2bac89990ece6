"""Constants in loops: those that are one number become literals with the same bits, others are read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from daceml.onnx_ops.schema.element_types import BY_ONNX_CODE
from daceml.sdfg.network import Network
from tests.support.imported_networks import imported, values

_BITS = {
    "float": (
        1,
        np.uint32,
        [0x80000000, 0x7FC00000, 0x7F800000, 0xFF800000, 1, 0x80000001, 0x3DCCCCCD, 0x7F7FFFFF],
    ),
    "double": (
        11,
        np.uint64,
        [1 << 63, 0x7FF8 << 48, 0xFFF << 52, 1, 0x3FB999999999999A, (0x7FF << 52) - 1, 3 << 50],
    ),
    "float16": (10, np.uint16, [0x8000, 0x7E00, 0x7C00, 0xFC00, 1, 0x2E66, 0x7BFF, 0x03FF]),
    "bfloat16": (16, np.uint16, [0x8000, 0x7FC0, 0x7F80, 0xFF80, 1, 0x3DCD, 0x7F7F, 0x007F]),
}
_TYPES = {1: torch.float32, 11: torch.float64, 10: torch.float16, 16: torch.bfloat16}


def chosen(*constants: tuple[str, np.ndarray]) -> tuple[Network, list[list[int]], int]:
    """Where(C, constant, X) for C = 1, 0, 1: the network, the bits of its values, and those of X.

    Args:
        constants: the type and the bits of each.
    """
    kinds = list(dict.fromkeys(kind for kind, _ in constants))
    inputs = "".join(f", {kind}[3] X{kind}" for kind in kinds)
    made = [f"{kind}[{k.size}] K{i} = {{{', '.join('0' * k.size)}}}" for i, (kind, k) in enumerate(constants)]
    results = ", ".join(f"{kind}[3] Y{i}" for i, (kind, _) in enumerate(constants))
    nodes = " ".join(f"Y{i} = Where (C, K{i}, X{kind})" for i, (kind, _) in enumerate(constants))
    network = imported(f"g (bool[3] C{inputs}) => ({results}) <{', '.join(made)}> {{ {nodes} }}")
    for name in network.constants:
        kind, number = constants[int(name[1:])]
        network.constants[name] = number.view(BY_ONNX_CODE[_BITS[kind][0]].numpy_type)
    whole = {kind: {2: torch.int16, 4: torch.int32, 8: torch.int64}[_width(kind)] for kind in kinds}
    given = [torch.ones(3, dtype=whole[kind]).view(_TYPES[_BITS[kind][0]]) for kind in kinds]
    found = values(network, torch.tensor([True, False, True]), *given)
    bits = [
        y.view(whole[kind]).numpy().view(_BITS[kind][1]).tolist()
        for (kind, _), y in zip(constants, found, strict=True)
    ]
    return network, bits, 1


def _width(kind: str) -> int:
    return np.dtype(_BITS[kind][1]).itemsize


@pytest.mark.parametrize("size", [1, 3])
def test_bits_of_literals(size: int):
    """Of all types, as one program."""
    every = [(kind, number) for kind, (_, _, numbers) in _BITS.items() for number in numbers]
    network, found, x = chosen(
        *((kind, np.array([number] * size, dtype=_BITS[kind][1])) for kind, number in every)
    )
    for (kind, number), bits in zip(every, found, strict=True):
        assert bits == [number, x, number], kind
    assert not network.constants, "they are read"


def test_what_says_more_than_a_number_is_read():
    """Payload and sign of a NaN, and zeros of both signs."""
    numbers = [[0x7FC01234], [0xFFC00000] * 3, [0, 0x80000000, 0]]
    network, found, x = chosen(*(("float", np.array(number, dtype=np.uint32)) for number in numbers))
    assert found == [[number[0], x, number[-1]] for number in numbers]
    assert len(network.constants) == 3


def test_a_power_of_equal_exponents_is_a_product():
    network = imported("g (float[2, 3] X) => (float[2, 3] Y) <float[3] P = {3, 3, 3}> { Y = Pow (X, P) }")
    x = torch.tensor([[1.5, -2.25, 1e20], [-0.0, float("nan"), -float("inf")]])
    (y,) = values(network, x)
    torch.testing.assert_close(y, x * x * x, rtol=0, atol=0, equal_nan=True)
    (tasklet,) = (n for n in network.state.nodes() if hasattr(n, "code"))
    assert "pow" not in tasklet.code.as_string
    assert not network.constants
