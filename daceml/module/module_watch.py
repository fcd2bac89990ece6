"""Whether a module still is what it was when it was traced.

The module is polled: which tensors, submodules, attributes and training flags it holds, by identity. A
replaced parameter, `functional_call` or a frozen batch norm therefore never meets a program that was bound to
something else.
"""

from __future__ import annotations

import functools
import gc
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from daceml.frontend.capture.hook_state import KINDS, hook_variables
from daceml.frontend.capture.module_attributes import (
    FRAMEWORK,
    MEMBERS,
    is_plain_object,
    is_users,
    slots,
    walk,
)
from daceml.frontend.capture.redirected_forward import RedirectedForward
from daceml.runtime.identity_watch import WatchedDict, container_watch

if TYPE_CHECKING:
    from daceml.frontend.capture.attributes_read import AttributesRead
    from daceml.frontend.capture.capture import Capture
    from daceml.frontend.capture.exportable import Assignment
    from daceml.frontend.capture.values_read import ValueRead

log = logging.getLogger(__name__)

# They decide what runs at all.
_ALWAYS = ("training", "forward")

_HOOKS = (*KINDS, "_backward_hooks", "_backward_pre_hooks")

# Compared by value where the object is another one
_VALUES = (bool, int, float, complex, str, bytes, tuple, torch.dtype, torch.device)

# A vocabulary or a data set among the attributes would cost more to poll than a program takes to run.
_LIMIT = 20_000


