"""A replay, and what-if questions with their answers, for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from daceml.simulation.analysis.breakdown import Breakdown, breakdown
from daceml.simulation.analysis.busiest import Amounts, busiest, overlap
from daceml.simulation.analysis.idle import idle
from daceml.simulation.analysis.limits import Limit, limits
from daceml.simulation.analysis.profiler_cost import without_profiler
from daceml.simulation.analysis.reliability import misses
from daceml.simulation.analysis.steps import (
    kind_times,
    recorded_step_times,
    step_error,
    step_kind,
    step_times,
)
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.whatif.whatif_result import Prediction, Refusal
from daceml.text_tables import Part, TextTable, render, table

NO_SHAPES = (
    "note: TFLOP/s and GB/s of operators follow from shapes, which the trace lacks: record with"
    " record_shapes=True"
)
_MOST_STEPS = 12
_LARGE_ERROR = 0.02


def replay_text(
    schedule: Schedule, *, limiting: Sequence[Limit] | None = None, amounts: Amounts | None = None
) -> str:
    """Steps as recorded and as replayed, where the time goes, what limits the run, what is not known.

    Args:
        amounts: that tasks compute and move; None knows the sizes of copies and collectives.
    """
    graph = schedule.graph
    parts: list[Part] = [
        graph.source,
        *(f"warning: {warning}" for warning in warnings_of(schedule)),
        f"tasks: {len(graph)}; tracks (threads, streams): {len(graph.lanes)}; edges between tracks:"
        f" {len(graph.edges)}",
        error_line(schedule),
        "",
        _steps(schedule),
        (
            f"a step in the steady state, from the end of one to the end of the next:"
            f" {in_ms(step_times(schedule).step_us)} ms"
        ),
        "",
        *([] if (kinds := kinds_table(schedule)) is None else [kinds, ""]),
        _shares(breakdown(schedule)),
        "",
        _limits(limits(schedule) if limiting is None else limiting),
    ]
    for found in (idle_table(schedule), *busiest_tables(schedule, amounts)):
        parts += [] if found is None else ["", found]
    parts += [] if amounts is None or amounts.shapes else ["", NO_SHAPES]
    parts += [] if (line := communication_line(schedule)) is None else ["", line]
    return render(*parts, *(f"note: {note}" for note in graph.notes))


def warnings_of(schedule: Schedule) -> tuple[str, ...]:
    """Why figures of a replay, and of predictions that start from it, may be wrong."""
    error = step_error(schedule)
    if error <= _LARGE_ERROR:
        return schedule.graph.warnings
    return (
        *schedule.graph.warnings,
        misses(error)
        or f"the replay is off by {error:.0%}: what tasks waited for is not known well enough to predict",
    )


def error_line(schedule: Schedule) -> str:
    """What the model's own error on this run is; stands next to everything that it predicts."""
    kinds = Counter(step_kind(name) or "other" for name in step_times(schedule).names)
    of = f"mean of {kinds.total()} steps"
    if len(kinds) > 1:
        of = "the worst kind of step of " + ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"replay error of the run as it was: {step_error(schedule):.2%} ({of})"


def _steps(schedule: Schedule) -> Part:
    seen, recorded = step_times(schedule), recorded_step_times(schedule.graph)
    result = table("step", "recorded ms", "replayed ms", "error")
    rows = zip(seen.names, recorded.loop_us.tolist(), seen.loop_us.tolist(), strict=True)
    for name, recorded_us, seen_us in islice(rows, _MOST_STEPS):
        error = seen_us / recorded_us - 1 if recorded_us else 0.0
        result.add_row(name, in_ms(recorded_us), in_ms(seen_us), f"{error:+.2%}")
    if len(seen.names) > _MOST_STEPS:
        result.add_row(f"... {len(seen.names) - _MOST_STEPS} more", "", "", "")
    return result


def kinds_table(schedule: Schedule) -> TextTable | None:
    """Steps of each kind, from one that is done to the next; None of a run with steps of one kind."""
    seen, recorded = kind_times(step_times(schedule)), kind_times(recorded_step_times(schedule.graph))
    if not seen:
        return None
    result = table("kind of step", "steps", "recorded ms", "replayed ms", "error")
    for now, was in zip(seen, recorded, strict=True):
        error = f"{now.step_us / was.step_us - 1:+.2%}" if was.step_us > 0 else "-"
        result.add_row(now.kind, str(now.steps), in_ms(was.step_us), in_ms(now.step_us), error)
    return result


def whatif_kinds_table(predictions: Sequence[Prediction]) -> TextTable | None:
    """What a step of each kind takes, with each question; None of a run with steps of one kind."""
    plain = kind_times(step_times(simulate(without_profiler(predictions[0].baseline.graph))))
    if not plain:
        return None
    result = table("ms by kind of step", *(one.kind for one in plain))
    result.add_row("as it was", *(in_ms(one.step_us) for one in plain))
    for seen in predictions:
        times = {one.kind: in_ms(one.step_us) for one in kind_times(step_times(seen.schedule))}
        result.add_row(" + ".join(seen.titles), *(times.get(one.kind, "-") for one in plain))
    return result


def _shares(seen: Breakdown) -> Part:
    result = table("what runs, in the whole trace", "ms", "share")
    for what, time_us in (
        ("threads alone", seen.cpu_only_us),
        (f"threads and {seen.beside}", seen.both_us),
        (f"{seen.beside} alone", seen.device_only_us),
        ("nothing: latencies and waits", seen.idle_us),
    ):
        result.add_row(what, in_ms(time_us), _share(time_us, seen.total_us))
    for title, sums in (("device work", seen.by_kind_us), ("device work, phase", seen.by_phase_us)):
        for what, time_us in sums.items():
            result.add_row(f"{title}: {what}", in_ms(time_us), _share(time_us, seen.total_us))
    return result


