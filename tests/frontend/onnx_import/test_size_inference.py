"""What is computed from sizes is known before the model runs: where slices begin, how much borders add."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx.parser
import pytest
import torch
from torch import nn
from torch.nn.functional import pad

from daceml.frontend.onnx_import.importer import import_source
from daceml.frontend.onnx_import.model_file import ModelSource, checked
from daceml.module.module import compile_module


def sizes(graph: str) -> dict[str, str]:
    """Elements of every array that is known, as text."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]>\n{graph}')
    network = import_source(checked(ModelSource(model=model, name="net")), name="net")
    return {name: ", ".join(map(str, found)) for name, found in network.sizes.items()}


def test_arithmetic_on_sizes_is_followed():
    found = sizes("""
        g (float[N, T] x) => (int64[2] both, int64[1] lower, int64[1] rest, int64[1] kept, int64[] count,
              int64[1] fitting)
        <int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}, int64[1] eight = {8}> {
            shape = Shape(x)
            t = Gather(shape, one)
            both = Concat<axis = 0>(t, t)
            lower = Div(t, two)
            minus = Neg(t)
            rest = Mod(minus, four)
            kept = Min(t, eight)
            count = Size(x)
            over = Mod(t, lower)
            whole = Sub(t, over)
            fitting = Div(whole, lower)
        }""")
    assert found["both"] == "T, T"
    assert found["lower"] == "int_floor(T, 2)"
    assert found["rest"] == "-T + 4*int_floor(T + 3, 4)"
    assert found["kept"] == "Min(8, T)"
    assert found["count"] == "N*T"
    assert found["fitting"] == "int_floor(T, int_floor(T, 2))"


@pytest.mark.parametrize(
    "text", ["Div(less, two)", "Div(two, less)", "Mod(t, less)", "Mod<fmod = 1>(minus, two)"]
)
def test_what_rounds_in_a_way_that_is_not_known_is_left_to_the_run(text: str):
    found = sizes(f"""
        g (float[T] x) => (int64[1] y) <int64[1] two = {{2}}, int64[1] nine = {{9}}> {{
            t = Shape(x)
            less = Sub(t, nine)
            minus = Neg(t)
            y = {text}
        }}""")
    assert "y" not in found


class Scaled(nn.Module):
    """A function of a tensor [2, n, 4] with a parameter, so that there is a gradient of both."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x * self.scale)


def agree(function: Callable[[torch.Tensor], torch.Tensor], lengths: tuple[int, ...]) -> Scaled:
    """Values and gradients are eager's for all lengths, in one program each time."""
    eager = Scaled(function)
    compiled = compile_module(eager, dynamic=True, fullgraph=True)
    for length in lengths:
        ours, theirs = (gradients(module, eager, length) for module in (compiled, eager))
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    return compiled


def gradients(module: nn.Module, eager: Scaled, length: int) -> list[torch.Tensor]:
    x = torch.linspace(-1, 2, 8 * length).reshape(2, length, 4).requires_grad_()
    eager.zero_grad()
    y = module(x)
    (y * torch.arange(y.numel()).reshape(y.shape).cos()).sum().backward()
    assert x.grad is not None
    assert eager.scale.grad is not None
    return [y.detach(), x.grad, eager.scale.grad]


LENGTHS = (8, 3, 5, 1, 16)


def test_slices_that_begin_at_a_part_of_the_size():
    compiled = agree(
        lambda x: x[:, x.shape[1] // 2 :] + x[:, -(-x.shape[1] // 2) - x.shape[1] % 2 :][:, :1], (8, 6, 10)
    )
    assert len(compiled.session.variants) == 1
    agree(lambda x: x[:, : (x.shape[1] + 1) // 2], LENGTHS)


def test_borders_up_to_a_multiple():
    """A border may be 0 wide, also for the sizes that costs are estimated at."""
    agree(lambda x: pad(x.transpose(1, 2), (0, -x.shape[1] % 4)), LENGTHS)
    agree(lambda x: pad(x, (0, 0, x.shape[1] % 2, math.ceil(x.shape[1] / 4) * 4 - x.shape[1])), LENGTHS)


def test_a_border_that_may_crop():
    agree(lambda x: pad(x, (0, 0, 0, 6 - x.shape[1])), (8, 3, 6, 7))


def test_chunks_and_repetitions():
    agree(lambda x: torch.cat([part * n for n, part in enumerate(x.chunk(2, 1), 1)], 1), LENGTHS)
    agree(lambda x: x.repeat(1, 2, 1) + x.new_ones(4).repeat(2 * x.shape[1], 1), LENGTHS)


def test_overlapping_windows_whose_length_is_computed():
    def overlapping(x: torch.Tensor) -> torch.Tensor:
        count = x.shape[1] // 8
        windows = x.cumsum(1).view(x.shape[0], count, x.shape[1] // count, 4)
        size, strides = list(windows.size()), list(windows.stride())
        size[1], strides[1] = 2 * size[1] - 1, strides[1] // 2
        return windows.as_strided(size, strides) * 2

    agree(overlapping, (16, 24, 48))


def test_windows_and_parts_one_by_one():
    agree(lambda x: x.unfold(1, 3, 2), (8, 3, 5))
    agree(lambda x: sum(part * n for n, part in enumerate(x.unbind(1), 1)) + 0.0 * x[:, 0], (3, 2))
