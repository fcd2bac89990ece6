"""A trace run by torch's own kernels, with torch's own gradients of any order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from daceml.frontend.capture.gradients.gradient_stops import stop_gradient
from daceml.runtime.torch_fallback import draws_numbers

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class UnlikeEagerError(Exception):
    """A trace that torch does not run as the module itself would run."""


class TorchForward:
    """Runs the operators of a trace again, without effects, so that autograd can compute any derivative.

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
        _refuse_inputs(exported, state)
        _refuse_state(exported, changed)
        self._graph = _with_torchs_operators(exported.graph_module)
        self._specs = exported.graph_signature.input_specs
        self._results = [
            place
            for place, spec in enumerate(exported.graph_signature.output_specs)
            if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
        ]
        self._state = {**_constants(exported), **state}
        self._changed = frozenset(changed)

    def __call__(
        self, inputs: Sequence[torch.Tensor], state: Mapping[int, torch.Tensor]
    ) -> list[torch.Tensor]:
        """The tensors that forward returns, as parts of autograd's graph.

        Args:
            inputs: the tensors among the arguments.
            state: id of a tensor of the module -> what stands for it; no gradient flows to the others.
        """
        with torch.enable_grad():
            return self.results(self.arguments(inputs, lambda x: state.get(id(x), x.detach())))

    def arguments(
        self,
        inputs: Sequence[torch.Tensor],
        of_module: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
    ) -> list[Any]:
        """All that the trace takes: tensors of the module, of the caller, and constants.

        Args:
            of_module: what stands for a tensor of the module.
        """
        given: list[Any] = []
        waiting = iter(inputs)
        for spec in self._specs:
            if spec.kind in _STATE:
                given.append(self._own(of_module(self._state[str(spec.target)]), str(spec.target)))
            elif isinstance(spec.arg, TensorArgument):
                given.append(self._own(next(waiting), spec.arg.name))
            else:
                given.append(spec.arg.value)  # pyright: ignore[reportAttributeAccessIssue]
        return given

    def results(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors that forward returns, for what `arguments` gives."""
        results: Sequence[Any] = self._graph(*arguments)
        return [results[place] for place in self._results]

    def _own(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        return tensor.clone() if name in self._changed else tensor


def _constants(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    return {key: x for key, x in exported.constants.items() if isinstance(x, torch.Tensor)}


def _refuse_inputs(exported: ExportedProgram, state: Mapping[str, torch.Tensor]) -> None:
    known = {**_constants(exported), **state}
    for spec in exported.graph_signature.input_specs:
        own = spec.kind in _STATE and spec.target in known
        given = spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument | ConstantArgument)
        if not (own or given):
            raise UnlikeEagerError(f"an input of the trace is a {spec.kind.name.lower()} of another kind")


def kept_state(exported: ExportedProgram, changed: Collection[str]) -> list[str]:
    """Keys of the module's tensors that a trace reads and does not change."""
    specs = exported.graph_signature.input_specs
    keys = [spec.target for spec in specs if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)]
    return [key for key in keys if key is not None and key not in changed]


def changed_inputs(exported: ExportedProgram, changed: Collection[str]) -> frozenset[int]:
    """Places, among the tensors of the caller, of those that a trace changes."""
    specs = exported.graph_signature.input_specs
    given = [s for s in specs if s.kind not in _STATE and isinstance(s.arg, TensorArgument)]
    return frozenset(place for place, spec in enumerate(given) if spec.arg.name in changed)


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
    return any(draws_numbers(n.target, n.args, n.kwargs) for graph in graphs for n in graph.nodes)


def _with_torchs_operators(module: fx.GraphModule) -> fx.GraphModule:
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
