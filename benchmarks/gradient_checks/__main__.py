"""Gradients of random uses of torch functions: python -m benchmarks.gradient_checks --count 1000 --check.

Uses are compiled several to a program, in processes that may crash. The gradients of a compiled use have to
be those of eager autograd, and where it is smooth those of finite differences of the compiled function. A use
that runs eagerly, as its log says, is counted apart.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import torch

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.gradient_checks.compare import difference
from benchmarks.gradient_checks.draws import ROWS, Draw, draw, load_rows
from benchmarks.gradient_checks.programs import finite_difference_problem, module_of, observe

BAD = ("wrong", "foreign exception", "crash", "timeout")
GROUP = 12
QUICK = 7  # of so many functions one, each once
LIMIT_S = 400.0


class _RunsEagerlyError(Exception):
    """The module was not compiled; the message is what the log says."""


class _Said(logging.Handler):
    """Within it, what daceml logs as a warning is kept, not shown."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(" ".join(record.getMessage().split()))

    def __enter__(self) -> Self:
        logging.getLogger("daceml").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("daceml").removeHandler(self)


def group_case(numbers: Sequence[int], tell: Tell) -> None:
    """Compile and check the uses of these numbers; tells number -> [verdict, reason]."""
    known: list[int] = []
    for number in numbers:
        use = draw(number)
        try:
            observe(module_of([use]), [use], [number])
        except Exception as error:
            tell({str(number): ["no oracle", f"eager refuses: {error}".partition("\n")[0][:200]]})
        else:
            known.append(number)
    _check(known, tell)


def _check(numbers: Sequence[int], tell: Tell) -> None:
    """All at once; where some use of them is refused or runs eagerly, each half."""
    if len(numbers) < 2:
        for number in numbers:
            tell({"at": number})
            tell({str(number): _alone(number)})
        return
    try:
        verdicts = verdicts_of(numbers)
    except Exception:  # _alone says which it is
        middle = len(numbers) // 2
        _check(numbers[:middle], tell)
        _check(numbers[middle:], tell)
    else:
        tell({str(number): verdict for number, verdict in zip(numbers, verdicts, strict=True)})


def verdicts_of(numbers: Sequence[int]) -> list[list[str]]:
    """Of uses that are compiled as one program."""
    import daceml

    uses = [draw(number) for number in numbers]
    module = module_of([use.as_formula() for use in uses])
    compiled: Any = daceml.compile(module_of(uses))
    with warnings.catch_warnings(), _Said() as said:
        warnings.simplefilter("ignore")  # torch's own, of sizes that it broadcasts or of empty results
        eager = observe(module, uses, numbers)
        exact = (
            observe(module, uses, numbers, torch.float64)
            if any(u.dtype != "float64" for u in uses)
            else eager
        )
        found = observe(compiled, uses, numbers)
        if not compiled.session.variants:
            raise _RunsEagerlyError(" ".join(said.lines)[:300])
        verdicts: list[list[str]] = []
        for place in range(len(uses)):
            problem = difference(found[place], eager[place], exact[place])
            problem = problem or finite_difference_problem(compiled, uses, numbers, place)
            verdicts.append(["wrong", problem] if problem else ["equal", ""])
    return verdicts


def _alone(number: int) -> list[str]:
    from daceml.errors import BuildError, DacemlError

    try:
        return verdicts_of([number])[0]
    except _RunsEagerlyError as error:
        return ["eager", str(error)]
    except BuildError as error:  # no refusal: generated code that does not compile
        return ["foreign exception", f"{error.code}: {error.what}; {error.why}"[:300]]
    except DacemlError as error:
        return ["refused", f"{error.code}: {error.what}; {error.why}".partition("\n")[0]]
    except Exception as error:
        return ["foreign exception", f"{type(error).__name__}: {error}"[:300]]


def rows_of(outcome: Outcome, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each use of a group."""
    found: list[dict[str, Any]] = []
    for number in numbers:
        verdict, reason = outcome.told.get(str(number), ("", ""))
        if not verdict:
            verdict = "timeout" if outcome.end == "timeout" else "crash"
            reason = f"{outcome.end} at {outcome.told.get('at', 'the whole group')}"
        use: Draw = draw(number)
        found.append(
            {
                "draw": number,
                "function": use.function,
                "use": use.describe(),
                "verdict": verdict,
                "reason": reason,
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Compare gradients of random uses of torch functions with eager autograd.")
    parser.add_argument("--count", type=int, default=1000, help="how many uses (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="FIRST", help="number of the first use (0)")
    parser.add_argument("--draw", type=int, metavar="NUMBER", help="only this use, in this process")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args(arguments)
    load_rows()
    if options.draw is not None:
        return _one(options.draw)
    whole = range(options.seed, options.seed + (len(ROWS) if options.quick else options.count))
    numbers = list(whole[::QUICK] if options.quick else whole)
    groups = [numbers[i : i + GROUP] for i in range(0, len(numbers), GROUP)]
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    work = lambda case, tell: group_case(groups[case], tell)  # noqa: E731
    for outcome in run_cases(work, range(len(groups)), processes=options.jobs, limit_s=LIMIT_S):
        latest = rows_of(outcome, groups[outcome.case])
        rows += latest
        for row in latest:
            if row["verdict"] != "equal":
                print(f"{row['verdict']}: --draw {row['draw']}: {row['use']}: {row['reason']}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{len(rows)} of {len(numbers)}", end="", file=sys.stderr)
    seconds = time.perf_counter() - started
    verdicts = Counter(row["verdict"] for row in rows)
    print(f"{len(rows)} uses of {len(ROWS)} functions in {seconds:.0f} s:", dict(verdicts))
    eager = Counter(row["function"] for row in rows if row["verdict"] == "eager")
    print("run eagerly:", ", ".join(f"{name} {count}" for name, count in sorted(eager.items())) or "none")
    bars = [Bar(name=f"gradients: {bad}", figure=verdicts[bad], limit=0) for bad in BAD]
    return command.finish("gradient_checks", options, sorted(rows, key=lambda row: row["draw"]), bars)


def _one(number: int) -> int:
    import daceml

    use = draw(number)
    print(use.describe())
    for title, module in (("eager", module_of([use])), ("daceml", daceml.compile(module_of([use])))):
        seen = observe(module, [use], [number])[0]
        print(f"{title}: results {seen.results}\n{title}: gradients {seen.gradients}")
    verdict, reason = _alone(number)
    print(verdict, reason)
    return int(verdict in BAD)


if __name__ == "__main__":
    sys.exit(main())
