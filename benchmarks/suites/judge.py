"""The verdict on one program of a suite, in one way of compiling it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import daceml
from benchmarks.opinfo.calls import Seen, call
from benchmarks.opinfo.judge import differences, fault_of, how_compiled
from benchmarks.suites.case import Arguments, Case

Way = Literal["evaluation", "training", "dynamic", "dynamo"]
Verdict = Literal["equal", "cut", "eager", "refused", "wrong", "foreign", "crash", "hang", "not made"]

_SEED = 7


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What one program came to.

    Attributes:
        arguments: of its first call.
        note: what differs, or why it is not one compiled program.
    """

    suite: str
    name: str
    way: Way
    verdict: Verdict
    arguments: str = ""
    note: str = ""
    seconds: float = 0.0

    def row(self) -> dict[str, Any]:
        return asdict(self)


class _State:
    """A module, and the tensors of it that a caller can look at."""

    def __init__(self, module: nn.Module, called: Callable[..., Any], *, gradients: bool) -> None:
        self.called = called
        self.held = [*module.parameters(), *module.buffers()]
        for parameter in module.parameters():
            parameter.requires_grad_(parameter.requires_grad and gradients)

    def play(self, calls: Sequence[Arguments], *, gradients: bool, wide: bool = False) -> list[Seen]:
        """What each call came to; the module's tensors count as arguments of it."""
        found: list[Seen] = []
        for arguments in calls:
            tensors = arguments.tensors(gradients=gradients, wide=wide)

            def once(
                *every: torch.Tensor, arguments: Arguments = arguments, count: int = len(tensors)
            ) -> Any:
                with _Wide() if wide else nullcontext():
                    return self.called(*arguments.filled(every[:count]))

            found.append(call(once, [*tensors, *self.held], gradients=gradients, seed=_SEED))
        return found


class _Wide(TorchDispatchMode):
    """Computes in float64 where a program names float32: gradients of float64 have a reference, too."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = pytree.tree_map(
            lambda a: torch.float64 if a is torch.float32 else a, (args, kwargs or {})
        )
        return func(*args, **kwargs)


def judged(case: Case, way: Way, *, made: Callable[[], None] = lambda: None) -> Judged:
    """Compile a program in one way, call it as its suite does, and compare every call with eager's.

    Args:
        made: is called when eager PyTorch has run it.
    """
    start = time.perf_counter()
    facts: dict[str, Any] = {"suite": case.suite, "name": case.name, "way": way}
    gradients = way == "training"
    try:
        calls = case.calls()
        eager = _played(case.make(), calls, gradients=gradients)
    except Exception as error:
        return Judged(**facts, verdict="not made", note=_first(error))
    if not calls or (gradients and not any(seen.gradients for seen in eager)):
        return Judged(**facts, verdict="not made", note="no gradient" if calls else "no call")
    made()
    facts["arguments"] = calls[0].text()
    module = case.make()
    compiled = _compiled(module, way)
    found = ""
    verdict: Verdict = "equal"
    for turn in range(2):
        if turn:
            module.load_state_dict(case.make().state_dict())
        ours = _State(module, compiled, gradients=gradients).play(calls, gradients=gradients)
        exact = _in_float64(case, calls, gradients=gradients)
        verdict, found = _compared(ours, eager, exact)
        if verdict == "wrong" and _compared(_reordered(case, calls, gradients=gradients), eager, exact)[1]:
            verdict, found = "equal", ""
        if found:
            found = f"turn {turn + 1}, {found}"
            break
    if not found and eager[0].error is None:
        verdict, found = _how_compiled(compiled, calls[0], gradients=gradients)
    torch.compiler.reset()
    seconds = round(time.perf_counter() - start, 2)
    return Judged(**facts, verdict=verdict, note=found[:400], seconds=seconds)


def _compiled(module: nn.Module, way: Way) -> Callable[..., Any]:
    if way == "dynamo":
        return torch.compile(module, backend="daceml", options={"fullgraph": False})
    return daceml.compile(module, backward=way == "training", dynamic=way == "dynamic", fullgraph=False)


def _played(
    module: nn.Module, calls: Sequence[Arguments], *, gradients: bool, wide: bool = False
) -> list[Seen]:
    return _State(module, module, gradients=gradients).play(calls, gradients=gradients, wide=wide)


def _reordered(case: Case, calls: Sequence[Arguments], *, gradients: bool) -> list[Seen]:
    """Eager PyTorch that adds up in another order: where rounding grows, its results differ as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of TF32 on its way back
        with torch.backends.mkldnn.flags(enabled=False):
            return _played(case.make(), calls, gradients=gradients)


def _in_float64(case: Case, calls: Sequence[Arguments], *, gradients: bool) -> list[Seen] | None:
    default = torch.get_default_dtype()
    try:
        module = case.make().double()
        torch.set_default_dtype(torch.float64)
        return _played(module, calls, gradients=gradients, wide=True)
    except Exception:
        return None  # it needs the element types that it has
    finally:
        torch.set_default_dtype(default)


def _compared(
    ours: Sequence[Seen], eager: Sequence[Seen], exact: Sequence[Seen] | None
) -> tuple[Verdict, str]:
    torch.manual_seed(_SEED)
    before = torch.get_rng_state()
    for number, (a, b) in enumerate(zip(ours, eager, strict=True)):
        random = b.generator is not None and not torch.equal(b.generator, before)
        reference = None if exact is None else exact[number]
        found = differences(a, b, reference, elementwise=False, values=True, random=random)
        if found:
            return fault_of(a, b), f"call {number + 1}: " + "; ".join(found[:3])
    return "equal", ""


def _how_compiled(compiled: Any, arguments: Arguments, *, gradients: bool) -> tuple[Verdict, str]:
    if not isinstance(compiled, daceml.DaceModule):
        return "equal", ""  # by Dynamo, which does not say

    def once() -> None:
        with torch.set_grad_enabled(gradients):
            compiled(*arguments.filled(arguments.tensors(gradients=gradients)))

    return how_compiled(compiled, once)


def _first(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
