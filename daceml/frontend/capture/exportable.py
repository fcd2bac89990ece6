"""A module as torch.export wants it: tensors in, a result out, and everything else that a forward does on the
side made visible.

torch.export traces one function of tensors. A forward also runs under torch's modes, takes nested and plain
arguments, calls hooks of submodules and assigns attributes; a view of the module puts all of that into terms
of tensors, or says why it cannot.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.attributes_read import AttributesRead, recorded_reads
from daceml.frontend.capture.call_device import autocast_regions
from daceml.frontend.capture.gradients.new_leaves import gradient_origins, rests_on_new_leaves
from daceml.frontend.capture.hook_refusals import hook_refusal
from daceml.frontend.capture.hook_state import hook_name, traced_hooks
from daceml.frontend.capture.module_attributes import held_values, is_plain_object
from daceml.frontend.capture.object_arguments import Change, HeldContents, same_part
from daceml.frontend.capture.python_effects import PythonEffectError, watched_effects
from daceml.frontend.capture.redirected_forward import class_forward, own_forward
from daceml.frontend.capture.values_read import ReadValues, ValueReads

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
_FRAMEWORK = frozenset(nn.Module().__dict__)


class RunsEagerlyError(Exception):
    """The forward does something that a program cannot repeat; the message says what.

    Attributes:
        lasting: whether that is the forward's nature, which another state of the module does not change.
        untraceable: whether Dynamo would record it wrongly as well.
        forget: see `PythonEffectError`.
        fills: whether forward has only added what it lacked to a dict or an object that the module holds, as
            a cache does at its first call.
    """

    def __init__(
        self,
        message: str,
        *,
        lasting: bool = True,
        untraceable: bool = False,
        forget: Callable[[], None] | None = None,
        fills: bool = False,
    ) -> None:
        super().__init__(message)
        self.lasting, self.untraceable, self.forget, self.fills = lasting, untraceable, forget, fills


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

    @property
    def held_tensors(self) -> bool:
        """Whether tensors were there before."""
        return any(isinstance(value, torch.Tensor) for value in tree_leaves(self.before))


@dataclass(kw_only=True)
class ExportView:
    """A module ready for torch.export.

    Attributes:
        module: its forward takes the tensors of the arguments, and returns (result, values of `assigned`, new
            contents of `changes`).
        reads: values of tensors that its forward turns into Python's.
        assigned: what forward assigned while it was traced.
        changes: what it changed in objects, lists and dicts among its arguments.
        attributes: those of modules that it read.
        moving: of each tensor that it returned, whether it requires a gradient.
    """

    module: nn.Module
    reads: ReadValues
    assigned: list[Assignment] = field(default_factory=list[Assignment])
    changes: list[Change] = field(default_factory=list[Change])
    attributes: AttributesRead = field(default_factory=AttributesRead)
    moving: tuple[bool, ...] = ()


@contextmanager
def exportable(
    module: nn.Module,
    arguments: Arguments,
    reads: ReadValues,
    autocast: tuple[torch.dtype | None, ...] = (),
    around: Callable[[Sequence[torch.Tensor]], AbstractContextManager[object]] = nullcontext,
    *,
    output: bool = True,
) -> Generator[ExportView]:
    """A view of `module` for the time of an export.

    The view shares everything with the module but the outermost hooks, which run at every call. Plain tensors
    in the place of parameters (`torch.func.functional_call` puts them there) are wrapped meanwhile, since
    torch.export wants parameters. What forward assigns to attributes is put back.

    Args:
        reads: notes values that forward turns into Python's.
        autocast: the types of the autocast regions that the call is in, see `call_device.autocast_types`.
        around: what forward is traced in, besides, of the tensors of the caller and of the module, where
            gradients are derived from the trace.
        output: whether what forward prints is an effect that no program can repeat.
    Raises:
        RunsEagerlyError: a submodule has a hook; or, from within the export, forward changes a list or dict
            of the module.
    """
    _refuse_hooks(module)
    view = ExportView(module=object.__new__(type(module)), reads=reads)
    own = {**module.__dict__, **{name: OrderedDict() for name in _HOOKS if name in module.__dict__}}
    view.module.__dict__ = own
    instance_forward = own_forward(module)
    forward: Callable[..., Any] = instance_forward or class_forward(view.module)

    def flat(*tensors: torch.Tensor) -> Any:
        for place, (traced, given) in enumerate(zip(tensors, arguments.tensors, strict=True)):
            view.reads.follow(place, spellings[place], traced, given)
        for name, traced in _registered(module):
            view.reads.follow(real[name], name, traced, real[name])
        for name, tensor in reached:
            view.reads.follow(tensor, name, tensor, tensor)
        given = [*tensors, *(t for _, t in _registered(module)), *(t for _, t in reached)]
        origins = gradient_origins(given)
        args, kwargs = arguments.rebuild(tensors)
        held = HeldContents(args, kwargs)
        layouts = _layouts(view.module, tensors)
        with (
            _watched_attributes(view, module),
            autocast_regions(autocast),
            around(given),
            _watched_python(module, output=output),
            recorded_reads() as view.attributes,
        ):
            result = forward(*args, **kwargs)
        view.attributes.join(view.module, module)
        _refuse_changed_layouts(layouts, _layouts(view.module, tensors))
        assigned = [made.owner.__dict__[made.name] for made in view.assigned]
        whole = held.described((result, assigned, held.changed()))
        view.changes = held.changes
        results = [leaf for leaf in tree_leaves(whole) if isinstance(leaf, torch.Tensor)]
        for_gradients = around is not nullcontext
        if for_gradients and any(rests_on_new_leaves(result, origins) for result in results):
            raise RunsEagerlyError("forward returns what has its gradient from a tensor that it has made")
        view.moving = tuple(result.requires_grad for result in results)
        return whole

    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names, spellings = arguments.names(module.forward), arguments.spellings(module.forward)
    real = dict(_registered(module))
    reached = [(name, value) for name, value in held_values(module) if isinstance(value, torch.Tensor)]
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
            del own["forward"]  # it holds the arguments
    view.assigned = [
        replace(made, owner=module) if made.owner is view.module else made for made in view.assigned
    ]


def _registered(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


@contextmanager
def _watched_python(module: nn.Module, *, output: bool) -> Generator[None]:
    try:
        with watched_effects(module, output=output):
            yield
    except PythonEffectError as effect:
        lasting = next(traced_hooks(module), None) is None  # a hook that does it may be removed
        raise RunsEagerlyError(
            f"{effect.actor} {effect}", lasting=lasting, untraceable=effect.untraceable, forget=effect.forget
        ) from effect


def _layouts(module: nn.Module, tensors: Sequence[torch.Tensor]) -> dict[str, tuple[Any, ...]]:
    """Shape and strides of the arguments, and of what the module holds."""
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    named = {**{f"argument {place}": tensor for place, tensor in enumerate(tensors)}, **held}
    return {
        name: (t.shape, t.stride(), t.storage_offset())
        for name, t in named.items()
        if t.layout is torch.strided
    }


def _refuse_changed_layouts(before: dict[str, tuple[Any, ...]], now: dict[str, tuple[Any, ...]]) -> None:
    """`squeeze_`, `t_` and `resize_` make another tensor of the caller's; a program writes numbers alone."""
    for name, layout in before.items():
        if name in now and now[name] != layout:
            raise RunsEagerlyError(f"forward changes the shape or the strides of {name} in place")


