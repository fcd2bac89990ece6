"""Functionalisation without a second trace: in-place operators and mutated buffers become values.

`run_decompositions({})` does this in general by tracing the whole graph again, which takes longer than the
rest of an export. Nearly every graph needs much less: an in-place operator on a tensor without other live
views is its out-of-place twin, and batch normalisation in training has a functional form. What this pass
cannot prove it leaves to `run_decompositions`, and logs why.
"""

from __future__ import annotations

import copy
import logging
import operator
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument

from daceml.errors import ExportError
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.provenance import source_of_node

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    Node = torch.fx.Node

log = logging.getLogger(__name__)

_WRONGLY_DECOMPOSED: tuple[Any, ...] = (torch.ops.aten.multilabel_margin_loss_forward.default,)
"""Operators that every trace of torch decomposes wrongly.

The decomposition of multilabel_margin_loss counts targets after the first -1 and sums over the rows.
"""

_dispatch_lock = threading.RLock()

_TRANSFORMS = "torch._functorch.predispatch"
"""Where torch.export keeps the calls that begin and end a transform of a function, as torch.vmap does."""


class NeedsRetraceError(Exception):
    """The light pass cannot prove that it keeps the meaning; the message says what stands in its way.

    Args:
        shared: two inputs of the graph with memory in common, one of which is changed; or nothing.
    """

    def __init__(self, message: str, shared: Sequence[Node] = ()) -> None:
        super().__init__(message)
        self.shared = shared


def functionalize(program: ExportedProgram) -> ExportedProgram:
    """A program without in-place operators, new values of changed tensors as its first outputs; works on a
    copy.

    Raises:
        ExportError: the module changes a tensor that is neither an input nor a parameter nor a buffer.
        RunsEagerlyError: a tensor is changed and overlaps with another one.
    """
    try:
        return _LightPass(program).run()
    except NeedsRetraceError as reason:
        log.info("functionalising by a second trace: %s", reason)
        try:
            return decomposed(program, {})
        except Exception as error:
            if reason.shared:
                _refuse_shared_memory(program, reason.shared)
            raise ExportError(
                "the graph cannot be brought into a form without changes in place",
                why=f"{reason}; torch says {type(error).__name__}: {str(error).splitlines()[0]}",
                fix="pass tensors that do not share memory, or work on copies in forward (x = x.clone())",
            ) from error


def decomposed(program: ExportedProgram, table: Mapping[Any, Any]) -> ExportedProgram:
    """The program with some operators written with others; the whole graph is traced again.

    Draws of random numbers that are not used stay: they move torch's generator. torch keeps them where this
    setting says that its own generator draws.
    """
    from torch._inductor import config as inductor

    with inductor.patch(fallback_random=True), kept_whole():
        return program.run_decompositions({**table})


@contextmanager
def kept_whole() -> Generator[None]:
    """Let torch trace operators of `_WRONGLY_DECOMPOSED` as they are; one thread at a time."""
    with _dispatch_lock:
        # another version of torch may have no decomposition, and an outer block may have taken it away
        own = [whole for whole in _WRONGLY_DECOMPOSED if DispatchKey.Autograd in whole.py_kernels]
        held = [(whole, whole.py_kernels.pop(DispatchKey.Autograd)) for whole in own]
        try:
            for whole, _ in held:
                whole._dispatch_cache.clear()
            yield
        finally:
            for whole, kernel in held:
                whole.py_kernels[DispatchKey.Autograd] = kernel
                whole._dispatch_cache.clear()


def _refuse_shared_memory(program: ExportedProgram, nodes: Sequence[Node]) -> None:
    """torch has no functional form for tensors that overlap. Those of a capture are the module's own."""
    signature = program.graph_signature
    own = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names = [own.get(node.name, node.name) for node in nodes]
    raise RunsEagerlyError(f"forward changes {names[0]!r}, which shares memory with {names[1]!r}")


