"""`DaceModule`: a module whose forward is compiled. Everything else is the user's own module, unchanged."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import torch
from torch import nn

from daceml.compiler.options import module_options
from daceml.errors import ConfigurationError
from daceml.frontend.capture.trace_lock import tracing_here
from daceml.frontend.capture.traceable import refuse_script
from daceml.module.hooks import Hook, Stage
from daceml.module.partial.partial_forward import PartialForward
from daceml.module.session import Session
from daceml.notebook import html_of

if TYPE_CHECKING:
    import dace
    import onnx
    from dace.frontend.python.common import SDFGClosure

    from daceml.module.programs.module_program import ModuleProgram
    from daceml.sdfg.network import Network

M = TypeVar("M", bound=nn.Module)
C = TypeVar("C", bound=type[nn.Module])

_COMPILED = ("onnx_model", "network", "sdfg")

_derived: dict[type[nn.Module], type[DaceModule]] = {}


class DaceModule(nn.Module):
    """A module compiled by daceml.

    `DaceModule(module)` is a second view of `module`: both share one `__dict__`, so parameters, buffers,
    hooks, `train()` and `state_dict()` are the module's own, and `isinstance(compiled, type(module))` holds.

    Args:
        module: any nn.Module.
        options: see `ModuleOptions`: backward, dynamic_shapes, dynamic, auto_optimize, search_budget_s,
            freeze, recompute, memory_budget_bytes, prefer_native, recipe, cuda_graphs, verify,
            ranges.
    """

    __slots__ = ("_session",)
    _session: Session

    def __new__(cls, module: nn.Module | None = None, *args: Any, **options: Any) -> DaceModule:  # noqa: PYI034
        if cls is not DaceModule:
            return super().__new__(cls)
        if not isinstance(module, nn.Module):
            raise ConfigurationError(
                f"DaceModule takes an nn.Module, not a {type(module).__name__}",
                fix="pass an instance; to decorate a class or a module use daceml.dace_module",
            )
        return cast(DaceModule, compile_module(module, *args, **options))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # `DaceModule(module)` comes here with an object whose state is the module's: nothing to set up
        if "_parameters" not in self.__dict__:
            super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own: Callable[..., Any] | None = cls.__dict__.get("forward")
        if own is not None:
            # a subclass of a decorated class is compiled, too, and so is the forward that it overrides
            cls.forward = _dispatching(own)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled forward; hooks have been run by nn.Module as for any module."""
        if (session := _session_in_charge(self)) is None:
            return super().forward(*args, **kwargs)
        return session(args, kwargs)

    @property
    def session(self) -> Session:
        """The compiled variants of this module."""
        return self._session

    @property
    def onnx_model(self) -> onnx.ModelProto:
        """The ONNX model of the last compiled variant, made at first access."""
        return self._session.latest.onnx_model

    @property
    def network(self) -> Network:
        """The SDFG with what its arrays mean; inside a hook the one that the hook may change."""
        return self._session.network

    @property
    def sdfg(self) -> dace.SDFG:
        """The SDFG of the last compiled variant after all transformations, made at first access.

        Inside a hook it is the SDFG as it stands, and changes to it are compiled.
        """
        return self._session.network.sdfg

    def __getattr__(self, name: str) -> Any:
        if name in _COMPILED:
            _ = self._session.latest  # says that the module has not been compiled yet
        return super().__getattr__(name)

    def append_post_onnx_hook(self, name: str, hook: Hook) -> None:
        """Call `hook(module)` after others, when `module.sdfg` has one library node for each ONNX operator.

        The hook may change `module.sdfg` in place, for example by DaCe transformations; `expand_onnx_nodes`
        of `daceml.onnx_ops.expansion` turns the ONNX nodes into maps. What was compiled is forgotten.

        Raises:
            ConfigurationError: the name is taken, or `hook` cannot be called.
        """
        self._add_hook("post_onnx", name, hook, first=False)

    def prepend_post_onnx_hook(self, name: str, hook: Hook) -> None:
        """As `append_post_onnx_hook`, before the others."""
        self._add_hook("post_onnx", name, hook, first=True)

    def append_post_autodiff_hook(self, name: str, hook: Hook) -> None:
        """Call `hook(forward_sdfg, backward_sdfg)` after others, once the backward pass has been derived.

        Without a backward pass `backward_sdfg` has no states. What was compiled is forgotten.

        Raises:
            ConfigurationError: the name is taken, or `hook` cannot be called.
        """
        self._add_hook("post_autodiff", name, hook, first=False)

    def prepend_post_autodiff_hook(self, name: str, hook: Hook) -> None:
        """As `append_post_autodiff_hook`, before the others."""
        self._add_hook("post_autodiff", name, hook, first=True)

    @property
    def in_programs(self) -> ModuleProgram:
        """The module as DaCe programs call it."""
        return self._session.in_programs

    def __sdfg__(self, *args: Any, **kwargs: Any) -> dace.SDFG:
        """The SDFG of a call in a DaCe program; DaCe's frontend asks for it. See `ModuleProgram.sdfg`."""
        return self.in_programs.sdfg(args, kwargs)

    def __sdfg_signature__(self) -> tuple[list[str], list[str]]:
        """Names of the arguments in DaCe programs, and of those that are constants."""
        return self.in_programs.signature()

    def __sdfg_closure__(self, reevaluate: dict[str, str] | None = None) -> dict[str, Any]:
        """The module's tensors, and their gradients, as arrays of DaCe programs."""
        return dict(self.in_programs.closure())

    def closure_resolver(
        self, constant_args: Any, given_args: Any, parent_closure: SDFGClosure | None = None
    ) -> SDFGClosure:
        """What a DaCe program that calls the module takes from outside."""
        return self.in_programs.resolver(parent_closure)

    def _repr_html_(self) -> str:
        return html_of("module", self)

    def reset_sdfg(self) -> None:
        """Forget what was compiled; the next call compiles anew, hooks included."""
        self._session.forget()

    def _add_hook(self, stage: Stage, name: str, hook: Hook, *, first: bool) -> None:
        self._session.hooks.add(stage, name, hook, first=first)
        self._session.forget()

    def __deepcopy__(self, memo: dict[int, Any]) -> DaceModule:
        eager = copy.deepcopy(self._session.eager, memo)
        copied = cast(DaceModule, compile_module(eager, **self._session.options))
        copied.session.hooks = self._session.hooks.copy()
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (self._session.eager, self._session.options)


