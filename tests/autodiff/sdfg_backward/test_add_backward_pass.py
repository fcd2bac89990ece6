"""Backward passes of DaCe programs, against PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import dace
import numpy as np
import pytest
import torch
from dace.frontend.python.parser import DaceProgram

from daceml.autodiff import add_backward_pass
from daceml.autodiff.gradient_report import gradient_report
from daceml.errors import GradientError
from tests.autodiff.programs import PROGRAMS, Program
from tests.support.golden import golden, raises
from tests.support.quick_programs import quick_programs
from tests.support.sampling import sampled

# Of dace's own nodes.
pytestmark = pytest.mark.filterwarnings("ignore:Using sets for connectors")

# Both forms are differentiated; these compile both, the others only one, to save compilers' time.
BOTH = {"jacobi", "branch_in_loop", "overwritten", "in_maps"}


@pytest.fixture(autouse=True, scope="module")
def quick_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_programs(tmp_path_factory.mktemp("programs")):
        yield


def run(name: str, program: Program, *, simplify: bool) -> None:
    random = np.random.default_rng(0)
    sdfg = program.program.to_sdfg(simplify=simplify)
    sdfg.name = f"{name}_{simplify}"
    add_backward_pass(sdfg, program.outputs, program.inputs)
    dtype = {a: d.dtype.type for a, d in sdfg.arrays.items()}
    given = {a: random.normal(size=s).astype(dtype[a]) for a, s in program.shapes.items()}
    given |= program.fixed
    tensors = {a: torch.tensor(np.asarray(v), requires_grad=a in program.inputs) for a, v in given.items()}
    expected = program.oracle(**tensors)
    cotangents = {
        o: random.normal(size=e.shape).astype(dtype[o])
        for o, e in zip(program.outputs, expected, strict=True)
    }
    gradients = torch.autograd.grad(
        expected,
        [tensors[i] for i in program.inputs],
        [torch.tensor(c) for c in cotangents.values()],
        allow_unused=True,
    )
    held = {f"gradient_{i}": np.full(np.shape(given[i]) or (1,), np.nan, dtype[i]) for i in program.inputs}
    held |= {f"gradient_{o}": c.copy() for o, c in cotangents.items()}
    values = {a: v.copy() if isinstance(v, np.ndarray) else v for a, v in given.items()}
    arguments = {a: v for a, v in values.items() if a in sdfg.arglist()}
    sdfg(**arguments, **held, **program.sizes)
    tolerance = 1e-12 if dtype[program.inputs[0]] is np.float64 else 1e-5
    for output, value in zip(program.outputs, expected, strict=True):
        np.testing.assert_allclose(values[output], value.detach().numpy(), rtol=tolerance, atol=tolerance)
        if output not in program.inputs:
            np.testing.assert_array_equal(held[f"gradient_{output}"], cotangents[output])
    for i, gradient in zip(program.inputs, gradients, strict=True):
        wanted = np.zeros(np.shape(given[i])) if gradient is None else gradient.numpy()
        found = held[f"gradient_{i}"].reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=f"gradient of {i}")


@pytest.mark.parametrize("name", sampled(PROGRAMS, *PROGRAMS.keys() - {"softmax", "mlp", "prefix"}))
def test_gradients_are_those_of_torch(name: str):
    run(name, PROGRAMS[name], simplify=True)


@pytest.mark.parametrize("name", sampled(sorted(BOTH), "branch_in_loop", "overwritten"))
def test_gradients_are_the_same_without_simplifying(name: str):
    run(name, PROGRAMS[name], simplify=False)


N = dace.symbol("N")


@dace.program
def until_small(x: dace.float64[4]):
    while x[0] > 1.0:
        x[:] = x * 0.5


@dace.program
def stops_early(x: dace.float64[N]):
    for i in range(N):
        if x[i] < 0.0:
            break
        x[i] = x[i] * x[i]


@dace.program
def whole_numbers(x: dace.float64[4], k: dace.int64[4]):
    x[:] = x * k


@pytest.mark.parametrize(
    ("program", "output", "facts"),
    [
        (until_small, "x", ["loop", "while"]),
        (stops_early, "x", ["BreakBlock", "jumps"]),
        (whole_numbers, "k", ["gradient of k", "int64"]),
        (whole_numbers, "z", ["gradient of z", "k, x"]),
    ],
)
def test_a_refusal_says_what_and_why(program: DaceProgram, output: str, facts: list[str]):
    # DaCe's names of loops and branches have the lines of this file in them
    with raises(GradientError, *facts, exact=False) as refused:
        add_backward_pass(program.to_sdfg(simplify=True), [output], ["x"])
    error = refused.value
    assert [error.what, error.why, error.fix] == [golden(), golden(), golden()]


def test_code_in_another_language_is_refused():
    sdfg = dace.SDFG("in_cpp")
    sdfg.add_array("x", [1], dace.float64)
    sdfg.add_array("y", [1], dace.float64)
    state = sdfg.add_state()
    tasklet = state.add_tasklet("t", {"a": None}, {"b": None}, "b = a * a;", language=dace.Language.CPP)
    state.add_edge(state.add_read("x"), None, tasklet, "a", dace.Memlet("x[0]"))
    state.add_edge(tasklet, "b", state.add_write("y"), None, dace.Memlet("y[0]"))
    with raises(GradientError, "tasklet t", "CPP"):
        add_backward_pass(sdfg, ["y"], ["x"])


def test_a_gradient_that_is_written_once_has_no_conflict_and_no_zeros():
    sdfg = PROGRAMS["mlp"].program.to_sdfg(simplify=True)
    before = gradient_report(sdfg)
    add_backward_pass(sdfg, ["Y"], ["X", "W", "b", "V"])
    after = gradient_report(sdfg)
    assert after.zero_fills - 2 == before.zero_fills  # where dace's products start from
    assert after.conflict_edges - 2 == before.conflict_edges  # and what they add into
    assert after.maps > before.maps


def test_the_report_counts_conflicts_and_fills():
    sdfg = dace.SDFG("counted")
    for name in ("x", "y", "z"):
        sdfg.add_array(name, [8], dace.float64)
    state = sdfg.add_state()
    state.add_mapped_tasklet(
        "sum", {"i": "0:8"}, {"a": dace.Memlet("x[i]")}, "b = a",
        {"b": dace.Memlet("y[0]", wcr="lambda u, v: u + v")}, external_edges=True,
    )  # fmt: skip
    state.add_mapped_tasklet(
        "fill", {"i": "0:8"}, {}, "b = 0.0", {"b": dace.Memlet("z[i]")}, external_edges=True
    )
    report = gradient_report(sdfg)
    assert (report.conflict_edges, report.zero_fills, report.maps, report.kernels) == (1, 1, 2, 2)


def test_a_statement_whose_result_is_unused_does_not_matter():
    @dace.program
    def squares(x: dace.float64[4], y: dace.float64[4]):
        for i in dace.map[0:4]:
            with dace.tasklet:
                a << x[i]  # noqa: F821
                b >> y[i]  # noqa: F821
                log(3)  # noqa: F821
                b = a * a  # noqa: F821, F841

    sdfg = squares.to_sdfg()
    add_backward_pass(sdfg, ["y"], ["x"])
    x, gradient = np.arange(4.0), np.zeros(4)
    sdfg(x=x, y=np.zeros(4), gradient_x=gradient, gradient_y=np.ones(4))
    np.testing.assert_array_equal(gradient, 2 * x)


def copied(sdfg: dace.SDFG, label: str, source: str, target: str, code: str) -> dace.SDFGState:
    """A state that applies a formula in `a` to each of four elements."""
    state = sdfg.add_state(label, is_start_block=label == "first")
    state.add_mapped_tasklet(
        label, {"e": "0:4"}, {"a": dace.Memlet(f"{source}[e]")}, f"b = {code}",
        {"b": dace.Memlet(f"{target}[e]")}, external_edges=True,
    )  # fmt: skip
    return state


@pytest.mark.parametrize("start", [0.2, 0.8])
def test_jumps_that_come_together_again_are_a_conditional(start: float):
    sdfg = dace.SDFG(f"diamond_{int(start * 10)}")
    for name in ("x", "y", "z"):
        sdfg.add_array(name, [4], dace.float64)
    first = copied(sdfg, "first", "x", "y", "a * a")
    second = copied(sdfg, "second", "y", "y", "a * a")
    third = copied(sdfg, "third", "y", "z", "a * 3.0")
    sdfg.add_edge(first, third, dace.InterstateEdge(condition="x[0] > 0.5"))
    sdfg.add_edge(first, second, dace.InterstateEdge(condition="x[0] <= 0.5"))
    sdfg.add_edge(second, third, dace.InterstateEdge())
    add_backward_pass(sdfg, ["z"], ["x"])
    x, gradient = np.array([start, 1.0, 2.0, 3.0]), np.zeros(4)
    sdfg(x=x, y=np.zeros(4), z=np.zeros(4), gradient_x=gradient, gradient_z=np.ones(4))
    np.testing.assert_allclose(gradient, 6 * x if start > 0.5 else 12 * x**3, rtol=1e-13)