def copied(program: ExportedProgram) -> ExportedProgram:
    """The program with a graph and signature of its own; tensors are shared."""
    twin: Any = copy.copy(program)
    graph = copy.deepcopy(program.graph)
    for ours, theirs in zip(graph.nodes, program.graph.nodes, strict=True):
        # copying renames nodes called like a builtin (input), the signature does not follow
        ours.name = theirs.name
    twin._graph_module = torch.fx.GraphModule(program.graph_module, graph)
    twin._graph_module.meta.update(program.graph_module.meta)
    signature = program.graph_signature
    twin._graph_signature = ExportGraphSignature(
        [copy.copy(spec) for spec in signature.input_specs],
        [copy.copy(spec) for spec in signature.output_specs],
    )
    return twin


def rename_outputs(program: ExportedProgram) -> None:
    """Make the signature name the nodes that the graph returns now."""
    (returned,) = program.graph.output_node().args
    for node, spec in zip(returned, program.graph_signature.output_specs, strict=True):  # pyright: ignore[reportArgumentType]
        if hasattr(node, "name") and hasattr(spec.arg, "name"):
            spec.arg = type(spec.arg)(name=node.name)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]


def constant_mutation(name: str, where: str = "") -> ExportError:
    """The refusal of a forward pass that changes a tensor which is a constant of the graph."""
    return ExportError(
        f"the module changes its tensor attribute {name!r} in place",
        where=where,
        why="a plain tensor attribute is a constant of the compiled graph; buffers and inputs may change",
        fix=f"register it: self.register_buffer({name.rpartition('.')[2]!r}, tensor, persistent=False)",
    )


def _storage(value: Any) -> int | None:
    try:
        return value.untyped_storage()._cdata
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


# What they give back shares memory with what they are given where there is nothing to convert.
_CONVERSIONS = frozenset({"to", "type_as", "contiguous"})


def _is_alike(one: Any, other: Any) -> bool:
    """Whether two tensors are the same elements of one memory."""
    if _storage(one) is None or _storage(one) != _storage(other):
        return False
    return (one.dtype, *one.shape, *one.stride()) == (other.dtype, *other.shape, *other.stride())


# They change running statistics, which their schemas do not say.
_BATCH_NORMS = frozenset({"aten.batch_norm.default", "aten.native_batch_norm.default"})


def changes_a_tensor(node: Node) -> bool:
    """Whether a node changes one of its operands."""
    if str(node.target) in _BATCH_NORMS:
        return bool(node.args[5])
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


