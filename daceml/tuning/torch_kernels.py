"""Operators of a program that torch's own kernels run faster: both are timed, operator by operator."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from daceml.frontend.capture.gradients.torch_forward import TorchForward
from daceml.frontend.capture.provenance import module_of_node, source_of_node
from daceml.frontend.onnx_export.chosen_kernels import functional_form, may_choose
from daceml.frontend.onnx_export.torch_fallback import encoded_call
from daceml.onnx_ops.domain.torch_fallback import gradient_call
from daceml.runtime.torch_fallback import taken_error, torch_operator
from daceml.tuning.comparison_record import TorchKernel

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from daceml.runtime.records.gradients import Wanted
    from daceml.runtime.records.manifest import StepRecord

log = logging.getLogger(__name__)

MARGIN = 1.25  # by which a generated operator is slower
_LEAST_US = 20.0  # that an operator loses: about what calling torch's kernel costs
_LEAST_SHARE = 0.02  # of a call, that an operator loses
_FORWARD_RUNS, _KERNEL_RUNS = 2, 5
_SHARE_OF_ONE = 0.05  # of the limit, for the calls of one operator


def steps_by_node(steps: Sequence[StepRecord], traced: Mapping[str, str]) -> list[frozenset[str]]:
    """The nodes of a trace that each step computes.

    Args:
        traced: name of an ONNX node -> node of the trace.
    """
    return [frozenset(filter(None, (traced_node(o.onnx_name, traced) for o in step.nodes))) for step in steps]


def traced_node(name: str, traced: Mapping[str, str]) -> str | None:
    """The node of the trace; what a rewrite or a derivative makes of an ONNX node is named `<node>/...`."""
    while name not in traced:
        name, mark, _ = name.rpartition("/")
        if not mark:
            return None
    return traced[name]


def time_by_node(
    steps_us: Sequence[float], nodes: Sequence[Collection[str]], eager_us: Mapping[str, float]
) -> dict[str, float]:
    """Microseconds of each node: a step of several is divided as eager's time is."""
    found: dict[str, float] = defaultdict(float)
    for step_us, computed in zip(steps_us, nodes, strict=True):
        weights = {node: max(eager_us.get(node, 0.0), 1e-3) for node in computed}
        for node, weight in weights.items():
            found[node] += step_us * weight / sum(weights.values())
    return dict(found)


class EagerNodes:
    """The nodes of a trace's functional form, run by torch one by one; nothing is changed.

    Args:
        exported: operators as forward calls them.
        state: key -> tensor of the module.
        inputs: of a call.
        wanted: gradients, if any.
    Raises:
        UnlikeEagerError: see `TorchForward`.
    """

    def __init__(
        self,
        exported: ExportedProgram,
        state: Mapping[str, torch.Tensor],
        inputs: Sequence[torch.Tensor],
        wanted: Wanted | None,
    ) -> None:
        functional = functional_form(exported)
        self._arguments = TorchForward(functional, state, ()).arguments(inputs)
        self._run = _TimedNodes(functional.graph_module)
        self._moving = _moving(functional, wanted)
        self.nodes = {node.name: node for node in functional.graph.nodes}
        torch_operator()  # which defines the operator that calls torch's kernels by name

    def forward_us(self) -> dict[str, float]:
        """Microseconds of each node of forward: the least of some runs."""
        with torch.no_grad():
            for _ in range(_FORWARD_RUNS):
                self._run.run(*self._arguments)
        return self._run.us

    def kernel_us(self, name: str, patience_s: float) -> float | None:
        """Microseconds of torch's kernel as a program calls it, and of its derivative where one is wanted.

        Args:
            patience_s: after which no call begins that is not the first.
        Returns:
            None for a node that is no call of torch's kernel, or that torch does not differentiate for each
            of the operands that gradients flow to.
        """
        if not may_choose(self.nodes[name]):
            return None
        call, tensors, numbers = encoded_call(self.nodes[name])
        if numbers:
            return None
        operands = [self._run.env[tensor].contiguous() for tensor in tensors]
        run: Any = torch.ops.daceml.run_torch_operator.default
        with torch.no_grad():
            results = run(call, operands)
            pairs = enumerate(zip(tensors, operands, strict=True))
            leaves = [i for i, (node, x) in pairs if node in self._moving and x.is_floating_point()]
            flowing = [i for i, x in enumerate(results) if x.is_floating_point()]
            calls = [(call, operands)]
            if leaves and flowing:
                if not self._reaches_all(self.nodes[name]):
                    return None
                cotangents = [torch.ones_like(results[i]) for i in flowing]
                calls.append((gradient_call(call, flowing, leaves), [*operands, *cotangents]))
            found = 0.0
            for text, given in calls:
                if not run(text, given):
                    log.debug("%s is not timed: %s", name, taken_error())
                    return None
                found += _least_us(run, text, given, patience_s)
        return found

    def _reaches_all(self, node: fx.Node) -> bool:
        """Whether torch gives each operand a gradient that one flows to: a program would give it zeros."""
        leaves: list[torch.Tensor] = []

        def given(operand: fx.Node) -> Any:
            value = self._run.env[operand]
            if operand not in self._moving or not isinstance(value, torch.Tensor):
                return value
            leaf = value.detach().requires_grad_(value.is_floating_point())
            leaves.extend([leaf] if leaf.requires_grad else [])
            return leaf

        target: Any = node.target
        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), given)
        with torch.enable_grad():
            results = [x for x in tree_leaves(target(*args, **kwargs)) if isinstance(x, torch.Tensor)]
            flowing = [x for x in results if x.requires_grad]
            if not flowing:
                return False
            gradients = torch.autograd.grad(
                flowing, leaves, [torch.ones_like(x) for x in flowing], allow_unused=True
            )
        return all(map(torch.is_tensor, gradients))


