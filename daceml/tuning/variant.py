"""One way to run a model: what it changes of the standard one, where, and what has to be accepted for it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

Depth = Literal["operators", "loops", "layout", "all"]
"""Which levels of transformations are applied: none, those that see operators, those up to `local`, those up
to `layout`, or all."""

THIS = ""
"""The device that runs this process."""

_DEPTHS: dict[Depth, str] = {
    "operators": "no loop is fused or moved",
    "loops": "loops are fused; arrays keep their layout, and one thread runs them",
    "layout": "loops are fused and arrays laid out; one thread runs them",
    "all": "",
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to run a model; that without any change is the standard one.

    Attributes:
        choices: what differs from the standard recipe, by the names of `tuning/recipe_changes.py`.
        depth: of transformations.
        unoptimised: no transformation at all: operators are lowered one by one.
        without: passes of the standard recipe that are left out.
        only: passes of the standard recipe that are applied; None: all.
        recipe: what `Recipe.to_json` gives of one that takes the standard one's place; "" for none.
        freeze: weights do not change any more.
        memory_share: of the standard step's peak, that the backward pass may not exceed; None: no limit.
        precision: element type of parameters and inputs; "" as they are.
        samples: of a call, where that is another number than that of the call that is explored; None: as it
            is.
        device: a name that `daceml devices` lists, or THIS.
        fused: on another device, whether elementwise neighbours are one kernel there.
        graphed: on another device, whether a step is one CUDA graph.
        ranks: that average gradients, each with as many samples as the call.
    """

    choices: tuple[str, ...] = ()
    depth: Depth = "all"
    unoptimised: bool = False
    without: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    recipe: str = ""
    freeze: bool = False
    memory_share: float | None = None
    precision: str = ""
    samples: int | None = None
    device: str = THIS
    fused: bool = False
    graphed: bool = False
    ranks: int = 1

    @property
    def title(self) -> str:
        """What it changes, in a line."""
        return " + ".join(self.changes) or "standard recipe"

    @property
    def changes(self) -> tuple[str, ...]:
        """What differs from the standard recipe on this device."""
        found: list[str] = []
        if self.unoptimised:
            found.append("no transformations")
        if self.depth != "all":
            found.append(f"transformations up to {self.depth}")
        found += [f"without {name}" for name in self.without]
        if self.only is not None:
            found.append(f"{' and '.join(self.only)} alone" if self.only else "an empty recipe")
        if self.recipe:
            found.append(f"a recipe of {len(json.loads(self.recipe))} passes")
        found += self.choices
        if self.freeze:
            found.append("frozen weights")
        if self.memory_share is not None:
            found.append(f"recomputation within {self.memory_share:.0%} of the memory")
        if self.precision:
            found.append(self.precision)
        if self.samples is not None:
            found.append(f"calls of {self.samples}")
        if self.device:
            graph = ", as a CUDA graph," if self.graphed else ""
            found.append(f"{'fused' if self.fused else 'eager'}{graph} on {self.device}")
        if self.ranks > 1:
            found.append(f"{self.ranks} ranks")
        return tuple(found)

    @property
    def promises(self) -> tuple[str, ...]:
        """What whoever takes it has to accept."""
        found: list[str] = []
        if self.freeze:
            found.append("weights must not change any more")
        if self.precision:
            found.append(f"parameters and inputs are in {self.precision}, values are rounded to it")
        if self.samples is not None:
            found.append(f"calls have {self.samples} samples")
        return tuple(found)

    @property
    def here(self) -> bool:
        """Whether this process can run it."""
        return self.device == THIS and self.ranks == 1

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Variant:
        """What `to_json` gave."""
        fields: dict[str, Any] = {"samples": None, **told}
        for name in ("choices", "without", "only"):
            fields[name] = None if told[name] is None else tuple(told[name])
        return cls(**fields)
