"""Whether a compiled call is eager's, and its numbers as near to float64 as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

import daceml
from benchmarks.opinfo.calls import Seen
from daceml.errors import DacemlError
from daceml.module.partial.region_ledger import recorded_regions
from daceml.verification.accuracy import tensor_error

Compiled = Literal["equal", "cut", "eager", "foreign"]
Fault = Literal["wrong", "refused", "foreign"]

# operators in a row that add up rounding errors, roughly: a decomposition has a handful
_DEPTH = 100
# One element of an elementwise operator: rounding errors, or times the worst relative error of eager's.
_ELEMENT_EPS = 64.0
_ELEMENT_OVER_EAGER = 4.0
# Where eager itself is this far from float64, it chose another sign or another root.
_AMBIGUOUS = 1e-2


def fault_of(ours: Seen, eager: Seen) -> Fault:
    """What a call that differs from eager's is: another result, or an error of daceml or of anything else."""
    if ours.error is None or eager.error is not None:
        return "wrong"
    return "refused" if isinstance(ours.error, DacemlError) else "foreign"


def how_compiled(compiled: daceml.DaceModule, once: Callable[[], object]) -> tuple[Compiled, str]:
    """Whether a module is one program, several with cuts between them, or none; and why it is not one.

    Args:
        once: calls it.
    """
    partial = compiled.session.partial
    if partial is None:
        return ("equal", "") if compiled.session.variants else ("eager", "forward runs eagerly, see the log")
    if inner := [cut for cut in partial.cuts if cut.internal]:
        return "foreign", f"inside, so that it runs eagerly: {inner[0]}"
    with recorded_regions() as regions:
        once()
    some = any(not region.cuts for region in regions.regions.values())
    return "cut" if some else "eager", str(partial.cuts[0])


def differences(
    ours: Seen, eager: Seen, exact: Seen | None, *, elementwise: bool, values: bool, random: bool
) -> list[str]:
    """What a caller can tell from eager; nothing where the two are equal.

    Args:
        exact: of the same call in float64; None where there is none.
        elementwise: every element counts, not their norm alone.
        values: whether eager's are defined.
        random: numbers are drawn, so that those of float64 are others.
    """
    if eager.error is not None or ours.error is not None:
        return _errors(ours, eager)
    if ours.structure != eager.structure:
        return [f"results are {ours.structure} instead of {eager.structure}"]
    if exact is not None and (exact.error is not None or exact.structure != eager.structure or random):
        exact = None
    found: list[str] = []

    def compare(name: str, a: Any, b: Any, reference: Any, *, strides: bool = True) -> None:
        options = {"elementwise": elementwise, "values": values, "strides": strides}
        if (text := _difference(a, b, reference, **options)) is not None:
            found.append(f"{name}: {text}")

    for number, (a, b) in enumerate(zip(ours.results, eager.results, strict=True)):
        reference = None if exact is None else exact.results[number]
        # results of their own memory are row-major, as README.md says
        laid_out = bool(eager.aliases[number]) or not isinstance(a, torch.Tensor) or not _is_row_major(a)
        compare(f"result {number}", a, b, reference, strides=laid_out)
        if ours.aliases[number] != eager.aliases[number]:
            found.append(f"result {number} {_told(ours.aliases[number])}, not {_told(eager.aliases[number])}")
    for number, (a, b) in enumerate(zip(ours.inputs, eager.inputs, strict=True)):
        compare(f"argument {number} after the call", a, b, None if exact is None else exact.inputs[number])
    if eager.gradients is not None and ours.gradients is not None and not found:
        for number, (a, b) in enumerate(zip(ours.gradients, eager.gradients, strict=False)):
            known = exact is not None and exact.gradients is not None and len(exact.gradients) > number
            reference = exact.gradients[number] if known else None  # pyright: ignore[reportOptionalSubscript, reportOptionalMemberAccess]
            compare(f"gradient {number}", a, b, reference, strides=False)
        if len(ours.gradients) != len(eager.gradients):
            found.append("gradients of other arguments")
    if random and not torch.equal(ours.generator, eager.generator):  # pyright: ignore[reportArgumentType]
        found.append("the generator is elsewhere after the call")
    return found


def _told(aliases: list[str]) -> str:
    return " and ".join(aliases) or "shares no memory"


def _errors(ours: Seen, eager: Seen) -> list[str]:
    if ours.error is None:
        return [f"a result, where eager raises {_named(eager.error)}"]
    if eager.error is None:
        return [_named(ours.error)]
    if isinstance(ours.error, type(eager.error)):
        return []
    return [f"{_named(ours.error)}, where eager raises {_named(eager.error)}"]