class _LightPass:
    """One walk over the graph that keeps, for each node, the node that holds its tensor's value now."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.latest: dict[Node, Node] = {}
        self.groups: dict[Node, set[Node]] = {}
        self.order: dict[Node, int] = {}

    def run(self) -> ExportedProgram:
        for _, child in self.program.graph_module.named_modules():
            for node in getattr(child, "graph", self.program.graph).nodes:
                if isinstance(node.target, HigherOrderOperator):
                    raise NeedsRetraceError(f"{node.target} holds a graph of its own")
                if getattr(node.target, "__module__", "") == _TRANSFORMS:
                    raise NeedsRetraceError("torch.vmap and other transforms of functions are in the graph")
        self.program = copied(self.program)
        self.graph = self.program.graph
        if any(map(changes_a_tensor, self.graph.nodes)):
            self._skip_nothings()
            self.order = {node: position for position, node in enumerate(self.graph.nodes)}
            self._find_aliases()
            for node in list(self.graph.nodes):
                self._visit(node)
        self._return_mutations()
        return self.program

    def _skip_nothings(self) -> None:
        """Read a tensor where a conversion that has nothing to do gives it back."""
        for node in self.graph.nodes:
            name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
            if name in _CONVERSIONS and _is_alike(node.meta.get("val"), node.args[0].meta.get("val")):
                node.replace_all_uses_with(node.args[0])

    def _find_aliases(self) -> None:
        """Group nodes that may share memory: by the operator's annotation, and by storage where known."""
        by_storage: dict[int, Node] = {}
        for node in self.graph.nodes:
            group = {node}
            value = node.meta.get("val")
            for part in value if isinstance(value, list | tuple) else [value]:
                storage = _storage(part)
                if storage is not None:
                    group |= self.groups.get(by_storage.setdefault(storage, node), set())
            if node.target is operator.getitem:
                group |= self.groups[node.args[0]]
            schema = getattr(node.target, "_schema", None)
            if schema is not None:
                shared = {
                    name for out in schema.returns if out.alias_info for name in out.alias_info.before_set
                }
                for formal, actual in zip(schema.arguments, node.args, strict=False):
                    if (
                        formal.alias_info
                        and shared & set(formal.alias_info.before_set)
                        and actual in self.groups
                    ):
                        group |= self.groups[actual]
            for member in group:
                self.groups[member] = group

    def _now(self, node: Node) -> Node:
        while node in self.latest:
            node = self.latest[node]
        return node

    def _visit(self, node: Node) -> None:
        if node.op == "placeholder":
            return
        node.args = torch.fx.map_arg(node.args, self._now)
        node.kwargs = torch.fx.map_arg(node.kwargs, self._now)
        if not changes_a_tensor(node):
            return
        if str(node.target) in _BATCH_NORMS:
            self._train_batch_norm(node)
        else:
            self._out_of_place(node)

    def _make(self, like: Node, target: Any, args: Sequence[Any], value: Any, **kwargs: Any) -> Node:
        """A node beside `like`, with its provenance."""
        made = self.graph.call_function(target, tuple(args), kwargs)
        made.meta = dict(like.meta, val=value)
        self.groups[made] = {made}
        self.order[made] = self.order[like]
        return made

    def _replace(self, changed: Node, by: Node, at: Node) -> None:
        """From node `at` on, `changed` has the value of `by`."""
        position = self.order[at]
        for member in self.groups[changed]:
            current = self._now(member)
            if current is changed or current is by or self.order[member] >= position:
                # other names of this value, and what is read from it later
                continue
            users = {*member.users, *current.users}
            if member.op == "placeholder" or any(self.order[user] > position for user in users):
                inputs = [node for node in (changed, member) if node.op == "placeholder"]
                raise NeedsRetraceError(
                    f"{at} changes {changed}, which shares memory with {member}",
                    inputs if len(inputs) == 2 else (),
                )
        self.latest[changed] = by
        self.groups[changed] = self.groups[by] = self.groups[changed] | {by}

    def _train_batch_norm(self, node: Node) -> None:
        operands: Any = node.args[:8]
        x, weight, bias, mean, variance, _, momentum, eps = operands
        if mean is None or variance is None:
            return
        functional = torch.ops.aten._native_batch_norm_legit_functional.default
        statistic = mean.meta["val"]
        own = node.meta["val"]
        given = tuple(own) if isinstance(own, tuple | list) else (own, statistic, statistic)
        values = (*given, statistic, statistic)
        with self.graph.inserting_before(node):
            args = (x, weight, bias, mean, variance, True, momentum, eps)
            whole = self._make(node, functional, args, values)
            y, new_mean, new_variance = (
                self._make(node, operator.getitem, (whole, slot), values[slot]) for slot in (0, 3, 4)
            )
        self._replace(mean, new_mean, node)
        self._replace(variance, new_variance, node)
        if isinstance(own, tuple | list):  # its results have the same places
            node.replace_all_uses_with(whole)
            self.graph.erase_node(node)
            self.graph.erase_node(y)
            return
        self.latest[node] = y
        # a later in-place operator finds y, not the node that it replaces
        self.groups[y] = (self.groups[node] - {node}) | {y}
        node.replace_all_uses_with(y)
        self.graph.erase_node(node)

    def _out_of_place(self, node: Node) -> None:
        aten = torch.ops.aten
        schema = node.target._schema  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
        namespace, name = schema.name.split("::")
        written = [
            index
            for index, formal in enumerate(schema.arguments)
            if formal.alias_info and formal.alias_info.is_write
        ]
        changed = node.args[0] if node.args else None
        if (
            namespace != "aten"
            or written != [0]
            or not name.endswith("_")
            or not isinstance(changed, torch.fx.Node)
        ):
            raise NeedsRetraceError(f"{node.target} changes its arguments in a way of its own")
        value = changed.meta["val"]
        with self.graph.inserting_before(node):
            if name == "detach_":
                result = changed
            elif name in ("zero_", "fill_"):
                number = 0 if name == "zero_" else node.args[1]
                if isinstance(number, torch.fx.Node):
                    raise NeedsRetraceError("fill_ with a tensor")
                result = self._make(node, aten.full_like.default, (changed, number), value)
            elif name == "copy_":
                result = self._copy(node, changed, node.args[1])
            else:
                result = self._twin(node, name[:-1], changed)
        if result is not changed:
            self._replace(changed, result, node)
        self.latest[node] = result
        self.groups[result] = self.groups[result] - {node}
        node.replace_all_uses_with(result)
        self.graph.erase_node(node)

    def _copy(self, node: Node, changed: Node, source: Any) -> Node:
        aten = torch.ops.aten
        wanted = changed.meta["val"]
        if not isinstance(source, torch.fx.Node):
            raise NeedsRetraceError("copy_ from a number")
        given = source.meta["val"]
        if given.dtype != wanted.dtype:
            cast = given.to(wanted.dtype)
            source = self._make(node, aten._to_copy.default, (source,), cast, dtype=wanted.dtype)
        if given.shape != wanted.shape:
            if not all(isinstance(size, int) for size in wanted.shape):
                raise NeedsRetraceError("copy_ into a tensor of symbolic shape")
            return self._make(node, aten.expand.default, (source, list(wanted.shape)), wanted)
        return self._make(node, aten.clone.default, (source,), wanted)

    def _twin(self, node: Node, name: str, changed: Node) -> Node:
        """The operator without its underscore; its result keeps the type of what it changed."""
        overload = node.target._overloadname  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
        name, overload = _OTHER_TWINS.get((name, overload), (name, overload))
        twin: Any = getattr(getattr(torch.ops.aten, name, None), overload, None)
        # aten::ldexp(float, int) is TorchScript's function of numbers
        if twin is None or str(twin._schema.arguments[0].type) != "Tensor":
            raise NeedsRetraceError(f"{node.target} has no out-of-place twin")
        dtype = changed.meta["val"].dtype
        formals = [formal.name for formal in node.target._schema.arguments]  # pyright: ignore
        places = [x for formal, x in zip(formals, node.args, strict=False) if formal in _PLACES]
        others = [x.meta["val"] for x in node.all_input_nodes if x not in places and "val" in x.meta]
        if any(getattr(other, "dtype", dtype) != dtype for other in others) or name in _PREDICATES:
            raise NeedsRetraceError(f"{node.target} mixes element types")
        return self._make(node, twin, _with_defaults(node), node.meta["val"], **node.kwargs)

    def _return_mutations(self) -> None:
        signature = self.program.graph_signature
        specs: list[OutputSpec] = []
        values: list[Node] = []
        for node in self.graph.nodes:
            if node.op != "placeholder" or self._now(node) is node:
                continue
            if node.name in signature.inputs_to_lifted_tensor_constants:
                name = signature.inputs_to_lifted_tensor_constants[node.name]
                raise constant_mutation(name, source_of_node(self._now(node)))
            if node.name in signature.inputs_to_buffers:
                kind, target = OutputKind.BUFFER_MUTATION, signature.inputs_to_buffers[node.name]
            elif node.name in signature.inputs_to_parameters:
                kind, target = OutputKind.PARAMETER_MUTATION, signature.inputs_to_parameters[node.name]
            else:
                kind, target = OutputKind.USER_INPUT_MUTATION, node.name
            values.append(self._now(node))
            specs.append(OutputSpec(kind, TensorArgument(name=values[-1].name), target))
        output = self.graph.output_node()
        returned: Any = output.args[0]
        output.args = ((*values, *returned),)
        signature.output_specs[:0] = specs
        rename_outputs(self.program)


def _with_defaults(node: Node) -> tuple[Any, ...]:
    """Arguments by position, with defaults that the twin may not have, as that of `bernoulli_`."""
    formals = node.target._schema.arguments[len(node.args) :]  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    missing = [f for f in formals if not f.kwarg_only and f.name not in node.kwargs]
    return (*node.args, *(f.default_value for f in missing))


# Operators whose twin has another name: (name, overload) without the underscore -> the twin's
_OTHER_TWINS = {
    ("bernoulli", "float"): ("bernoulli", "p"),
    ("normal", "default"): ("normal_functional", "default"),
}

# Arguments that say where, whose type is another one
_PLACES = frozenset({"index", "mask"})

_PREDICATES = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor"}
)
