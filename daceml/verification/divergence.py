"""Where a compiled program first leaves its limits: every intermediate value beside eager's, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from daceml.text_tables import render, table, wrapped
from daceml.verification.accuracy import TensorError


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a value comes from.

    Attributes:
        name: of the ONNX value.
        operator: ONNX operators that compute it from its operands.
        operands: names of the compared values that it is computed from.
        module_path, source: in the user's model; empty where unknown.
        depth: rounding steps on the way from the inputs, for its limit.
    """

    name: str
    operator: str
    operands: tuple[str, ...] = ()
    module_path: str = ""
    source: str = ""
    depth: int = 1

    @property
    def where(self) -> str:
        return ", ".join(filter(None, (self.module_path, self.source)))


@dataclass(frozen=True, kw_only=True)
class Intermediate:
    """One value of the compiled program beside eager's.

    Attributes:
        origin: where it comes from.
        implementation: what computed it.
        error: its distance from float64, eager's, and its limit.
    """

    origin: Origin
    implementation: str
    error: TensorError

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        return {**asdict(self.origin), "implementation": self.implementation, **error_row(self.error)}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What a look at the intermediate values found.

    Attributes:
        values: in topological order.
        first: the earliest that is outside its limit while all of its operands are inside.
        alone: the operator of `first` on the operands that the compiled program had, beside eager's.
        conclusion: sentences.
        failure: why no values could be compared, or empty.
    """

    values: tuple[Intermediate, ...] = ()
    first: Intermediate | None = None
    alone: TensorError | None = None
    conclusion: tuple[str, ...] = ()
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether every value was compared and is within its limit."""
        return not self.failure and not self.failures

    @property
    def failures(self) -> tuple[Intermediate, ...]:
        """Values outside their limits."""
        return tuple(value for value in self.values if not value.error.passed)

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        return {
            "first": self.first.to_json() if self.first else None,
            "alone": error_row(self.alone) if self.alone else None,
            "conclusion": list(self.conclusion),
            "failure": self.failure,
            "values": [value.to_json() for value in self.values],
        }

    def text(self, *, every_value: bool) -> str:
        """The conclusion, and a table of the values outside their limits, or of all."""
        if self.failure:
            return f"intermediate values could not be compared: {self.failure}"
        shown = self.values if every_value else self.failures[:_VALUES_SHOWN]
        parts: list[str] = []
        if shown:
            rows = table(
                "value", "operator, by what", "where", "error", "eager's", "limit", "result",
                left=3, paths=("value", "where"), details=("where",), words=("result",),
            )  # fmt: skip
            for value in shown:
                origin, error = value.origin, value.error
                figures = (f"{x:.1e}" for x in (error.error, error.eager_error, error.limit))
                verdict = "pass" if error.passed else "FAIL"
                # the module's path would fill the page; the conclusion and the JSON form have it
                place = origin.source or origin.module_path
                words = (origin.name, f"{origin.operator}, {value.implementation}", place)
                rows.add_row(*words, *figures, verdict)
            parts.append(render(rows))
        lines = [line for sentence in self.conclusion for line in wrapped(sentence)]
        return "\n\n".join([*parts, "\n".join(lines)])


_VALUES_SHOWN = 12


def first_divergence(values: Sequence[Intermediate]) -> Intermediate | None:
    """The earliest value outside its limit whose operands are all inside theirs."""
    passed = {value.origin.name: value.error.passed for value in values}
    return next(
        (
            value
            for value in values
            if not value.error.passed and all(passed.get(name, True) for name in value.origin.operands)
        ),
        None,
    )


def conclusion(
    values: Sequence[Intermediate], alone: TensorError | None, *, outputs_fail: bool
) -> tuple[str, ...]:
    """What the values say, in sentences."""
    first = first_divergence(values)
    compared = f"{len(values)} intermediate values were compared, in a program that keeps them all"
    if first is None and not outputs_fail:
        return (f"no intermediate value diverges; {compared}",)
    if first is None:
        return (
            "no intermediate value diverges, although a result of the program itself does: keeping every "
            "value changes what is fused, so the fault is in a fusion or in a rewrite of several operators",
            f"  {compared}",
        )
    origin = first.origin
    place = f" ({origin.where})" if origin.where else ""
    lines = [
        f"first divergence: {origin.name} of {origin.operator}{place}, computed by {first.implementation}"
    ]
    lines.append(f"  {reading(first.error)}")
    if origin.operands:
        lines.append(f"  within their limits: what it is computed from ({_listed(origin.operands)})")
    if alone is not None:
        lines.append(f"  on the operands that the compiled program had, {_alone(alone)}")
    if not outputs_fail:
        lines.append("  the results of the program itself are within their limits all the same")
    return (*lines, f"  {compared}: what runs here may be fused differently")


def _alone(error: TensorError) -> str:
    if error.passed:
        return "the operator alone is right: it amplifies what came in"
    return f"the operator alone is as wrong: {reading(error)}"


def reading(error: TensorError) -> str:
    """The figures of one tensor."""
    if error.reason:
        return error.reason
    return f"error {error.error:.2e}, eager's {error.eager_error:.2e}, limit {error.limit:.2e}"


def _listed(names: Iterable[str], most: int = 4) -> str:
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def error_row(error: TensorError) -> dict[str, Any]:
    """One tensor's figures for json.dumps; an error that is infinite is written as None."""
    row: Mapping[str, Any] = {"ratio": error.over_eager, **asdict(error), "passed": error.passed}
    finite = {k: None if v == float("inf") else v for k, v in row.items()}
    return {**finite, "ill_conditioned": error.ill_conditioned}
