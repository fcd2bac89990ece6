"""Names of kernels of compiled programs, and what a trace or a stored program says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import TraceFileError
from daceml.profiling.kernel_names import KernelOrigin, common_layer, function_of, programs_of, with_programs
from daceml.transformations.standard import device_recipe
from tests.support.golden import raises
from tests.support.recorded_calls import Recording


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("daceml::kernel::Softmax_0_0_3_ab12(float const*, float*)", "Softmax_0_0_3_ab12"),
        ("void daceml::kernel::Softmax_0_0_3_ab12(float const*, float*)", "Softmax_0_0_3_ab12"),
        ("_ZN6daceml6kernel18Softmax_0_0_3_ab12EPKfPf", "Softmax_0_0_3_ab12"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >", None),
        ("ampere_sgemm_128x64_nn", None),
    ],
)
def test_functions_are_known_by_their_namespace(name: str, function: str | None):
    assert function_of(name) == function


@pytest.mark.parametrize(
    ("layers", "common"),
    [
        (["encoder.0.norm", "encoder.0.fc"], "encoder.0"),
        (["encoder.0", "encoder.01"], "encoder"),
        (["fc"], "fc"),
        (["fc", ""], ""),
        (["fc", "norm"], ""),
        ([], ""),
    ],
)
def test_layers_share_the_module_that_holds_them(layers: list[str], common: str):
    assert common_layer(layers) == common


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(70), nn.LayerNorm(70)
        self.between = nn.Linear(70, 70, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.between(self.first(x)))


def test_a_stored_program_names_the_modules_of_its_kernels():
    compiled = daceml.compile(Twice(), recipe=device_recipe(), backward=False)
    with torch.no_grad():
        compiled(torch.randn(9, 70))
    (variant,) = compiled.session.variants  # pyright: ignore
    run = Recording()
    run.operator("aten::add", 0, 5)
    trace = with_programs(run.trace(), [variant.program.stored.folder])
    (program,) = programs_of(trace)
    launches = [step.launch.function for step in variant.program.manifest.steps if step.launch is not None]
    assert [kernel.function for kernel in program.kernels] == launches
    # one kernel of two layers
    assert len(set(launches)) == 1
    assert [kernel.layers for kernel in program.kernels] == [("first",), ("second",)]
    assert all(kernel.nodes for kernel in program.kernels)


def test_a_folder_without_a_program_is_refused(tmp_path: Path):
    run = Recording()
    run.operator("aten::add", 0, 5)
    with raises(TraceFileError, tmp_path, "programs/", "`daceml cache`", exact=False):  # the system says why
        with_programs(run.trace(), [tmp_path])


@pytest.mark.parametrize(
    "said",
    [
        None, 3, [], {"programs": 3}, {"programs": [3, {"steps": 3}, {"steps": [3, {"function": 3}]}]},
        {"programs": [{"number": "x", "steps": [{"function": "f", "layers": 3, "nodes": [3]}]}]},
    ],
)  # fmt: skip
def test_what_is_no_record_is_left_out(said: object):
    run = Recording()
    run.operator("aten::add", 0, 5)
    found = [kernel for program in programs_of(run.trace(daceml=said)) for kernel in program.kernels]
    assert found in ([], [KernelOrigin(function="f", layers=(), nodes=())])