def _least_us(run: Any, call: str, operands: Sequence[torch.Tensor], patience_s: float) -> float:
    end, found = time.perf_counter() + patience_s, math.inf
    for _ in range(_KERNEL_RUNS):
        start = time.perf_counter()
        run(call, operands)
        now = time.perf_counter()
        found = min(found, (now - start) * 1e6)
        if now > end:
            break
    return found


class _TimedNodes(fx.Interpreter):
    """Runs a graph, keeps all values, and notes the least time of each node."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.us: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        start = time.perf_counter()
        result = super().run_node(n)
        self.us[n.name] = min((time.perf_counter() - start) * 1e6, self.us.get(n.name, math.inf))
        return result


def _moving(functional: ExportedProgram, wanted: Wanted | None) -> set[fx.Node]:
    """The nodes that gradients flow to."""
    if wanted is None:
        return set()
    signature = functional.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names = [name for name in signature.user_inputs if isinstance(name, str)]
    given = {name for name, moves in zip(names, wanted.inputs, strict=True) if moves}
    moving: set[fx.Node] = set()
    for node in functional.graph.nodes:
        leaf = node.op == "placeholder" and (node.name in given or keys.get(node.name) in wanted.state)
        if leaf or any(operand in moving for operand in node.all_input_nodes):
            moving.add(node)
    return moving


def slower_operators(
    eager: EagerNodes,
    program_us: Mapping[str, float],
    call_us: float,
    *,
    limit_s: float,
    margin: float = MARGIN,
) -> list[TorchKernel]:
    """The operators that torch's kernels run faster, those that lose most first.

    Args:
        program_us: microseconds of each node in the program.
        call_us: of a call of the program.
        limit_s: after which no more operator is timed.
        margin: by which the program's time is larger than torch's.
    """
    end = time.perf_counter() + limit_s
    found: list[TorchKernel] = []
    least_us = max(_LEAST_US, _LEAST_SHARE * call_us)
    for name, us in sorted(program_us.items(), key=lambda item: -item[1]):
        if us < least_us or time.perf_counter() > end:
            break
        torch_us = eager.kernel_us(name, limit_s * _SHARE_OF_ONE)
        if torch_us is None or us < margin * torch_us or us - torch_us < least_us:
            continue
        node = eager.nodes[name]
        where = ", ".join(filter(None, (module_of_node(node), source_of_node(node))))
        kernel = TorchKernel(
            node=name, operator=str(node.target), where=where, program_us=us, torch_us=torch_us
        )
        found.append(kernel)
    return sorted(found, key=lambda kernel: -kernel.lost_us)
