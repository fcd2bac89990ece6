"""One operator, sample and mode: compiled, called, compared with eager, and a verdict."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn

import daceml
from benchmarks.opinfo.calls import Seen, call
from benchmarks.opinfo.judge import differences, fault_of, how_compiled
from benchmarks.opinfo.samples import InPlaceModule, Sample, dtype_of, has_gradient, samples_of

Mode = Literal["forward", "gradient", "in place", "in place, argument", "traced again"]
Verdict = Literal["equal", "cut", "eager", "refused", "wrong", "foreign", "crash", "hang", "no sample"]

_SEED = 7
# Their results are memory that nothing has been written to.
_UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
              "resize_", "resize_as_"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """What one call of one operator came to.

    Attributes:
        operator: its name, and its variant where it has one.
        sample: number among those that were chosen.
        arguments: shapes and constants.
        note: what differs, or why it is not one program.
    """

    operator: str
    sample: int
    mode: Mode
    verdict: Verdict
    arguments: str = ""
    note: str = ""
    seconds: float = 0.0

    def row(self) -> dict[str, Any]:
        return asdict(self)


class TracedAgain(nn.Module):
    """A module next to an operator that torch decomposes twice, for which the whole graph is traced again.

    Whatever stood in it as one operator must do so afterwards, or be decomposed rightly.
    """

    other: torch.Tensor

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("other", torch.arange(6.0).reshape(2, 3))

    def forward(self, *tensors: torch.Tensor) -> Any:
        return nn.functional.pairwise_distance(self.other, self.other + 1), self.module(*tensors)


def name_of(operator: Any) -> str:
    return f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else operator.name


def cases_of(
    operator: Any, *, samples: int, seed: int, modes: tuple[Mode, ...], at: Callable[[int, str], None]
) -> Iterator[Case]:
    """Every case of an operator.

    Args:
        at: is told the sample and the mode before each.
    """
    name = name_of(operator)
    chosen, note = [], ""
    try:
        chosen = samples_of(operator, count=samples, seed=seed)
    except Exception as error:  # the database makes some on devices alone
        note = f"{type(error).__name__}: {error}"[:200]
    if not chosen:
        yield Case(operator=name, sample=0, mode="forward", verdict="no sample", note=note)
    for number, sample in enumerate(chosen):
        for mode in modes:
            if number and mode.startswith("in place"):
                continue
            case = _prepared(operator, sample, mode)
            if case is None:
                continue
            at(number, mode)
            start = time.perf_counter()
            verdict, note = judged(operator, sample, *case)
            yield Case(
                operator=name,
                sample=number,
                mode=mode,
                verdict=verdict,
                arguments=sample.text(),
                note=note[:400],
                seconds=round(time.perf_counter() - start, 2),
            )
            torch.compiler.reset()
            gc.collect()


def _prepared(operator: Any, sample: Sample, mode: Mode) -> tuple[Callable[[Sample], nn.Module], bool] | None:
    """How a module is made of a sample, and whether gradients are asked for; None where there is no case."""
    function = operator.op
    if mode == "forward":
        return lambda s: s.module(function), False
    gradients = has_gradient(operator, dtype_of(operator)) and any(t.requires_grad for t in sample.tensors)
    if mode == "traced again":
        return lambda s: TracedAgain(s.module(function)), gradients
    if mode == "gradient":
        return (lambda s: s.module(function), True) if gradients else None
    changing = operator.inplace_variant
    if changing is None or not sample.tensors or sample.tensors[0].layout is not torch.strided:
        return None
    if not sample.fresh(gradients=False)[0].numel():
        return None
    if mode == "in place":
        return lambda s: s.module(changing, InPlaceModule), gradients and operator.supports_inplace_autograd
    return lambda s: s.module(changing), False


def judged(
    operator: Any, sample: Sample, make: Callable[[Sample], nn.Module], gradients: bool
) -> tuple[Verdict, str]:
    """The verdict on one module, and a note."""
    # the database has samples that the in-place form of an operator refuses, of other shapes or types
    module = make(sample)
    eager = call(module, sample.fresh(gradients=gradients), gradients=gradients, seed=_SEED)
    random = _draws(module, sample, eager, gradients)
    exact = _in_float64(sample, make, gradients)
    compiled = daceml.compile(make(sample), backward=gradients)
    assert isinstance(compiled, daceml.DaceModule)
    calls = 0
    while calls < (2 if compiled.session.partial is None else 3):
        ours = call(compiled, sample.fresh(gradients=gradients), gradients=gradients, seed=_SEED)
        calls += 1
        found = differences(
            ours,
            eager,
            exact,
            elementwise=type(operator).__name__ in ("UnaryUfuncInfo", "BinaryUfuncInfo"),
            values=operator.name not in _UNDEFINED,
            random=random,
        )
        if found:
            return fault_of(ours, eager), f"call {calls}: " + "; ".join(found[:3])
    if eager.error is not None and not _fails_inside(compiled):
        return "equal", "eager raises the same error"

    def once() -> None:
        with torch.set_grad_enabled(gradients):
            compiled(*sample.fresh(gradients=gradients))

    return how_compiled(compiled, once)


def _fails_inside(compiled: daceml.DaceModule) -> bool:
    partial = compiled.session.partial
    return partial is not None and any(cut.internal for cut in partial.cuts)


def _draws(module: nn.Module, sample: Sample, eager: Seen, gradients: bool) -> bool:
    """Whether a call moves torch's generator."""
    torch.manual_seed(_SEED)
    before = torch.get_rng_state()
    return eager.generator is not None and not torch.equal(eager.generator, before)


def _in_float64(sample: Sample, make: Callable[[Sample], nn.Module], gradients: bool) -> Seen | None:
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        wide = sample.in_float64()
        return call(make(wide), wide.fresh(gradients=gradients), gradients=gradients, seed=_SEED)
    except Exception:
        return None  # it takes float32 only
    finally:
        torch.set_default_dtype(default)
