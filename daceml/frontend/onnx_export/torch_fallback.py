"""Operators without a translation become calls of torch's own kernels: nodes of the domain `daceml.aten`.

Mutates the program that it is given. `aten.linalg_inv_ex.default(x, check_errors=False)` becomes
`daceml.torch_operator(call, 2, '', [x], [])`, where `call` says the operator and its arguments (see
`daceml.runtime.torch_fallback`), and gives a list of the operator's two results.
Complex numbers are in such nodes only, since ONNX's operators have none.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from daceml.config import config
from daceml.frontend.onnx_export.decompositions import example_arguments
from daceml.frontend.onnx_export.functionalize import log, rename_outputs
from daceml.runtime.torch_fallback import Place, call_text, torch_operator

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node


_aten = torch.ops.aten
_REVERSED = (_aten.t.default, _aten.numpy_T.default)
_SWAPPED = (_aten.transpose.int, _aten.swapaxes.default, _aten.swapdims.default, _aten.mT.default)
_NO_DERIVATIVE = ("derivative", "automatic differentiation", "not implemented")
_HIDING = {
    _aten.batch_norm.default: "training",
    _aten.cudnn_batch_norm.default: "training",
    _aten.instance_norm.default: "use_input_stats",
    _aten.native_batch_norm.default: "training",
}
"""Operators that change their running statistics, though their schemas do not say so -> the operand that asks
for it.

A program that runs twice, as in a comparison with eager PyTorch, would change the caller's statistics twice.
"""
_REORDERED = (_aten.permute.default, *_REVERSED, *_SWAPPED)


def refusal(node: Node) -> str | None:
    """Why a node of an exported graph cannot be a call of torch's kernel; None where it can."""
    if config().fallback == "none":
        return "disabled by DACEML_FALLBACK=none"
    target = node.target
    if not isinstance(target, OpOverload):
        return f"{target} is not an operator of torch's dispatcher"
    if target.namespace == "daceml":
        return f"{target} is daceml's own"
    if target._schema.is_mutable:  # pyright: ignore[reportPrivateUsage]
        return f"{target} changes an operand"
    if _hides_a_change(node):
        return f"{target} changes its running statistics, which its schema does not say"
    for result in _results(node.meta.get("val")):
        if not isinstance(result, torch.Tensor):
            return f"{target} gives {type(result).__name__}, which is not a tensor"
        if result.layout != torch.strided or result.is_nested or _is_quantized(target):
            return f"{target} gives a tensor that is sparse, quantized or nested"
        if free_unbacked_symbols(result):
            return f"the sizes of what {target} gives depend on data"
    try:
        encoded_call(node)
    except TypeError as error:
        return str(error)
    return None


def _hides_a_change(node: Node) -> bool:
    """Whether an operator changes running statistics that it is given."""
    asked = _HIDING.get(cast("OpOverload", node.target))
    if asked is None:
        return False
    names = (argument.name for argument in node.target._schema.arguments)  # pyright: ignore
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return given.get("running_mean") is not None and bool(given.get(asked))


def _is_quantized(target: OpOverload) -> bool:
    """Whether an operator gives quantized tensors, which a trace takes for tensors of whole numbers."""
    return target.namespace == "aten" and target.overloadpacket.__name__.startswith("quantize_per_")


def touches_complex(node: Node) -> bool:
    """Whether a node computes with complex numbers, or gives them, and is no call of torch's kernel yet."""
    if node.op != "call_function" or node.target in (operator.getitem, torch_operator()):
        return False
    values = [node.meta.get("val"), *(operand.meta.get("val") for operand in node.all_input_nodes)]
    return any(isinstance(v, torch.Tensor) and v.is_complex() for value in values for v in _results(value))


def call_by_name(program: ExportedProgram, chosen: Iterable[Node]) -> None:
    """Replace nodes, for which there is no `refusal`, by calls of torch's kernels."""
    graph = program.graph
    called = list(chosen)
    for node in called:
        call, tensors, numbers = encoded_call(node)
        value = node.meta["val"]
        given = list(_results(value))
        with graph.inserting_before(node):
            made = graph.call_function(
                torch_operator(), (call, len(given), _underived(node), tensors, numbers)
            )
        made.meta = dict(node.meta, val=given)
        places = iter(range(len(given)))
        _take_results(node, value, made, places)
        graph.erase_node(node)
    rename_outputs(program)
    if called:
        log.info("called by name: %s", ", ".join(sorted({str(node.target) for node in called})))


