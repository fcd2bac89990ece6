"""Predicted steps of a model on devices, for a terminal and as plain values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from daceml.prediction.model_steps.memory_need import MemoryNeed
from daceml.prediction.model_steps.step_prediction import StepPrediction
from daceml.prediction.prices import Price
from daceml.text_tables import Part, render, table

Criterion = Literal["time", "throughput", "cost"]
_BASES = ("measured", "learned", "scaled", "roofline")
_LAYERS = 10
_SHARE = "of the device's work"
_OUTSIDE = "(outermost module, loss, optimizer)"
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a part of a module's path


def step_prediction_text(
    predictions: Sequence[StepPrediction], prices: Mapping[str, Price], *, layers: bool = False
) -> str:
    """A row for each device (n of them together), then flags, assumptions and the dates of prices.

    Args:
        predictions: in the order of the rows.
        prices: by names of devices.
        layers: whether the time of operators' kinds and of the longest layers is listed.
    """
    together = any(seen.devices > 1 for seen in predictions)
    bought = ["samples/$"] if prices else []
    rows = table(
        "device", *(["n"] if together else []), "step ms", "from .. to", "samples/s", *bought, "GB", "flags"
    )
    for number, seen in enumerate(predictions):
        price = prices.get(seen.device.name)
        cost = None if price is None else seen.samples_per_usd(price.usd_per_hour)
        rows.add_row(
            seen.device.name,
            *([str(seen.devices)] if together else []),
            _ms(seen.step_us),
            f"{_ms(seen.low_us)} .. {_ms(seen.high_us)}",
            _figure(seen.samples_per_s),
            *([_figure(cost)] if prices else []),
            "?" if seen.memory is None else f"{seen.memory.total / 1e9:.3g}",
            f"[{number + 1}]" if seen.flags else "",
        )
    first = predictions[0]
    what = "training step" if first.trains else "forward pass"
    other = "--inference: forward pass" if first.trains else "without --inference: training step"
    parts: list[Part] = [
        f"{first.model}: a {what} in {first.precision} ({other}), from shapes",
        "",
        rows,
        *_known_by(predictions),
    ]
    if layers:
        for seen in predictions:
            parts += [part for one in (_kinds(seen), _layers(seen)) for part in ("", one)]
            if seen.devices > 1:
                parts.append(
                    f"communication of the devices: {_ms(seen.communication_us)} ms more in each step"
                )
    parts.append("")
    for number, seen in enumerate(predictions):
        parts += [f"[{number + 1}] {seen.device.name}: {flag}" for flag in seen.flags]
    parts += [f"note: {note}" for note in _notes(predictions)]
    parts += [
        f"price of {name}: {price.usd_per_hour:g} US dollars an hour, as given for {price.date}"
        for name, price in prices.items()
    ]
    return render(*parts)


def step_prediction_json(
    predictions: Sequence[StepPrediction], prices: Mapping[str, Price]
) -> dict[str, Any]:
    """The same as plain values."""
    return {"predictions": [_plain(seen, prices.get(seen.device.name)) for seen in predictions]}


def by_criterion(
    predictions: Sequence[StepPrediction], prices: Mapping[str, Price], criterion: Criterion
) -> list[StepPrediction]:
    """The best first; by cost those without a price last, and by throughput those without samples."""

    def key(seen: StepPrediction) -> float:
        if criterion == "time":
            return seen.step_us
        if criterion == "throughput":
            return -(seen.samples_per_s or 0.0)
        price = prices.get(seen.device.name)
        bought = None if price is None else seen.samples_per_usd(price.usd_per_hour)
        return float("inf") if bought is None else -bought

    return sorted(predictions, key=key)


def _known_by(predictions: Sequence[StepPrediction]) -> list[str]:
    """A line for each mix of sources of durations, with the devices that have it."""
    found: dict[str, list[str]] = {}
    for seen in predictions:
        shares = [f"{basis} {share:.0%}" for basis in _BASES if (share := seen.by_basis.get(basis))]
        found.setdefault(", ".join(shares), []).append(seen.device.name)
    return [f"known by {basis}: {', '.join(names)}" for basis, names in found.items() if basis]


def _notes(predictions: Sequence[StepPrediction]) -> list[str]:
    """Each note once, with the devices that it is about where others have none of it."""
    about: dict[str, list[str]] = {}
    for seen in predictions:
        for note in seen.notes:
            about.setdefault(note, []).append(seen.device.name)
    return [
        note
        if len(named) == len(predictions) or any(re.search(rf"\b{re.escape(name)}\b", note) for name in named)
        else f"{', '.join(named)}: {note}"
        for note, named in about.items()
    ]


def _kinds(seen: StepPrediction) -> Part:
    result = table(f"kind of work on {seen.device.name}", "ms", _SHARE)
    for name, us in seen.by_class_us.items():
        result.add_row(name, _ms(us), f"{us / seen.device_us:.1%}")
    return result


def _layers(seen: StepPrediction) -> Part:
    """The longest layers; those whose names differ in numbers alone, and that take as long, share a row."""
    title = f"layer on {seen.device.name}"
    result = table(title, "layers", "ms", _SHARE, paths=(title,))
    alike: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for name, us in seen.by_layer_us.items():
        alike.setdefault((_NUMBER.sub("*", name), _ms(us)), []).append((name, us))
    rows = [(names[0][0], len(names), sum(us for _, us in names)) for names in alike.values()]
    rows.sort(key=lambda row: -row[2])
    for first, count, us in rows[:_LAYERS]:
        name = (first or _OUTSIDE) if count == 1 else f"{first} and alike"
        result.add_row(name, str(count), _ms(us), f"{us / seen.device_us:.1%}")
    if hidden := rows[_LAYERS:]:
        us = sum(row[2] for row in hidden)
        result.add_row("others", str(sum(row[1] for row in hidden)), _ms(us), f"{us / seen.device_us:.1%}")
    return result


def _plain(seen: StepPrediction, price: Price | None) -> dict[str, Any]:
    return {
        "model": seen.model,
        "device": seen.device.name,
        "devices": seen.devices,
        "precision": seen.precision,
        "trains": seen.trains,
        "samples": seen.samples,
        "step_us": seen.step_us,
        "step_low_us": seen.low_us,
        "step_high_us": seen.high_us,
        "errors_us": {name: list(moved) for name, moved in seen.errors_us.items()},
        "device_us": seen.device_us,
        "host_us": seen.host_us,
        "communication_us": seen.communication_us,
        "samples_per_s": seen.samples_per_s,
        "price": None if price is None else {"usd_per_hour": price.usd_per_hour, "date": price.date},
        "samples_per_usd": None if price is None else seen.samples_per_usd(price.usd_per_hour),
        "by_class_us": seen.by_class_us,
        "by_layer_us": seen.by_layer_us,
        "by_phase_us": seen.by_phase_us,
        "by_basis": seen.by_basis,
        "memory": None if seen.memory is None else _memory(seen.memory),
        "flags": list(seen.flags),
        "notes": list(seen.notes),
    }


def _memory(need: MemoryNeed) -> dict[str, Any]:
    step = need.step
    return {
        "parameters": step.parameters, "buffers": step.buffers, "gradients": step.gradients,
        "optimizer": step.optimizer, "saved": step.saved, "peak": step.peak,
        "segments": need.segments, "buckets": need.buckets,
        "reserved": need.reserved, "total": need.total, "available": need.available, "fits": need.fits,
    }  # fmt: skip


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.2f}" if time_us >= 1e4 else f"{time_us / 1e3:.3f}"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
