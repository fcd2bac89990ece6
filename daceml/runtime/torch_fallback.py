"""Operators of torch that a program calls by name, because neither ONNX nor daceml has them.

A call is described by JSON: the operator's name (`aten.linalg_inv_ex.default`), its arguments, where
`{"tensor": 0}`, `{"value": 1}` and `{"number": 0}` stand for tensors, their values and symbolic sizes that
are given beside it, and in a backward pass which results and operands the gradient is between. An operator
reads `{"tensor": 0, "order": [1, 0]}` with its dimensions in that order.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

_failed = threading.local()
_NUMBERS = (int, float, complex)
# What a node of torch's graph may keep without keeping a result
_PLAIN = (torch.Tensor, torch.dtype, torch.device, torch.layout, str, type(None), *_NUMBERS)
_AUTOGRAD = torch.DispatchKey.AutogradFunctionality


@dataclass(frozen=True)
class Place:
    """Where an argument comes from: `kind` is tensor, value (of a tensor) or number.

    `index` counts tensors, those whose value is meant among them, or numbers. `order` is that of a tensor's
    dimensions, where it is another one.
    """

    kind: str
    index: int
    order: tuple[int, ...] = ()


def call_text(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """A call as text.

    Args:
        name: as `str(torch.ops.aten.add.Tensor)` gives it.
        args, kwargs: of the operator, with a `Place` for each tensor and each symbolic number.
    Raises:
        TypeError: an argument that no text describes.
    """
    return json.dumps(
        {"operator": name, "args": _encoded(list(args)), "kwargs": _encoded(kwargs)}, sort_keys=True
    )


def _encoded(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case complex():
            return {"complex": [value.real, value.imag]}
        case Place():
            return {value.kind: value.index} | ({"order": list(value.order)} if value.order else {})
        case torch.dtype() | torch.layout() | torch.memory_format():
            return {"torch": str(value).removeprefix("torch.")}
        case torch.device():
            return {"device": str(value)}
        case tuple() | list():
            return [_encoded(v) for v in value]
        case dict():
            return {str(name): _encoded(v) for name, v in value.items()}
        case _:
            raise TypeError(f"an argument is of type {type(value).__name__}")


def _decoded(value: Any) -> Any:
    match value:
        case list():
            return [_decoded(v) for v in value]
        case {"tensor": index}:
            return Place("tensor", index, tuple(value.get("order", ())))
        case {"value": index}:
            return Place("value", index)
        case {"number": index}:
            return Place("number", index)
        case {"complex": [real, imaginary]}:
            return complex(real, imaginary)
        case {"torch": name}:
            return getattr(torch, name)
        case {"device": name}:
            return torch.device(name)
        case _:
            return value


def _filled(value: Any, tensors: Sequence[torch.Tensor], numbers: Sequence[int]) -> Any:
    """An argument with what is given in its places."""
    kind = type(value)
    if kind is Place:
        given: Any = (numbers if value.kind == "number" else tensors)[value.index]
        if value.order:
            return given.permute(value.order)
        return given.item() if value.kind == "value" else given
    return [_filled(v, tensors, numbers) for v in value] if kind is list else value


def overload_of(name: str) -> Any:
    """The operator of a name.

    Raises:
        AttributeError: no such operator is registered.
    """
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def may_give_views(overload: Any) -> bool:
    """Whether results of an operator may lie in memory of its operands, or of each other.

    The schemas of composite operators, of the user's own and of those with "unsafe" in their name do not say.
    """
    name = overload.overloadpacket.__name__
    silent = overload.has_kernel_for_dispatch_key(torch.DispatchKey.CompositeImplicitAutograd)
    silent = silent or overload.namespace != "aten" or name.startswith(("unsafe_", "_unsafe_"))
    return silent or any(result.alias_info is not None for result in overload._schema.returns)


def draws_numbers(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call draws random numbers: attention and recurrent layers do with dropout alone.

    Args:
        target: of a node; what is no operator of torch draws none.
        args, kwargs: as in a graph, or as read from a call's text.
    """
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    names = [formal.name for formal in target._schema.arguments]
    given: dict[str, Any] = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("train", given.get("training")) is False:
        return False
    chances = [name for name in ("dropout_p", "dropout") if name in names]
    return not chances or any(given.get(name) for name in chances)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call that has been read.

    Attributes:
        shares: whether results may be views of operands, or of each other.
        tensors, numbers: how many it takes.
        gradient: the results that there are cotangents of, and the operands whose gradients are wanted.
        unread: shapes and types of operands -> what results are like that no gradient reads.
    """

    overload: Any
    shares: bool
    args: list[Any]
    kwargs: dict[str, Any]
    tensors: int
    numbers: int
    gradient: tuple[list[int], list[int]] | None
    unread: dict[tuple[Any, ...], Any] = field(default_factory=dict[tuple[Any, ...], Any])

    def results(self, tensors: Sequence[torch.Tensor], numbers: Sequence[int]) -> list[torch.Tensor]:
        """What the operator gives, besides None."""
        args, kwargs = self._arguments(tensors, numbers)
        made = self.overload._op(*args, **kwargs)  # what calling it calls
        return [made] if type(made) is torch.Tensor else _flat(made)

    def _arguments(
        self, tensors: Sequence[torch.Tensor], numbers: Sequence[int]
    ) -> tuple[list[Any], dict[str, Any]]:
        args = [_filled(a, tensors, numbers) for a in self.args]
        return args, {name: _filled(a, tensors, numbers) for name, a in self.kwargs.items()}

    def _with_graph(
        self,
        operands: Sequence[torch.Tensor],
        numbers: Sequence[int],
        cotangents: Mapping[int, torch.Tensor],
    ) -> list[torch.Tensor]:
        """Results with torch's graph behind them; of no value where their gradients do not read them.

        The first call for these shapes computes them, and learns whether they are read.
        """
        key = (*((x.shape, x.dtype) for x in operands), *numbers)
        like = self.unread.get(key)
        args, kwargs = self._arguments(operands, numbers)
        # sizes of results may depend on data, and cotangents have those of this call
        if like is not None and all(_flat(like)[i].size == c.shape for i, c in cotangents.items()):
            with _Unwritten(self.overload, like):
                return _flat(self.overload._op(*args, **kwargs))
        with _Watched(self.overload) as watched:
            made = _flat(self.overload._op(*args, **kwargs))
        sizes = [n for x in operands for n in (*x.shape, x.ndim)]
        if watched.alone and not _are_read(made, tree_leaves((args, kwargs, sizes))):
            self.unread[key] = watched.result
        return made

    def apart(self, made: list[torch.Tensor], operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Results in memory of their own, as they are in it."""
        if any(t.is_complex() for t in made):
            made = [t.resolve_conj() for t in made]
        if any(t.is_neg() for t in made):
            made = [t.resolve_neg() for t in made]
        if not self.shares and self.gradient is None:
            return made
        known = set(map(_memory, operands))
        found: list[torch.Tensor] = []
        for result in made:
            place = _memory(result)
            found.append(result.clone() if place in known else result)
            known.add(place)
        return found

    def gradients(
        self, tensors: Sequence[torch.Tensor], numbers: Sequence[int], cotangents: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Gradients of the wanted operands, by torch's own derivative of the operator."""
        assert self.gradient is not None
        given, wanted = self.gradient
        operands = [t.detach() for t in tensors]
        leaves = [operands[i].requires_grad_() for i in wanted]
        with torch._C._SetExcludeDispatchKeyGuard(_AUTOGRAD, False), torch.enable_grad():  # pyright: ignore
            made = self._with_graph(operands, numbers, dict(zip(given, cotangents, strict=True)))
            pairs = [(made[i], c) for i, c in zip(given, cotangents, strict=True) if made[i].requires_grad]
            found = (
                torch.autograd.grad(
                    [result for result, _ in pairs],
                    leaves,
                    [cotangent.reshape(result.shape) for result, cotangent in pairs],
                    allow_unused=True,
                    materialize_grads=True,
                )
                if pairs
                else [torch.zeros_like(leaf) for leaf in leaves]
            )
        return list(found)


class _Watched(TorchDispatchMode):
    """Notes what an operator returns.

    Attributes:
        alone: whether it ran, once, and no other operator of torch besides.
        result: tensors without memory, of the sizes, types and layout of those that it returned.
    """

    def __init__(self, overload: Any) -> None:
        super().__init__()
        self._overload = overload
        self._calls: list[Any] = []
        self.result: Any = None

    @property
    def alone(self) -> bool:
        return self._calls == [self._overload]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        self._calls.append(func)
        self.result = tree_map_only(torch.Tensor, _without_memory, made)
        return made


class _Unwritten(TorchDispatchMode):
    """Lets an operator return uninitialized memory, in no time; others run."""

    def __init__(self, overload: Any, result: Any) -> None:
        super().__init__()
        self._overload, self._result = overload, result

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not self._overload:
            return func(*args, **(kwargs or {}))
        return tree_map_only(_Like, lambda like: like.made(), self._result)


@dataclass(frozen=True)
class _Like:
    """What a tensor is like, without its elements."""

    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def made(self) -> torch.Tensor:
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)


