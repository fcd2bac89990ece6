"""A compiled module as DaCe's frontend sees it where a program calls the module."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from dace import data
from torch.utils import _pytree as pytree

from daceml.autodiff import dace_programs
from daceml.autodiff.dace_programs import ClosureTensor
from daceml.compiler.call import trace_call
from daceml.compiler.guards import Modes
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.stage_timer import Stages
from daceml.errors import DacemlError, ExportError, UnsupportedProgramError
from daceml.frontend.capture.call_device import autocast_types, without_autocast
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.extremum_gradients import read_chosen_extremes
from daceml.frontend.capture.gradients.gradient_changes import refuse_changes
from daceml.frontend.capture.gradients.gradient_stops import mark_gradient_stops
from daceml.frontend.capture.gradients.scatter_gradients import give_scatter_gradients
from daceml.frontend.capture.redirected_forward import forward_of
from daceml.frontend.capture.trace_lock import tracing
from daceml.frontend.onnx_import.identifiers import identifier
from daceml.module.module_watch import ModuleWatch, watch_traced
from daceml.module.programs.call_arguments import ProgramCall, argument_names, program_call
from daceml.module.programs.closure import closure_of, held_tensor, own_prefix
from daceml.module.programs.network_sdfg import network_sdfg
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.runtime.records.gradients import Wanted

if TYPE_CHECKING:
    import dace
    from dace.frontend.python.common import SDFGClosure

    from daceml.frontend.capture.capture import Capture
    from daceml.module.session import Session
    from daceml.sdfg.network import Network

log = logging.getLogger(__name__)


class ModuleProgram:
    """Makes the SDFGs that programs nest for calls of a module, and says which tensors they take.

    Args:
        session: of the module.
    """

    def __init__(self, session: Session) -> None:
        dace_programs.register()
        self.session = session
        self.prefix = own_prefix(session.name)
        self.refusal = ""
        self._tensors: dict[str, ClosureTensor] = {}
        self._made: dict[tuple[Any, ...], dace.SDFG] = {}
        self._states = 0
        self._watch: ModuleWatch | None = None
        self._required: tuple[bool, ...] = ()
        self._state = ClosureTensor(lambda: torch.zeros(self._states + 1), self._describe_state)

    def signature(self) -> tuple[list[str], list[str]]:
        """Names of arguments, and of those that are constants."""
        return argument_names(forward_of(self.session.eager))

    def closure(self) -> dict[str, ClosureTensor]:
        """Name -> tensor that a call reads or writes besides its arguments."""
        found = self._named()
        gradients = {f"{name}_grad": t.gradient for name, t in found.items()}
        return found | {name: t for name, t in gradients.items() if t is not None}

    def resolver(self, program: SDFGClosure | None) -> SDFGClosure:
        """The same for the closure of a program; see `closure_of`."""
        return closure_of(self.closure(), program)

    def sdfg(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dace.SDFG:
        """The SDFG of a call.

        Args:
            args, kwargs: descriptors of arrays and scalars, and values of constants.
        Returns:
            an SDFG of its own, with the arguments under forward's names and results under `__return`.
        Raises:
            SignatureError, CallError: arguments that do not fit.
            ExportError, NoImplementationError, UnsupportedProgramError: the module is no part of a program;
                the message says why.
        """
        try:
            self._refuse_devices()
            call = program_call(self.session.name, forward_of(self.session.eager), args, kwargs)
            if self._changed() or call.key not in self._made:
                self._made[call.key] = self._make(call)
        except DacemlError as refusal:
            refusal.__noskipcall__ = True  # pyright: ignore[reportAttributeAccessIssue]
            raise
        return copy.deepcopy(self._made[call.key])

    # ------------------------------------------------------------------ the module's tensors

    def _named(self) -> dict[str, ClosureTensor]:
        found = {self._name(key): tensor for key, tensor in self._held().items()}
        return {**found, f"{self.prefix}_state": self._state}

    def _held(self) -> dict[str, ClosureTensor]:
        """Key -> tensor, one for each parameter and buffer; those that are tied have the first one's key."""
        module = self.session.eager
        parameters = dict(module.named_parameters())
        keys = [*parameters, *(key for key, _ in module.named_buffers())]
        for key in keys:
            if key not in self._tensors:
                self._tensors[key] = held_tensor(
                    self._finder(key), parameter=key in parameters, refusal=lambda: self.refusal
                )
        return {key: self._tensors[key] for key in keys}

    def _finder(self, key: str) -> Callable[[], torch.Tensor]:
        owner, _, name = key.rpartition(".")
        module = self.session.eager

        def find() -> torch.Tensor:
            return getattr(module.get_submodule(owner), name)

        return find

    def _name(self, key: str) -> str:
        return f"{self.prefix}_{identifier(key)}"

    # ------------------------------------------------------------------ the module's state

    def _describe_state(self) -> data.Array:
        """An array whose size tells states of the module apart: DaCe parses anew where a type has changed."""
        self._changed()
        import dace

        return data.Array(dace.float32, (self._states + 1,))

    def _changed(self) -> bool:
        """Whether the module is another one than when it was traced; what was made is forgotten then."""
        if self._watch is None:
            return False
        required = self._requires()
        if required == self._required and self._watch.unchanged():
            return False
        now = self._watch.retaken(self.session.eager)
        if required == self._required and self._watch.difference(now) is None:
            self._watch = now
            return False
        self._states += 1
        self._made.clear()
        self._watch, self._required, self.refusal = now, required, ""
        return True

    def _requires(self) -> tuple[bool, ...]:
        return tuple(p.requires_grad for p in self.session.eager.parameters())

    # ------------------------------------------------------------------ from a call to an SDFG

    def _refuse_devices(self) -> None:
        module = self.session.eager
        for key, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor.device.type != "cpu":
                raise UnsupportedProgramError(
                    f"{self.session.name} cannot be part of a DaCe program",
                    where=f"{key} lies on {tensor.device}",
                    why="programs run the loops of a module on the CPU",
                    fix="move the module there: module.cpu()",
                )

    def _make(self, call: ProgramCall) -> dace.SDFG:
        log.info("tracing %s for a DaCe program", self.session.name)
        self._required = self._requires()
        try:
            network, captured = self._network(call)
        except ExportError:
            # forward may change an argument, which torch refuses where that requires a gradient
            for tensor in call.arguments.tensors:
                tensor.requires_grad_(False)
            network, captured = self._network(call)
            self.refusal = f"{self.session.name} cannot be traced with arguments that require gradients"
        self.refusal = self.refusal or _without_gradient(network)
        if any(getattr(n, "op_type", None) == "WithGradient" for n in network.state.nodes()):
            network, captured = self._network(call, gradients=False)
        self._watch = watch_traced(self.session.eager, captured)
        self._refuse_sizes(call, network)
        names = {key: self._name(key) for key in self._held()}
        if missing := [key for key in network.weights.values() if key not in names]:
            raise UnsupportedProgramError(
                f"{self.session.name} cannot be part of a DaCe program",
                where=f"forward reads {missing[0]}",
                why="it is a tensor that the module holds neither as a parameter nor as a buffer",
                fix="keep it in a buffer: self.register_buffer(name, tensor)",
            )
        _refuse_results(self.session.name, captured)
        made = network_sdfg(network, arguments=call.names, weights=names, scalars=call.scalars)
        made.name = self.prefix  # pyright: ignore[reportAttributeAccessIssue]
        return made

    def _network(self, call: ProgramCall, *, gradients: bool = True) -> tuple[Network, Capture]:
        """The network of a call.

        Args:
            gradients: whether gradients of the user's own, of an autograd.Function, become part of it.
        """
        request, sizes = self.session.request, call.sizes
        try:
            with tracing(), without_autocast(), torch.enable_grad():
                modes = Modes(gradients, autocast_types(), torch.get_default_dtype())
                captured = trace_call(request, call.arguments, modes, dynamic_shapes=sizes)
                exported = captured.program
                mark_gradient_stops(exported)
                read_chosen_extremes(exported)
                give_scatter_gradients(exported)
                wanted = Wanted(
                    inputs=tuple(t.requires_grad for t in call.arguments.tensors),
                    state=tuple(k for k, p in self.session.eager.named_parameters() if p.requires_grad),
                )
                try:
                    refuse_changes(exported, wanted)
                except RunsEagerlyError as reason:
                    self.refusal = str(reason)
                with torch.no_grad():
                    return onnx_network(exported, Stages(), hooks=request.hooks), captured
        except RunsEagerlyError as reason:
            raise UnsupportedProgramError(
                f"{self.session.name} cannot be part of a DaCe program",
                why=str(reason),
                fix="call the module from PyTorch, or a submodule of it from the program",
            ) from reason

    def _refuse_sizes(self, call: ProgramCall, network: Network) -> None:
        """A size that the program leaves open has to be open in forward, too."""
        if call.sizes is None:
            return
        for name, array in zip(call.names, network.inputs, strict=True):
            for axis in call.sizes.get(name) or {}:
                size: Any = network.sdfg.arrays[array].shape[axis]
                if not getattr(size, "free_symbols", None):
                    raise UnsupportedProgramError(
                        f"{self.session.name} cannot be called with a symbolic size",
                        where=f"dimension {axis} of {name}",
                        why="forward does something else for other sizes",
                        fix="give the program's argument a fixed size there",
                    )


