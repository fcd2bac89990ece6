"""Variants on devices that are not here: predicted from the model's operations, never measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from daceml.errors import DacemlError, StepPredictionError
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
) -> Iterator[Row]:
    """Rows of other devices: eager and with fused loops, launched one by one and as a CUDA graph, alone and
    data-parallel.

    A step of training has no optimizer, as what is explored here.

    Args:
        ranks: numbers of devices besides one.
        prices: device -> what an hour of it costs.
        precisions: element types besides that of the model, as autocast uses them.
    """
    from daceml.prediction.capture.module import capture_step
    from daceml.prediction.fused_step import fused
    from daceml.prediction.host_cost import HostCost
    from daceml.prediction.predict_step import predict_step

    if not devices:
        return
    for precision in ("", *precisions):
        kind: Precision = _PRECISIONS.get(precision, "fp32")
        try:
            if precision not in _PRECISIONS:
                raise StepPredictionError(
                    f"{precision} is no precision of autocast", fix="take bfloat16 or float16"
                )
            step = capture_step(model, args, kwargs, train=training, optimizer=None, precision=kind)
        except DacemlError as error:
            yield from (
                Row(
                    variant=Variant(device=one, precision=precision),
                    outcome="refused",
                    why=error.why or error.what,
                )
                for one in devices
            )
            continue
        steps: dict[bool, ModelStep] = {False: step, True: fused(step)}
        for device, joined, graphed, count in product(devices, steps, (False, True), (1, *ranks)):
            of = steps[joined]
            variant = Variant(device=device, fused=joined, graphed=graphed, ranks=count, precision=precision)
            try:
                found = predict_step(
                    of, device=device, devices=count, train=training, optimizer=None, precision=kind,
                    host=HostCost(graphed=graphed),
                )  # fmt: skip
            except DacemlError as error:
                yield Row(variant=variant, outcome="refused", why=error.why or error.what)
                continue
            price = prices.get(device)
            row = Row(
                variant=variant,
                outcome="predicted",
                predicted_ms=found.step_us / 1e3,
                low_ms=found.low_us / 1e3,
                high_ms=found.high_us / 1e3,
                measured_share=0.0,
                kernels=len(of.operations),
                memory_bytes=None if found.memory is None else round(found.memory.total),
            )
            yield row if price is None else replace(row, usd_per_million=count * price.usd(found.step_us))
