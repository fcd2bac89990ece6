"""Random graphs beside eager PyTorch: python -m benchmarks.random_graphs --count 500 --check.

--family images compares networks over images, most of them in inference; --family aliases programs with
views, changes in place and state; --recipe device kernels of a device, which run in emulation.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.random_graphs import aliases, graphs, images
from benchmarks.random_graphs.graphs import Graph
from benchmarks.random_graphs.images import ImageGraph

DRAW: dict[str, Callable[[int], Any]] = {"loops": graphs.draw, "images": images.draw, "aliases": aliases.draw}
RECIPES = ("standard", "device")
BAD = ("wrong", "foreign exception", "crash", "timeout", "no oracle")
QUICK = 12
LIMIT_S = 240.0
# Cancellation between functions of order one may lose some digits, not more.
_EXACT = 1e-9
_OVER_EAGER = 30.0
_SHORT = 1e-5


def observed(run: Any, graph: Graph | ImageGraph, dtype: torch.dtype) -> list[torch.Tensor]:
    """Results of a graph; for training, gradients of its inputs for fixed cotangents, too."""
    if graph.mode != "training":
        with torch.no_grad():
            return [r.detach() for r in run(*(x.to(dtype) for x in graph.inputs()))]
    leaves = [x.to(dtype).requires_grad_() for x in graph.inputs()]
    results = run(*leaves)
    generator = torch.Generator().manual_seed(graph.seed + 1)
    cotangents = [torch.randn(r.shape, generator=generator).to(dtype) for r in results]
    wanted = [(r, c) for r, c in zip(results, cotangents, strict=True) if r.requires_grad]
    gradients = torch.autograd.grad(
        [r for r, _ in wanted], leaves, [c for _, c in wanted], allow_unused=True, materialize_grads=True
    )
    return [r.detach() for r in (*results, *gradients)]


def difference(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> str | None:
    """How a tensor is wrong; None if it is right."""
    if ours.shape != eager.shape or ours.dtype != eager.dtype:
        return f"{ours.dtype}{list(ours.shape)} instead of {eager.dtype}{list(eager.shape)}"
    if not torch.equal(ours.isfinite(), eager.isfinite()):
        return "values that are no numbers are in other places"
    scale = float(exact.nan_to_num().norm()) + 1e-30
    error, allowed = (float((x.double() - exact).nan_to_num().norm()) / scale for x in (ours, eager))
    short = eager.dtype != torch.float64
    limit = max(_SHORT, _OVER_EAGER * allowed) if short else _EXACT
    if error <= limit * max(1.0, math.sqrt(ours.numel()) / scale):
        return None
    return f"{error:.1e} from float64, eager {allowed:.1e}"


def compiled_with(recipe: str, graph: Graph | ImageGraph) -> Any:
    """The module of a graph; kernels of a device run in emulation."""
    import daceml
    from daceml.transformations.standard import device_recipe

    options: dict[str, Any] = {"recipe": device_recipe()} if recipe == "device" else {}
    if graph.mode != "training":
        options |= {"backward": False, "freeze": graph.mode == "frozen"}
    return daceml.compile(graph.module(), dynamic=graph.open_batch, **options)


def verdict_of(number: int, recipe: str = "standard", family: str = "loops") -> list[str]:
    """Compile and compare one graph."""
    from daceml.errors import BuildError, DacemlError

    if family == "aliases":
        return aliases.verdict_of(number)
    graph = DRAW[family](number)
    module = graph.module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exact = observed(graph.module().double(), graph, torch.float64)
            eager = exact if graph.dtype == torch.float64 else observed(module, graph, graph.dtype)
        except Exception as error:
            return ["no oracle", str(error).partition("\n")[0][:200]]
        try:
            compiled = compiled_with(recipe, graph)
            found = observed(compiled, graph, graph.dtype)
        except BuildError as error:
            return ["foreign exception", f"{error.code}: {error.what}; {error.why}"[:300]]
        except DacemlError as error:
            return ["refused", f"{error.code}: {error.what}; {error.why}".partition("\n")[0]]
        except Exception as error:
            return ["foreign exception", f"{type(error).__name__}: {error}"[:300]]
    if not compiled.session.variants:
        return ["eager", "the graph is not compiled"]
    results = len(graph.results)
    for place, tensors in enumerate(zip(found, eager, exact, strict=True)):
        problem = difference(*tensors)
        if problem is not None:
            what = f"result {place}" if place < results else f"gradient {place - results}"
            return ["wrong", f"{what}: {problem}"]
    return ["equal", ""]


def case_of(recipe: str, family: str) -> Callable[[int, Tell], None]:
    """What compares one graph, in a process that may crash."""

    def case(number: int, tell: Tell) -> None:
        tell({"verdict": verdict_of(number, recipe, family)})

    return case


def row_of(outcome: Outcome, family: str) -> dict[str, Any]:
    """What was seen of a graph."""
    verdict, reason = outcome.told.get("verdict", ("", ""))
    if not verdict:
        verdict, reason = ("timeout" if outcome.end == "timeout" else "crash"), outcome.end
    use = str(DRAW[family](outcome.case))
    return {"draw": outcome.case, "use": use, "verdict": verdict, "reason": reason}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Compare compiled random graphs, and their gradients, with eager PyTorch.")
    parser.add_argument("--count", type=int, default=500, help="how many graphs (500)")
    parser.add_argument("--seed", type=int, default=0, metavar="FIRST", help="number of the first graph (0)")
    parser.add_argument("--draw", type=int, metavar="NUMBER", help="only this graph, in this process")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument(
        "--recipe", choices=RECIPES, default=RECIPES[0], help="device: kernels of a device, in emulation"
    )
    parser.add_argument(
        "--family", choices=tuple(DRAW), default="loops", help="images: networks; aliases: changes in place"
    )
    options = parser.parse_args(arguments)
    if options.draw is not None:
        print(DRAW[options.family](options.draw))
        verdict, reason = verdict_of(options.draw, options.recipe, options.family)
        print(verdict, reason)
        return int(verdict in BAD)
    numbers = range(options.seed, options.seed + (QUICK if options.quick else options.count))
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    case = case_of(options.recipe, options.family)
    for outcome in run_cases(case, numbers, processes=options.jobs, limit_s=LIMIT_S):
        rows.append(row_of(outcome, options.family))
        if rows[-1]["verdict"] != "equal":
            latest = rows[-1]
            print(
                f"{latest['verdict']}: --family {options.family} --draw {latest['draw']}: {latest['use']}: "
                f"{latest['reason']}",
                flush=True,
            )
    verdicts = Counter(row["verdict"] for row in rows)
    print(f"{len(rows)} graphs in {time.perf_counter() - started:.0f} s:", dict(verdicts))
    bars = [Bar(name=f"random graphs: {bad}", figure=verdicts[bad], limit=0) for bad in BAD]
    return command.finish("random_graphs", options, sorted(rows, key=lambda row: row["draw"]), bars)


if __name__ == "__main__":
    sys.exit(main())
