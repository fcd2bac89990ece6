"""An explanation as a fragment of HTML, for notebooks: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from daceml.report.text import in_millions

if TYPE_CHECKING:
    from daceml.report.explanation import Explanation

_HEADERS = ("kind", "label", "module", "MB unique", "MB total", "Mflop", "Mspecial")


def explanation_html(explanation: Explanation) -> str:
    """Headline, totals, and the tables of steps and refusals folded away."""
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
    headline = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
    refused = "".join(f"<li>{escape(sentence)}</li>" for sentence in explanation.refused)
    parts = [
        f"<p><b>{escape(explanation.name)}</b>: {escape(headline)}</p>",
        _table(("", "one at a time", "compiled"), totals),
        f"<details><summary>{len(explanation.steps)} steps</summary>{_table(_HEADERS, steps)}</details>",
    ]
    if refused:
        count = len(explanation.refused)
        parts.append(f"<details><summary>{count} refused</summary><ul>{refused}</ul></details>")
    return "\n".join(parts)


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
