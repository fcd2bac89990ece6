"""What each pass of the standard recipe brings: kernels, bytes and time where it ends after that pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from benchmarks import interleave
from benchmarks.counts import Counts, counted
from benchmarks.interleave import Step, Variant
from benchmarks.models.spec import ModelSpec
from benchmarks.peers import Mode, build_step
from benchmarks.programs import optimised
from daceml.interval import as_json
from daceml.transformations.recipe import Recipe
from daceml.transformations.standard import standard_recipe, unoptimised_recipe

NOTHING = "no pass"


def prefixes(mode: Mode) -> dict[str, Recipe]:
    """Name of a pass -> the standard recipe up to it; each ends with what every network needs to run."""
    needed = unoptimised_recipe()
    steps = [step for step in standard_recipe().when(mode) if step not in needed.steps]
    recipes = {step.name: Recipe(*steps[: count + 1]) + needed for count, step in enumerate(steps)}
    return {NOTHING: needed, **recipes}


def build_cut_step(
    find: Callable[[], ModelSpec], mode: Mode, after: str, *, train_mode: bool = False
) -> Step:
    """A step of a network that is compiled with the passes up to one."""
    return build_step(find, mode, "daceml", train_mode=train_mode, recipe=prefixes(mode)[after])


def counts(find: Callable[[], ModelSpec], mode: Mode, *, train_mode: bool = False) -> list[dict[str, Any]]:
    """One row for each pass that changes the generated code, the first for none, and where nothing did.

    Returns:
        `after`, `kernels`, `bytes_moved`, `conflict_edges`, `generated_lines`; `idle`: passes behind it that
        change nothing.
    """
    rows: list[dict[str, Any]] = []
    before = ""
    for name, recipe in prefixes(mode).items():
        networks = optimised(find(), mode, train_mode=train_mode, recipe=recipe)
        parts, texts = zip(*map(counted, networks.values()), strict=True)
        text = "\n".join(texts)
        if rows and text == before:
            rows[-1]["idle"].append(name)
            continue
        amounts = {field.name: sum(getattr(part, field.name) for part in parts) for field in fields(Counts)}
        rows.append({"after": name, **amounts, "idle": []})
        before = text
    return rows


def measure(
    find: Callable[[], ModelSpec],
    mode: Mode,
    *,
    rounds: int,
    train_mode: bool = False,
    limit_s: float = float("inf"),
) -> list[dict[str, Any]]:
    """The rows of `counts` with interleaved times: `duration_us`, and `gain`, the time before over it."""
    rows = counts(find, mode, train_mode=train_mode)
    names = [row["after"] for row in rows]
    build = partial(build_cut_step, find, mode, train_mode=train_mode)
    variants = [Variant(name=name, build=partial(build, name)) for name in names]
    seen = interleave.measure(variants, rounds=rounds, limit_s=limit_s)
    for before, row in zip((None, *names), rows, strict=False):
        row["measured"] = seen.measured
        row["duration_us"] = as_json(seen.duration_us(row["after"]))
        if before is not None:
            row["gain"] = as_json(seen.ratio(before, row["after"]))
    return rows


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A table for people, one line a pass; those that change nothing together."""
    width = max(len(row["after"]) for row in rows)
    idle = [name for row in rows for name in row["idle"]]
    table = [
        f"  {row['after']:<{width}} {row['kernels']:>5} kernels {row['bytes_moved'] / 1e6:>10.3f} MB"
        f" {row['duration_us']['median'] / 1e3:>9.3f} ms{_gain(row)}"
        for row in rows
    ]
    return [*table, f"  nothing changed by {', '.join(idle)}"] if idle else table


def _gain(row: dict[str, Any]) -> str:
    noisy = "" if row["measured"] else "  (not measured: too few quiet rounds)"
    if "gain" not in row:
        return noisy
    gain = row["gain"]
    return f"  {gain['median']:.2f} times [{gain['low']:.2f}, {gain['high']:.2f}]{noisy}"