class ModuleWatch:
    """A snapshot of a module: what an export may have built into a program.

    Tensors and submodules count by identity (programs share their memory), training flags and the module's
    own attributes too: `module.temperature = 0.7` is a constant of the exported graph, and so is what
    containers and objects among them hold, and what their classes say.

    Args:
        module: a module as it stands.
        assigned: attributes that forward itself assigns tensors to; what they hold is no constant.
        bound: tensors that the program reads where they are; others among the attributes count with their
            version.
        reads: values of tensors of the module that the program has for constants.
        classes: of objects among arguments and results.
        attributes: that count; None for all.
        hooks: whether hooks of submodules are parts of the program, so that what they read counts.
        moving: id of a module and attribute, of what does not count because forward itself changes it.
    Attributes:
        unchanged: whether the module still holds the very objects of the snapshot.
    """

    unchanged: Callable[[], bool]

    def __init__(
        self,
        module: nn.Module,
        assigned: Sequence[Assignment] = (),
        bound: Sequence[torch.Tensor] = (),
        reads: Sequence[ValueRead] = (),
        classes: Sequence[type] = (),
        attributes: AttributesRead | None = None,
        *,
        hooks: bool = False,
        moving: AbstractSet[tuple[int, str]] = frozenset(),
    ) -> None:
        self._what = assigned, bound, reads, classes, attributes
        self._hooks = hooks
        self.moving = moving
        self._read = attributes
        self._entries: dict[str, Any] = {}
        self._tensors: list[tuple[torch.Tensor, int]] = []
        self._owners: list[tuple[int, str, Sequence[str]]] = []
        self._dicts: list[WatchedDict] = []
        self._lists: list[list[Any]] = []
        self._polls: list[tuple[str, Callable[[], bool]]] = []
        self._seen = {id(child) for child in module.modules()}
        self._known = set(self._seen)
        self._bound = {id(tensor) for tensor in bound}
        self._complete = True
        ignored = {(id(made.owner), made.name) for made in assigned} | moving
        for path, child in module.named_modules():
            if isinstance(child, torch.jit.ScriptModule):
                continue  # no program has one
            # hooks of the module itself run at every call; those within are traced
            kinds = MEMBERS if child is module else (*MEMBERS, *_HOOKS)
            self._module(
                path, child, kinds, {n for n in child.__dict__ if n in FRAMEWORK or (id(child), n) in ignored}
            )
        for kind in classes:
            self._class(kind)
        for name, read in hook_variables(module) if hooks else ():
            self._attribute(name, read())
            self._polls.append((name, functools.partial(_holds, read, read())))
        self._polls += [(f"the value of {read.name}", read.holds) for read in reads]
        self._before = [tuple(members[name] for name in names) for members, names in self._dicts]
        self._held = container_watch(self._dicts, self._lists)
        self.unchanged = self._all_unchanged if self._tensors or self._polls else self._held

    def retaken(self, module: nn.Module) -> ModuleWatch:
        """The same kind of snapshot of the module as it stands now."""
        return ModuleWatch(module, *self._what, hooks=self._hooks, moving=self.moving)

    def without_moved(self, module: nn.Module, known: AbstractSet[tuple[int, str]]) -> ModuleWatch:
        """A snapshot of the module as it stands now, where what has changed since this one does not count.

        Args:
            known: what does not count either.
        """
        now = self.retaken(module)
        moved = self._differences(now)
        found = {
            (owner, name)
            for owner, prefix, names in (*self._owners, *now._owners)
            for name in names
            if any(_leads_to(f"{prefix}{name}", path) for path in moved)  # hooks have numbers
        }
        return ModuleWatch(module, *self._what, hooks=self._hooks, moving={*self.moving, *known, *found})

    def _all_unchanged(self) -> bool:
        return (
            self._held()
            and all(_version(tensor) == version for tensor, version in self._tensors)
            and all(unchanged() for _, unchanged in self._polls)
        )

    def plainly_changed(self) -> bool:
        """Whether a plain value is another one now, which is seen without a second snapshot."""
        return any(
            isinstance(before, _VALUES) and not _same(before, members.get(name))
            for (members, names), values in zip(self._dicts, self._before, strict=True)
            for name, before in zip(names, values, strict=True)
        )

    def difference(self, now: ModuleWatch) -> str | None:
        """The first entry that differs, or None; plain values that were replaced by equal ones do not."""
        return next(iter(self._differences(now)), None)

    def _differences(self, now: ModuleWatch) -> list[str]:
        """Every entry that differs."""
        found = sorted(self._entries.keys() ^ now._entries.keys())
        both = self._entries.keys() & now._entries.keys()
        found += [n for n in self._entries if n in both and not _same(self._entries[n], now._entries[n])]
        changed = [t for t, version in self._tensors if _version(t) != version]
        found += [name for name, value in self._entries.items() for t in changed if value is t]
        return [*found, *(path for path, unchanged in self._polls if not unchanged())]

    def _module(self, path: str, module: nn.Module, kinds: Sequence[str], ignored: set[str]) -> None:
        own = module.__dict__
        # a parent that is cut redirects the forwards of its submodules while it runs
        redirects = {n for n in own if isinstance(own[n], RedirectedForward)}
        read = None if self._read is None else self._read.names(module)
        names = tuple(
            n for n in own
            if n not in ignored and n not in redirects and (read is None or n in read or n in _ALWAYS)
        )  # fmt: skip
        members: list[tuple[str, dict[Any, Any]]] = [
            (kind, {n: value for n, value in own[kind].items() if (id(module), n) not in self.moving})
            for kind in kinds
        ]
        self._dicts += [(own, names), *((own[kind], tuple(m)) for kind, m in members)]
        prefix = f"{path}." if path else ""
        self._owners += [(id(module), prefix, tuple(part)) for part in (names, *(m for _, m in members))]
        self._class(type(module))
        for name in names:
            self._attribute(prefix + name, own[name])
        self._absent(prefix, module, read or ())
        # a hook's number may be the name of a submodule, as in nn.Sequential
        self._entries |= {
            f"{prefix}{kind}.{name}" if kind in _HOOKS else f"{prefix}{name}": value
            for kind, m in members
            for name, value in m.items()
        }

    def _absent(self, prefix: str, module: nn.Module, read: Iterable[str]) -> None:
        """What forward asked for and did not find in the module itself may be there later."""
        own = module.__dict__
        for name in sorted(set(read) - own.keys() - FRAMEWORK):
            known = any(name in own[kind] for kind in MEMBERS) or callable(getattr(type(module), name, None))
            if not known and not name.startswith("__"):
                self._poll(prefix + name, lambda name=name: name in own)

    def _attribute(self, path: str, value: Any) -> None:
        for place, part in walk(path, value, self._seen):
            if len(self._entries) > _LIMIT:
                self._give_up(path)
                return
            self._entries[place] = part
            if id(part) not in self._known:
                self._known.add(id(part))
                self._contents(place, part)

    def _contents(self, path: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._bound:
                self._tensors.append((value, _version(value)))
        elif isinstance(value, dict | list | set | deque) and len(value) > _LIMIT:  # pyright: ignore[reportUnknownArgumentType]
            self._give_up(path)
        elif isinstance(value, dict):
            self._dicts.append((value, tuple(value)))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, list):
            self._lists.append(value)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, nn.Module):
            self._hidden(value)
        elif isinstance(value, set):
            self._poll(path, lambda: frozenset(value))  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, deque):
            self._poll(path, lambda: [id(part) for part in value])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        elif isinstance(value, np.ndarray):
            array: Any = value
            self._poll(path, lambda: (array.dtype, array.shape, array.tobytes()))
        elif is_plain_object(value):
            self._class(type(value))
            if (members := getattr(value, "__dict__", None)) is not None:
                self._dicts.append((members, tuple(members)))
            if names := slots(value):
                self._poll(path, lambda: [id(getattr(value, name, None)) for name in names])

    def _hidden(self, module: nn.Module) -> None:
        """A module that is no registered submodule; `walk` goes through what it holds."""
        own = module.__dict__
        self._class(type(module))
        self._dicts.append((own, tuple(n for n in own if n not in FRAMEWORK)))
        self._dicts += [(own[kind], tuple(own[kind])) for kind in MEMBERS]

    def _give_up(self, path: str) -> None:
        if self._complete:
            log.warning("changes behind %s are not noticed: it leads to more than %d values", path, _LIMIT)
        self._complete = False

    def _poll(self, path: str, read: Callable[[], Any]) -> None:
        before = read()
        self._polls.append((path, lambda: read() == before))

    def _class(self, kind: type) -> None:
        """Class attributes are read like those of an instance, and methods may be replaced."""
        for base in kind.__mro__:
            if id(base) in self._seen or not is_users(base):
                continue
            self._seen.add(id(base))
            # the dict behind the proxy, which can be polled like any other
            members: Any = gc.get_referents(base.__dict__)[0]
            # what Python writes there by itself says nothing
            names = tuple(
                n for n in members
                if (not (n.startswith("__") and n.endswith("__")) or n == "__call__")
                and (id(base), n) not in self.moving
            )  # fmt: skip
            self._dicts.append((members, names))
            self._owners.append((id(base), f"{base.__qualname__}.", names))
            for name in names:
                self._attribute(f"{base.__qualname__}.{name}", members[name])


