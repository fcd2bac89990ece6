"""Every forward implementation with every backward one: what they give is compared with torch in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.node_gradients import Node, Run, Values, gradient_nodes, run

NATIVE: tuple[Kind, ...] = ("native",)

# Errors beside the largest element: sums of some hundred terms, in the element type or better.
_ERRORS = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A node, and the function of torch that it is.

    Attributes:
        reference: takes the inputs by name, floating-point ones in float64; gives the first output.
        outputs: templates of the results, and of those that the rule asks for.
        wanted: inputs whose gradients are compared.
        result: name of the first output.
        cotangent: of the first output; random where there is none.
        error: beside the largest element; by element type where None.
    """

    op: str
    inputs: Values
    outputs: Values
    reference: Callable[..., torch.Tensor]
    wanted: Sequence[str]
    result: str = "Y"
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    constants: Sequence[str] = ()
    symbolic: Mapping[int, str] = field(default_factory=dict[int, str])
    cotangent: torch.Tensor | None = None
    error: float | None = None

    def upstream(self) -> torch.Tensor:
        """The cotangent of the first output."""
        if self.cotangent is not None:
            return self.cotangent
        template = self.outputs[self.result]
        assert isinstance(template, torch.Tensor)
        generator = torch.Generator().manual_seed(1)
        return torch.randn(template.shape, generator=generator, dtype=torch.float64).to(template.dtype)

    def expected(self) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Result and gradients by torch, in float64."""
        given = {
            k: v.double().clone().requires_grad_(k in self.wanted)
            if isinstance(v, torch.Tensor) and v.is_floating_point()
            else v
            for k, v in self.inputs.items()
        }
        result = self.reference(**given)
        found = torch.autograd.grad(result, [given[w] for w in self.wanted], self.upstream().double())
        return result.detach(), dict(zip(self.wanted, found, strict=True))


def agree(
    cases: Mapping[str, Case], *, forward: Sequence[Kind] = KINDS, backward: Sequence[Kind] = KINDS
) -> tuple[Run, list[str]]:
    """Compare results and gradients with torch; gives the forward run and what did the backward nodes."""
    nodes = [
        Node(
            op=c.op,
            inputs=c.inputs,
            outputs=c.outputs,
            attributes=c.attributes,
            domain=c.domain,
            constants=c.constants,
            symbolic=c.symbolic,
        )
        for c in cases.values()
    ]
    first = run(*nodes, allowed=forward)
    gradients: list[Node] = []
    owner: list[str] = []
    for (title, case), results in zip(cases.items(), first.results, strict=True):
        expected, _ = case.expected()
        _close(f"{title}: {case.result}", results[case.result], expected, expected, case.error)
        made = gradient_nodes(
            case.op,
            case.inputs,
            results,
            {case.result: case.upstream()},
            case.wanted,
            case.attributes,
            domain=case.domain,
            constants=case.constants,
            symbolic=case.symbolic,
        )
        gradients += made
        owner += [title] * len(made)
    second = run(*gradients, allowed=backward)
    for title, results in zip(owner, second.results, strict=True):
        case = cases[title]
        expected = case.expected()[1]
        everything = torch.cat([e.reshape(-1) for e in expected.values()])
        for name, value in results.items():
            wanted = expected[name.removeprefix("d")]
            _close(f"{title}: {name}", value, wanted, everything, case.error)
    return first, second.chosen


def _close(
    what: str, actual: torch.Tensor, expected: torch.Tensor, beside: torch.Tensor, error: float | None
) -> None:
    """Compare beside the largest of some numbers: differences of them may cancel in one gradient."""
    finite = beside.nan_to_num(nan=0, posinf=0, neginf=0).abs()
    bound = error or _ERRORS[actual.dtype]
    torch.testing.assert_close(
        actual.double(),
        expected,
        rtol=bound,
        atol=bound * max(1e-3, float(finite.max()) if finite.numel() else 0.0),
        equal_nan=True,
        msg=lambda text: f"{what}\n{text}",
    )
