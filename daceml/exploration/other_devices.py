"""Variants on devices that are not here: predicted from the model's operations, never measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from daceml.errors import DacemlError, StepPredictionError, first_line
from daceml.exploration.results import Row
from daceml.prediction.capture.module import capture_step
from daceml.prediction.model_steps.fused_step import fused
from daceml.prediction.model_steps.host_cost import HostCost
from daceml.prediction.model_steps.predict_step import predict_step
from daceml.tuning.call_batch import samples, with_samples
from daceml.tuning.call_precision import in_precision
from daceml.tuning.variant import Variant

if TYPE_CHECKING:
    from torch import nn

    from daceml.exploration.exploration_request import Question
    from daceml.prediction.model_step import ModelStep, Precision

_PRECISIONS: Mapping[str, Precision] = {"": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def elsewhere(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, training: bool, asked: Question
) -> Iterator[Row]:
    """Rows of other devices: eager and with fused loops, launched one by one and as a CUDA graph, alone and
    data-parallel, in each precision and with each number of samples.

    A step of training has no optimizer, as what is explored here. Each rank has as many samples as the call;
    times are for those of one call.
    """
    if not asked.devices:
        return
    for precision, count in product(("", *asked.precisions), (None, *asked.batches)):
        variant = Variant(precision=precision, samples=count)
        try:
            step, calls = _captured(model, args, kwargs, variant, training=training)
        except Exception as error:  # whatever the model's own code raises with such inputs
            why = _why(error)
            yield from (
                Row(variant=replace(variant, device=name), outcome="refused", why=why)
                for name in asked.devices
            )
            continue
        steps: dict[bool, ModelStep] = {False: step, True: fused(step)}
        for device, joined, graphed, sharing in product(
            asked.devices, steps, (False, True), (1, *asked.ranks)
        ):
            of = steps[joined]
            there = replace(variant, device=device, fused=joined, graphed=graphed, ranks=sharing)
            try:
                found = predict_step(
                    of, device=device, devices=sharing, train=training, optimizer=None,
                    precision=_PRECISIONS[precision], host=HostCost(graphed=graphed),
                )  # fmt: skip
            except DacemlError as error:
                yield Row(variant=there, outcome="refused", why=_why(error))
                continue
            if found.memory is not None and found.memory.fits is False:
                yield Row(variant=there, outcome="refused", why="; ".join(found.flags))
                continue
            price, shared = asked.prices.get(asked.devices[device]), calls / sharing
            step_us = found.step_us * shared
            row = Row(
                variant=there,
                outcome="predicted",
                predicted_ms=step_us / 1e3,
                low_ms=found.low_us * shared / 1e3,
                high_ms=found.high_us * shared / 1e3,
                measured_share=0.0,
                kernels=len(of.operations),
                memory_bytes=None if found.memory is None else round(found.memory.total),
            )
            yield row if price is None else replace(row, usd_per_million=sharing * price.usd(step_us))


def _captured(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], variant: Variant, *, training: bool
) -> tuple[ModelStep, float]:
    """The operations of a step, and how many such steps have as many samples as the call.

    Raises:
        StepPredictionError: there is no such precision there.
        Exception: whatever the model raises.
    """
    if variant.precision not in _PRECISIONS:
        raise StepPredictionError(
            f"{variant.precision} is no precision of these devices", fix="take bfloat16 or float16"
        )
    calls = 1.0
    if variant.samples is not None:
        calls = samples(args, kwargs) / variant.samples
        args, kwargs = pytree.tree_map(
            lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, (args, kwargs)
        )
        args, kwargs = with_samples(args, kwargs, variant.samples)
    # as here: all of it is of that type, and nothing is cast on the way
    model, args, kwargs = in_precision(model, args, kwargs, variant.precision)
    return capture_step(model, args, kwargs, train=training, optimizer=None), calls


def _why(error: Exception) -> str:
    return (error.why or error.what) if isinstance(error, DacemlError) else first_line(error)