def _named(error: Exception | None) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {text}"


def _is_row_major(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and tensor.is_contiguous()


def _difference(
    ours: Any, eager: Any, exact: Any, *, elementwise: bool, values: bool, strides: bool
) -> str | None:
    if not isinstance(eager, torch.Tensor) or not isinstance(ours, torch.Tensor):
        if type(ours) is not type(eager):
            return f"{_kind(ours)} instead of {_kind(eager)}"
        same = ours == eager or (ours != ours and eager != eager)
        if isinstance(eager, float) and not same:
            same = abs(ours - eager) <= 1e-5 * abs(eager)
        return None if same else f"{ours!r} instead of {eager!r}"
    for what in ("layout", "dtype", "requires_grad", "is_nested"):
        if (a := getattr(ours, what)) != (b := getattr(eager, what)):
            return f"{what} {a} instead of {b}"
    if eager.is_nested:
        return _parts(ours.unbind(), eager.unbind(), elementwise=elementwise, values=values, strides=strides)
    if ours.shape != eager.shape:
        return f"shape {list(ours.shape)} instead of {list(eager.shape)}"
    if eager.layout is not torch.strided:
        ours, eager = ours.to_dense(), eager.to_dense()
        exact = exact.to_dense() if isinstance(exact, torch.Tensor) else None
    elif strides and (a := _strides(ours)) != (b := _strides(eager)):
        return f"strides {a} instead of {b}"
    for what in ("is_conj", "is_neg"):
        if getattr(ours, what)() != getattr(eager, what)():
            return f"{what} {getattr(ours, what)()}"
    if not values:
        return None
    if not isinstance(exact, torch.Tensor) or exact.shape != eager.shape:
        exact = None
    return _values(_real(ours), _real(eager), None if exact is None else _real(exact), elementwise)


def _parts(ours: Any, eager: Any, **options: bool) -> str | None:
    for a, b in zip(ours, eager, strict=True):
        if (text := _difference(a, b, None, **options)) is not None:  # pyright: ignore[reportArgumentType]
            return text
    return None


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _strides(tensor: torch.Tensor) -> list[int | None]:
    """None for dimensions that have no second element."""
    if not tensor.numel():
        return []
    return [s if size > 1 else None for s, size in zip(tensor.stride(), tensor.shape, strict=True)]


def _real(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _values(
    ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None, elementwise: bool
) -> str | None:
    if not eager.is_floating_point():
        if torch.equal(ours, eager):
            return None
        wrong = ours != eager
        return f"{int(wrong.sum())} of {eager.numel()} differ: {ours[wrong][0]} instead of {eager[wrong][0]}"
    if exact is None or not exact.is_floating_point():
        exact = eager.double()
    error = tensor_error("", ours, eager, exact, depth=_DEPTH)
    if error.reason:
        return _first(error.reason, ours, eager, exact)
    if error.eager_error > _AMBIGUOUS:
        error = tensor_error("", ours, eager, eager.double(), depth=100 * _DEPTH)
    if not error.passed:
        return _first(f"off by {error.error:.2g}, limit {error.limit:.2g}", ours, eager, exact)
    if elementwise and error.eager_error <= _AMBIGUOUS:
        finite = torch.isfinite(eager) & torch.isfinite(exact)
        distance = (ours.double() - exact).abs()
        info = torch.finfo(eager.dtype)
        relative = ((eager.double() - exact).abs() / exact.abs())[finite & (exact.abs() > info.tiny)]
        worst = float(relative.max()) if relative.numel() else 0.0
        allowed = max(_ELEMENT_OVER_EAGER * worst, _ELEMENT_EPS * info.eps) * exact.abs() + info.tiny
        if bool((outside := finite & (distance > allowed)).any()):
            at = outside.nonzero()[0].tolist()
            told = (t[tuple(at)].item() for t in (ours, eager, exact))
            return "element {}: {:.9g}, eager {:.9g}, float64 {:.17g}".format(at, *told)
    return None


def _first(text: str, ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> str:
    """A text, and the element that is furthest off."""
    distance = (ours.double() - eager.double()).abs().nan_to_num(torch.inf, torch.inf, torch.inf)
    distance[(ours == eager) | (ours.isnan() & eager.isnan())] = 0.0
    if not distance.numel():
        return text
    at = int(distance.argmax())
    told = (t.flatten()[at].item() for t in (ours, eager, exact))
    return "{}; {:.7g}, eager {:.7g}, float64 {:.9g}".format(text, *told)