def _take_results(node: Node, value: Any, made: Node, places: Iterator[int]) -> None:
    """Let the readers of a node, or of an element of what it gives, read elements of the list."""
    if isinstance(value, tuple | list):
        picked: dict[int, list[Node]] = {}
        for user in list(node.users):
            if user is not made:
                picked.setdefault(int(user.args[1]), []).append(user)  # pyright: ignore[reportArgumentType]
        for position, element in enumerate(value):
            readers = picked.get(position, [])
            if isinstance(element, tuple | list):
                for reader in readers:
                    _take_results(reader, element, made, places)
                    reader.graph.erase_node(reader)
            elif element is not None:
                place = next(places)
                for reader in readers:
                    reader.args = (made, place)
        return
    with node.graph.inserting_before(node):
        element = node.graph.call_function(operator.getitem, (made, next(places)))
    element.meta = dict(node.meta)
    node.replace_all_uses_with(element)


def _underived(node: Node) -> str:
    """Why torch has no derivative of an operator; empty where it has one, or nobody can tell."""

    target: Any = node.target
    try:
        args, kwargs = example_arguments(node)
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        leaves = [t.requires_grad_() for t in tensors if t.is_floating_point() or t.is_complex()]
        with torch.enable_grad():
            made = [r for r in _results(target(*args, **kwargs)) if r.requires_grad]
            if made and leaves:
                torch.autograd.grad(made, leaves, [torch.ones_like(r) for r in made], allow_unused=True)
    except Exception as error:
        text = str(error).partition("\n")[0]
        return text if any(word in text for word in _NO_DERIVATIVE) else ""
    return ""


def _results(value: Any) -> Iterator[Any]:
    """Everything that a value consists of, besides None."""
    if isinstance(value, tuple | list):
        for element in value:
            yield from _results(element)
    elif value is not None:
        yield value


def _as_stored(operand: Node) -> tuple[Node, tuple[int, ...]]:
    """The tensor whose dimensions an operand has in another order, and that order: () where it is its own.

    torch's kernels read strides, so nothing has to be copied for them.
    """
    order = list(range(operand.meta["val"].ndim))
    while operand.target in _REORDERED and not operand.kwargs:
        source, *dimensions = cast("tuple[Any, ...]", operand.args)
        rank = len(order)
        step = list(range(rank))
        if operand.target in _SWAPPED:
            a, b = (d % rank for d in dimensions or (-2, -1))
            step[a], step[b] = step[b], step[a]
        elif operand.target in _REVERSED:
            step.reverse()
        else:
            step = [d % rank for d in dimensions[0]]
        order = [step[d] for d in order]
        operand = source
    return operand, () if order == sorted(order) else tuple(order)


def encoded_call(node: Node) -> tuple[str, list[Node], list[Node]]:
    """A call as text, its tensors, and its symbolic sizes.

    Raises:
        TypeError: an argument that no text describes.
    """
    tensors: list[Node] = []
    numbers: list[Node] = []

    def place(operand: Node, formal: str) -> Any:
        value = operand.meta.get("val")
        if isinstance(value, torch.Tensor):
            if "Tensor" not in formal:  # a number that was read from a tensor, or computed from sizes
                tensors.append(operand)
                return Place("value", len(tensors) - 1)
            source, order = _as_stored(operand)
            tensors.append(source)
            return Place("tensor", len(tensors) - 1, order)
        if isinstance(value, torch.SymInt):
            numbers.append(operand)
            return Place("number", len(numbers) - 1)
        raise TypeError(
            f"{node.target} is given {type(value).__name__}, which is neither a tensor nor a size"
        )

    target: Any = node.target
    formals = {argument.name: str(argument.type) for argument in target._schema.arguments}
    kinds = list(formals.values())
    args = [torch.fx.map_arg(a, partial(place, formal=kinds[n])) for n, a in enumerate(node.args)]
    kwargs = {
        name: torch.fx.map_arg(a, partial(place, formal=formals[name])) for name, a in node.kwargs.items()
    }
    return call_text(str(target), args, kwargs), tensors, numbers
