"""An explanation as plain text: steps, totals, levels, what runs outside, what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.report.explanation.buckets_text import buckets_text
from daceml.report.explanation.device_kernels_text import device_kernels_text
from daceml.report.explanation.gradients_text import gradients_text
from daceml.report.explanation.levels import TITLES, group, refusal_sentence, what_changed
from daceml.report.explanation.measured_choices_text import measured_choices_text
from daceml.report.explanation.search_text import search_text
from daceml.report.explanation.storage_text import storage_text
from daceml.runtime.records.manifest import EXAMPLE_SIZE
from daceml.text_tables import TextTable, in_millions, render, table, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from daceml.report.explanation.explanation import Explanation
    from daceml.report.explanation.levels import Level
    from daceml.runtime.records.manifest import StepRecord

_MOVED = (
    "  MB unique: bytes that a step touches, each counted once; MB total: bytes of all its accesses",
    "  one at a time: the same operators without fusion",
)
_GROUPS_SHOWN = 6  # of each level
RUN_ANYWAY = "DACEML_MEASURE=0 runs the program"


def explanation_text(explanation: Explanation, *, every_refusal: bool = False) -> str:
    """The report that `print(explain(...))` shows; it fits 80 columns.

    Args:
        every_refusal: one line a refusal, instead of the largest groups of the same reason.
    """
    parts = [_headline(explanation)]
    if explanation.slower:
        parts.append("\n".join(wrapped(f"calls run eagerly: {explanation.slower} ({RUN_ANYWAY})", indent=0)))
    parts += [render(_steps(explanation.steps)), render(_totals(explanation), *_MOVED)]
    if explanation.levels:
        parts += [render(_levels(explanation.levels)), _passes(explanation.levels)]
    refused = _every_refusal(explanation) if every_refusal else _grouped_refusals(explanation)
    gradients = gradients_text(explanation.by_rule, explanation.lowered)
    blocks = (
        _backward(explanation),
        device_kernels_text((*explanation.steps, *explanation.backward_steps)),
        measured_choices_text(explanation.choices, explanation.gain),
        _outside(explanation),
        refused,
        gradients,
        storage_text(explanation.storage),
        buckets_text(explanation.buckets, explanation.ranks),
        search_text(explanation.search),
    )
    parts += [block for block in blocks if block]
    parts.append("\n".join(_closing(explanation)))
    return "\n\n".join(parts) + "\n"


def _backward(explanation: Explanation) -> str:
    """The steps of the backward pass, and the budget of both passes."""
    steps, budget = explanation.backward_steps, explanation.memory_budget_bytes
    if not steps:
        return ""
    moved = in_millions(sum(step.unique_bytes for step in steps))
    lines = [f"backward pass: {_count(len(steps), 'step')}, {moved} MB unique"]
    if budget is not None:
        lines.append(f"memory budget of a training step: {in_millions(budget)} MB")
    return "\n".join([*lines, render(_steps(steps))])


def _headline(explanation: Explanation) -> str:
    counts = explanation.counts
    words = [f"{_count(counts['kernels'], 'call')} of {_count(counts['distinct_kernels'], 'kernel')}"]
    words += [f"{counts[kind]} {kind}" for kind in ("aten", "torch", "onnxruntime") if counts[kind]]
    if counts["copies"]:
        words.append(f"{counts['copies']} {'copy' if counts['copies'] == 1 else 'copies'}")
    if counts["checks"]:
        words.append(_count(counts["checks"], "check"))
    return f"{explanation.name}: {', '.join(words)}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _steps(steps: tuple[StepRecord, ...]) -> TextTable:
    rows = table(
        "kind", "operators", "label", "module", "MB unique", "MB total", "Mflop", "Mspecial",
        left=4, paths=("module",), details=("label", "MB total", "Mspecial"),
    )  # fmt: skip
    for step in steps:
        rows.add_row(
            step.kind,
            step.title,
            step.label,
            step.module_path,
            in_millions(step.unique_bytes),
            in_millions(step.total_bytes),
            in_millions(step.flops),
            in_millions(step.special_functions),
        )
    return rows


def _totals(explanation: Explanation) -> TextTable:
    eager, after, counts = explanation.eager, explanation.bytes, explanation.counts
    steps = sum(counts[kind] for kind in ("kernels", "aten", "torch", "onnxruntime", "copies", "checks"))
    rows = table("", "one at a time", "compiled", "ratio")
    rows.add_row("steps", str(eager["kernels"]), str(steps), _ratio(eager["kernels"], steps))
    for kind in ("unique", "total"):
        before_mb, after_mb = in_millions(eager[kind]), in_millions(after[kind])
        rows.add_row(f"MB {kind}", before_mb, after_mb, _ratio(eager[kind], after[kind]))
    return rows


def _ratio(before: int, after: int) -> str:
    return f"{before / after:.2f}x" if after else ""


_OUTSIDE = {"torch": "run by torch's own kernels, called by name:", "onnxruntime": "run by ONNX Runtime:"}
_NO_OTHER = {
    "torch": "ONNX has no operator for it, and daceml no translation",
    "onnxruntime": "no other implementation is registered",
}
_MEASURED = "measured to be faster than generated kernels"


def _outside(explanation: Explanation) -> str:
    """Every step that torch's dispatcher or ONNX Runtime executes, with the reasons why nothing else does."""
    lines: list[str] = []
    chosen = {(kernel.operator, kernel.where) for kernel in explanation.torch_kernels}
    for kind, title in _OUTSIDE.items():
        outside = [step for step in explanation.steps if step.kind == kind]
        lines += [title] if outside else []
        for step in outside:
            place = ", ".join(part for part in (step.module_path, step.source) if part)
            lines.append(f"  {step.label}{f' ({place})' if place else ''}")
            measured = (step.label, place) in chosen
            reasons = (_MEASURED,) if measured else step.refusals or (_NO_OTHER[kind],)
            for reason in reasons:
                lines += wrapped(reason, indent=4)
    return "\n".join(lines)


