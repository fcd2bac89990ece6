"""The compiled variants of one module: chooses one by guards, compiles a new one where none fits."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

from daceml.compiler.guards import (
    CallKey,
    call_key,
    named_key,
    numbers_at,
)
from daceml.compiler.module_request import ModuleRequest
from daceml.compiler.options import module_options
from daceml.compiler.stance import current_stance
from daceml.config import config
from daceml.errors import (
    CallError,
    GradientError,
    MistracedOperatorError,
    NotCompiledError,
    NotSynchronizedError,
    RecompileError,
    SharedMemoryError,
    StaleWeightError,
)
from daceml.frontend.capture.arguments import Arguments, flatten, with_sizes
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.object_arguments import containers
from daceml.frontend.capture.redirected_forward import check_call, forward_of
from daceml.frontend.capture.trace_lock import running_eagerly
from daceml.module.compile_progress import shown_while_compiling
from daceml.module.compiled_variant import EagerVariant, Partial, Variant
from daceml.module.hooks import CompilationHooks
from daceml.module.inference_results import inference_tensors, outside_inference_mode
from daceml.module.known_variants import KnownVariants
from daceml.module.module_watch import ModuleWatch, registered
from daceml.module.partial.cut import cut_of, is_refusal
from daceml.module.partial.region_ledger import open_ledger
from daceml.module.repeated_call import OTHER, RepeatedCall, repeated

if TYPE_CHECKING:
    from daceml.module.other_ranks import OtherRanks
    from daceml.module.programs.module_program import ModuleProgram
    from daceml.sdfg.network import Network

log = logging.getLogger(__name__)


class Session:
    """Compiles a module on demand and calls it.

    Args:
        eager: the module as the user wrote it.
        view: the compiled view of the module, given its session; hooks see it.
        cut: makes what runs the module where it is not one program; None to run it eagerly there.
        name: of the module, in logs and reports; that of its class where empty.
        before_eager: whether it is a region of a forward that is cut: eager code reads its results.
        options: see `ModuleOptions`.
    Attributes:
        data_parallel: the other ranks of a run; None in one process.
    """

    def __init__(
        self,
        eager: nn.Module,
        view: Callable[[Session], nn.Module],
        *,
        cut: Callable[[Session], Partial] | None = None,
        name: str = "",
        before_eager: bool = False,
        **options: Any,
    ) -> None:
        self.eager = eager
        self.view = view
        self.name = name or type(eager).__name__
        self.before_eager = before_eager
        self._cut = cut
        self._partial: Partial | None = None
        self.options = module_options(options)
        self.hooks = CompilationHooks()
        symbolic = self.options["dynamic"] or self.options["dynamic_shapes"] is not None
        self._known = KnownVariants(eager, symbolic=symbolic)
        self._overflow: dict[CallKey, EagerVariant] = {}  # for what is new where programs are many
        self._filled: set[CallKey] = set()  # calls that ran eagerly, last, to fill a cache of the module's
        self._lock = threading.RLock()
        self._latest: Variant | None = None
        self._repeated: RepeatedCall | None = None
        self._said_hooked = False
        self._said_limit = False
        self._in_progress: Network | None = None
        self.data_parallel: OtherRanks | None = None
        self._in_programs: ModuleProgram | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (last := self._repeated) is not None and not kwargs and (result := last(args)) is not OTHER:
            return result
        if current_stance() == "force_eager" or _transformed() or self._globally_hooked():
            self.refuse_unaveraged("it runs eagerly here")
            return forward_of(self.eager)(*args, **kwargs)
        variant, tensors = self._prepare(args, kwargs)
        if not isinstance(variant, Variant):
            self.refuse_unaveraged("its log says why it runs eagerly (DACEML_LOG=warning)")
            if variant is None:
                return forward_of(self.eager)(*args, **kwargs)
            if variant.fills is not None:
                self._filled.add(variant.fills)
                return self._run_in_pieces(None, args, kwargs)
            try:
                return self._run_in_pieces(variant.partial, args, kwargs)
            finally:
                self._known.has_run(variant)
        ledger = open_ledger()
        if self.data_parallel is None and (why := variant.loses_at(tensors)):
            with nullcontext() if ledger is None else ledger.inside(self, self.name, (why,)):
                return self._run_eagerly(args, kwargs)
        if ledger is None:
            result = self._run(variant, tensors, args, kwargs)
            lasts = not kwargs and any(one is variant for one in self._known)
            self._repeated = repeated(variant, tensors, args) if lasts else None
            return result
        with _disable_current_modes():
            flops = variant.flops
        with ledger.inside(variant, self.name, flops=flops):
            return self._run(variant, tensors, args, kwargs)

    def _run(
        self, variant: Variant, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        def given() -> list[Any]:
            return containers(args, kwargs)

        def finish(leaves: list[Any]) -> list[Any]:
            return inference_tensors(leaves, tensors, self.eager)

        try:
            if torch.is_inference_mode_enabled():
                # what a program keeps from call to call must be of use outside, too
                with outside_inference_mode():
                    return variant(tensors, finish, given=given)
            if variant.backward is not None or not torch.is_grad_enabled():
                return variant(tensors, given=given)
            with torch.no_grad():  # results are detached, as backward=False says
                return variant(tensors, given=given)
        except StaleWeightError as stale:
            # module.half() and module.to(memory_format=...) change parameters in place
            log.info("compiling %s: %s", self.name, stale.why)
            with self._lock:
                self._known.drop(variant)
            return self(args, kwargs)
        except MistracedOperatorError as mistraced:
            if variant.program.changed:  # what forward changes may be changed by now
                raise
            with self._lock:
                self._known.replace(variant, self._eager_variant(mistraced))
            return self(args, kwargs)
        except SharedMemoryError as shared:
            if self.options["fullgraph"] or self._cut is None:
                raise
            log.info("%s runs eagerly in this call: %s", self.name, shared.what)
            return self._run_eagerly(args, kwargs)

    def _run_in_pieces(self, partial: Partial | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if partial is None:
            return forward_of(self.eager)(*args, **kwargs)
        gradients = torch.is_grad_enabled() and self.options["backward"]
        with torch.set_grad_enabled(gradients), running_eagerly():
            return partial(args, kwargs)

    def _run_eagerly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.options["backward"]):
            return forward_of(self.eager)(*args, **kwargs)

    def refuse_unaveraged(self, why: str) -> None:
        """Refuse to run without a program where gradients have to be averaged over ranks.

        Raises:
            NotSynchronizedError: gradients would be those of this rank alone.
        """
        parallel = self.data_parallel
        if parallel is None or not torch.is_grad_enabled():
            return
        raise NotSynchronizedError(
            f"{type(self.eager).__name__} would give gradients of this rank alone",
            why=f"all-reduces are part of its backward program; {why}",
            fix="let it be compiled; where nothing is trained, call it with torch.no_grad()",
        )

    def _globally_hooked(self) -> bool:
        """Whether hooks of all modules have to see those inside this one."""
        if not _has_any_global_hook() or next(self.eager.children(), None) is None:
            return False
        if not self._said_hooked:
            log.warning("%s runs eagerly: torch has hooks for all modules", type(self.eager).__name__)
        self._said_hooked = True
        return True

    @property
    def partial(self) -> Partial | None:
        """What runs the module where it is not one program; None where it always was one."""
        return self._partial

    def any_variant(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Variant | EagerVariant | None:
        """What these arguments reach, compiled if need be; None where the stance says to run eagerly."""
        return self._prepare(args, kwargs)[0]

    def variant(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Variant, list[torch.Tensor]]:
        """The variant that these arguments reach, compiled if need be, and its tensor inputs.

        Raises:
            CallError: the module is not one program with these arguments.
        """
        variant, tensors = self._prepare(args, kwargs)
        if isinstance(variant, Variant):
            return variant, tensors
        cut = None if variant is None else variant.cut
        raise CallError(
            f"{self.name} is not one program with these arguments",
            where="" if cut is None else cut.where,
            why="a tracer or a stance lets it run eagerly" if cut is None else cut.what,
            fix="" if cut is None else cut.fix,
        )

    @property
    def latest(self) -> Variant:
        """The last compiled variant.

        Raises:
            NotCompiledError: nothing has been compiled yet.
        """
        if self._latest is None:
            raise NotCompiledError(
                f"{self.name} has not been compiled yet",
                why="shapes are known at the first call only",
                fix="call the module once",
            )
        return self._latest

    @property
    def network(self) -> Network:
        """The network that hooks are working on, or that of the last compiled variant."""
        return self._in_progress or self.latest.network

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every compiled variant."""
        return tuple(dict.fromkeys(self._known))

    @property
    def request(self) -> ModuleRequest:
        """What a compilation needs to know of the module, as it stands."""
        parallel = self.data_parallel
        return ModuleRequest(
            module=self.eager,
            options=self.options,
            hooks=self.run_hooks if self.hooks else None,
            autodiff_hooks=self.run_autodiff_hooks if self.hooks else None,
            averaging=None if parallel is None else parallel.averaging,
            exchange=None if parallel is None else parallel.exchange,
            before_eager=self.before_eager,
        )

    @property
    def in_programs(self) -> ModuleProgram:
        """The module as DaCe programs call it."""
        if self._in_programs is None:
            from daceml.module.programs.module_program import ModuleProgram

            with self._lock:
                self._in_programs = self._in_programs or ModuleProgram(self)
        return self._in_programs

    def forget(self) -> None:
        """Drop every compiled variant; the next call compiles."""
        with self._lock:
            self._known.clear()
            self._overflow.clear()
            self._filled.clear()
            self._latest = None
            self._repeated = None
            self._partial = None
            self._in_programs = None

    def run_hooks(self, network: Network) -> None:
        """Let the user's hooks change a network of ONNX nodes in place."""
        self._in_progress = network
        try:
            self.hooks.run_post_onnx(self.view(self), network)
        finally:
            self._in_progress = None

    def run_autodiff_hooks(self, forward: Network, backward: Network | None = None) -> None:
        """Let the user's hooks change both passes in place; without gradients there is one only."""
        self._in_progress = forward
        try:
            self.hooks.run_post_autodiff(forward, backward)
        finally:
            self._in_progress = None

    def _prepare(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Variant | EagerVariant | None, list[torch.Tensor]]:
        structure: Any = None
        leaves: Sequence[Any] = args
        try:
            if kwargs or not all(isinstance(a, torch.Tensor) for a in args):
                leaves, structure = flatten(args, kwargs)
            quick = call_key(leaves, structure)
        except CallError as error:
            check_call(self.eager, args, kwargs)
            if any(isinstance(leaf, _TRACED) for leaf in leaves):
                return EagerVariant(None), []  # a tracer follows the eager forward
            with self._lock:
                partial = self._cut_at(error)
            if partial is None:
                raise
            return EagerVariant(None, cut_of(error), partial), []
        counting = frozenset[int]()
        places = self._known.counting(structure)
        if places and (counting := numbers_at(leaves, places)):
            leaves = with_sizes(leaves, counting)
            quick = call_key(leaves, structure)
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        variant = self._known.find(quick, tensors)
        if variant is None:
            key = named_key(quick)
            with self._lock:
                variant = self._known.find(key, tensors) or self._known.find_alike(key, tensors)
                if variant is None and self._known.count_numbers(key):
                    return self._prepare(args, kwargs)
                variant = variant or self._known.find_cut(key)
                variant = variant or self._compile(key, Arguments(args, kwargs, counting))
        return variant, tensors

    def _compile(self, key: CallKey, arguments: Arguments) -> Variant | EagerVariant | None:
        name = self.name
        check_call(self.eager, arguments.args, arguments.kwargs)
        variant: Variant | EagerVariant
        count = self._known.count(key)
        full = count >= config().recompile_limit
        if full and key in self._overflow:
            return self._overflow[key]
        reason = self._known.reason(key, arguments)
        stance = current_stance()
        if stance == "eager_on_recompile":
            log.info("%s runs eagerly (%s): the stance is eager_on_recompile", name, reason)
            return None
        if stance == "fail_on_recompile":
            raise RecompileError(
                f"{name} would have to be compiled",
                why=f"{reason}; the stance is fail_on_recompile",
                fix="call it with such inputs before setting the stance, or compile it with dynamic=True",
            )
        if full:
            changes = RunsEagerlyError(f"{reason} at every call")
            variant = EagerVariant(None, cut_of(changes), self._cut_at(changes))
            log.log(
                logging.INFO if self._said_limit else logging.WARNING,
                "%s %s for what is new: it was compiled %d times for the same inputs, last because %s; "
                "what it was compiled for still runs compiled (DACEML_RECOMPILE_LIMIT)",
                name, "is cut" if variant.partial else "runs eagerly", count, reason,
            )  # fmt: skip
            self._said_limit = True
            self._overflow[key] = variant
            return variant
        log.info("compiling %s: %s", name, reason)
        try:
            with shown_while_compiling(name):
                variant = self._compiled(key, arguments)
        except Exception as error:
            if isinstance(error, RunsEagerlyError) and error.fills and key not in self._filled:
                log.info("%s runs eagerly once, and is compiled at the next call: %s", name, error)
                return EagerVariant(None, cut_of(error), self._cut_at(error), fills=key)
            variant = self._eager_variant(error)
        else:
            self._latest = variant
            self._filled.discard(key)
            if why := variant.loses:
                level = logging.INFO if self.before_eager else logging.WARNING
                log.log(level, "%s runs eagerly: %s (DACEML_MEASURE=0 runs the program)", name, why)
        self._known.remember(key, variant)
        return variant

    def _compiled(self, key: CallKey, arguments: Arguments) -> Variant:
        from daceml.module.compile import compile_variant

        # what the caller records of its own operators is none of tracing's
        modes = _disable_current_modes() if open_ledger() is not None else nullcontext()
        with modes, outside_inference_mode():
            symbolic = self._known.of_any_size(key, arguments.tensors)
            make = functools.partial(
                compile_variant, arguments=arguments, modes=key.modes, symbolic=symbolic,
                ranks=self.data_parallel,
            )  # fmt: skip
            changing = self._known.changing(key)
            if changing is None and not self.options["dynamic"]:
                return make(self.request)
            try:
                return make(self.request, changing=changing)
            except Exception as error:
                if not is_refusal(error) or (changing is None and isinstance(error, RunsEagerlyError)):
                    raise
                refusal = error
            fixed = self.request.with_fixed_sizes()
            if self.options["dynamic"] and not isinstance(refusal, RunsEagerlyError):
                first = tuple(frozenset({0} if tensor.ndim else ()) for tensor in arguments.tensors)
                try:
                    return make(fixed, changing=first)
                except Exception as error:
                    if not is_refusal(error):
                        raise
            log.info("compiling %s for these sizes alone: %s", self.name, cut_of(refusal))
            return make(fixed)

    def _eager_variant(self, error: Exception) -> EagerVariant:
        """What runs where a module is not one program.

        Raises:
            Exception: the error, where it is the user's to handle.
        """
        if isinstance(error, MistracedOperatorError):
            error = RunsEagerlyError(error.reason)
        if not is_refusal(error):
            raise error
        partial = self._cut_at(error)
        watch = ModuleWatch(self.eager, (), registered(self.eager), moving=self._known.moving)
        if isinstance(error, RunsEagerlyError):
            if partial is None:
                log.warning("%s runs eagerly: %s", self.name, error)
            return EagerVariant(None if error.lasting else watch, cut_of(error), partial)
        if isinstance(error, GradientError):
            if partial is None:
                log.warning("%s runs eagerly where gradients are wanted: %s", self.name, error)
            return EagerVariant(None, cut_of(error), partial)
        if partial is None:
            raise error
        return EagerVariant(watch, cut_of(error), partial)

    def _cut_at(self, error: Exception) -> Partial | None:
        """What runs the module instead of one program; None where the user asked for an error, or hooks."""
        if self.options["fullgraph"] or self._cut is None or self.hooks:
            return None
        if self._partial is None:
            self._partial = self._cut(self)
        self._partial.add(cut_of(error))
        return self._partial

    def part(self, module: nn.Module) -> Callable[..., Any]:
        """The compiled forward of a submodule, with the options of this session."""
        named_sizes = self.options["dynamic_shapes"] is not None
        sizes = {"dynamic_shapes": None, "dynamic": self.options["dynamic"] or named_sizes}
        options = cast("dict[str, Any]", {**self.options, **sizes})
        path = next((path for path, child in self.eager.named_modules() if child is module), "")
        name = f"{self.name}.{path}"
        session = Session(module, self.view, cut=self._cut, name=name, before_eager=True, **options)
        return lambda *args, **kwargs: session(args, kwargs)


def _transformed() -> bool:
    """Whether the call is inside torch.vmap, torch.func.grad and the like, which see through PyTorch only.

    Within a dual level any tensor may carry a tangent, which a program would drop.
    """
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore


# What tracers pass in the place of tensors
_TRACED = (FakeTensor, FunctionalTensor, fx.Proxy)