def watch_traced(module: nn.Module, captured: Capture) -> ModuleWatch:
    """The module as this trace found it.

    A tensor in the place of another one that forward assigned is no change. One in the place of None is: the
    next call may take another way, as where a state begins.
    """
    results = [made for made in captured.assigned if made.holds_tensors and made.held_tensors]
    reads = [read for read in captured.reads if not isinstance(read.source, int)]
    # one number is watched itself, and no other change of its tensor counts
    numbers = [r.source for r in reads if isinstance(r.source, torch.Tensor) and r.source.numel() == 1]
    bound = () if captured.other_reads else (*registered(module), *captured.held.values(), *numbers)
    return ModuleWatch(module, results, bound, reads, captured.classes, captured.attributes, hooks=True)


def _leads_to(attribute: str, path: str) -> bool:
    """Whether a path is that of an attribute, or of something in it."""
    rest = path.removeprefix(attribute)
    return rest != path and (not rest or rest[0] in ".[")


def _holds(read: Callable[[], Any], before: Any) -> bool:
    return _same(before, read())


def _same(before: Any, after: Any) -> bool:
    return before is after or (
        type(before) is type(after) and isinstance(before, _VALUES) and before == after
    )


def registered(module: nn.Module) -> tuple[torch.Tensor, ...]:
    """Parameters and buffers, which attributes may lead to besides, as those of a recurrent layer do."""
    return (*module.parameters(), *module.buffers())


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was changed; tensors made in inference mode do not count it."""
    return -1 if tensor.is_inference() else tensor._version