def _limits(found: Sequence[Limit]) -> Part:
    result = table("if this cost nothing", "step ms", "at most saved")
    for limit in found:
        result.add_row(limit.what, in_ms(limit.step_us), f"{limit.saved:.1%}")
    return result


def busiest_tables(schedule: Schedule, amounts: Amounts | None = None) -> list[TextTable]:
    """A table of each of kernels, operators and layers."""
    tables: list[TextTable] = []
    for what, rows in busiest(schedule.graph, amounts=amounts).items():
        title = f"{what}s that take longest"
        result = table(
            title, "tasks", "ms", "share", "TFLOP/s", "GB/s", paths=(title,) if what == "layer" else ()
        )
        for row in rows:
            rates = (_rate(row.flops_per_s, 1e12, 2), _rate(row.bytes_per_s, 1e9, 1))
            result.add_row(row.name, str(row.tasks), in_ms(row.time_us), f"{row.share:.1%}", *rates)
        tables.append(result)
    return tables


def idle_table(schedule: Schedule) -> TextTable | None:
    """Why no kernel ran; None of a run without kernels, and of one whose kernels always run."""
    seen, whole_us = idle(schedule), schedule.makespan_us
    if seen is None or not seen.total_us > 0:
        return None
    result = table("why no kernel runs, in the whole trace", "ms", "share")
    for reason, time_us in seen.by_reason_us.items():
        result.add_row(reason, in_ms(time_us), _share(time_us, whole_us))
    if len(seen.by_reason_us) > 1:
        result.add_row("together", in_ms(seen.total_us), _share(seen.total_us, whole_us))
    return result


def communication_line(schedule: Schedule) -> str | None:
    """How much communication kernels hide; None of a run that does not communicate."""
    seen = overlap(schedule)
    if seen is None:
        return None
    share = _share(seen.hidden_us, seen.communication_us)
    return f"communication: {in_ms(seen.communication_us)} ms, of which kernels run during {share}"


def _rate(per_s: float | None, unit: float, digits: int) -> str:
    if per_s is None:
        return "-"
    return f"{per_s / unit:,.{digits}f}" if per_s / unit >= 0.5 * 10**-digits else f"{per_s / unit:.1g}"


def whatif_text(
    predictions: Sequence[Prediction],
    refusals: Sequence[Refusal] = (),
    *,
    assumed: Sequence[str] = (),
    changes: bool = False,
) -> str:
    """One row for each question, the run as it was first; then what it could not answer, and why.

    Args:
        assumed: facts that were not given, and what was taken instead.
    """
    result = table(
        "what if", "step ms", "best .. worst", "speedup", "tasks changed", details=("tasks changed",)
    )
    baseline = predictions[0].baseline
    host = predictions[0].host
    reach = "" if host is None else f"{in_ms(host.device_us)} .. {in_ms(host.recorded_us)}"
    result.add_row("as it was", in_ms(predictions[0].baseline_us), reach, "1.00", "")
    for seen in predictions:
        result.add_row(
            " + ".join(seen.titles),
            in_ms(seen.step_us),
            f"{in_ms(seen.fast_us)} .. {in_ms(seen.slow_us)}",
            f"{seen.speedup:.2f} [{seen.speedup_low:.2f}, {seen.speedup_high:.2f}]",
            seen.change.headline(),
        )
    assumptions = dict.fromkeys([*assumed, *(text for seen in predictions for text in seen.assumptions)])
    parts: list[Part] = [f"warning: {text}" for text in whatif_warnings(predictions)]
    parts += [error_line(baseline), "", result]
    parts += [] if (kinds := whatif_kinds_table(predictions)) is None else ["", kinds]
    parts += [f"refused [{refusal.code}]: {refusal.title}: {refusal.reason}" for refusal in refusals]
    parts += [f"assumed: {text}" for text in assumptions]
    parts += [f"note: {note}" for note in (*_without_profiler(predictions[0]), *baseline.graph.notes)]
    if changes:
        parts += [f"\n{' + '.join(seen.titles)}\n{seen.change}" for seen in predictions]
    return render(*parts)


def _without_profiler(first: Prediction) -> list[str]:
    """Why a step as it was takes less than in the replay; nothing where both are the same."""
    recorded_us = step_times(first.baseline).step_us
    if in_ms(recorded_us) == in_ms(first.baseline_us):
        return []
    return [
        "as it was: a step without what the profiler is taken to cost; with the profiler, as `replay` shows"
        f" it, {in_ms(recorded_us)} ms"
    ]


def whatif_warnings(predictions: Sequence[Prediction]) -> list[str]:
    """What comes first: why answers may be wrong, and a host that limits the run or answers."""
    first = predictions[0]
    found = [*warnings_of(first.baseline)]
    if first.host is not None:
        found.append(str(first.host))
    elif limited := [" + ".join(seen.titles) for seen in predictions if seen.host_limits]:
        found.append(
            f"the host would limit {'; '.join(limited)}: these intervals reach from the device's time to the"
            " host's time as recorded"
        )
    return found


def in_ms(time_us: float) -> str:
    """Microseconds as milliseconds, with as many digits as can be told apart at a glance."""
    return (
        f"{time_us / 1e3:,.1f}"
        if time_us >= 1e5
        else f"{time_us / 1e3:.2f}"
        if time_us >= 1e3
        else f"{time_us / 1e3:.3f}"
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole > 0 else "-"
