"""How fast models of other libraries run, compiled, next to their peers: interleaved rounds, ratios."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks import interleave
from benchmarks.bars import Bar
from benchmarks.interleave import Step, Variant
from benchmarks.models.spec import ModelSpec
from benchmarks.peers import Mode, prepare, ways_of
from benchmarks.rounds import Measurement
from benchmarks.speed import OURS, Comparison, mean_bar, slower_bar
from benchmarks.strangers.stranger import called
from benchmarks.strangers.timed_models import KEPT_APART, MODELS
from benchmarks.strangers.torchvision_operators import declare_torchvision

_NEEDED = ("eager", OURS)
_MEAN: dict[Mode, float] = {"inference": 1.10, "training": 1.15}
_WORST: dict[Mode, float] = {"inference": 0.90, "training": 0.95}
_BY_NAME = {model.name: model for model in MODELS}


class Positional(nn.Module):
    """A model whose arguments are given in order: runtimes and exporters take no others.

    Attributes:
        arguments: of each tensor, its name; `0`, … are positions already.
        constants: arguments that are no tensors.
    """

    def __init__(self, module: nn.Module, arguments: Sequence[str], constants: dict[str, Any]) -> None:
        super().__init__()
        self.module, self.arguments, self.constants = module, tuple(arguments), constants

    def forward(self, *tensors: torch.Tensor) -> Any:
        found = called(self.module, {**dict(zip(self.arguments, tensors, strict=True)), **self.constants})
        return tuple(found.values()) if isinstance(found, dict) else found


def spec_of(name: str) -> ModelSpec:
    """A timed model as networks of benchmarks are described."""
    declare_torchvision()
    stranger = _BY_NAME[name]

    def drawn(seed: int, batch: int) -> dict[str, Any]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return dict(stranger.inputs(batch))

    example = drawn(0, stranger.batches[0])
    constants = {name: value for name, value in example.items() if not isinstance(value, torch.Tensor)}
    arguments = [name for name in example if name not in constants]

    def inputs(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None) -> tuple[Any, ...]:
        del dtype
        found = drawn(generator.initial_seed(), batch or stranger.batches[0])
        return tuple(found[name] for name in arguments)

    return ModelSpec(
        name=name,
        build=lambda: Positional(stranger.make(), arguments, constants),
        inputs=inputs,
        depth=stranger.depth,
        source=name.partition(" ")[0],
    )


def times(name: str, mode: Mode, *, rounds: int, limit_s: float, peers: Sequence[str] | None) -> Comparison:
    """Rounds of one model in one mode.

    Args:
        peers: names of `benchmarks.peers.WAYS`; None takes all that apply.
    """
    find = partial(spec_of, name)
    ways = [way for way in ways_of(find(), mode) if way in _NEEDED or peers is None or way in peers]
    variants = [
        Variant(name=way, build=partial(_step, name, mode, way), optional=way not in _NEEDED) for way in ways
    ]
    try:
        measurement = interleave.measure(variants, rounds=rounds, limit_s=limit_s)
    except RuntimeError as error:
        why = str(error).strip().splitlines()[-1]
        measurement = Measurement(names=(OURS,), rounds=(), missing={OURS: why})
    return Comparison(case=f"{name}, {mode}", measurement=measurement)


def row_of(name: str, mode: Mode, found: Comparison) -> dict[str, Any]:
    """A comparison with every round, as result files keep it."""
    return {"model": name, "mode": mode, "times": found.measurement.to_data()}


def comparison(row: dict[str, Any]) -> Comparison:
    """What `row_of` wrote."""
    return Comparison(case=f"{row['model']}, {row['mode']}", measurement=Measurement.from_data(row["times"]))


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Over the best peer and over eager, for all models and for those that nothing was tuned on."""
    found: list[Bar] = []
    for mode in _MEAN:
        here = [row for row in rows if row["mode"] == mode]
        for what, chosen in (
            ("models of others", here),
            ("models kept apart", [row for row in here if row["model"] in KEPT_APART]),
        ):
            if not chosen:
                continue
            timed = [comparison(row) for row in chosen]
            found += [
                mean_bar(f"{what}, {mode}", timed, _MEAN[mode]),
                slower_bar(f"{what}, {mode}", timed, _WORST[mode]),
            ]
            if frozen := [c.frozen for c in timed if c.frozen is not None]:
                found.append(mean_bar(f"{what}, {mode}, weights frozen", frozen, _MEAN[mode]))
        if here:
            found.append(_eager_bar(mode, [comparison(row) for row in here]))
    return found


def _eager_bar(mode: Mode, timed: Sequence[Comparison]) -> Bar:
    """A bar on the slowest model over eager."""
    over = {
        c.case: c.measurement.ratio("eager", OURS).value
        for c in timed
        if {"eager", OURS} <= set(c.measurement.names)
    }
    slowest = min(over, key=lambda case: over[case], default=None)
    return Bar(
        name=f"models of others, {mode}, the slowest one's time over eager's",
        figure=None if slowest is None or len(over) < len(timed) else 1.0 / over[slowest],
        limit=1.0,
        note=f"{slowest}; {sum(value < 1.0 for value in over.values())} of {len(over)} are slower",
    )


def _step(name: str, mode: Mode, way: str) -> Step:
    return prepare(partial(spec_of, name), mode, way, cuts=True).step
