"""One function, compiled and eager: all that a caller can tell apart, by the judge of `benchmarks.opinfo`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml
from benchmarks.opinfo.calls import call
from benchmarks.opinfo.judge import differences
from tests.support.computations import Cases

SEED = 3


class Function(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def unlike_eager(
    function: Callable[..., Any],
    *tensors: torch.Tensor,
    gradients: bool = False,
    one_program: bool = True,
    random: bool = False,
    **options: Any,
) -> list[str]:
    """What a caller can tell a compiled function from the eager one by, in two calls; nothing in a good case.

    Args:
        gradients: of the arguments of real or complex numbers.
        one_program: raise an error where the function is not one program; else it may be cut.
        random: it draws numbers.
    """

    def fresh(dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        copies = [x.detach().clone() for x in tensors]
        copies = [x.to(dtype) if dtype is not None and x.is_floating_point() else x for x in copies]
        return [x.requires_grad_(gradients and (x.is_floating_point() or x.is_complex())) for x in copies]

    eager = call(function, fresh(), gradients=gradients, seed=SEED)
    exact = call(function, fresh(torch.float64), gradients=gradients, seed=SEED)
    module = function if isinstance(function, nn.Module) else Function(function)
    compiled = daceml.compile(module, backward=gradients, fullgraph=one_program, **options)
    assert isinstance(compiled, daceml.DaceModule)
    found: list[str] = []
    for _ in range(2):
        ours = call(compiled, fresh(), gradients=gradients, seed=SEED)
        found += differences(ours, eager, exact, elementwise=True, values=True, random=random)
    if one_program and eager.error is None and not compiled.session.variants:
        found.append("it ran eagerly")
    return found


def cases_unlike_eager(
    cases: Mapping[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]],
    *,
    gradients: bool = False,
    **options: Any,
) -> list[str]:
    """`unlike_eager` of functions that are compiled as one program; each difference names its case.

    Args:
        cases: name -> a function that eager runs, and its arguments.
    """
    together = Cases(cases)
    arguments = [(name, x) for name, (_, inputs) in cases.items() for x in inputs]
    results = {name: function(*(x.clone() for x in inputs)) for name, (function, inputs) in cases.items()}
    owners = {
        "result": [name for name, result in results.items() for _ in pytree.tree_leaves(result)],
        "argument": [name for name, _ in arguments],
        "gradient": [name for name, x in arguments if x.is_floating_point() or x.is_complex()],
    }

    def named(difference: str) -> str:
        place = re.match(r"(result|argument|gradient) (\d+)", difference)
        return difference if place is None else f"{owners[place[1]][int(place[2])]}: {difference}"

    return [named(text) for text in unlike_eager(together, *together.inputs, gradients=gradients, **options)]


def assert_same_step(ours: nn.Module, eager: nn.Module, x: torch.Tensor, *, training: bool) -> None:
    """Compare what a compiled module and its eager twin return and, in training, all gradients of a step."""
    mine, theirs = (x.detach().clone().requires_grad_(training) for _ in range(2))
    with torch.set_grad_enabled(training):
        got, expected = ours(mine), eager(theirs)
    torch.testing.assert_close(got, expected)
    if not training:
        return
    got.square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip((mine, *ours.parameters()), (theirs, *eager.parameters()), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
