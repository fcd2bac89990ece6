"""DaCe programs as functions of arrays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dace
import numpy as np
import pytest
import torch

from daceml import StandaloneSDFG
from daceml.autodiff import add_backward_pass
from daceml.errors import BackwardUnavailableError, CallError, ConfigurationError
from tests.support.golden import raises
from tests.support.quick_programs import quick_programs

# Of dace's own nodes.
pytestmark = pytest.mark.filterwarnings("ignore:Using sets for connectors")
N = dace.symbol("N")


@pytest.fixture(autouse=True, scope="module")
def quick_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_programs(tmp_path_factory.mktemp("programs")):
        yield


@dace.program
def advance(x: dace.float32[N, 2], y: dace.float32[N, 2], a: dace.float32):
    """Adds to y in place, and returns what is in it then."""
    y[:] = y + a * x
    return y * 2


@dace.program
def curve(x: dace.float64[N], y: dace.float64[N]):
    y[:] = np.sin(x)


@pytest.fixture(scope="module")
def step() -> StandaloneSDFG:
    return StandaloneSDFG(advance.to_sdfg())


@pytest.fixture(scope="module")
def differentiated() -> StandaloneSDFG:
    sdfg = curve.to_sdfg()
    add_backward_pass(sdfg, ["y"], ["x"])
    return StandaloneSDFG(sdfg, outputs=["y", "gradient_x"])


class Foreign:
    """An array of a library that keeps the array-API standard."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def __dlpack__(self, **options: Any) -> Any:
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return SimpleNamespace(from_dlpack=lambda other: Foreign(torch.from_dlpack(other)))


X = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_what_is_written_is_in_the_callers_memory_and_results_are_of_the_kind_that_came_in(
    step: StandaloneSDFG,
):
    assert step.names == ("x", "y", "a", "N", "__return") and step.outputs == ("__return",)
    for given in (lambda a: a, torch.from_numpy, Foreign):
        y = np.ones((3, 2), dtype=np.float32)
        result = step(given(X), given(y), 2.0)
        assert np.array_equal(y, 1 + 2 * X)
        assert type(result) is type(given(y))
        assert np.array_equal(np.from_dlpack(result), 2 + 4 * X)


def test_arguments_are_the_memory_that_was_passed(step: StandaloneSDFG):
    y = np.ones((3, 2), dtype=np.float32)
    for value in (X, Foreign(X), torch.from_numpy(X)):
        bound = step._signature.bind((value, y, 2.0), {})[1]  # pyright: ignore[reportPrivateUsage]
        assert bound.arguments["x"].data_ptr() == X.__array_interface__["data"][0]
        assert bound.arguments["y"].data_ptr() == y.__array_interface__["data"][0]
        assert bound.arguments["N"] == 3 and bound.arguments["a"] == 2.0


def test_a_result_that_is_passed_is_written_in_place(step: StandaloneSDFG):
    y, held = torch.ones(3, 2), torch.zeros(3, 2)
    version = held._version
    assert step(X, y, 1.0, __return=held) is None
    assert torch.equal(held, 2 * y) and held._version > version


@pytest.mark.parametrize(
    "x",
    [X[::-1], np.asfortranarray(X), X.astype(">f4"), torch.from_numpy(X.T.copy()).T, Foreign(X[:, ::-1])],
    ids=["reversed", "Fortran order", "big-endian", "transposed", "foreign and reversed"],
)
def test_what_is_only_read_may_have_any_layout(step: StandaloneSDFG, x: Any):
    expected = np.asarray(x.memory if isinstance(x, Foreign) else x, dtype=np.float32)
    y = np.zeros((3, 2), dtype=np.float32)
    step(x, y, 1.0)
    assert np.array_equal(y, expected)


def test_read_only_memory_may_be_read(step: StandaloneSDFG):
    x, y = X.copy(), np.zeros((3, 2), dtype=np.float32)
    x.flags.writeable = False
    step(x, y, 1.0)
    assert np.array_equal(y, X)


def test_arrays_without_elements(step: StandaloneSDFG):
    empty = np.zeros((0, 2), dtype=np.float32)
    assert step(empty, empty.copy(), 1.0).shape == (0, 2)


def test_gradients_are_made_and_returned(differentiated: StandaloneSDFG):
    x, cotangent = np.linspace(0, 3, 4), np.array([1.0, 2.0, 3.0, 4.0])
    y, gradient = differentiated(x, gradient_y=cotangent)
    # one function of the C library each: at most some roundings
    np.testing.assert_allclose(y, np.sin(x), rtol=1e-14)
    np.testing.assert_allclose(gradient, cotangent * np.cos(x), rtol=1e-14)
    assert cotangent.tolist() == [1, 2, 3, 4]
    held = torch.empty(4, dtype=torch.float64)
    result = differentiated(torch.from_numpy(x), gradient_y=cotangent, gradient_x=held)
    assert torch.equal(result, torch.from_numpy(y)) and torch.equal(held, torch.from_numpy(gradient))


