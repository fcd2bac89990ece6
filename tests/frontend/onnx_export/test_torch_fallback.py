"""Operators that ONNX does not have are nodes that torch's own kernels run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

import daceml
from daceml.autodiff.engine import add_gradients
from daceml.errors import DeploymentError, ExportError, GradientError, UnknownOperatorError
from daceml.frontend.capture.capture import export_program
from daceml.frontend.onnx_export.export import to_onnx
from daceml.frontend.onnx_import.importer import import_model
from daceml.module.module import DaceModule, compile_module
from tests.support.golden import raises


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def positive(n: int) -> torch.Tensor:
    a = randn(n, n)
    return a @ a.T + n * torch.eye(n, dtype=torch.float64)


def pair(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, 1 - x)


def written(x: torch.Tensor) -> torch.Tensor:
    """Complex numbers written into parts of complex tensors, in each of the ways that code has."""
    spectrum = torch.zeros(3, *x.shape, dtype=torch.complex128)
    spectrum[0, :, :2] = pair(x)[:, :2]
    spectrum[1] = x  # of real numbers
    spectrum[-1] = pair(x)[0]  # of another shape
    spectrum[:, 0, -1] *= 2j
    spectrum.diagonal(dim1=-1, dim2=0).copy_(pair(x)[:, :3])
    return spectrum


# name -> forward, the arguments, whether they require gradients
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]], bool]] = {
    "inverse": (torch.linalg.inv, lambda: (positive(4),), True),
    "inverse of nothing": (torch.linalg.inv, lambda: (randn(0, 3, 3),), True),
    "inverse of a transposed slice": (lambda x: torch.linalg.inv(x.T)[::2] * 2, lambda: (positive(5),), True),
    "solve": (torch.linalg.solve, lambda: (positive(4), randn(4, 2)), True),
    "two results": (lambda x: tuple(torch.linalg.slogdet(x)), lambda: (positive(3),), True),
    "a result that nobody reads": (lambda x: torch.linalg.eigh(x)[0], lambda: (positive(3),), True),
    "a gradient of one operand": (
        lambda a, b: torch.linalg.solve(a.detach(), b), lambda: (positive(3), randn(3)), True,
    ),
    "between kernels": (
        lambda x: torch.lgamma(x.square() + 1).sin() + torch.digamma(x.abs() + 1),
        lambda: (randn(3, 5),), True,
    ),
    "an operand twice": (lambda x: torch.special.zeta(x, x), lambda: (randn(4).abs() + 2,), False),
    "a list of tensors": (lambda a, b: torch.hstack([a, b]), lambda: (randn(3), randn(4)), True),
    "a list of results": (
        lambda x: torch.linalg.lu_factor(x)[0] + torch.linalg.lu_factor(x)[1], lambda: (positive(3),), True,
    ),
    "integers": (torch.gcd, lambda: (torch.arange(5) * 6, torch.tensor(4)), False),
    "half": (lambda x: torch.lgamma(x.bfloat16() + 3), lambda: (randn(5).abs(),), True),
    "a mask": (lambda x, y: x.masked_scatter(x > 0, y), lambda: (randn(3, 4), randn(12)), True),
    "windows that do not divide": (
        lambda x: F.adaptive_max_pool3d(x, (2, 3, 2)), lambda: (randn(1, 2, 5, 7, 3),), True,
    ),
    "targets": (
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, 2, -1, 0], [0, -1, 1, 1]])),
        lambda: (randn(2, 4),), True,
    ),
    "targets, in a graph that is traced again for another operator": (
        lambda x, y: F.pairwise_distance(x, y)
        + F.multilabel_margin_loss(x, torch.tensor([[1, 2, -1, 0], [0, -1, 1, 1]])),
        lambda: (randn(2, 4), randn(2, 4)), True,
    ),
    "complex inside": (lambda x: torch.fft.rfft(x).abs(), lambda: (randn(3, 8),), True),
    "complex products": (
        lambda x: torch.einsum("ij,jk->ik", pair(x), pair(x).conj()).imag, lambda: (randn(3, 3),), True,
    ),
    "complex result": (lambda x: torch.fft.fft(x.sin()), lambda: (randn(3, 8),), True),
    "complex argument": (
        lambda x: (x * x.conj() + x).real, lambda: (torch.randn(5, dtype=torch.complex128),), True,
    ),
    "complex views": (
        lambda x: torch.view_as_real(torch.fft.fft(x)).transpose(0, 1)[..., 1], lambda: (randn(4, 6),), True,
    ),
    "complex writes": (lambda x: written(x).abs(), lambda: (randn(4, 5) + 3,), True),
    "the value of a tensor": (
        lambda x, n: F.leaky_relu(x, n.item()), lambda: (randn(5), torch.tensor(0.3)), False,
    ),
    "windows of a signal": (
        lambda x: torch.stft(x, 16, window=x[0, :16].sigmoid(), return_complex=True).abs(),
        lambda: (randn(2, 64),), True,
    ),
}  # fmt: skip


def results_and_gradients(
    function: Callable[..., Any], given: tuple[torch.Tensor, ...], gradients: bool
) -> list[Any]:
    tensors = [t.clone().requires_grad_(gradients) for t in given]
    result = function(*tensors)
    results = result if isinstance(result, tuple) else (result,)
    wanted = [r for r in results if r.requires_grad]
    if wanted:
        seeds = [torch.linspace(0.5, 2, r.numel(), dtype=r.dtype).reshape(r.shape) for r in wanted]
        torch.autograd.backward(wanted, seeds)
    return [*results, *(t.grad for t in tensors)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_gives_eagers_numbers(name: str):
    function, make, gradients = PROGRAMS[name]
    torch.manual_seed(0)
    given = make()
    compiled = compile_module(Calls(function), fullgraph=True)
    for _ in range(2):
        found = results_and_gradients(compiled, given, gradients)
        wanted = results_and_gradients(function, given, gradients)
        for ours, theirs in zip(found, wanted, strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                assert ours.requires_grad == theirs.requires_grad
                torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    assert len(compiled.session.variants) == 1


def test_sizes_may_be_symbolic():
    class Covers(nn.Module):
        def forward(self, x):
            n = x.shape[0]
            return torch.linalg.inv(x @ x.T + n * torch.eye(n)) + x.sum(), torch.lgamma(x.abs() + n)

    compiled = compile_module(Covers(), fullgraph=True, dynamic=True)
    for n in (3, 5, 4, 1):
        x = torch.randn(n, 2, dtype=torch.float32)
        for ours, theirs in zip(compiled(x), Covers()(x), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(compiled.session.variants) <= 2


def test_statistics_that_no_schema_says_are_changed_once():
    """Their operator is in no program: one that is compared with eager PyTorch runs several times."""
    function = lambda x, mean, var: F.instance_norm(x, mean, var, momentum=0.5)  # noqa: E731
    with raises(ExportError, "instance_norm", "statistics", exact=False):
        compile_module(Calls(function), fullgraph=True)(randn(2, 3, 4), randn(3), randn(3).abs())
    compiled = compile_module(Calls(function), fullgraph=False)
    theirs = (randn(3), randn(3).abs())
    ours = tuple(x.clone() for x in theirs)
    for _ in range(2):
        x = randn(2, 3, 4)
        torch.testing.assert_close(compiled(x, *ours), function(x, *theirs))
        torch.testing.assert_close(ours, theirs)


def test_compiling_draws_no_random_numbers():
    """An operator without tensors among its operands, of a symbolic size, is tried with numbers."""
    function = lambda x: x[torch.randperm(x.shape[0])]  # noqa: E731
    compiled = compile_module(Calls(function), fullgraph=True, dynamic=True)
    x = randn(7, 2)
    for _ in range(2):
        torch.manual_seed(3)
        ours = compiled(x)
        torch.manual_seed(3)
        assert torch.equal(ours, function(x))


def test_random_numbers_are_drawn_in_order():
    def forward(x):
        return (
            torch.rand(3),
            torch.poisson(x.abs() * 5),
            torch.randn(3),
            torch.binomial(x.abs() * 0 + 9, x * 0 + 0.5),
        )

    compiled = compile_module(Calls(forward), fullgraph=True)
    x = torch.randn(3)
    for seed in (1, 2):
        torch.manual_seed(seed)
        ours = compiled(x)
        after = torch.get_rng_state()
        torch.manual_seed(seed)
        theirs = forward(x)
        assert torch.equal(after, torch.get_rng_state())
        assert all(map(torch.equal, ours, theirs))


def test_operators_of_the_users_own():
    library = torch.library.Library("daceml_test_fallback", "DEF")
    library.define("scaled(Tensor x, float by) -> (Tensor, Tensor)")

    def scaled(x: torch.Tensor, by: float) -> tuple[torch.Tensor, torch.Tensor]:
        return x * by, x.view(-1)  # the second one is a view of its operand

    library.impl("scaled", scaled, "CompositeExplicitAutograd")
    torch.library.register_autograd(
        "daceml_test_fallback::scaled",
        lambda ctx, dy, dz: (dy * ctx.by + dz.view_as(dy), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
        lib=library,
    )
    function = lambda x: torch.ops.daceml_test_fallback.scaled(x.sin(), 2.5)  # noqa: E731
    compiled = compile_module(Calls(function), fullgraph=True)
    given = (randn(2, 3),)
    for ours, theirs in zip(
        results_and_gradients(compiled, given, True),
        results_and_gradients(function, given, True),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_buffers_and_parameters_change_as_in_eager():
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3, dtype=torch.float64))
            self.phase = nn.Parameter(torch.randn(5, dtype=torch.complex128))

        def forward(self, x):
            self.seen.add_(torch.histc(x, 3))
            return torch.fft.irfft(torch.fft.rfft(x) * self.phase, n=8)

    eager = Counts()
    module = copy.deepcopy(eager)
    compiled = compile_module(module, fullgraph=True)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (eager, module)]
    for _ in range(3):
        x = randn(2, 8)
        for called, optimizer in zip((eager, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            called(x).square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(module.phase, eager.phase)
        torch.testing.assert_close(module.seen, eager.seen)
    torch.testing.assert_close(compiled(x), eager(x))


def test_an_operators_own_error_is_eagers():
    compiled = compile_module(Calls(lambda x: torch.linalg.inv(x) + 1), fullgraph=True)
    good = torch.eye(3)
    with torch.no_grad():
        compiled(good)
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            compiled(torch.zeros(3, 3))
        torch.testing.assert_close(compiled(good), good + 1)


def test_what_cannot_be_differentiated_is_refused():
    program = export_program(Calls(lambda x: torch.special.zeta(x + 2, x + 1)), (torch.rand(3),))
    network = import_model(to_onnx(program), name="zeta")
    with raises(GradientError, "special_zeta", "the derivative for 'zeta' is not implemented"):
        add_gradients(network, network.outputs, network.inputs)


def test_the_exported_model_says_so(tmp_path: Path):
    program = export_program(Calls(lambda x: torch.lgamma(x).sin()), (torch.rand(3, 4),))
    model = to_onnx(program)
    (node,) = [node for node in model.graph if node.domain == "daceml.aten"]
    assert node.op_type == "aten.lgamma.default"
    assert (
        node.attributes["call"].as_string()
        == '{"args": [{"tensor": 0}], "kwargs": {}, "operator": "aten.lgamma.default"}'
    )
    compiled = compile_module(Calls(lambda x: torch.lgamma(x).sin()), fullgraph=True)
    compiled(torch.rand(3, 4))
    onnx.checker.check_model(compiled.onnx_model)
    file = tmp_path / "lgamma.onnx"
    onnx.save(compiled.onnx_model, file)
    with raises(UnknownOperatorError, "aten.lgamma.default", "no ONNX file may name"):
        daceml.ONNXModel(str(file))(torch.rand(3, 4))


def test_explain_counts_it():
    compiled = compile_module(Calls(lambda x: torch.lgamma(x).sin()), fullgraph=True)
    said = daceml.explain(compiled, torch.rand(3, 4))
    assert said.counts["torch"] == 1
    assert "1 torch" in str(said)
    assert (
        "run by torch's own kernels, called by name:\n  aten.lgamma.default (test_torch_fallback.py"
        in str(said)
    )


def test_it_can_be_turned_off(no_fallback: None):
    with raises(ExportError, "lgamma.default", "DACEML_FALLBACK=none"):
        compile_module(Calls(torch.lgamma), fullgraph=True)(torch.rand(3))


def test_a_library_has_no_python(tmp_path: Path):
    compiled: DaceModule = compile_module(Calls(torch.lgamma), fullgraph=True, backward=False).eval()
    with raises(DeploymentError, "aten.lgamma.default", "Python"):
        daceml.export(compiled, torch.rand(3), to=tmp_path / "out", libtorch=True)


@pytest.mark.parametrize(
    "reordered",
    [
        lambda x: x.mT,
        lambda x: x.transpose(0, -1),
        lambda x: x.permute(1, 2, 0).transpose(-1, 0),
        lambda x: x.permute(2, 0, 1).permute(1, 2, 0),
        lambda x: x.swapaxes(1, 0),
        lambda x: x[0].T,
        lambda x: x[:, 1].t(),
    ],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_an_operator_reads_operands_in_another_order_where_they_lie(
    reordered: Callable[[torch.Tensor], torch.Tensor], gradients: bool
):
    function = lambda x: torch.special.i0e(reordered(x.sin())) * 2  # noqa: E731
    compiled = compile_module(Calls(function), fullgraph=True, backward=gradients)
    given = (randn(3, 4, 5),)
    for ours, theirs in zip(
        results_and_gradients(compiled, given, gradients),
        results_and_gradients(function, given, gradients),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
    steps = compiled.session.latest.program.manifest.steps
    assert not any("Transpose" in step.title for step in steps)