def _dispatching(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def forward(self: DaceModule, *args: Any, **kwargs: Any) -> Any:
        if (session := _session_in_charge(self)) is None:
            return own(self, *args, **kwargs)
        return session(args, kwargs)

    return forward


def _session_in_charge(module: DaceModule) -> Session | None:
    """What runs a module's forward; None for the session's own view of the module, which is the eager one.

    None, too, within a larger module that is being compiled: the whole is better than its parts.
    """
    if torch.compiler.is_dynamo_compiling() or (torch.compiler.is_compiling() and tracing_here()):
        session: Session | None = getattr(module, "_session", None)
        if session is not None:
            session.refuse_unaveraged("it is part of a larger program, which would have none")
        return None
    if torch._C._is_tracing():  # pyright: ignore  asked of Python, it takes three times as long
        return None  # torch.jit.trace and torch.onnx.export(dynamo=False) follow the eager forward
    return getattr(module, "_session", None)


def compile_module(module: M, **options: Any) -> M:
    """A compiled view of an instance; see `DaceModule` for the options.

    Compilation happens at the first call with inputs of new shapes or types.

    Raises:
        ConfigurationError: an unknown option, or one of the wrong type.
        ExportError: the module is TorchScript.
    """
    eager = eager_module(module)
    refuse_script(eager)
    return view_of(Session(eager, view_of, cut=PartialForward, **options))  # pyright: ignore[reportReturnType]


def eager_module(module: nn.Module) -> nn.Module:
    """The module as the user wrote it, of which `module` may be a compiled view."""
    return module.session.eager if isinstance(module, DaceModule) and hasattr(module, "_session") else module


def view_of(session: Session) -> DaceModule:
    """The compiled view of a session's module."""
    view = object.__new__(_derive(type(session.eager)))
    view.__dict__ = session.eager.__dict__
    object.__setattr__(view, "_session", session)
    return view


@overload
def dace_module(module: M, /, **options: Any) -> M: ...
@overload
def dace_module(module: C, /, **options: Any) -> C: ...
@overload
def dace_module(**options: Any) -> Callable[[Any], Any]: ...
def dace_module(module: Any = None, /, **options: Any) -> Any:
    """Compile a module: a decorator for classes, with or without arguments, or a call on an instance.

    Args:
        module: a subclass of nn.Module or an instance.
        options: see `DaceModule`.
    Returns:
        for a class, a subclass of the same name whose instances are compiled; for an instance, its compiled
        view.
    Raises:
        ConfigurationError: an unknown option, or something that is no module.
    """
    module_options(options)  # refuses what is wrong before the class is used
    if module is None:
        return lambda later: dace_module(later, **options)
    if isinstance(module, nn.Module):
        return compile_module(module, **options)
    if isinstance(module, type) and issubclass(module, nn.Module):
        return _decorate(module, options)
    raise ConfigurationError(
        f"dace_module takes an nn.Module class or instance, not a {type(module).__name__}",
        fix="decorate the class of the module, or pass the module itself",
    )


def _decorate(cls: type[nn.Module], options: dict[str, Any]) -> type[nn.Module]:
    if issubclass(cls, DaceModule):
        # it is compiled already, as a subclass of a decorated class
        cls._daceml_options = options  # pyright: ignore[reportAttributeAccessIssue]
        return cls

    def initialise(self: DaceModule, *args: Any, **kwargs: Any) -> None:
        cls.__init__(self, *args, **kwargs)
        _attach(self)

    # pickle finds the class under its own name, which the decorator rebinds to this subclass
    members: dict[str, Any] = {
        "__init__": initialise,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "forward": cls.forward,
        "__reduce_ex__": _reduce_decorated,
        "__deepcopy__": _deepcopy_decorated,
    }
    members["_daceml_options"] = options
    members["_daceml_eager_class"] = cls
    return type(cls.__name__, (DaceModule, cls), members)


def _attach(compiled: Any) -> None:
    """Give an instance of a decorated class, or of a subclass of one, its session."""
    kind = type(compiled)
    # a subclass is its own eager class: `super()` in its methods takes no other
    eager = object.__new__(kind.__dict__.get("_daceml_eager_class", kind))
    eager.__dict__ = compiled.__dict__
    session = Session(eager, view_of, cut=PartialForward, **kind._daceml_options)
    object.__setattr__(compiled, "_session", session)


def _derive(cls: type[nn.Module]) -> type[DaceModule]:
    if issubclass(cls, DaceModule):
        return cls
    if cls not in _derived:
        members: dict[str, Any] = {
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "forward": cls.forward,  # with its signature, which callers inspect
        }
        _derived[cls] = type(cls.__name__, (DaceModule, cls), members)
    return _derived[cls]


def _rebuild(eager: nn.Module, options: dict[str, Any]) -> nn.Module:
    return compile_module(eager, **options)


def _reduce_decorated(self: Any, protocol: Any) -> tuple[Any, ...]:
    return _rebuild_decorated, (type(self), dict(self.__dict__), not hasattr(self, "_session"))


def _rebuild_decorated(cls: Any, state: dict[str, Any], eager: bool = False) -> nn.Module:
    module = object.__new__(cls)
    module.__dict__.update(state)
    if not eager:
        _attach(module)
    return module


def _deepcopy_decorated(self: Any, memo: dict[int, Any]) -> nn.Module:
    copied = _rebuild_decorated(type(self), {}, eager=not hasattr(self, "_session"))
    memo[id(self)] = copied
    copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return copied
