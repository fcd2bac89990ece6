"""Variants on devices that are not here: predicted from the model's operations, never measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from daceml.errors import DacemlError, StepPredictionError
from daceml.exploration.batches import samples, with_samples
from daceml.exploration.exploration import Row
from daceml.exploration.variant import Variant

if TYPE_CHECKING:
    from torch import nn

    from daceml.prediction.prices import Price
    from daceml.prediction.step import ModelStep, Precision

_PRECISIONS: Mapping[str, Precision] = {"": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def elsewhere(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    training: bool,
    devices: Sequence[str],
    ranks: Sequence[int],
    prices: Mapping[str, Price],
    precisions: Sequence[str] = (),
    batches: Sequence[int] = (),
) -> Iterator[Row]:
    """Rows of other devices: eager and with fused loops, launched one by one and as a CUDA graph, alone and
    data-parallel.

    A step of training has no optimizer, as what is explored here.

    Args:
        ranks: numbers of devices besides one.
        prices: device -> what an hour of it costs.
        precisions: element types besides that of the model, as autocast uses them.
        batches: numbers of samples of a call besides its own; times are for as many samples.
    """
    from daceml.prediction.capture.module import capture_step
    from daceml.prediction.fused_step import fused
    from daceml.prediction.host_cost import HostCost
    from daceml.prediction.predict_step import predict_step

    if not devices:
        return
    for precision, count in product(("", *precisions), (None, *batches)):
        kind: Precision = _PRECISIONS.get(precision, "fp32")
        variant = Variant(precision=precision, samples=count)
        try:
            if precision not in _PRECISIONS:
                raise StepPredictionError(
                    f"{precision} is no precision of autocast", fix="take bfloat16 or float16"
                )
            given = (args, kwargs) if count is None else with_samples(args, kwargs, count)
            calls = 1.0 if count is None else samples(args, kwargs) / count
            step = capture_step(model, *given, train=training, optimizer=None, precision=kind)
        except DacemlError as error:
            why = error.why or error.what
            yield from (Row(variant=replace(variant, device=d), outcome="refused", why=why) for d in devices)
            continue
        steps: dict[bool, ModelStep] = {False: step, True: fused(step)}
        for device, joined, graphed, sharing in product(devices, steps, (False, True), (1, *ranks)):
            of = steps[joined]
            there = replace(variant, device=device, fused=joined, graphed=graphed, ranks=sharing)
            try:
                found = predict_step(
                    of, device=device, devices=sharing, train=training, optimizer=None, precision=kind,
                    host=HostCost(graphed=graphed),
                )  # fmt: skip
            except DacemlError as error:
                yield Row(variant=there, outcome="refused", why=error.why or error.what)
                continue
            price = prices.get(device)
            step_us = found.step_us * calls
            row = Row(
                variant=there,
                outcome="predicted",
                predicted_ms=step_us / 1e3,
                low_ms=found.low_us * calls / 1e3,
                high_ms=found.high_us * calls / 1e3,
                measured_share=0.0,
                kernels=len(of.operations),
                memory_bytes=None if found.memory is None else round(found.memory.total),
            )
            yield row if price is None else replace(row, usd_per_million=sharing * price.usd(step_us))
