"""Variants of a network: all predicted when only the standard one has run, then some of them measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.explore.cases import Case
from benchmarks.explore.profiles import save_profiles
from daceml.errors import first_line
from daceml.exploration.variant_space import Space
from daceml.exploration.variant_timings import Programs
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant

CHOICES = {"alone": 1, "of_three": 3}
"""How many of the most promising variants are measured before one is chosen."""
_LIMIT_S = 6.0
_MOST, _LOWERING_S, _LONGEST_MS = 60, 60.0, 20_000.0


def case_row(case: Case, steps: Path | None = None) -> dict[str, Any]:
    """What was predicted and measured; steps of other networks may be known by then.

    Args:
        steps: a file to which the costs and times of all measured steps are added, a line a variant.
    """
    module, inputs = case.subject()
    subject = Subject(module, inputs, {}, training=case.training)
    refused: list[str] = []
    batches = tuple(max(round(share * subject.samples), 1) for share in case.batches)
    space = Space(training=case.training, freezable=not case.training, batches=batches)
    measured: dict[Variant, dict[str, Any]] = {}
    with Programs.measured(subject, limit_s=_LIMIT_S, course=True) as programs:
        predicted = _predictions(programs, space, refused, case.variants)
        for variant in _chosen(_endurable(predicted, refused), case.variants):
            row = predicted[variant]
            try:
                times = programs.measure(variant)
            except Exception as error:  # whatever a pass or the compiler refuses: told, and left out
                refused.append(f"{variant.title}: {first_line(error)}")
                continue
            measured[variant] = {
                **row, "measured_ms": times.ms, "measured_low_ms": times.low_ms,
                "measured_high_ms": times.high_ms, "rounds": times.rounds,
            }  # fmt: skip
        regrets = regrets_of(programs, measured)
        standard_ms = programs.standard_ms
        if steps is not None:
            save_profiles(steps, case, programs)
    return {
        "case": case.title, "network": case.name, "training": case.training, "standard_ms": standard_ms,
        "wanted": case.variants, "predicted": len(predicted), "variants": list(measured.values()),
        "regrets": regrets, "refused": refused,
    }  # fmt: skip


def _predictions(
    programs: Programs, space: Space, refused: list[str], least: int
) -> dict[Variant, dict[str, Any]]:
    """Different programs only, `least` of them however long that takes; why others cannot be lowered is added
    to `refused`.
    """
    found: dict[Variant, dict[str, Any]] = {}
    seen: set[str] = set()
    end = monotonic() + _LOWERING_S

    def promising() -> list[Variant]:
        return sorted(found, key=lambda one: found[one]["predicted_ms"])

    sets = (space.singles, lambda: space.combined(promising()))
    for variants in sets:
        for variant in variants():
            endurable = sum(row["predicted_ms"] <= _LONGEST_MS for row in found.values())
            if len(found) >= _MOST or (endurable >= least and monotonic() > end):
                return found
            try:
                lowered, time = programs.lowered(variant), programs.predicted(variant)
            except Exception as error:  # whatever a pass or an operator refuses
                refused.append(f"{variant.title}: {first_line(error)}")
                continue
            if lowered.identity in seen:
                continue
            seen.add(lowered.identity)
            found[variant] = {
                "variant": variant.title, "predicted_ms": time.us / 1e3, "low_ms": time.low_us / 1e3,
                "high_ms": time.high_us / 1e3, "measured_share": time.measured_share,
                "moved_bytes": lowered.moved_bytes, "memory_bytes": lowered.memory_bytes,
            }  # fmt: skip
    return found


def regrets_of(programs: Programs, measured: dict[Variant, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """What the variants that would be chosen take beside the best, measured once more and side by side: the
    best of many measurements is partly luck.
    """
    best = min(measured, key=lambda one: measured[one]["measured_ms"])
    found: dict[str, dict[str, float]] = {}
    for name, count in CHOICES.items():
        promising = sorted(measured, key=lambda one: measured[one]["predicted_ms"])[:count]
        chosen = min(promising, key=lambda one: measured[one]["measured_ms"])
        ratio, low, high = 1.0, 1.0, 1.0
        if chosen != best:
            times = programs.beside(chosen, best)
            ratio, low, high = times.ratio, times.ratio_low, times.ratio_high
        found[name] = {"ratio": ratio, "low": low, "high": high}
    return found


def _endurable(predicted: dict[Variant, dict[str, Any]], refused: list[str]) -> dict[Variant, dict[str, Any]]:
    """Those of which a call takes no more than `_LONGEST_MS`; the others are told."""
    slow = [one for one in predicted if predicted[one]["predicted_ms"] > _LONGEST_MS]
    refused += [
        f"{one.title}: a call would take {predicted[one]['predicted_ms'] / 1e3:.0f} s" for one in slow
    ]
    return {one: row for one, row in predicted.items() if one not in slow}


def _chosen(predicted: dict[Variant, dict[str, Any]], count: int) -> Sequence[Variant]:
    """The standard variant, the best, the worst, and others between them in even steps of rank."""
    order = sorted((one for one in predicted if one != Variant()), key=lambda v: predicted[v]["predicted_ms"])
    if len(order) < count:
        return [Variant(), *order]
    places = sorted({round(n * (len(order) - 1) / (count - 2)) for n in range(count - 1)})
    return [Variant(), *(order[place] for place in places)]
