"""`explain` of a module that is not one program: its programs, what runs eagerly between them, and why."""

from __future__ import annotations

import html
import random
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from daceml.module.partial.region_ledger import Region, recorded_regions, share_text
from daceml.text_tables import WIDTH, in_millions, render, table

if TYPE_CHECKING:
    from daceml.module.module import DaceModule

_CALLS = 3  # until the way to cut a forward is settled, which its first calls compare


@dataclass(frozen=True, kw_only=True)
class PartialExplanation:
    """What became of a module that is cut.

    Attributes:
        name: of the module.
        regions: its programs, and what runs eagerly, in the order in which one call entered them.
    """

    name: str
    regions: tuple[Region, ...]

    @property
    def programs(self) -> tuple[Region, ...]:
        """The regions that are programs."""
        return tuple(region for region in self.regions if not region.cuts)

    @property
    def eager(self) -> tuple[Region, ...]:
        """The regions that run eagerly; each has cuts that say why."""
        return tuple(region for region in self.regions if region.cuts)

    @property
    def compiled_flops(self) -> float:
        """Share of the forward pass's FLOPs that programs do."""
        return _share(self.programs, self.regions, "flops")

    @property
    def compiled_time(self) -> float:
        """Share of the forward pass's seconds, in one call."""
        return _share(self.programs, self.regions, "seconds")

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        shares = {"compiled_flops": self.compiled_flops, "compiled_time": self.compiled_time}
        return {"name": self.name, **shares, "regions": [asdict(region) for region in self.regions]}

    def full_text(self) -> str:
        """The report; `str()` gives the same."""
        return str(self)

    def __str__(self) -> str:
        count = f"{len(self.programs)} program{'' if len(self.programs) == 1 else 's'}"
        shares = f"{share_text(self.compiled_flops)} of FLOPs, {share_text(self.compiled_time)} of time"
        parts = [
            f"{self.name}: {count} ({shares}) and eager code",
            render(self._table()),
            *map(_reason, self.eager),
        ]
        return "\n\n".join(parts) + "\n"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _table(self) -> Any:
        rows = table("region", "runs", "calls", "Mflop", "ms", left=2, paths=("region",))
        for region in self.regions:
            runs = "compiled" if not region.cuts else "eagerly"
            figures = (str(region.calls), in_millions(region.flops), f"{region.seconds * 1e3:.2f}")
            rows.add_row(region.name, runs, *figures)
        return rows


def _share(some: tuple[Region, ...], everything: tuple[Region, ...], figure: str) -> float:
    total = sum(getattr(region, figure) for region in everything)
    return sum(getattr(region, figure) for region in some) / total if total else float(bool(some))


def _reason(region: Region) -> str:
    lines: list[str] = []
    for cut in region.cuts:
        lines += textwrap.wrap(f"{region.name} runs eagerly: {cut.what}", WIDTH, subsequent_indent="  ")
        for label, text in (("where", cut.where), ("why", cut.why), ("fix", cut.fix)):
            for number, line in enumerate(text.splitlines()):
                head = f"  {label + ':':<7}" if number == 0 else " " * 9
                lines += textwrap.wrap(line, WIDTH, initial_indent=head, subsequent_indent=" " * 9) or [head]
    return "\n".join(lines)


def explain_partial(module: DaceModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PartialExplanation:
    """Call a module that is cut, and report its regions.

    Its buffers and the states of random generators are put back. Other effects of forward, on attributes,
    arguments or the world, are those of as many calls.
    """
    with _undone(module):
        for _ in range(_CALLS):
            module(*args, **kwargs)
        with recorded_regions() as ledger:
            module(*args, **kwargs)
    return PartialExplanation(name=module.session.name, regions=tuple(ledger.regions.values()))


@contextmanager
def _undone(module: DaceModule) -> Generator[None]:
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    held = [(child, dict(child.__dict__["_buffers"])) for child in module.modules()]
    states = random.getstate(), np.random.get_state()  # noqa: NPY002  the user's
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        for child, before in held:
            child.__dict__["_buffers"].update(before)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