@contextmanager
def _watched_attributes(view: ExportView, module: nn.Module) -> Generator[None]:
    """Find what the block assigns to attributes of the module and its submodules."""
    before = [(child, _attributes(child)) for child in view.module.modules()]
    # a bound method or a part that knows its parent leads to the module itself, past the view of it
    reached = dict(module.__dict__)
    contents = [(path, *_content(value)) for path, value in held_values(module) if _changeable(value)]
    changed: list[str] = []
    fills = True
    try:
        with ValueReads(view.reads):
            yield
    finally:
        if not _unchanged(module.__dict__, reached):
            now = module.__dict__
            changed.append(next(n for n in {**reached, **now} if reached.get(n) is not now.get(n)))
            fills = fills and _fills(module.__dict__, reached)
            _restore(module.__dict__, reached)
        for path, container, content in contents:
            if not _unchanged(container, content):
                fills = fills and _fills(container, content)
                _restore(container, content)
                changed.append(path)
    if changed:
        lasting = next(traced_hooks(module), None) is None
        raise RunsEagerlyError(f"forward changes {changed[0]!r} in place", lasting=lasting, fills=fills)
    view.assigned = [
        Assignment(
            child, name, attributes.get(name), any(isinstance(v, torch.Tensor) for v in tree_leaves(value))
        )
        for child, attributes in before
        for name, value in _attributes(child).items()
        if name not in attributes or not same_part(attributes[name], value)
    ]


