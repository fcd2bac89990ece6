"""A submodule's forward, redirected for the time of a call of the module around it.

The submodule stays the very object: hooks, containers and references see no other. Only the thread that has
redirected it runs something else; other threads, tracers and the call itself find its own forward.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from daceml.errors import SignatureError
from daceml.frontend.capture.trace_lock import tracing_here

Forward = Callable[..., Any]


class RedirectedForward:
    """Stands among a module's attributes while somebody redirects its forward.

    Args:
        module: whose forward it is.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)
        self.given: Forward | None = own_forward(module)
        self.users = 0
        self._threads = threading.local()
        functools.update_wrapper(self, class_forward(module) if self.given is None else self.given)
        self.__wrapped__ = forward_of(module)

    def push(self, call: Forward) -> None:
        """Run `call` in this thread from now on."""
        self._stack().append(call)

    def pop(self) -> None:
        """Run what was run before."""
        self._stack().pop()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stack = self._stack()
        if not stack or (torch.compiler.is_compiling() and tracing_here()):
            return self._own()(*args, **kwargs)
        call = stack.pop()  # within the call the module has its own forward
        try:
            return call(*args, **kwargs)
        finally:
            stack.append(call)

    def __deepcopy__(self, memo: dict[int, Any]) -> Forward:
        module = self._module()
        return self._own() if module is None else class_forward(memo.get(id(module), module))

    def _own(self) -> Forward:
        module = self._module()
        assert module is not None, "its attribute is being called"
        return self.given or class_forward(module)

    def _stack(self) -> list[Forward]:
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        return self._threads.stack


_known: dict[int, RedirectedForward] = {}  # by id: modules need not be hashable
_lock = threading.Lock()


def _redirect_of(module: nn.Module) -> RedirectedForward:
    """The one redirection of a module, made anew where its own forward is another one now."""
    found = _known.get(id(module))
    if found is None:
        weakref.finalize(module, _known.pop, id(module), None)
    if found is None or (not found.users and found.given is not own_forward(module)):
        found = _known[id(module)] = RedirectedForward(module)
    return found


def own_forward(module: nn.Module) -> Forward | None:
    """The forward that the user has assigned to an instance, if any."""
    found = module.__dict__.get("forward")
    return found.given if isinstance(found, RedirectedForward) else found


def forward_of(module: nn.Module) -> Forward:
    """A module's own forward, redirected or not."""
    return own_forward(module) or class_forward(module)


def class_forward(module: nn.Module) -> Forward:
    """The forward of a module's class, bound to it as Python does: a method, a staticmethod, any callable."""
    found = inspect.getattr_static(type(module), "forward")
    bind = getattr(type(found), "__get__", None)
    return found if bind is None else bind(found, module, type(module))


def forward_signature(forward: Forward) -> inspect.Signature:
    """The parameters of a forward; any for a function of C, such as `torch.sin`, which tells none."""
    try:
        return inspect.signature(forward)
    except ValueError:
        return inspect.signature(lambda *args, **kwargs: None)


def check_call(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Compare the arguments of a call with the parameters of a module's forward.

    Raises:
        SignatureError: forward does not take them.
    """
    signature = forward_signature(forward_of(module))
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = type(module).__name__
        raise SignatureError(
            f"{name} cannot be called with these arguments",
            why=str(error),
            fix=f"call it as {name}{signature}",
        ) from error


@contextmanager
def redirected(parts: Sequence[tuple[nn.Module, Forward]]) -> Generator[None]:
    """Run these functions instead of the modules' forwards within the block, in this thread."""
    held: list[tuple[nn.Module, RedirectedForward]] = []
    with _lock:
        for module, call in parts:
            redirect = _redirect_of(module)
            redirect.users += 1
            module.__dict__["forward"] = redirect
            redirect.push(call)
            held.append((module, redirect))
    try:
        yield
    finally:
        with _lock:
            for module, redirect in reversed(held):
                redirect.pop()
                redirect.users -= 1
                if not redirect.users and module.__dict__.get("forward") is redirect:
                    del module.__dict__["forward"]
                    if redirect.given is not None:
                        module.__dict__["forward"] = redirect.given
