"""The campaign of gradients: what it draws, how it compares, and one use of every function."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.gradient_checks.__main__ import QUICK
from benchmarks.gradient_checks.compare import Observed, difference
from benchmarks.gradient_checks.draws import ROWS, Draw, apart, draw, load_rows, tied
from benchmarks.gradient_checks.programs import (
    finite_difference_problem,
    module_of,
    observe,
    tensors_of,
)
from benchmarks.operators.draws import Chance

X = torch.tensor([1.0, 1000.0], dtype=torch.float64)


def seen(gradient: torch.Tensor | None, result: torch.Tensor = X) -> Observed:
    return Observed(results=[result], gradients=[gradient])


def use(**changes: object) -> Draw:
    return Draw(**({"call": torch.exp, "tensors": [np.ones(2)]} | changes))  # pyright: ignore[reportArgumentType]


def test_a_number_stands_for_one_use():
    load_rows()
    for number in (0, 7, len(ROWS) + 7):
        assert draw(number).describe() == draw(number).describe()
        for one, two in zip(tensors_of(draw(number), number), tensors_of(draw(number), number), strict=True):
            assert torch.equal(one, two)
            assert one.stride() == two.stride()
    assert {draw(number).function for number in range(len(ROWS))} == set(ROWS)


def test_every_family_of_functions_is_drawn():
    load_rows()
    wanted = {
        "exp", "where", "clamp", "detach", "masked_fill", "amax", "norm", "softmax", "bmm", "einsum",
        "conv3d", "conv_transpose2d", "max_pool2d", "pad reflect", "interpolate2d", "gather", "index_add",
        "embedding_bag", "strided slice", "roll", "unbind", "repeat", "batch_norm in training", "rms_norm",
        "dropout", "cumsum", "scaled_dot_product_attention", "huber_loss",
        "cross_entropy with ignored classes", "kl_div", "topk",
    }  # fmt: skip
    assert wanted <= set(ROWS)


def test_values_with_ties_and_values_apart():
    with_ties, without = tied(Chance(1), (50,)), apart(Chance(1), (50,))
    assert len(set(with_ties.tolist())) <= 9
    assert 0.0 in with_ties
    assert np.diff(np.sort(without)).min() > 0.2
    assert np.abs(without * 2 - np.round(without * 2)).min() > 0.05


def test_strides_and_types_differ_but_values_do_not():
    array = np.arange(24.0).reshape(2, 3, 4)
    found = [tensors_of(use(tensors=[array]), number)[0] for number in range(40)]
    assert all(np.array_equal(x.detach().numpy(), array) for x in found)
    assert len({x.stride() for x in found}) > 3
    half = use(tensors=[array + 0.001, np.arange(3)], dtype="bfloat16")
    x, i = tensors_of(half, 0)
    assert (x.dtype, i.dtype, x.requires_grad, i.requires_grad) == (torch.bfloat16, torch.int64, True, False)
    assert torch.equal(tensors_of(half, 0, torch.float64)[0], x.double())


def test_gradients_results_and_their_absence_are_compared():
    good = seen(X)
    assert difference(good, good, good) is None
    assert "gradient 0 is 1e+07" in str(difference(seen(X * (1 + 1e-4)), good, good))
    assert "result 0" in str(difference(seen(X, X + 1), good, good))
    assert "is absent instead of float64[2]" in str(difference(seen(None), good, good))
    assert "float64[2, 1] without a gradient instead of" in str(difference(seen(X[:, None]), good, good))
    assert "other NaN" in str(difference(seen(X * torch.nan), good, good))
    assert "without a gradient instead of" in str(
        difference(seen(X, X), seen(X, X.clone().requires_grad_()), good)
    )


def test_rounding_in_float32_is_measured_by_that_of_eager():
    single = [(X * (1 + share)).float() for share in (0, 2e-4, 5e-4)]
    assert difference(seen(single[1], X), seen(single[0], X), seen(X)) is not None
    assert difference(seen(single[2], X), seen(single[1], X), seen(X)) is None


def test_several_uses_are_one_module():
    uses = [use(), use(call=lambda x, y: (x * y, x.detach()), tensors=[np.ones(3), np.full(3, 2.0)])]
    first, second = observe(module_of(uses), uses, [0, 1])
    assert len(first.gradients) == 1
    assert [r is not None and r.requires_grad for r in second.results] == [True, False]
    assert torch.equal(second.gradients[0], 2 * second.gradients[1])  # pyright: ignore


def test_finite_differences_find_a_wrong_gradient():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * x

        @staticmethod
        def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:  # pyright: ignore
            return g

    uses = [use(), use(call=Wrong.apply), use(call=Wrong.apply, smooth=False)]
    module = module_of(uses)
    found = [finite_difference_problem(module, uses, [0, 1, 2], place) for place in range(3)]
    assert found[0] is None
    assert "Jacobian mismatch" in str(found[1])
    assert found[2] is None


@pytest.mark.slow
def test_one_use_of_every_seventh_function(tmp_path: Path):
    """In a fresh process: this one may have started threads, which forked ones would miss.

    The campaign has several uses of all of them; every seventh one keeps most families.
    """
    file = tmp_path / "gradient_checks.json"
    command = [sys.executable, "-m", "benchmarks.gradient_checks", "--quick", "--check", "--json", str(file)]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    load_rows()
    verdicts = [row["verdict"] for row in json.loads(file.read_text())["rows"]]
    assert len(verdicts) == len(range(0, len(ROWS), QUICK))
    assert verdicts.count("equal") >= 0.95 * len(verdicts)
