"""How the two programs of a training step fit together: what is saved, and where gradients go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Source = tuple[Literal["output", "cotangent", "zero"], int]
Reader = tuple[Literal["input", "sizes"], int] | tuple[Literal["state"], str]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which tensors require a gradient.

    Attributes:
        inputs: for each tensor of the arguments whether it does.
        state: keys of the parameters and buffers that do.
        outputs: places of the results that have a cotangent; None for all that gradients can flow into.
        reaching: for each result of forward's the places, among the inputs and then the state that require a
            gradient, of those that it gives one to; None where it requires no gradient. () where a program
            decides.
        certain: those of them that it reaches outside parts that are graphs of their own, as under autocast.
    """

    inputs: tuple[bool, ...]
    state: tuple[str, ...]
    outputs: tuple[int, ...] | None = None
    reaching: tuple[tuple[int, ...] | None, ...] = ()
    certain: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class StorageRecord:
    """What became of one array that the backward pass reads: stored, or computed again; and why."""

    array: str
    bytes: int
    stored: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class BucketRecord:
    """Gradients that are averaged over all ranks in one all-reduce.

    Attributes:
        parameters: keys, in the order in which they lie in the bucket, each in row-major order.
        present: those of which this program has a gradient, in the same order.
        strides: of these gradients, in elements.
        size_bytes, dtype: of the whole bucket; such as "float32".
        closed: why it holds no more.
    """

    parameters: tuple[str, ...]
    present: tuple[str, ...]
    strides: tuple[tuple[int, ...], ...]
    size_bytes: int
    dtype: str
    closed: str

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> BucketRecord:
        """JSON has lists where the record has tuples."""
        read: dict[str, Any] = {name: tuple(row[name]) for name in ("parameters", "present")}
        read["strides"] = tuple(tuple(strides) for strides in row["strides"])
        return cls(**(row | read))


@dataclass(frozen=True, kw_only=True)
class GradientRecord:
    """The interface between forward and backward program.

    Attributes:
        results: outputs of the forward program that are the user's; what follows is saved only.
        saved: outputs of the forward program that the backward program takes, in its order.
        saved_arrays: what each of them is: its name, shape and type, and the step that writes it from what.
        reads: inputs and state that it takes after them; last, inputs of which it takes the sizes only.
        cotangents: outputs whose cotangents it takes first.
        differentiable: for each of the user's outputs whether a gradient can flow into it.
        gradients: for each wanted input, then each wanted state, where its gradient is; None for no gradient.
        reached: for each of them the user's outputs that it has a way of gradients to: without a cotangent
            for one of these it has no gradient, which is something else than one of zeros.
        storage: what is stored for the backward pass besides inputs, state and results, and what is not.
        by_rule, lowered: operators whose gradients come from a rule, and from their lowered form.
        buckets: what is averaged over all ranks, in the order in which it is sent; none in one process.
    """

    results: int
    saved: tuple[int, ...]
    saved_arrays: tuple[str, ...]
    reads: tuple[Reader, ...]
    cotangents: tuple[int, ...]
    differentiable: tuple[bool, ...]
    gradients: tuple[Source | None, ...]
    reached: tuple[tuple[int, ...], ...]
    storage: tuple[StorageRecord, ...] = ()
    by_rule: tuple[str, ...] = ()
    lowered: tuple[str, ...] = ()
    buckets: tuple[BucketRecord, ...] = ()

    def saved_of(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Those of the backward program's inputs that were saved and are no results of the user's."""
        first = len(self.cotangents)
        return tuple(inputs[first + i] for i, place in enumerate(self.saved) if place >= self.results)

    def places_in(self, other: GradientRecord) -> tuple[int, ...] | None:
        """Where what this backward program takes is among what another one does; None where it is not all."""
        there = (*other.saved_arrays, *other.reads)
        wanted = (*self.saved_arrays, *self.reads)
        if not set(wanted) <= set(there) or len(set(there)) < len(there):
            return None
        return tuple(map(there.index, wanted))

    def save(self, folder: Path) -> None:
        """Write `gradients.json`."""
        (folder / "gradients.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> GradientRecord:
        """Read `gradients.json`."""
        record: dict[str, Any] = json.loads((folder / "gradients.json").read_text())
        for name in ("saved", "saved_arrays", "cotangents", "differentiable", "by_rule", "lowered"):
            record[name] = tuple(record[name])
        record["reads"] = tuple((kind, value) for kind, value in record["reads"])
        record["gradients"] = tuple(None if g is None else (g[0], g[1]) for g in record["gradients"])
        record["reached"] = tuple(map(tuple, record["reached"]))
        record["storage"] = tuple(StorageRecord(**row) for row in record["storage"])
        record["buckets"] = tuple(map(BucketRecord.from_json, record.get("buckets", ())))
        return cls(**record)
