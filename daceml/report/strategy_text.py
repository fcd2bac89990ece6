"""A recorded run of several ranks, and the strategy found for it, for a terminal or as plain values."""

from __future__ import annotations

import math
from typing import Any

from daceml.report.replay_text import in_ms
from daceml.simulation.distributed.recorded_run import RecordedRun
from daceml.simulation.distributed.strategy.advice import Advice
from daceml.simulation.distributed.strategy.optimizer import Strategy
from daceml.simulation.distributed.strategy.recorded_step import RecordedStep
from daceml.text_tables import Part, render, table

_MOST_RANKS = 16
_MOST_CANDIDATES = 8
_GIB = 2.0**30


def run_text(recorded: RecordedRun) -> str:
    """What was read: ranks, their steps, what they wait and communicate, how clocks were aligned."""
    replay, alignment = recorded.replay, recorded.alignment
    rows = table("rank", "step ms", "replayed", "waiting ms", "communication", "clock us")
    for column, rank in enumerate(replay.ranks[:_MOST_RANKS]):
        rows.add_row(
            str(rank.rank), in_ms(rank.recorded_step_us), in_ms(rank.predicted_step_us),
            in_ms(rank.waiting_us), in_ms(rank.communication_us), f"{alignment.offset_us[column]:+.1f}",
        )  # fmt: skip
    parts: list[Part] = [
        f"{len(recorded.traces)} ranks on {_hosts(recorded)}, {_matched(recorded)}",
        _clocks(recorded),
        f"replay error of the run as it was: {replay.error:+.2%}",
        "",
        rows,
    ]
    if len(replay.ranks) > _MOST_RANKS:
        parts.append(f"... {len(replay.ranks) - _MOST_RANKS} more ranks")
    parts.append("waiting and communication are of all recorded steps together")
    return render(*parts, *(f"note: {note}" for note in recorded.run.notes))


def strategy_text(step: RecordedStep, strategy: Strategy, advised: Advice, memory_bytes: float | None) -> str:
    """Candidates that fit, what each part is worth, and what to write."""
    found = strategy.found
    parts: list[Part] = [
        f"typical step {in_ms(step.typical_us)} ms; as modelled, with its buckets: {_error(step)}"
    ]
    parts += [f"assumed: {note}" for note in step.notes]
    fitting = [one for one in strategy.candidates if one.fits]
    rows = table("candidate, with torch's buckets", "step ms", "peak GiB")
    for one in fitting[:_MOST_CANDIDATES]:
        peak = "?" if math.isnan(one.peak_bytes) else f"{one.peak_bytes / _GIB:.2f}"
        rows.add_row(one.name, in_ms(one.step_us), peak)
    limit = "" if memory_bytes is None else f" into {memory_bytes / _GIB:.3g} GiB"
    parts += ["", f"{len(fitting)} of {len(strategy.candidates)} candidates fit{limit}", rows]
    rows = table("what it is worth", "step ms", "vs default")
    for what, time_us in _worth(strategy, advised):
        rows.add_row(what, in_ms(time_us), f"{time_us / found.default_us - 1:+.1%}")
    how = "converged" if found.converged else "the budget was over first"
    parts += ["", rows, f"{found.simulated} steps simulated in {found.seconds:.1f} s; {how}", ""]
    parts.append("to apply:")
    for setting in advised.settings:
        time = "" if setting.step_us is None else f"; {in_ms(setting.step_us)} ms a step"
        parts += [f"  {setting.code}", f"    {setting.why}{time}"]
    return render(*parts)


def strategy_json(
    recorded: RecordedRun, step: RecordedStep, strategy: Strategy, advised: Advice
) -> dict[str, Any]:
    """The same as plain values; unknown figures are None."""
    replay = recorded.replay
    return {
        "ranks": [
            {
                "rank": rank.rank, "step_us": rank.recorded_step_us,
                "replayed_step_us": rank.predicted_step_us,
                "waiting_us": rank.waiting_us, "queueing_us": rank.queueing_us,
                "communication_us": rank.communication_us,
                "clock_offset_us": float(recorded.alignment.offset_us[column]),
            }
            for column, rank in enumerate(replay.ranks)
        ],
        "alignment": {"basis": recorded.alignment.basis, "residual_us": recorded.alignment.residual_us},
        "replay_error": replay.error,
        "recorded_us": step.recorded_us.tolist(),
        "typical_us": step.typical_us,
        "model_error": _known(step.error),
        "notes": list(step.notes),
        "candidates": [
            {
                "choices": [choice.name for choice in one.choices], "fits": one.fits,
                "step_us": _known(one.step_us), "peak_bytes": _known(one.peak_bytes),
            }
            for one in strategy.candidates
        ],
        "chosen": [choice.name for choice in strategy.chosen.choices],
        "default_us": advised.default_us,
        "limit_mb": advised.limit_mb,
        "limit_us": advised.limit_us,
        "found_us": advised.found_us,
        "without_us": dict(strategy.contributions),
        "converged": strategy.found.converged,
        "settings": [{"code": one.code, "why": one.why, "step_us": one.step_us} for one in advised.settings],
        "buckets": [
            {"parameters": list(one.parameters), "size_bytes": one.size_bytes, "parts": one.parts}
            for one in advised.buckets
        ],
    }  # fmt: skip


def _worth(strategy: Strategy, advised: Advice) -> list[tuple[str, float]]:
    rows = [
        ("torch's default: buckets of 25 MiB, the first of 1 MiB", advised.default_us),
        (f"the best limit: bucket_cap_mb={advised.limit_mb:g}", advised.limit_us),
        ("found", advised.found_us),
    ]
    return rows + [(f"found without {kind}", time_us) for kind, time_us in strategy.contributions.items()]


def _hosts(recorded: RecordedRun) -> str:
    count = len(set(recorded.hosts))
    return "1 host" if count == 1 else f"{count} hosts"


def _matched(recorded: RecordedRun) -> str:
    return f"{len(recorded.run.matches)} communications matched"


def _clocks(recorded: RecordedRun) -> str:
    alignment = recorded.alignment
    if len(set(recorded.hosts)) == 1:
        return f"clocks: one host, one clock; ends of collectives lie {alignment.residual_us:.1f} us apart"
    return (
        f"clocks: by {alignment.basis}, {alignment.outliers} outliers; ends of collectives lie"
        f" {alignment.residual_us:.1f} us apart"
    )


def _error(step: RecordedStep) -> str:
    return "unknown, as none was recorded" if math.isnan(step.error) else f"{step.error:+.2%}"


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