def test_threads_take_turns(differentiated: StandaloneSDFG):
    results: dict[int, bool] = {}

    def work(number: int) -> None:
        x = np.full(1000 + number, number, dtype=np.float64)
        calls = [differentiated(x, gradient_y=np.ones_like(x)) for _ in range(20)]
        results[number] = all(np.allclose(y, np.sin(x), rtol=1e-14, atol=0) for y, _ in calls)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


def frozen(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("y", "facts"),
    [
        (frozen(X), ["read-only"]),
        (Foreign(frozen(X)), ["read-only"]),
        (X.copy()[::-1], ["strides"]),
        (X.astype(">f4"), ["byte order"]),
        (np.asfortranarray(X), ["(2, 1)", "(1, 3)"]),
        (np.zeros((3, 2)), ["float64"]),
        (np.zeros((4, 2), np.float32), ["(4, 2)", "(3, 2)"]),
        (torch.zeros(3, 2).to_sparse(), ["sparse_coo"]),
        (torch.zeros(3, 2, device="meta"), ["meta", "cpu"]),
        ([[1.0]], ["list"]),
        (np.zeros((3, 2), dtype=[("v", "f4")]), ["[('v', '<f4')]"]),
    ],
    ids=[
        "read-only", "foreign and read-only", "reversed", "big-endian", "Fortran order", "another type",
        "another shape", "sparse", "elsewhere", "list", "records",
    ],
)  # fmt: skip
def test_what_cannot_be_written_to_is_refused(step: StandaloneSDFG, y: Any, facts: list[object]):
    with raises(CallError, "'y'", step.sdfg.name, "y: float32 [N, 2]", *facts) as caught:
        step(X, y, 1.0)
    assert caught.value.fix


def test_arrays_that_share_memory_are_refused(step: StandaloneSDFG):
    both = np.zeros((4, 2), dtype=np.float32)
    with raises(CallError, "'y'", "memory") as caught:
        step(both[:3], both[1:], 1.0)
    assert "'y'" in caught.value.what and caught.value.fix.endswith(" x")
    before = both.copy()
    step(both[:2], both[2:], 1.0)
    assert np.array_equal(both, before)


def test_numbers_and_sizes_that_do_not_fit(step: StandaloneSDFG):
    y = np.zeros((3, 2), dtype=np.float32)
    with raises(CallError, "'a'", 0.1, "float32"):
        step(X, y, 0.1)
    with raises(CallError, "'x'", "(3, 2)", "(5, 2)"):
        step(X, y, 1.0, N=5)
    with raises(CallError, "'a'"):
        step(X, y)
    with raises(CallError, "'z'"):
        step(X, y, 1.0, z=y)


def test_a_size_that_no_array_has_alone():
    @dace.program
    def doubled(y: dace.float32[2 * N]):
        y[:] = 1

    with raises(CallError, "doubled", "size N", "N=…"):
        StandaloneSDFG(doubled.to_sdfg())(np.zeros(4, np.float32))


def test_gradients_do_not_flow_through(step: StandaloneSDFG):
    x, y = torch.ones(3, 2, requires_grad=True), torch.zeros(3, 2)
    with raises(BackwardUnavailableError, step.sdfg.name, "x", "torch.no_grad()", "add_backward_pass"):
        step(x, y, 1.0)
    with torch.no_grad():
        step(x, y, 1.0)
    assert torch.equal(y, torch.ones(3, 2))


def test_programs_that_cannot_be_called_through_arrays():
    with raises(ConfigurationError, "StandaloneSDFG", "int", "to_sdfg()"):
        StandaloneSDFG(3)  # pyright: ignore[reportArgumentType]
    sdfg = dace.SDFG("streams")
    sdfg.add_stream("s", dace.float32)
    state = sdfg.add_state()
    sdfg.add_array("y", [1], dace.float32)
    state.add_nedge(state.add_read("s"), state.add_write("y"), dace.Memlet("y[0]"))
    with raises(ConfigurationError, "streams", "argument s", "Stream", "float32"):
        StandaloneSDFG(sdfg)


def test_outputs_that_are_none():
    for name in ("z", "x"):  # there is none; it is read only
        with raises(ConfigurationError, "curve", name):
            StandaloneSDFG(curve.to_sdfg(), outputs=[name])
