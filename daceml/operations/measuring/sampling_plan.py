"""A sampling plan: operators, and ranges that their sizes are drawn from; a file of TOML or JSON.

    seed = 0
    samples = 100                                # of each operation that does not say otherwise

    [[operation]]
    operator = "aten::addmm"                     # with an overload where there are several: aten::add.Tensor
    sizes = { m = [1, 1024], k = [1, 1024], n = [1, 1024] }          # whole numbers, both ends included
    operands = [["n"], ["m", "k"], ["k", "n"]]
    directions = ["forward", "backward"]

    [[operation]]
    operator = "aten::convolution"
    samples = 50
    spread = "log"                               # as many from 1 to 2 as from 512 to 1024
    sizes = { b = [1, 64], c = [1, 512], o = [1, 512], s = [7, 224] }
    choices = { stride = [1, 2], window = [1, 3] }
    dtypes = ["float32", "bfloat16"]
    operands = [["b", "c", "s", "s"], ["o", "c", "window", "window"], ["o"]]
    [operation.attributes]                       # under the names of the operator's schema
    stride = ["stride", "stride"]
    padding = [1, 1]
    dilation = [1, 1]
    transposed = false
    output_padding = [0, 0]
    groups = 1

Every name of `sizes` and `choices` is drawn once for each sample, and stands for its value in operands and
attributes.
Source: Geng et al., Tianshu, §5.3: sizes uniform in [1, 1024], 11,000 samples of each operation.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, get_args

import torch

from daceml.errors import MeasurementError, SamplingPlanError
from daceml.operations.database.records import Direction
from daceml.operations.measuring.calls import Call, Named, Tensor
from daceml.operations.measuring.campaign import Job
from daceml.plain_files import read_plain

_KEYS = {
    "operator",
    "samples",
    "sizes",
    "choices",
    "operands",
    "attributes",
    "dtypes",
    "directions",
    "spread",
}
_PLAN_KEYS = {"seed", "samples", "operation"}
_SAMPLES = 100
_MOST = 1_000_000


def read_plan(path: Path) -> tuple[Job, ...]:
    """The jobs of a plan, the same ones every time.

    Raises:
        SamplingPlanError: the file is no plan; the message names the operation and what is wrong with it.
    """
    try:
        text = read_plain(path).decode()
        plan = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise SamplingPlanError(
            f"{path} cannot be read", why=error.strerror or str(error), fix="correct the path"
        ) from error
    except (ValueError, RecursionError) as error:  # of JSON, TOML and UTF-8
        raise SamplingPlanError(
            f"{path} is neither TOML nor JSON", why=str(error), fix="correct the file"
        ) from error
    try:
        return tuple(sampled(plan))
    except SamplingPlanError as error:
        error.where = f"{path}, {error.where}" if error.where else str(path)
        raise


def sampled(plan: Any) -> Iterator[Job]:
    """The jobs of a plan that has been read.

    Raises:
        SamplingPlanError: as `read_plan`.
    """
    if not isinstance(plan, Mapping) or not isinstance(plan.get("operation"), list):
        raise SamplingPlanError(
            "a plan has no operations", why="there is no list `operation`", fix="write [[operation]]"
        )
    _check_keys(plan, _PLAN_KEYS, "the plan")
    seed, samples = _whole(plan, "seed", 0, "the plan"), _whole(plan, "samples", _SAMPLES, "the plan")
    for number, one in enumerate(plan["operation"], start=1):
        where = f"operation {number}"
        if not isinstance(one, Mapping):
            raise SamplingPlanError("an operation is a table", where=where, fix="write [[operation]]")
        # each operation has draws of its own: one that is added changes no other
        yield from _Drawn(one, where, Random(f"{seed}:{one.get('operator')}:{number}"), samples).jobs()


class _Drawn:
    """Samples of one operation of a plan."""

    def __init__(self, plan: Mapping[str, Any], where: str, random: Random, samples: int) -> None:
        self.plan, self.where, self.random = plan, f"{where} ({plan.get('operator', '?')})", random
        _check_keys(plan, _KEYS, self.where)
        self.samples = _whole(plan, "samples", samples, self.where)
        self.function = self.resolved()
        self.directions = self.words("directions", ["forward"], get_args(Direction))
        self.dtypes = self.words("dtypes", ["float32"], None)
        (self.spread,) = self.words("spread", "uniform", ("uniform", "log"))

    def jobs(self) -> Iterator[Job]:
        for _ in range(self.samples):
            values = self.values()
            call = self.call(values, self.random.choice(self.dtypes))
            for direction in self.directions:
                yield Job(call=call, direction=direction)

    def resolved(self) -> Any:
        name = self.plan.get("operator")
        if not isinstance(name, str):
            raise self.wrong("there is no `operator`", "name one, such as aten::mm")
        try:
            found = Call(operator=name, args=()).function()
        except MeasurementError as error:
            space, _, short = name.partition("::")
            packet = getattr(getattr(torch.ops, space), short, None) if short.isidentifier() else None
            names = ", ".join(f"{name}.{one}" for one in packet.overloads()) if packet is not None else ""
            raise self.wrong(error.why, f"name one of {names}" if names else error.fix) from error
        return found

    def values(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, bounds in self.table("sizes").items():
            if not _bounds(bounds):
                raise self.wrong(f"size {name} is {bounds!r}", "write [least, most], whole numbers from 1 on")
            found[name] = self.size(*bounds)
        for name, choices in self.table("choices").items():
            if not isinstance(choices, list) or not choices or name in found:
                raise self.wrong(f"choice {name} is {choices!r}", "write a list of values, under a new name")
            found[name] = self.random.choice(choices)
        return found

    def size(self, least: int, most: int) -> int:
        if self.spread == "uniform":
            return self.random.randint(least, most)
        drawn = least * (most / least) ** self.random.random()
        return min(most, max(least, round(drawn)))

    def call(self, values: Mapping[str, Any], dtype: str) -> Call:
        operands = self.plan.get("operands")
        if not isinstance(operands, list):
            raise self.wrong("there are no `operands`", 'write one list of sizes for each: [["m", "k"]]')
        tensors = iter([self.tensor(one, values, dtype) for one in operands])
        attributes = {name: self.put(one, values) for name, one in self.table("attributes").items()}
        args: list[Any] = []
        kwargs: list[tuple[str, Any]] = []
        for argument in self.function._schema.arguments:
            value = self.argument(argument, tensors, attributes)
            if argument.kwarg_only:
                kwargs += [] if value is None else [(argument.name, value)]
            else:
                args.append(value)
        if attributes:
            raise self.wrong(f"it has no {', '.join(attributes)}", f"its schema is {self.function._schema}")
        if any(True for _ in tensors):
            raise self.wrong("it has fewer operands", f"its schema is {self.function._schema}")
        return Call(operator=self.function.name(), args=tuple(args), kwargs=tuple(kwargs))

    def argument(self, argument: Any, tensors: Iterator[Tensor], attributes: dict[str, Any]) -> Any:
        kind = str(argument.type)
        if argument.name in attributes:
            return attributes.pop(argument.name)
        if kind in ("Tensor", "Optional[Tensor]"):
            found = next(tensors, None)
            if found is None and kind == "Tensor":
                raise self.wrong(f"operand {argument.name} is missing", "add its sizes to `operands`")
            return found
        if kind == "List[Tensor]":
            return tuple(tensors)
        if argument.has_default_value():
            value = argument.default_value
            return tuple(value) if isinstance(value, list) else value
        raise self.wrong(f"{argument.name} has no value", f"add it to `attributes`: it is of type {kind}")

    def tensor(self, sizes: Any, values: Mapping[str, Any], dtype: str) -> Tensor:
        low = high = None
        if isinstance(sizes, Mapping):  # { shape = [...], dtype = "int64", low = 0, high = 999 }
            dtype = sizes.get("dtype", dtype)
            low, high = (self.put(sizes.get(name), values) for name in ("low", "high"))
            sizes = sizes.get("shape")
        if not isinstance(getattr(torch, str(dtype), None), torch.dtype):
            raise self.wrong(f"{dtype!r} is no dtype of torch", "write float32, bfloat16, int64, …")
        shape = self.put(sizes, values)
        if not isinstance(shape, tuple) or not all(isinstance(one, int) and one >= 0 for one in shape):
            raise self.wrong(f"operand {sizes!r} is not a list of sizes", "use names of `sizes`, and numbers")
        strides = torch.empty(shape, device="meta").stride()
        return Tensor(shape=shape, strides=tuple(strides), dtype=dtype, low=low, high=high)

    def put(self, value: Any, values: Mapping[str, Any]) -> Any:
        """Values in the places of their names."""
        if isinstance(value, list):
            return tuple(self.put(one, values) for one in value)
        if isinstance(value, str):
            if value in values:
                return self.put(values[value], values)
            if isinstance(getattr(torch, value, None), torch.dtype):
                return Named(name=value)
        return value

    def table(self, name: str) -> Mapping[str, Any]:
        found = self.plan.get(name, {})
        if not isinstance(found, Mapping):
            raise self.wrong(f"`{name}` is {found!r}", "write a table: { name = value }")
        return found

    def words(self, name: str, default: Any, known: tuple[str, ...] | None) -> Any:
        found = self.plan.get(name, default)
        found = [found] if isinstance(found, str) else found
        if not isinstance(found, list) or not found or any(known and one not in known for one in found):
            what = f"of {', '.join(known)}" if known else "of names"
            raise self.wrong(f"`{name}` is {found!r}", f"write a list {what}")
        return found

    def wrong(self, why: str, fix: str) -> SamplingPlanError:
        return SamplingPlanError(
            "an operation of the plan cannot be sampled", where=self.where, why=why, fix=fix
        )


def _bounds(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
        and 1 <= value[0] <= value[1]
    )


def _check_keys(found: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(found) - known):
        raise SamplingPlanError(
            f"{where} has a key that means nothing",
            why=f"{', '.join(unknown)}; known are {', '.join(sorted(known))}",
            fix="correct its name",
        )


def _whole(found: Mapping[str, Any], name: str, default: int, where: str) -> int:
    value = found.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise SamplingPlanError(
            f"`{name}` is {value!r}", where=where, fix=f"write a whole number from 0 to {_MOST}"
        )
    return value
