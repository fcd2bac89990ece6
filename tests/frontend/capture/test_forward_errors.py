"""What comes out of a call whose forward raises: the user's own exception, or daceml's in torch's place."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from torch import nn

from daceml.errors import DacemlError, ExportError, ShapeError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.capture import capture
from daceml.module.module import compile_module
from tests.support.golden import golden, raises


class TooLongError(Exception):
    """Somebody's own."""


class Picky(nn.Module):
    """Raises in many ways, each named by an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor, how: str = "", batch: dict[str, torch.Tensor] | None = None):
        self.calls += 1
        if how == "value":
            raise ValueError("x must be 3-D")
        if how == "own":
            raise TooLongError(x.shape[0])
        if how == "library":
            return json.loads("{")
        if how == "python":
            return x * {}
        if how == "branch" and x.sum() > 0:
            return x
        if how == "reads":
            return torch.from_numpy(x.numpy())
        if how == "index":
            return x[9]
        if how == "data":
            return x + x.data_ptr()
        assert how != "assert", "as asked"
        return self.linear(x if batch is None else batch["a"])


@pytest.fixture
def picky() -> nn.Module:
    return compile_module(Picky(), backward=False)


x = torch.ones(2, 4)


@pytest.mark.parametrize("how", ["value", "own", "library", "python", "assert"])
def test_what_forward_raises_comes_out_as_in_an_eager_call(how: str):
    module = compile_module(Picky(), backward=False)
    with pytest.raises(Exception) as eager:  # noqa: PT011
        module.session.eager(x, how)
    module.calls = 0
    with pytest.raises(type(eager.value)) as error:
        module(x, how)
    assert type(error.value) is type(eager.value) and not isinstance(error.value, ExportError)
    assert error.value.args == eager.value.args or how == "python"
    (note,) = error.value.__notes__
    assert "Picky" in note and "torch.export.export(..., strict=False)" in note and note == golden()
    assert module.calls == 0, "what forward has done until then is undone"


@pytest.mark.parametrize(
    ("how", "kind"),
    [("branch", ExportError), ("reads", RuntimeError), ("index", IndexError), ("data", RuntimeError)],
)
def test_what_torch_raises_is_refused_under_its_own_type_too(how: str, kind: type[Exception]):
    with raises(kind, "Picky", "x: float32 (2, 4)", exact=False) as error:
        capture(Picky(), Arguments((x, how), {}))
    assert isinstance(error.value, ExportError)
    assert error.value.where.startswith("test_forward_errors.py:")
    assert [error.value.what, error.value.fix] == [golden(), golden()]
    again = pickle.loads(pickle.dumps(error.value))
    assert type(again) is type(error.value) and str(again) == str(error.value)


def test_an_exception_that_is_raised_again_has_one_note(picky: nn.Module):
    error = ValueError("one object")

    class Raises(nn.Module):
        def forward(self, x):
            raise error

    module = compile_module(Raises(), backward=False)
    for _ in range(2):
        with pytest.raises(ValueError, match="one object"):
            module(x)
    assert len(error.__notes__) == 1


def test_a_wrong_element_type_is_told_by_the_names_of_the_user(picky: nn.Module):
    with pytest.raises(RuntimeError) as eager:
        picky.session.eager(x, batch={"a": x.double()})
    facts = (
        "batch['a'] is float64", "linear.weight is float32", "linear.bias is float32",
        "x: float32 (2, 4)", "batch['a']: float64 (2, 4)", "tensor.to(torch.float32)", "module.to(dtype)",
    )  # fmt: skip
    with raises(type(eager.value), *facts, exact=False) as error:
        picky(x, batch={"a": x.double()})
    assert isinstance(error.value, ExportError)
    assert error.value.where.startswith("linear (test_forward_errors.py:")
    assert [error.value.what, error.value.why, error.value.fix] == [golden(), golden(), golden()]


def test_a_wrong_element_type_inside_is_told_by_what_made_it():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2).double())
    with raises(ExportError, "linear", "relu is float32", "2.weight is float64") as error:
        capture(module, Arguments((x,), {}))
    assert error.value.where == "2"


def test_autocast_makes_one_type_of_two():
    module = compile_module(nn.Linear(4, 3).bfloat16().requires_grad_(False), backward=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module(x).dtype == module.session.eager(x).dtype


def test_a_call_after_one_that_raised_is_right(picky: nn.Module):
    with pytest.raises(ValueError, match="3-D"):
        picky(x, "value")
    with torch.no_grad():
        torch.testing.assert_close(picky(x), picky.session.eager(x))
        assert picky.calls == 2


def test_names_of_nested_arguments():
    def forward(pair, *rest, scale=None): ...

    arguments = Arguments(({"a": x, 3: x.bool()}, [x.int()]), {"scale": (1.0, x[0])})
    assert arguments.describe(forward) == (
        "pair['a']: float32 (2, 4), pair[3]: bool (2, 4), rest_0[0]: int32 (2, 4), scale[1]: float32 (4,)"
    )
    many = Arguments(tuple(x for _ in range(11)), {})
    assert many.describe(forward).count("float32 (2, 4)") == 8 and many.describe(forward) == golden()


class ReadsData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, how: str):
        y = self.linear(x)
        if how == "item":
            return -y if x.max().item() > 100 else y
        if how == "int":
            return y * int(x.max())
        return y[y > 0].sum() if how == "mask" else torch.unique(y)


@pytest.mark.parametrize(
    ("how", "kind", "fact"),
    [
        ("item", ExportError, "replace the branch on tensor values"),
        ("int", ExportError, "ReadsData"),
        ("mask", ShapeError, "torch.where(mask, x, 0)"),
        ("unique", ShapeError, "unique"),
    ],
)
def test_what_data_decides_is_told_in_terms_of_the_module(how: str, kind: type[DacemlError], fact: str):
    with raises(kind, fact, "test_forward_errors.py:", exact=False) as refusal:
        compile_module(ReadsData())(x, how)
    error = refusal.value
    assert "import_model" not in str(error)
    assert [error.what, error.fix] == [golden(), golden()]
