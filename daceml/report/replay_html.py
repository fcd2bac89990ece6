"""A replay, or what-if questions with their answers, as a page: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from daceml.report.replay_json import path_sums
from daceml.report.replay_text import (
    busiest_tables,
    communication_line,
    error_line,
    idle_table,
    in_ms,
    kinds_table,
    warnings_of,
    whatif_kinds_table,
    whatif_warnings,
)
from daceml.simulation.analysis.breakdown import breakdown
from daceml.simulation.analysis.busiest import Amounts
from daceml.simulation.analysis.limits import limits
from daceml.simulation.analysis.steps import recorded_step_times, step_times
from daceml.simulation.engine import Schedule
from daceml.simulation.whatif.whatif_result import Prediction
from daceml.text_tables import TextTable

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem } td, th { padding: 0.2rem 0.9rem 0.2rem 0 }
th { text-align: left; border-bottom: 1px solid #888; font-weight: 600 }
td + td, th + th { text-align: right } .words td, .words th { text-align: left }
.bar { display: flex; height: 1.6rem; width: 100%; margin: 0.3rem 0 } .bar span { overflow: hidden }
.span { position: relative; height: 1.1rem; background: #eee; width: 16rem }
.span i { position: absolute; top: 0; bottom: 0; background: #7aa6d8 }
.span b { position: absolute; top: 0; bottom: 0; width: 2px; background: #123 }
.note { color: #555 } @media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd } }
"""
_COLOURS = ("#d8a657", "#7aa6d8", "#7fb77e", "#bbb")  # threads alone, both, devices or network alone, nothing


def replay_html(schedule: Schedule, *, amounts: Amounts | None = None) -> str:
    """Steps, shares, limits, the longest work and the critical path of a replay.

    Args:
        amounts: that tasks compute and move; None knows the sizes of copies and collectives.
    """
    unused, kinds = idle_table(schedule), kinds_table(schedule)
    communication = communication_line(schedule)
    seen, recorded = step_times(schedule), recorded_step_times(schedule.graph)
    steps = [
        (name, in_ms(was), in_ms(now), f"{now / was - 1:+.2%}" if was else "-")
        for name, was, now in zip(seen.names, recorded.loop_us.tolist(), seen.loop_us.tolist(), strict=True)
    ]
    limiting = [(one.what, in_ms(one.step_us), f"{one.saved:.1%}") for one in limits(schedule)]
    return _page(
        f"Replay of {schedule.graph.source}",
        [
            _notes(warnings_of(schedule), "warning"),
            f"<p>{escape(error_line(schedule))}</p>",
            _table(("step", "recorded ms", "replayed ms", "error"), steps),
            "" if kinds is None else _text_table(kinds),
            "<h2>Where the time goes</h2>",
            _shares(schedule),
            "<h2>What limits it</h2>",
            _table(("if this cost nothing", "step ms", "at most saved"), limiting),
            "" if unused is None else _text_table(unused),
            "<h2>What takes longest</h2>",
            *map(_text_table, busiest_tables(schedule, amounts)),
            "" if communication is None else f"<p>{escape(communication)}</p>",
            "<h2>The critical path</h2>",
            _path(schedule),
            _notes(schedule.graph.notes),
        ],
    )


def whatif_html(predictions: Sequence[Prediction], *, assumed: Sequence[str] = ()) -> str:
    """All questions beside the run as it was, then each with what it changes.

    Args:
        assumed: facts that were not given, and what was taken instead.
    """
    first, kinds = predictions[0], whatif_kinds_table(predictions)
    longest_us = max([first.baseline_us, *(seen.slow_us for seen in predictions)])
    rows = [("as it was", in_ms(first.baseline_us), _span(first.baseline_us, None, longest_us), "1.00")]
    rows += [
        (
            escape(" + ".join(seen.titles)),
            in_ms(seen.step_us),
            _span(seen.step_us, (seen.fast_us, seen.slow_us), longest_us),
            f"{seen.speedup:.2f}",
        )
        for seen in predictions
    ]
    parts = [
        _notes(whatif_warnings(predictions), "warning"),
        f"<p>{escape(error_line(first.baseline))}</p>",
        _raw_table(("what if", "step ms", "best .. worst", "speedup"), rows),
        "" if kinds is None else _text_table(kinds),
        _notes(assumed, "assumed"),
    ]
    for seen in predictions:
        parts += [
            f"<h2>{escape(' + '.join(seen.titles))}</h2>",
            _shares(seen.schedule),
            _path(seen.schedule),
            f"<details><summary>{escape(seen.change.headline())}</summary>",
            f"<pre>{escape(str(seen.change))}</pre></details>",
            _notes(seen.assumptions, "assumed"),
        ]
    return _page(f"What if: {first.baseline.graph.source}", [*parts, _notes(first.baseline.graph.notes)])


def _page(title: str, parts: Iterable[str]) -> str:
    head = f"<meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"


def _shares(schedule: Schedule) -> str:
    seen = breakdown(schedule)
    colours = dict(zip(("threads alone", "both", f"{seen.beside} alone", "nothing"), _COLOURS, strict=True))
    amounts = zip(colours, (seen.cpu_only_us, seen.both_us, seen.device_only_us, seen.idle_us), strict=True)
    rows = [(what, time_us) for what, time_us in amounts if time_us > 0]
    whole_us = sum(time_us for _, time_us in rows) or 1.0
    bar = "".join(
        f'<span style="width:{100 * time_us / whole_us:.3f}%;background:{colours[what]}"'
        f' title="{what}"></span>'
        for what, time_us in rows
    )
    figures = [(what, in_ms(time_us), f"{time_us / whole_us:.1%}") for what, time_us in rows]
    return f'<div class="bar">{bar}</div>' + _table(("what runs, in the whole trace", "ms", "share"), figures)


def _path(schedule: Schedule) -> str:
    sums = path_sums(schedule)
    whole_us = sum(sums.values()) or 1.0
    rows = [(what, in_ms(time_us), f"{time_us / whole_us:.1%}") for what, time_us in sums.items()]
    return _table(("on the critical path", "ms", "share"), rows)


def _span(step_us: float, interval: tuple[float, float] | None, longest_us: float) -> str:
    def place(time_us: float) -> float:
        return 100 * time_us / longest_us if longest_us else 0.0

    low, high = interval or (step_us, step_us)
    return (
        f'<div class="span" title="{in_ms(low)} .. {in_ms(high)} ms">'
        f'<i style="left:{place(low):.2f}%;width:{place(high) - place(low):.2f}%"></i>'
        f'<b style="left:{place(step_us):.2f}%"></b></div>'
    )


def _notes(notes: Sequence[str], title: str = "note") -> str:
    return "".join(f"<p class=note>{title}: {escape(note)}</p>" for note in notes)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _raw_table(headers, ([escape(text) for text in row] for row in rows))


def _text_table(shown: TextTable) -> str:
    return _table(shown.headers, shown.rows)


def _raw_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{text}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
