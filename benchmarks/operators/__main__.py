"""Random uses of operators, compared with onnxruntime: python -m benchmarks.operators --count 2000 --check.

Uses are compiled several to a program, in processes that may crash. A use has to be refused by an error of
daceml's, or to give the numbers of onnxruntime; where that has no kernel, those of ONNX's reference.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.operators.compare import difference
from benchmarks.operators.draws import ROWS, Array, Chance, Draw, draw, feeds_of, load_rows, model_of
from benchmarks.operators.oracles import NoOracleError, expected

GOOD = ("equal", "refused", "no oracle", "oracles differ")
BAD = ("wrong", "foreign exception", "crash", "timeout")
GROUP = 8
LIMIT_S = 180.0


def group_case(first: int, count: int, tell: Tell) -> None:
    """Compile and run the uses first, first + 1, …; tells number -> [verdict, reason]."""
    uses: dict[int, Draw] = {}
    wanted: dict[int, list[list[Array]]] = {}
    for number in range(first, first + count):
        use = draw(number)
        try:
            wanted[number] = expected(use)
        except NoOracleError as error:
            tell({str(number): ["no oracle", str(error)]})
        else:
            uses[number] = use
    try:
        found = run_uses(list(uses.values()), [wanted[n][0] for n in uses], first)
    except Exception:  # some use of the group is refused: one at a time says which
        for number, use in uses.items():
            tell({"at": number})
            tell({str(number): _alone(use, wanted[number], number)})
        return
    for (number, use), results in zip(uses.items(), found, strict=True):
        tell({str(number): _verdict(use, results, wanted[number])})


def run_uses(
    uses: Sequence[Draw], expected_results: Sequence[Sequence[Array]], seed: int
) -> list[list[Array]]:
    """The results of each use, all of one program; some inputs have strides of their own.

    Args:
        expected_results: their types are declared in the model.
    """
    import daceml

    model = daceml.ONNXModel(model_of(uses, expected_results))
    chance = Chance(seed + 1_000_000)
    feeds = {name: with_strides(array, chance) for name, array in feeds_of(uses).items()}
    results = model(**feeds)
    flat = [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]
    found: list[list[Array]] = []
    for use in uses:
        found.append(flat[: use.outputs])
        flat = flat[use.outputs :]
    return found


def with_strides(array: Array, chance: Chance) -> Array:
    """The same values, now and then in another order in memory or with gaps."""
    if array.ndim == 0 or not chance.one_in(3):
        return array
    if chance.one_in(2):
        order = chance.permutation(array.ndim)
        return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    wide[..., 1::2] = array
    return wide[..., 1::2]


def _alone(use: Draw, wanted: list[list[Array]], number: int) -> list[str]:
    from daceml.errors import BuildError, DacemlError

    try:
        results = run_uses([use], wanted[:1], number)[0]
    except BuildError as error:  # no refusal: generated code that does not compile
        return ["foreign exception", f"{error.code}: {error.what}; {error.why}"[:300]]
    except DacemlError as error:
        return ["refused", f"{error.code}: {error.what}; {error.why}".partition("\n")[0]]
    except Exception as error:
        return ["foreign exception", f"{type(error).__name__}: {error}"[:300]]
    return _verdict(use, results, wanted)


def _verdict(use: Draw, results: list[Array], wanted: list[list[Array]]) -> list[str]:
    """Equal to one of the oracles."""
    reasons = [difference(use, results, oracle) for oracle in wanted]
    if reasons[0] is None:
        return ["equal", ""]
    if any(reason is None for reason in reasons):
        return ["oracles differ", reasons[0]]
    return ["wrong", reasons[0]]


def rows_of(outcome: Outcome, count: int) -> list[dict[str, Any]]:
    """One row for each use of a group."""
    found: list[dict[str, Any]] = []
    for number in range(outcome.case, outcome.case + count):
        verdict, reason = outcome.told.get(str(number), ("", ""))
        if not verdict:
            verdict = "timeout" if outcome.end == "timeout" else "crash"
            reason = f"{outcome.end} at {outcome.told.get('at', 'the whole group')}"
        found.append({"draw": number, "use": draw(number).describe(), "verdict": verdict, "reason": reason})
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Compare random uses of ONNX operators with onnxruntime.")
    parser.add_argument("--count", type=int, default=2000, help="how many uses (2000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first use (0)")
    parser.add_argument("--draw", type=int, metavar="NUMBER", help="only this use, in this process")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args(arguments)
    load_rows()
    if options.draw is not None:
        return _one(options.draw)
    count = 200 if options.quick else options.count
    started = time.perf_counter()
    starts = range(options.first, options.first + count, GROUP)
    sizes = {first: min(GROUP, options.first + count - first) for first in starts}
    rows: list[dict[str, Any]] = []
    work = lambda first, tell: group_case(first, sizes[first], tell)  # noqa: E731
    for outcome in run_cases(work, list(starts), processes=options.jobs, limit_s=LIMIT_S):
        rows += rows_of(outcome, sizes[outcome.case])
        for row in rows[-sizes[outcome.case] :]:
            if row["verdict"] in BAD:
                print(f"{row['verdict']}: --draw {row['draw']}: {row['use']}: {row['reason']}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{len(rows)} of {count}", end="", file=sys.stderr)
    seconds = time.perf_counter() - started
    verdicts = Counter(row["verdict"] for row in rows)
    print(f"{len(rows)} uses of {len(ROWS)} operators in {seconds:.0f} s:", dict(verdicts))
    bars = [Bar(name=f"uses: {bad}", figure=verdicts[bad], limit=0) for bad in BAD]
    return command.finish("operators", options, sorted(rows, key=lambda row: row["draw"]), bars)


def _one(number: int) -> int:
    use = draw(number)
    print(use.describe())
    wanted = expected(use)
    results = run_uses([use], wanted[:1], number)[0]
    for i, result in enumerate(results):
        print(f"result {i}\n{result}\noracle\n{wanted[0][i]}")
    verdict, reason = _verdict(use, results, wanted)
    print(verdict, reason)
    return int(verdict in BAD)


if __name__ == "__main__":
    sys.exit(main())