def _attributes(module: nn.Module) -> dict[str, Any]:
    # recurrent layers of torch cache references to their own weights
    caches = ("_flat_weights", "_flat_weight_refs") if isinstance(module, nn.RNNBase) else ()
    ignored = {*_FRAMEWORK, "forward", *caches}
    return {name: value for name, value in module.__dict__.items() if name not in ignored}


def _changeable(value: Any) -> bool:
    return isinstance(value, dict | list | set | np.ndarray) or (
        is_plain_object(value) and hasattr(value, "__dict__")
    )


def _content(value: Any) -> tuple[Any, Any]:
    """What holds the parts of a value, and a copy of it."""
    container = (
        value.__dict__ if is_plain_object(value) and not isinstance(value, dict | list | set) else value
    )
    return container, container.copy()


def _unchanged(container: Any, content: Any) -> bool:
    """Whether the parts are the same objects, since some may be tensors, or plain values that are equal."""
    if isinstance(container, np.ndarray):
        return container.tobytes() == content.tobytes()
    if isinstance(container, dict):
        entries: dict[Any, Any] = container
        return entries.keys() == content.keys() and all(same_part(content[k], v) for k, v in entries.items())
    if isinstance(container, list):
        return len(container) == len(content) and all(map(same_part, container, content))  # pyright: ignore[reportUnknownArgumentType]
    return container == content


def _fills(container: Any, content: Any) -> bool:
    """Whether parts were only added, or stand where None did."""
    if not isinstance(container, dict):
        return False
    entries: dict[Any, Any] = container
    return all(key in entries and (v is None or same_part(entries[key], v)) for key, v in content.items())


def _restore(container: Any, content: Any) -> None:
    if isinstance(container, np.ndarray | list):
        container[:] = content
    else:
        container.clear()
        container.update(content)


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
    parts: list[Any] = [part for part in module.modules() if part is not module]
    for part in parts:
        if hasattr(type(part), "_session") and hasattr(part, "_session"):
            part._session.refuse_unaveraged("it is part of a larger program, which would have none")
    replaced: list[tuple[dict[str, Any], str, nn.Module]] = []
    for parent in list(module.modules()):
        members: dict[str, Any] = parent.__dict__["_modules"]
        for name, child in members.items():
            # modules say that they have no attribute only after a long search
            if hasattr(type(child), "_session") and hasattr(child, "_session"):
                replaced.append((members, name, child))
                members[name] = child._session.eager
    try:
        yield
    finally:
        for members, name, child in replaced:
            members[name] = child


def _refuse_hooks(module: nn.Module) -> None:
    """A hook of a submodule is code of the user that runs at every call: it may keep what it sees."""
    for path, hook in traced_hooks(module):
        if reason := hook_refusal(hook):
            name = f"the hook {hook_name(hook)} of submodule {path!r}"
            raise RunsEagerlyError(f"{name} may keep values: it {reason}", lasting=False)