def _without_gradient(network: Network) -> str:
    """Why gradients of a network's loops would not be those of the module; empty where they are."""
    for node in network.state.nodes():
        if not isinstance(node, ONNXNode):
            continue
        if node.op_type == "WithGradient":
            return f"{node.where()} has a gradient of its own, of an autograd.Function"
        if node.divided_by_counts:
            return f"{node.where()} is an embedding that divides gradients by counts"
    return ""


def _refuse_results(name: str, captured: Capture) -> None:
    spec: Any = captured.program.call_spec.out_spec
    results = captured.program.graph_signature.output_specs
    leaves = [type(s.arg).__name__ for s in results if s.kind.name == "USER_OUTPUT"]
    problem = ""
    if captured.assigned:
        problem = f"forward assigns the attribute {captured.assigned[0].name}"
    elif captured.changes:
        problem = "forward changes an object, list or dict among its arguments"
    elif any(kind != "TensorArgument" for kind in leaves):
        problem = "not all of its results are tensors"
    elif spec is not None and not spec.is_leaf():
        structure = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
        if type(structure) not in (tuple, list) or not all(isinstance(part, int) for part in structure):
            problem = f"its result is a {type(structure).__name__} that is not a flat tuple of tensors"
    if problem:
        raise UnsupportedProgramError(
            f"{name} cannot be part of a DaCe program",
            why=problem,
            fix="let forward return a tensor or a tuple of tensors, and assign nothing but buffers",
        )
