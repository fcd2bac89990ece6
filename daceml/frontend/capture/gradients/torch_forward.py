"""A trace run by torch's own kernels, with torch's own gradients of any order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from daceml.frontend.capture.gradients.gradient_stops import stop_gradient

if TYPE_CHECKING:
    from torch.export import ExportedProgram

STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
"""Inputs of a trace that are not the caller's."""


class UnlikeEagerError(Exception):
    """A trace that torch does not run as the module itself would run."""


class TorchForward:
    """The operators of a trace, called once more: no effects, and what autograd needs for any derivative.

    Args:
        exported: operators as forward calls them, in-place ones too.
        state: key -> tensor of the module.
        changed: what forward changes, by key or by name of the input: it gets copies of these.
    Raises:
        UnlikeEagerError: the trace takes or calls something that is no tensor or operator of torch; or its
            results depend on what it changes, which is another value by now.
    """

    def __init__(
        self, exported: ExportedProgram, state: Mapping[str, torch.Tensor], changed: Collection[str]
    ) -> None:
        _refuse_state(exported, changed)
        self._graph = with_torchs_operators(exported.graph_module)
        self._specs = exported.graph_signature.input_specs
        self._results = [
            place
            for place, spec in enumerate(exported.graph_signature.output_specs)
            if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
        ]
        constants = {key: x for key, x in exported.constants.items() if isinstance(x, torch.Tensor)}
        self._state, self._changed = {**constants, **state}, frozenset(changed)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that forward returns for its tensors, as parts of autograd's graph."""
        given: list[Any] = []
        waiting = iter(inputs)
        for spec in self._specs:
            if spec.kind in STATE and spec.target in self._state:
                given.append(self._own(self._state[spec.target], spec.target))
            elif spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument):
                given.append(self._own(next(waiting), spec.arg.name))
            elif spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument):
                given.append(spec.arg.value)
            else:
                raise UnlikeEagerError(f"an input of the trace is a {spec.kind.name.lower()}")
        with torch.enable_grad():
            results: Sequence[Any] = self._graph(*given)
        return [results[place] for place in self._results]

    def _own(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        return tensor.clone() if name in self._changed else tensor


def kept_state(exported: ExportedProgram, changed: Collection[str]) -> list[str]:
    """Keys of the module's tensors that a trace reads and does not change."""
    specs = exported.graph_signature.input_specs
    keys = [spec.target for spec in specs if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)]
    return [key for key in keys if key is not None and key not in changed]


def _refuse_state(exported: ExportedProgram, changed: Collection[str]) -> None:
    signature = exported.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    for node in exported.graph.nodes:
        if node.op == "placeholder" and keys.get(node.name, node.name) in changed:
            for user in node.users:
                if not _only_changes(user, node):
                    raise UnlikeEagerError(f"forward reads {keys.get(node.name, node.name)} and changes it")


def _only_changes(user: fx.Node, changed: fx.Node) -> bool:
    """Whether an operator writes a tensor, and its other results do not depend on what the tensor was."""
    schema = getattr(user.target, "_schema", None)
    if schema is None:
        return False
    names = [formal.name for formal in schema.arguments]
    given: dict[str, Any] = {**dict(zip(names, user.args, strict=False)), **user.kwargs}
    if given.get("running_mean") is changed or given.get("running_var") is changed:
        return given.get("training", given.get("use_input_stats")) is True
    return bool(schema.is_mutable) and user.args[0] is changed and not user.users


def draws(exported: ExportedProgram) -> bool:
    """Whether a call of a trace draws random numbers."""
    graphs = (part.graph for part in exported.graph_module.modules() if isinstance(part, fx.GraphModule))
    return any(_draws(node) for graph in graphs for node in graph.nodes)


def _draws(node: fx.Node) -> bool:
    """Whether an operator draws random numbers: attention and recurrent layers do with dropout alone."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    schema: Any = node.target._schema  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    names = [formal.name for formal in schema.arguments]
    given: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if given.get("train", given.get("training")) is False:
        return False
    chances = [name for name in ("dropout_p", "dropout") if name in names]
    return not chances or any(given.get(name) for name in chances)


def with_torchs_operators(module: fx.GraphModule) -> fx.GraphModule:
    """A trace with `detach` where it marks that a gradient ends.

    Raises:
        UnlikeEagerError: another operator of daceml stands in it.
    """
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    for node in graph.nodes:
        if node.target is stop_gradient():
            node.target = torch.ops.aten.detach.default
        elif getattr(node.target, "namespace", "") == "daceml":
            raise UnlikeEagerError(f"{node.target} stands for operators of torch")
    return fx.GraphModule(module, graph)
