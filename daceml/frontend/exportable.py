"""A module as torch.export wants it: tensors in, a result out, and everything else that a forward does on the
side made visible.

torch.export traces one function of tensors. A forward also runs under torch's modes, takes nested and plain
arguments, calls hooks of submodules and assigns attributes; a view of the module puts all of that into terms
of tensors, or says why it cannot.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from daceml.frontend.arguments import Arguments

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
_TRACED_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_FRAMEWORK = frozenset(nn.Module().__dict__)


class RunsEagerlyError(Exception):
    """The forward does something that a program cannot repeat; the message says what."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """An attribute that forward assigns.

    Attributes:
        owner: the module or a submodule.
        name: of the attribute.
        before: its value before forward; None where there was none.
        holds_tensors: whether tensors are assigned; these are results, where other values may steer the next
            call.
    """

    owner: nn.Module
    name: str
    before: Any
    holds_tensors: bool


@dataclass(kw_only=True)
class ExportView:
    """A module ready for torch.export.

    Attributes:
        module: its forward takes the tensors of the arguments, and returns (result, values of `assigned`).
        assigned: what forward assigned while it was traced.
    """

    module: nn.Module
    assigned: list[Assignment] = field(default_factory=list[Assignment])


@contextmanager
def exportable(
    module: nn.Module, arguments: Arguments, autocast: torch.dtype | None = None
) -> Generator[ExportView]:
    """A view of `module` for the time of an export.

    The view shares everything with the module but the outermost hooks, which run at every call. Plain tensors
    in the place of parameters (`torch.func.functional_call` puts them there) are wrapped meanwhile, since
    torch.export wants parameters. What forward assigns to attributes is put back.

    Args:
        autocast: the type of the autocast region that the call is in.
    Raises:
        RunsEagerlyError: a submodule has a hook; or, from within the export, forward changes a list or dict
            of the module.
    """
    _refuse_hooks(module)
    view = ExportView(module=object.__new__(type(module)))
    own = {**module.__dict__, **{name: OrderedDict() for name in _HOOKS if name in module.__dict__}}
    view.module.__dict__ = own
    instance_forward: Any = own.get("forward")
    forward: Callable[..., Any] = instance_forward or type(module).forward.__get__(view.module)

    def flat(*tensors: torch.Tensor) -> Any:
        args, kwargs = arguments.rebuild(tensors)
        with _watched_attributes(view, module), _autocast(autocast):
            result = forward(*args, **kwargs)
        return result, [made.owner.__dict__[made.name] for made in view.assigned]

    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = arguments.names(module.forward)
    flat.__signature__ = inspect.Signature([inspect.Parameter(n, positional) for n in names])  # pyright: ignore[reportFunctionMemberAccess]
    own["forward"] = flat
    before = [(child, dict(child.__dict__)) for child in view.module.modules()]
    with _parameters_only(module), _eager_parts(module):
        try:
            yield view
        finally:
            for child, members in before:
                child.__dict__.clear()
                child.__dict__.update(members)
    view.assigned = [
        replace(made, owner=module) if made.owner is view.module else made for made in view.assigned
    ]


def _autocast(dtype: torch.dtype | None) -> AbstractContextManager[object]:
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype)


@contextmanager
def _watched_attributes(view: ExportView, module: nn.Module) -> Generator[None]:
    """Find what the block assigns to attributes of the module and its submodules."""
    paths = {child: path for path, child in module.named_modules()}
    before = [(child, _attributes(child)) for child in view.module.modules()]
    contents = [
        (child, name, value, _content(value))
        for child, attributes in before
        for name, value in attributes.items()
        if isinstance(value, list | dict | set)
    ]
    yield
    for child, name, value, content in contents:
        if _content(value) != content:
            _restore(value, content)
            path = ".".join(filter(None, (paths.get(child, ""), name)))
            raise RunsEagerlyError(f"forward changes the {type(value).__name__} {path!r} in place")
    view.assigned = [
        Assignment(
            child, name, attributes.get(name), any(isinstance(v, torch.Tensor) for v in tree_leaves(value))
        )
        for child, attributes in before
        for name, value in _attributes(child).items()
        if name not in attributes or not _same(attributes[name], value)
    ]


def _attributes(module: nn.Module) -> dict[str, Any]:
    # recurrent layers of torch cache references to their own weights
    caches = ("_flat_weights", "_flat_weight_refs") if isinstance(module, nn.RNNBase) else ()
    ignored = {*_FRAMEWORK, "forward", *caches}
    return {name: value for name, value in module.__dict__.items() if name not in ignored}


def _content(value: Any) -> Any:
    """A copy that compares by the identity of what is inside, which may be tensors."""
    if isinstance(value, dict):
        return {key: _Same(entry) for key, entry in value.items()}
    return [_Same(entry) for entry in value] if isinstance(value, list) else set(value)


def _restore(value: Any, content: Any) -> None:
    value.clear()
    if isinstance(value, dict):
        value.update({key: same.entry for key, same in content.items()})
    elif isinstance(value, list):
        value.extend(same.entry for same in content)
    else:
        value.update(content)


@dataclass(frozen=True, eq=False)
class _Same:
    entry: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and _same(self.entry, other.entry)

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def _same(before: Any, now: Any) -> bool:
    plain = (bool, int, float, str, bytes, type(None))
    return before is now or (type(before) is type(now) and isinstance(before, plain) and before == now)


@contextmanager
def _parameters_only(module: nn.Module) -> Generator[None]:
    owned: list[dict[str, Any]] = [child.__dict__["_parameters"] for child in module.modules()]
    plain = [
        (parameters, name, tensor)
        for parameters in owned
        for name, tensor in parameters.items()
        if tensor is not None and not isinstance(tensor, nn.Parameter)
    ]
    wrapped = {id(t): nn.Parameter(t.detach(), requires_grad=False) for _, _, t in plain}
    try:
        for parameters, name, tensor in plain:
            parameters[name] = wrapped[id(tensor)]
        yield
    finally:
        for parameters, name, tensor in plain:
            parameters[name] = tensor


@contextmanager
def _eager_parts(module: nn.Module) -> Generator[None]:
    """Put the user's own modules in the place of compiled ones: the whole is compiled anyway."""
    replaced: list[tuple[dict[str, Any], str, nn.Module]] = []
    for parent in list(module.modules()):
        members: dict[str, Any] = parent.__dict__["_modules"]
        for name, child in members.items():
            session = getattr(type(child), "_session", None) and child._session
            if session is not None:
                replaced.append((members, name, child))
                members[name] = session.eager
    try:
        yield
    finally:
        for members, name, child in replaced:
            members[name] = child


def _refuse_hooks(module: nn.Module) -> None:
    """A hook of a submodule is code of the user that runs at every call: it may look at values, and keep
    them.

    torch's own (weight norm, spectral norm) set attributes, which the trace follows.
    """
    for path, child in module.named_modules():
        for hook in (hook for kind in _TRACED_HOOKS if path for hook in child.__dict__[kind].values()):
            home = str(getattr(hook, "__module__", "") or type(hook).__module__)
            if not home.startswith("torch."):
                name = getattr(hook, "__name__", type(hook).__name__)
                raise RunsEagerlyError(
                    f"the hook {name} of submodule {path!r} has to see values inside the module"
                )