def _levels(levels: tuple[Level, ...]) -> TextTable:
    rows = table("level", "applied", "refused", "steps", "MB unique", "MB workspace")
    for level in levels:
        rows.add_row(
            TITLES[level.name],
            str(sum(level.applied.values())),
            str(len(level.refused)),
            _change(level, "steps", str),
            _change(level, "unique_bytes", in_millions),
            _change(level, "workspace_bytes", in_millions),
        )
    return rows


def _passes(levels: tuple[Level, ...]) -> str:
    """The passes of each level in their order: what each changed and how often, and those without effect."""
    lines = ["passes, with what each changed and how often:"]
    for level in levels:
        applied = ", ".join(filter(None, (what_changed(name, done) for name, done in level.passes.items())))
        idle = ", ".join(name for name, done in level.passes.items() if not done)
        if level.passes:
            lines += wrapped(f"{TITLES[level.name].strip()}: {applied or 'nothing'}", indent=2)
        if idle:
            lines += wrapped(f"without effect: {idle}", indent=4)
    return "\n".join(lines)


def _change(level: Level, figure: str, form: Callable[[int], str]) -> str:
    """Before and after, or one of them where nothing changed or only one is known."""
    known = [form(amounts[figure]) for amounts in (level.before, level.after) if figure in amounts]
    return " -> ".join(dict.fromkeys(known))


def _grouped_refusals(explanation: Explanation) -> str:
    """For each level the groups of refusals that concern most bytes."""
    outside = {reason for s in explanation.steps if s.kind == "onnxruntime" for reason in s.refusals}
    lines: list[str] = []
    hidden = 0
    for level in explanation.levels:
        refused = [r for r in level.refused if level.name != "operators" or r.reason not in outside]
        groups = group(refused)
        hidden += len(groups[_GROUPS_SHOWN:])
        shown = [line for g in groups[:_GROUPS_SHOWN] for line in wrapped(g.sentence, indent=4)]
        lines += [f"  {TITLES[level.name].strip()}:", *shown] if shown else []
    if not lines:
        return ""
    if hidden:
        lines.append(f"  and {_count(hidden, 'further reason')}: full_text(), or --all, lists every refusal")
    return "\n".join(["refused, most bytes first:", *lines])


def _every_refusal(explanation: Explanation) -> str:
    lines: list[str] = []
    for level in explanation.levels:
        lines += [f"  {TITLES[level.name].strip()}:"] if level.refused else []
        for refusal in level.refused:
            lines += wrapped(refusal_sentence(refusal, 0, refusal.size_bytes), indent=4)
    return "\n".join(["refused, most bytes first:", *lines]) if lines else ""


def _origin(explanation: Explanation) -> str:
    """When the program was compiled."""
    if not explanation.from_cache:
        return "compiled in"
    if not explanation.compiled_at:
        return "loaded from the cache; an earlier process compiled it in"
    return f"loaded from the cache; compiled by an earlier process on {explanation.compiled_at}, in"


def _closing(explanation: Explanation) -> list[str]:
    longest = sorted(explanation.compile_seconds.items(), key=lambda item: -item[1])
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in longest if seconds >= 0.005)
    total_s = sum(explanation.compile_seconds.values())
    symbolic = f"symbolic:  {', '.join(explanation.symbols)}; figures hold at {EXAMPLE_SIZE} for each"
    flops, special = in_millions(explanation.flops), in_millions(explanation.special_functions)
    return [
        f"computes:  {flops} Mflop, {special} M special functions",
        *([symbolic] if explanation.symbols else []),
        f"workspace: {in_millions(explanation.workspace_bytes)} MB",
        *wrapped(f"{_origin(explanation)} {total_s:.2f} s: {stages}"),
    ]
