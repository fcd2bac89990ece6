"""A recorded run on other devices, for a terminal and as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal

from daceml.prediction.prices import Price
from daceml.prediction.recorded_runs.device_prediction import DevicePrediction
from daceml.simulation.analysis.reliability import misses
from daceml.text_tables import Part, render, table

Criterion = Literal["time", "throughput", "cost"]
_MOST_NOTES = 8


def device_prediction_text(
    predictions: Sequence[DevicePrediction], prices: Mapping[str, Price], *, kinds: bool
) -> str:
    """A row for each device; then what each kind of kernel takes, assumptions, flags and dates of prices.

    Args:
        predictions: in the order of the rows.
        prices: by names of devices.
        kinds: whether kinds of kernels are listed.
    """
    first = predictions[0]
    sampled = first.batch is not None
    what = "samples" if sampled else "steps"
    bought = [f"{what}/$"] if prices else []
    rows = table("device", "step ms", "from .. to", "kernels", f"{what}/s", *bought, "flags")
    for number, seen in enumerate(predictions):
        rate, price = _rate(seen), prices.get(seen.destination.name)
        rows.add_row(
            _named(seen),
            _ms(seen.step_us),
            f"{_ms(seen.fast_us)} .. {_ms(seen.slow_us)}",
            _ms(seen.busy_us),
            _figure(rate),
            *(["" if price is None else _figure(price.samples_per_usd(rate))] if prices else []),
            f"[{number + 1}]" if seen.flags else "",
        )
    where = "an unknown device" if first.origin is None else first.origin.name
    parts: list[Part] = list(_warnings(predictions))
    parts += [
        (f"recorded on {where}: {_ms(first.recorded_us)} ms a step; replay error {first.replay_error:.2%}"),
        "",
        rows,
    ]
    if kinds:
        for seen in predictions:
            parts += ["", _kinds(seen)]
    parts += _notes(predictions, prices)
    return render(*parts)


def device_prediction_json(
    predictions: Sequence[DevicePrediction], prices: Mapping[str, Price]
) -> dict[str, Any]:
    """The same as plain values, every task with its method and reason."""
    return {"predictions": [_plain(seen, prices.get(seen.destination.name)) for seen in predictions]}


def by_criterion(
    predictions: Sequence[DevicePrediction], prices: Mapping[str, Price], criterion: Criterion
) -> list[DevicePrediction]:
    """The best first; by cost those without a price last."""

    def key(seen: DevicePrediction) -> float:
        if criterion == "time":
            return seen.step_us
        if criterion == "throughput":
            return -_rate(seen)
        price = prices.get(seen.destination.name)
        return float("inf") if price is None else -price.samples_per_usd(_rate(seen))

    return sorted(predictions, key=key)


def _named(seen: DevicePrediction) -> str:
    """The device, with the number format where one was asked for."""
    name = seen.destination.name
    return f"{name} ({seen.number_format})" if seen.number_format else name


def _warnings(predictions: Sequence[DevicePrediction]) -> list[str]:
    """What comes first: a replay that misses the run, and devices that wait for the host."""
    missed = misses(predictions[0].replay_error)
    found = [] if missed is None else [f"warning: {missed}"]
    found += [f"{_named(seen)}: {seen.host}" for seen in predictions if seen.host is not None]
    return found


def _rate(seen: DevicePrediction) -> float:
    """Samples a second, or steps where the number of samples of a step is not given."""
    return seen.throughput(1.0 if seen.batch is None else seen.batch)


def _kinds(seen: DevicePrediction) -> Part:
    result = table(
        f"on {seen.destination.name}", "kernels", "recorded us", "us", "from .. to", "by", words=("by",)
    )
    for one in seen.classes:
        result.add_row(
            one.kind,
            f"{one.count:g}",
            f"{one.recorded_us:.1f}",
            f"{one.duration_us:.1f}",
            f"{one.low_us:.1f} .. {one.high_us:.1f}",
            ", ".join(one.methods),
        )
    return result


def _notes(predictions: Sequence[DevicePrediction], prices: Mapping[str, Price]) -> list[Part]:
    parts: list[Part] = [""]
    for number, seen in enumerate(predictions):
        parts += [f"[{number + 1}] {seen.destination.name}: {flag}" for flag in seen.flags]
    assumptions = dict.fromkeys(text for seen in predictions for text in seen.assumptions)
    parts += [f"assumed: {text}" for text in assumptions]
    notes = dict.fromkeys(note for seen in predictions for task in seen.tasks for note in task.notes)
    parts += [f"note: {note}" for note in islice(notes, _MOST_NOTES)]
    if len(notes) > _MOST_NOTES:
        parts.append(f"note: {len(notes) - _MOST_NOTES} more like these; --json has all")
    parts += [
        f"price of {name}: {price.usd_per_hour:g} US dollars an hour, as given for {price.date}"
        for name, price in prices.items()
    ]
    return parts


def _plain(seen: DevicePrediction, price: Price | None) -> dict[str, Any]:
    rate = _rate(seen)
    return {
        "origin": None if seen.origin is None else seen.origin.name,
        "device": seen.destination.name,
        "recorded_us": seen.recorded_us,
        "step_us": seen.step_us,
        "step_low_us": seen.fast_us,
        "step_high_us": seen.slow_us,
        "kernels_us": seen.busy_us,
        "replay_error": seen.replay_error,
        "warnings": _warnings([seen]),
        "number_format": seen.number_format,
        "batch": seen.batch,
        "steps_per_s": seen.throughput(1.0),
        "samples_per_s": None if seen.batch is None else rate,
        "price": None if price is None else {"usd_per_hour": price.usd_per_hour, "date": price.date},
        "samples_per_usd": None if price is None or seen.batch is None else price.samples_per_usd(rate),
        "flags": list(seen.flags),
        "assumptions": list(seen.assumptions),
        "kinds": [
            {
                "kind": one.kind, "kernels": one.count, "recorded_us": one.recorded_us, "us": one.duration_us,
                "low_us": one.low_us, "high_us": one.high_us, "methods": list(one.methods),
            }
            for one in seen.classes
        ],
        "tasks": [
            {
                "name": one.name, "operator": one.operator, "kind": one.kind, "recorded_us": one.recorded_us,
                "us": one.duration_us, "low_us": one.low_us, "high_us": one.high_us, "method": one.method,
                "reason": one.reason, "outside": one.outside, "notes": list(one.notes),
            }
            for one in seen.tasks
        ],
    }  # fmt: skip


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.2f}" if time_us >= 1e4 else f"{time_us / 1e3:.3f}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
