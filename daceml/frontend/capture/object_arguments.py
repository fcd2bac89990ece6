"""Objects among the arguments of a call, such as a cache of keys and values.

An object is a node of a pytree: its attributes are arguments, too. Forward may change what objects, lists and
dicts of the call hold. A trace works on copies of them and finds the changes, whose values are results of the
program; a call puts them into the caller's own objects.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.errors import CallError
from daceml.frontend.capture.module_attributes import attributes, is_users, slots

_PLAIN = (torch.Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def is_object(value: Any) -> bool:
    """Whether a value is an object of the user's, whose attributes are all there is to it."""
    return (
        not isinstance(value, _PLAIN) and type(value) not in pytree.SUPPORTED_NODES and _is_open(type(value))
    )


@functools.lru_cache(maxsize=4096)
def _is_open(kind: type) -> bool:
    if not is_users(kind) or issubclass(kind, (type, enum.Enum, nn.Module)) or hasattr(kind, "__del__"):
        return False
    try:
        made = object.__new__(kind)  # refuses whatever has more to it than attributes, such as a dict
    except TypeError:
        return False
    return hasattr(made, "__dict__") or hasattr(kind, "__slots__")


@dataclass(frozen=True, eq=False)
class Opened:
    """An object as a node of a pytree.

    Attributes:
        kind: its class.
        names: of its attributes.
        parts: their values, as trees.
    """

    kind: type
    names: tuple[str, ...]
    parts: Sequence[Any]

    @classmethod
    def of(cls, value: Any, convert: Callable[[Any], Any]) -> Opened:
        """The node of an object, with attributes converted to trees."""
        held = attributes(value)
        return cls(type(value), tuple(held), [convert(part) for part in held.values()])

    def closed(self) -> Any:
        """A new object with these attributes."""
        made = object.__new__(self.kind)
        _assign(made, dict(zip(self.names, map(closed, self.parts), strict=True)))
        return made


def closed(tree: Any) -> Any:
    """A tree with a new object for every node of one."""
    return pytree.tree_map(
        lambda leaf: leaf.closed() if isinstance(leaf, Opened) else leaf,
        tree,
        is_leaf=lambda value: isinstance(value, Opened),
    )


def _assign(value: Any, held: Mapping[str, Any]) -> None:
    """Give an object attributes, past a `__setattr__` of its class."""
    slotted = slots(value)
    for name, part in held.items():
        if name in slotted:
            object.__setattr__(value, name, part)
        else:
            value.__dict__[name] = part


@dataclass(frozen=True)
class Given:
    """An object, list or dict of the caller among results: its number among the `containers` of the call."""

    number: int


@dataclass(frozen=True)
class Fixed:
    """A constant among results that torch.export does not take for one."""

    value: Any


def _named_parts(node: Opened) -> tuple[list[tuple[Any, Any]], Any]:
    parts = zip(node.names, node.parts, strict=True)
    named: list[tuple[Any, Any]] = [(pytree.GetAttrKey(name), part) for name, part in parts]
    return named, (node.kind, node.names)


pytree.register_pytree_node(
    Opened,
    lambda node: (list(node.parts), (node.kind, node.names)),
    lambda parts, context: Opened(context[0], context[1], list(parts)),
    flatten_with_keys_fn=_named_parts,
)
pytree.register_pytree_node(Given, lambda node: ([], node), lambda _, node: node)
pytree.register_pytree_node(Fixed, lambda node: ([], node), lambda _, node: node)


def opened(tree: Any, leaves: Sequence[Any]) -> Any:
    """Arguments with a node for every object; the same tree where there is none.

    Args:
        leaves: of the tree.
    Raises:
        CallError: an object is in two places.
    """
    if not any(map(is_object, leaves)):
        return tree
    seen: set[int] = set()

    def convert(leaf: Any) -> Any:
        if not is_object(leaf):
            return leaf
        if id(leaf) in seen:
            raise CallError(
                f"the arguments lead to one {type(leaf).__name__} twice",
                why="a program would take it for two objects, and a change of one would miss the other",
                fix="pass the object once, without references back to it",
            )
        seen.add(id(leaf))
        return Opened.of(leaf, lambda part: pytree.tree_map(convert, part))

    return pytree.tree_map(convert, tree)


def size_of_number(number: int) -> torch.Tensor:
    """A tensor without elements that has a number for its first size; a trace follows sizes as symbols."""
    return torch.empty((number, 0), dtype=torch.bool)


def has_objects(structure: pytree.TreeSpec | None) -> bool:
    """Whether there are objects among arguments, or results, of this structure."""
    if structure is None:
        return False
    return structure.type in (Opened, Given, Fixed) or any(map(has_objects, structure.children()))


