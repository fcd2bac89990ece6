"""Gradients of the operators of the ONNX standard, at the standard's own cases.

python -m benchmarks.standard_gradients --check. Every case whose results depend on numbers is compiled in
float64 together with its gradients, which are compared with central differences of its results.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.conformance.cases import Case, load
from benchmarks.conformance.promotion import promoted

BAD = ("wrong", "crash", "timeout", "foreign exception")
QUICK = 12
LIMIT_S = 120.0
# A difference of two of their numbers has hardly a digit
SHORT = ("bfloat16", "float16")


def verdict_of(case: Case) -> tuple[str, str]:
    """Differentiate and compare one case.

    Returns:
        verdict and reason: "right", "refused", "no derivative" (its results do not depend on numbers), "not
        smooth" (no place was found where differences agree with each other), or one of `BAD`.
    """
    from benchmarks.standard_gradients.differences import first_difference
    from benchmarks.standard_gradients.program import differentiated, widened
    from daceml.errors import BuildError, DacemlError

    wide = widened(promoted(case) or case)
    inputs = wide.data[0][0]
    if not all(isinstance(value, np.ndarray) for value in inputs):
        return "refused", "its inputs are no tensors"
    if any(value.dtype.name in SHORT for value in inputs):
        return "refused", "too short a type for differences"
    try:
        compiled = differentiated(wide)
        if compiled is None:
            return "no derivative", ""
        if any(zeros.dtype.name in SHORT for zeros in compiled.zeros):
            return "refused", "too short a type for differences"
        problem = first_difference(compiled, inputs)
    except BuildError as error:
        return "foreign exception", f"{error.code}: {error.what}; {error.why}"[:300]
    except DacemlError as error:
        return "refused", f"{error.code}: {error.what}; {error.why}".partition("\n")[0][:300]
    except Exception as error:
        return "foreign exception", f"{type(error).__name__}: {error}"[:300]
    if problem is None:
        return "not smooth", ""
    return ("wrong", problem) if problem else ("right", "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Compare gradients of the standard's operators with differences.")
    parser.add_argument("--cases", default="", metavar="TEXT", help="those whose name has this text")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args(arguments)
    cases = [
        case
        for case in load("node")
        if not case.expanded and not case.statistical and options.cases in case.name
    ]
    cases = cases[:: len(cases) // QUICK or 1] if options.quick else cases

    def work(number: int, tell: Tell) -> None:
        tell({"verdict": verdict_of(cases[number])})

    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for outcome in run_cases(work, range(len(cases)), processes=options.jobs, limit_s=LIMIT_S):
        rows.append(_row(cases[outcome.case], outcome))
        if rows[-1]["verdict"] in BAD:
            print(f"{rows[-1]['verdict']}: {rows[-1]['case']}: {rows[-1]['reason']}", flush=True)
    rows.sort(key=lambda row: row["case"])
    verdicts = Counter(row["verdict"] for row in rows)
    print(f"{len(rows)} cases in {time.perf_counter() - started:.0f} s:", dict(verdicts))
    _print_operators(rows)
    bars = [Bar(name=f"gradients: {bad}", figure=verdicts[bad], limit=0) for bad in BAD]
    return command.finish("standard_gradients", options, rows, bars)


def _row(case: Case, outcome: Outcome) -> dict[str, Any]:
    verdict, reason = outcome.told.get("verdict", ("", ""))
    if not verdict:
        verdict, reason = ("timeout" if outcome.end == "timeout" else "crash"), outcome.end
    return {"case": case.name, "operator": case.operator, "verdict": verdict, "reason": reason}


def _print_operators(rows: Sequence[dict[str, Any]]) -> None:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        found[row["operator"]][row["verdict"]] += 1
    right = sorted(operator for operator, verdicts in found.items() if verdicts["right"])
    print(f"{len(right)} operators with a gradient that is right: {', '.join(right)}")
    for operator, verdicts in sorted(found.items()):
        if verdicts["refused"] or verdicts["not smooth"]:
            reasons = {row["reason"] for row in rows if row["operator"] == operator and row["reason"]}
            print(f"{operator}: {dict(verdicts)}; {min(reasons, default='')}")


if __name__ == "__main__":
    sys.exit(main())
