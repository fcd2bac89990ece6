"""Operators beside torch's own functions: what a node and its backward nodes give, compared with autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.node_gradients import Node, Run, gradient_nodes, run

# Sums of up to a hundred products of numbers about 1, relative to the largest element.
BOUNDS = {torch.float64: 1e-13, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}

Operand = torch.Tensor | list[torch.Tensor]


class Case:
    """A forward node, and torch's result and gradients of it.

    Args:
        op: operator with one output `output`.
        function: the same in torch; takes the floating-point operands in order.
        operands: by formal name, a list for a variadic formal.
        given: operands that have no gradient.
        kept: further outputs of the forward node, as its backward nodes want them.
        options: of `Node`: attributes, domain, constants, symbolic.
    """

    def __init__(
        self,
        op: str,
        function: Callable[..., torch.Tensor],
        operands: Mapping[str, Operand],
        output: str = "Y",
        *,
        given: Mapping[str, torch.Tensor] | None = None,
        kept: Mapping[str, torch.Tensor] | None = None,
        **options: Any,
    ) -> None:
        self.op, self.output, self.options = op, output, options
        flat = {
            name: t
            for formal, v in operands.items()
            for name, t in (
                {f"{formal}__{i}": t for i, t in enumerate(v)} if isinstance(v, list) else {formal: v}
            ).items()
        }
        leaves = [t.detach().clone().requires_grad_() for t in flat.values()]
        y = function(*leaves)
        self.cotangent = random(*y.shape, dtype=y.dtype, seed=99)
        self.expected = dict(zip(flat, torch.autograd.grad(y, leaves, self.cotangent), strict=True))
        self.operands = {**operands, **(given or {})}
        self.result, self.kept = y.detach(), kept or {}

    def forward(self) -> Node:
        """The forward node, with the further outputs that are kept."""
        options = dict(self.options)
        return Node(
            op=self.op, inputs=self.operands, outputs={self.output: self.result, **self.kept}, **options
        )

    def backward(
        self, wanted: Sequence[str] = (), kept: Mapping[str, torch.Tensor] | None = None
    ) -> list[Node]:
        """Backward nodes for some gradients, or all."""
        outputs = {self.output: self.result, **self.kept, **(kept or {})}
        cotangents = {self.output: self.cotangent}
        return gradient_nodes(
            self.op, self.operands, outputs, cotangents, wanted or list(self.expected), **self.options
        )


def check_gradients(
    cases: Sequence[Case],
    allowed: Sequence[Kind] = KINDS,
    wanted: Sequence[str] = (),
    bounds: Mapping[torch.dtype, float] = BOUNDS,
) -> Run:
    """All backward nodes in one program; every gradient is compared."""
    nodes = [(case, node) for case in cases for node in case.backward(wanted)]
    found = run(*(node for _, node in nodes), allowed=allowed)
    for (case, node), results in zip(nodes, found.results, strict=True):
        for connector, value in results.items():
            _compare(value, case.expected[connector.removeprefix("d")], bounds, f"{node} {connector}")
    return found


def check_results(
    cases: Sequence[Case], allowed: Sequence[Kind] = KINDS, bounds: Mapping[torch.dtype, float] = BOUNDS
) -> Run:
    """All forward nodes in one program; every result is compared, further outputs exactly."""
    found = run(*(case.forward() for case in cases), allowed=allowed)
    for case, results in zip(cases, found.results, strict=True):
        _compare(results[case.output], case.result, bounds, f"{case.op} {case.options}")
        for name, expected in case.kept.items():
            assert torch.equal(results[name], expected), f"{case.op} {case.options}: {name}"
    return found


def _compare(
    value: torch.Tensor, expected: torch.Tensor, bounds: Mapping[torch.dtype, float], what: str
) -> None:
    finite = expected[expected.isfinite()].abs()
    largest = max(1.0, float(finite.max())) if finite.numel() else 1.0
    torch.testing.assert_close(
        value,
        expected,
        rtol=0,
        atol=bounds[value.dtype] * largest,
        equal_nan=True,
        msg=lambda m: f"{what[:400]}: {m}",
    )


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    """Standard normal numbers, the same for the same shape and seed."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)
