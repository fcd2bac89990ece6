"""An explanation as a fragment of HTML, for notebooks: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from daceml.report.explanation.device_kernels_text import HEADERS as HEADERS_OF_KERNELS
from daceml.report.explanation.device_kernels_text import headline as headline_of_kernels
from daceml.report.explanation.device_kernels_text import kernel_rows
from daceml.report.explanation.explanation_text import RUN_ANYWAY
from daceml.report.explanation.levels import TITLES, what_changed
from daceml.report.explanation.measured_choices_text import HEADERS as HEADERS_OF_CHOICES
from daceml.report.explanation.measured_choices_text import SOURCES
from daceml.report.explanation.measured_choices_text import row_of as row_of_choice
from daceml.report.explanation.search_text import HEADERS, headline, row_of
from daceml.text_tables import in_millions

if TYPE_CHECKING:
    from daceml.report.explanation.explanation import Explanation
    from daceml.report.explanation.levels import Level

_AMOUNTS = ("steps", "MB unique", "MB workspace")
_HEADERS = ("kind", "label", "module", "MB unique", "MB total", "Mflop", "Mspecial")


def explanation_html(explanation: Explanation) -> str:
    """Headline, totals, levels, and the lists of steps and refusals folded away."""
    counts, eager, after = explanation.counts, explanation.eager, explanation.bytes
    steps = (
        (
            step.kind,
            step.label,
            step.module_path,
            in_millions(step.unique_bytes),
            in_millions(step.total_bytes),
            in_millions(step.flops),
            in_millions(step.special_functions),
        )
        for step in explanation.steps
    )
    totals = [
        ("steps", str(eager["kernels"]), str(len(explanation.steps))),
        *((f"MB {kind}", in_millions(eager[kind]), in_millions(after[kind])) for kind in ("unique", "total")),
    ]
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
    parts = [
        f"<p><b>{escape(explanation.name)}</b>: {escape(counted)}</p>",
        _table(("", "one at a time", "compiled"), totals),
        f"<details><summary>{len(explanation.steps)} steps</summary>{_table(_HEADERS, steps)}</details>",
    ]
    if explanation.slower:
        parts.insert(1, f"<p>calls run eagerly: {escape(explanation.slower)} ({RUN_ANYWAY})</p>")
    every_step = (*explanation.steps, *explanation.backward_steps)
    on_device = kernel_rows(every_step)
    if on_device:
        kernels = _table(HEADERS_OF_KERNELS, on_device)
        parts.append(
            f"<details><summary>{escape(headline_of_kernels(every_step))}</summary>{kernels}</details>"
        )
    if explanation.levels:
        parts.append(_table(("level", "applied", "refused", *_AMOUNTS), map(_level, explanation.levels)))
    parts += [_refused(level) for level in explanation.levels if level.refused]
    if explanation.choices:
        parts.append(f"<p>{escape(explanation.gain)} ({escape(SOURCES)})</p>")
        parts.append(_table(HEADERS_OF_CHOICES, map(row_of_choice, explanation.choices)))
    if explanation.search is not None:
        trials = [(*row_of(trial), trial.why) for trial in explanation.search.trials]
        parts.append(f"<p>search: {escape(headline(explanation.search))}</p>")
        parts.append(_table((*HEADERS, "why"), trials))
    return "\n".join(parts)


def _level(level: Level) -> tuple[str, ...]:
    applied = ", ".join(change for name, done in level.passes.items() if (change := what_changed(name, done)))
    idle = "nothing" if level.passes else "no transformation yet"
    amounts = (level.before, level.after)
    steps, moved, held = (
        " → ".join(dict.fromkeys(form(a[name]) for a in amounts if name in a))
        for name, form in (("steps", str), ("unique_bytes", in_millions), ("workspace_bytes", in_millions))
    )
    return TITLES[level.name], applied or idle, str(len(level.refused)), steps, moved, held


def _refused(level: Level) -> str:
    """The groups of a level's refusals, each of which opens to all that it holds."""
    groups = "".join(
        f"<li><details><summary>{escape(group.sentence)}</summary><ul>"
        + "".join(f"<li>{escape(f'{r.subject}: {r.reason}')}</li>" for r in group.refusals)
        + "</ul></details></li>"
        for group in level.groups
    )
    title = f"{TITLES[level.name].strip()}: {len(level.refused)} refused"
    return f"<details><summary>{escape(title)}</summary><ul>{groups}</ul></details>"


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