def kinds_of_objects(structure: Any) -> Iterator[type]:
    """The class of every object among arguments, or results, of this structure."""
    if structure.type is Opened:
        yield structure.context[0]
    for child in structure.children():
        yield from kinds_of_objects(child)


def containers(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Every object, list and dict of a call, in an order that calls of one structure share."""
    found: list[Any] = []
    waiting: list[Any] = [*args, *kwargs.values()][::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _PLAIN):
            continue
        if type(value) in (list, dict) or is_object(value):
            found.append(value)
        waiting.extend(reversed(_parts(value)))
    return found


def _parts(value: Any) -> list[Any]:
    if is_object(value):
        return list(attributes(value).values())
    kind = pytree._get_node_type(value)  # pyright: ignore[reportPrivateUsage]
    return list(pytree.SUPPORTED_NODES[kind].flatten_fn(value)[0]) if kind in pytree.SUPPORTED_NODES else []


@dataclass(frozen=True, kw_only=True)
class Change:
    """What forward does to an object, a list or a dict of its arguments.

    Attributes:
        number: of the container among `containers`.
        removed: attributes or keys that go before others come.
    """

    number: int
    removed: tuple[Any, ...] = ()

    def apply(self, given: Sequence[Any], content: Any) -> None:
        """Change the container in place.

        Args:
            given: the containers of the call.
            content: of a list, all of it; else the new attributes or entries.
        """
        container = given[self.number]
        if isinstance(container, list):
            container[:] = content
        elif isinstance(container, dict):
            for key in self.removed:
                del container[key]
            container.update(content)
        else:
            for name in self.removed:
                object.__delattr__(container, name)
            _assign(container, content)


class HeldContents:
    """What the objects, lists and dicts of a call hold before forward runs.

    Args:
        args, kwargs: those that forward is about to get.
    Attributes:
        changes: found by `changed`.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._containers = containers(args, kwargs)
        self._before = [_content(container) for container in self._containers]
        within = {id(part) for c in self._containers if is_object(c) for part in containers((c,), {})}
        self._known = {id(c): number for number, c in enumerate(self._containers) if id(c) in within}
        self.changes: list[Change] = []

    def changed(self) -> list[Any]:
        """The new contents, in the order of `changes`."""
        contents: list[Any] = []
        self.changes = []
        for number, (container, before) in enumerate(zip(self._containers, self._before, strict=True)):
            now = _content(container)
            if isinstance(now, list):
                change = None if _same_parts(now, before) else ((), now)
            else:
                change = _entries_changed(before, now)
            if change is not None:
                self.changes.append(Change(number=number, removed=change[0]))
                self._known[id(container)] = number
                contents.append(change[1])
        return contents

    def described(self, results: Any) -> Any:
        """Results in terms that torch.export takes: nodes for objects, and for containers of the call."""
        seen: dict[int, Any] = {}

        def convert(leaf: Any) -> Any:
            if id(leaf) in self._known:
                return Given(self._known[id(leaf)])
            if is_object(leaf) and id(leaf) not in seen:
                seen[id(leaf)] = leaf
                return Opened.of(leaf, nested)
            fixed = isinstance(leaf, (torch.dtype, torch.device, torch.memory_format, torch.layout, type))
            return Fixed(leaf) if fixed else leaf

        def nested(part: Any) -> Any:
            return pytree.tree_map(convert, part, is_leaf=self._is_leaf)

        return nested(results)

    def _is_leaf(self, value: Any) -> bool:
        # pytree would make a tuple of a torch.Size
        return id(value) in self._known or isinstance(value, torch.Size)


def _content(container: Any) -> Any:
    if isinstance(container, list | dict):
        return container.copy()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return attributes(container)


def _same_parts(now: Sequence[Any], before: Sequence[Any]) -> bool:
    return len(now) == len(before) and all(map(same_part, before, now))


def same_part(before: Any, now: Any) -> bool:
    """Whether two values are one object, or plain and equal."""
    plain = (bool, int, float, str, bytes, type(None))
    return before is now or (type(before) is type(now) and isinstance(before, plain) and before == now)


def _entries_changed(before: dict[Any, Any], now: dict[Any, Any]) -> tuple[tuple[Any, ...], Any] | None:
    """Keys that went, and entries that are new or others; None where nothing changed."""
    removed = tuple(key for key in before if key not in now)
    kept = [key for key in before if key in now]
    if list(now)[: len(kept)] != kept:
        return tuple(before), now  # the order is another one
    others = {k: v for k, v in now.items() if k not in before or not same_part(before[k], v)}
    return (removed, others) if removed or others else None
