"""An explanation as plain text: steps, totals before and after, what runs outside, what was refused."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rich.table import Table

from daceml.report.text import WIDTH, cell, in_millions, render, table
from daceml.runtime.manifest import EXAMPLE_SIZE

if TYPE_CHECKING:
    from daceml.report.explanation import Explanation
    from daceml.runtime.manifest import StepRecord


def explanation_text(explanation: Explanation) -> str:
    """The report that `print(explain(...))` shows; it fits 110 columns."""
    parts = [_headline(explanation), render(_steps(explanation.steps)), render(_totals(explanation))]
    parts += [block for block in (_outside(explanation), _refused(explanation)) if block]
    parts.append("\n".join(_closing(explanation)))
    return "\n\n".join(parts) + "\n"


def _headline(explanation: Explanation) -> str:
    counts = explanation.counts
    words = [f"{_count(counts['kernels'], 'call')} of {_count(counts['distinct_kernels'], 'kernel')}"]
    words += [f"{counts[kind]} {kind}" for kind in ("aten", "onnxruntime") if counts[kind]]
    words += (
        [f"{counts['copies']} {'copy' if counts['copies'] == 1 else 'copies'}"] if counts["copies"] else []
    )
    return f"{explanation.name}: {', '.join(words)}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _steps(steps: tuple[StepRecord, ...]) -> Table:
    rows = table("kind", "label", "module", "MB unique", "MB total", "Mflop", "Mspecial", left=3)
    for column, width in ((1, 44), (2, 26)):
        rows.columns[column].max_width = width
    for step in steps:
        rows.add_row(
            step.kind,
            cell(step.label),
            cell(step.module_path),
            in_millions(step.unique_bytes),
            in_millions(step.total_bytes),
            in_millions(step.flops),
            in_millions(step.special_functions),
        )
    return rows


def _totals(explanation: Explanation) -> Table:
    eager, after, counts = explanation.eager, explanation.bytes, explanation.counts
    steps = sum(counts[kind] for kind in ("kernels", "aten", "onnxruntime", "copies"))
    rows = table("", "one at a time", "compiled", "ratio")
    rows.add_row("steps", str(eager["kernels"]), str(steps), _ratio(eager["kernels"], steps))
    for kind in ("unique", "total"):
        before_mb, after_mb = in_millions(eager[kind]), in_millions(after[kind])
        rows.add_row(f"MB {kind}", before_mb, after_mb, _ratio(eager[kind], after[kind]))
    return rows


def _ratio(before: int, after: int) -> str:
    return f"{before / after:.2f}x" if after else ""


def _outside(explanation: Explanation) -> str:
    """Every step that ONNX Runtime executes, with the reasons why nothing else does."""
    outside = [step for step in explanation.steps if step.kind == "onnxruntime"]
    if not outside:
        return ""
    lines = ["run by ONNX Runtime:"]
    for step in outside:
        place = ", ".join(part for part in (step.module_path, step.source) if part)
        lines.append(f"  {step.label}{f' ({place})' if place else ''}")
        reasons = step.refusals or ("no other implementation is registered",)
        for reason in reasons:
            lines += _sentence(reason, indent=4)
    return "\n".join(lines)


def _refused(explanation: Explanation) -> str:
    outside = {
        f"{s.label}: {reason}" for s in explanation.steps if s.kind == "onnxruntime" for reason in s.refusals
    }
    sentences = [sentence for sentence in explanation.refused if sentence not in outside]
    if not sentences:
        return ""
    return "\n".join(
        ["refused:", *(line for sentence in sentences for line in _sentence(sentence, indent=2))]
    )


def _sentence(text: str, *, indent: int) -> list[str]:
    blank = " " * indent
    return textwrap.wrap(text, WIDTH, initial_indent=blank, subsequent_indent=blank + "  ")


def _closing(explanation: Explanation) -> list[str]:
    applied = ", ".join(f"{name} x{count}" for name, count in explanation.applied.items() if count)
    longest = sorted(explanation.compile_seconds.items(), key=lambda item: -item[1])
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in longest if seconds >= 0.005)
    how = "loaded from the cache; compiled" if explanation.from_cache else "compiled"
    total_s = sum(explanation.compile_seconds.values())
    symbolic = f"symbolic:  {', '.join(explanation.symbols)}; figures hold at {EXAMPLE_SIZE} for each"
    flops, special = in_millions(explanation.flops), in_millions(explanation.special_functions)
    return [
        f"applied:   {applied or 'nothing'}",
        f"computes:  {flops} Mflop, {special} M special functions",
        *([symbolic] if explanation.symbols else []),
        f"workspace: {in_millions(explanation.workspace_bytes)} MB",
        *textwrap.wrap(f"{how} in {total_s:.2f} s: {stages}", WIDTH, subsequent_indent="  "),
    ]