def _without_memory(tensor: torch.Tensor) -> _Like:
    return _Like(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def _are_read(made: Sequence[torch.Tensor], given: Sequence[Any]) -> bool:
    """Whether the gradients of results keep any of them, or something that may have been made of one.

    Args:
        given: the operator's arguments and the sizes of its operands, which gradients of Python may keep.
    """
    numbers = {x for x in given if isinstance(x, _NUMBERS)}
    memory = set(map(_memory, made))
    for node in {id(x.grad_fn): x.grad_fn for x in made if x.grad_fn is not None}.values():
        names = [name for name in dir(node) if name.startswith("_saved_")]
        kept = [getattr(node, name) for name in names]
        own = tree_leaves(vars(node)) if hasattr(node, "__dict__") else []
        if any(isinstance(x, _NUMBERS) and x not in numbers for x in own):
            return True  # a number that may be of a result, as that of `output.tolist()`
        leaves = tree_leaves([kept, getattr(node, "saved_tensors", ()), own])
        if any(
            not isinstance(x, _PLAIN) or (isinstance(x, torch.Tensor) and _memory(x) in memory)
            for x in leaves
        ):
            return True  # or in an object that may hold it
    return False


@functools.cache
def _read(call: str) -> _Call:
    said = json.loads(call)
    arguments = [said["args"], said["kwargs"]]
    overload = overload_of(said["operator"])
    return _Call(
        overload=overload,
        shares=may_give_views(overload),
        args=_decoded(said["args"]),
        kwargs={name: _decoded(a) for name, a in said["kwargs"].items()},
        tensors=_count(arguments, "tensor") + _count(arguments, "value"),
        numbers=_count(arguments, "number"),
        gradient=said.get("gradient"),
    )


def _count(value: Any, kind: str) -> int:
    if isinstance(value, list):
        return sum(_count(v, kind) for v in value)
    if isinstance(value, dict):
        return 1 if kind in value else sum(_count(v, kind) for v in value.values())
    return 0


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [tensor for element in value for tensor in _flat(element)]
    return [] if value is None else [value]


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


@functools.cache
def torch_operator() -> Any:
    """The operator that stands in an exported graph: the call, how many results
    it has, why it has no derivative (empty where it has one), tensors, and numbers -> the results.

    For the driver of a program it defines `daceml::run_torch_operator(str call, Tensor[] operands)`, too,
    whose operands are the tensors, then the numbers as tensors of one element, then cotangents. Where that
    fails it gives no results, and `taken_error` the error.
    """
    library = torch.library.Library("daceml", "FRAGMENT")
    library.define(
        "torch_operator(str call, int results, str underived, Tensor[] tensors, SymInt[] numbers) -> Tensor[]"
    )
    library.define("run_torch_operator(str call, Tensor[] operands) -> Tensor[]")

    def torch_operator(
        call: str, results: int, underived: str, tensors: Sequence[torch.Tensor], numbers: Sequence[int]
    ) -> list[torch.Tensor]:
        read = _read(call)
        return read.apart(read.results(tensors, numbers), tensors)

    def run_torch_operator(call: str, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        try:
            read = _read(call)
            behind = read.tensors + read.numbers
            tensors = operands[: read.tensors]
            numbers = [int(n) for n in operands[read.tensors : behind]]
            if read.gradient is None:
                return read.apart(read.results(tensors, numbers), operands)
            return read.apart(read.gradients(tensors, numbers, operands[behind:]), operands)
        except Exception as error:
            _failed.error = error
            return []

    library.impl("torch_operator", torch_operator, "CompositeExplicitAutograd")
    library.impl("run_torch_operator", run_torch_operator, "CompositeExplicitAutograd")
    torch.library.register_fake("daceml::torch_operator", torch_operator, lib=library)
    _libraries.append(library)
    return torch.ops.daceml.torch_operator.default


_libraries: list[torch.library.Library] = []
"""What lives as long as the process: a library that is dropped takes its operators along."""


def taken_error() -> Exception | None:
    """The error of the last operator that failed in this thread; it is forgotten."""
    error, _failed.error = getattr(_failed, "error", None), None
    return error
