"""`docs/conformance.md`: what becomes of the standard's cases, operator by operator. The same rows, the same
page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.conformance.execution import NEARER, PEER, VERDICTS, reason_group
from benchmarks.conformance.journal import Row

_LONGEST_REASON = 160
_FORMS = (("native", "constant"), ("native", "runtime"), ("any", "constant"), ("any", "runtime"))

_HEADER = """\
# Conformance

What becomes of the ONNX standard's own backend tests, {cases} cases of `onnx` {onnx}. Written by
`python -m benchmarks.conformance`; a figure here is a case that was compiled, run, and compared with the
standard's results under the standard's tolerances.

- **native**: every node becomes loops of DaCe or a view. **any**: nodes may also call ATen, or ONNX Runtime.
- **constant**: inputs that say what to do (shapes, axes, starts, pads, bounds) are initializers, as they are
  in networks. **runtime**: all inputs are tensors of the call.
- Natively, the shape of a result has to follow from the shapes of its operands. Where a value decides it
  (sizes, axes that vanish, how many elements are chosen), a case is refused in runtime mode; **any** leaves
  it to ONNX Runtime and compares the shape with the declared one.
- *Expanded* cases are second forms of others, with the operator written as a function, and counted apart.
- Results of random operators are compared by shape, type, mean and deviation. float16 and bfloat16 may differ
  by two units in the last place, as the standard's runner has it for bfloat16.
- *Nearer than the expectation*: not the standard's stored result, which carries a rounding error that the
  case does not allow for, but, under the same tolerance, that of the standard's reference in float64, and in
  no element farther from it than the stored one. They are listed below.
- *As onnxruntime*: not the standard's result, and the very one that ONNX Runtime gives for the whole model.
"""


def page(rows: Iterable[Row], *, onnx_version: str) -> str:
    """The page in Markdown, for rows of one kind in every form."""
    rows = sorted(rows, key=lambda r: (r["operator"], r["case"], r["implementation"], r["mode"]))
    cases = len({row["case"] for row in rows})
    lines = [
        _HEADER.format(cases=cases, onnx=onnx_version),
        *_totals(rows),
        "",
        *_nearer(rows),
        *_operators(rows),
        "",
    ]
    return "\n".join(lines)


def _totals(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Totals",
        "",
        f"| form | cases | {' | '.join(VERDICTS)} |",
        "|---|" + "--:|" * (len(VERDICTS) + 1),
    ]
    for expanded in (False, True):
        for implementation, mode in (*_FORMS, ("onnxruntime", "runtime")):
            form = (implementation, mode, expanded)
            found = [r for r in rows if (r["implementation"], r["mode"], r["expanded"]) == form]
            counts = Counter(row["verdict"] for row in found)
            name = implementation if implementation == "onnxruntime" else f"{implementation}, {mode}"
            numbers = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
            lines.append(f"| {name}{', expanded' if expanded else ''} | {len(found)} | {numbers} |")
    note = "`onnxruntime` is ONNX Runtime alone, on the whole model; it refuses opsets newer than it knows."
    return [*lines, "", note]


def _nearer(rows: Sequence[Row]) -> list[str]:
    """Every case that is told to be nearer, by name."""
    forms: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        if row["verdict"] == NEARER:
            forms[row["case"], row["reason"]].append(f"{row['implementation']} {row['mode']}")
    if not forms:
        return []
    lines = [f"- `{case}` ({', '.join(names)}): {reason}" for (case, reason), names in forms.items()]
    return ["## Nearer than the expectation", "", *lines, ""]


def _operators(rows: Sequence[Row]) -> list[str]:
    """One line an operator; expanded cases are left out."""
    by_operator: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not row["expanded"]:
            by_operator[row["operator"]].append(row)
    titles = [f"{implementation}, {mode}" for implementation, mode in _FORMS]
    lines = [
        "## Operators",
        "",
        "Distinct cases that pass in each form, and the commonest reason for refusals in constant mode.",
        "",
        f"| operator | cases | {' | '.join(titles)} | native refuses | all refuse |",
        "|---|" + "--:|" * 5 + "---|---|",
    ]
    for operator, found in sorted(by_operator.items()):
        passed = [
            sum(r["verdict"] == "passed" and (r["implementation"], r["mode"]) == form for r in found)
            for form in _FORMS
        ]
        cells = [
            operator,
            str(len({r["case"] for r in found})),
            *map(str, passed),
            *(_reasons(found, implementation) for implementation in ("native", "any")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _reasons(rows: Sequence[Row], implementation: str) -> str:
    """The most frequent reason, and how many others there are; then what is worse than a refusal."""
    found = [r for r in rows if (r["implementation"], r["mode"]) == (implementation, "constant")]
    refused = Counter(reason_group(r["reason"]) for r in found if r["verdict"] == "refused")
    bad = Counter(r["verdict"] for r in found if r["verdict"] in (NEARER, PEER, "wrong", "crashed"))
    parts = [f"**{count} {verdict}**" for verdict, count in sorted(bad.items())]
    if refused:
        reason, count = min(refused.items(), key=lambda item: (-item[1], item[0]))
        others = sum(refused.values()) - count
        parts.append(f"{count}: {_cell(reason)}" + (f" ({others} for other reasons)" if others else ""))
    return "; ".join(parts)


def _cell(text: str) -> str:
    text = " ".join(text.replace("|", "\\|").split())
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"
