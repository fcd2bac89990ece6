"""From what the passes left on a network to the records of its levels, with names that the user knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from daceml.codegen.planning.plan import Plan
from daceml.codegen.planning.steps import Storage
from daceml.runtime.records.levels import LEVELS, LevelRecord, RefusalRecord
from daceml.sdfg.costs import Cost
from daceml.sdfg.sizes import size_bytes

if TYPE_CHECKING:
    from daceml.onnx_ops.lowering import LoweringReport
    from daceml.sdfg.passes import PassRecord, Refusal
    from daceml.sdfg.sizes import Size


def level_records(plan: Plan, lowering: LoweringReport, sizes: Mapping[str, int]) -> tuple[LevelRecord, ...]:
    """One record for each level, in order; pure.

    Args:
        sizes: a value for every symbol, at which amounts are stated.
    """
    origins = {
        array: ", ".join(filter(None, (report.module_path, report.source)))
        for report in lowering.nodes
        for array in report.writes
    }
    return tuple(_level(level, plan, origins, sizes) for level in LEVELS)


def _level(level: str, plan: Plan, origins: Mapping[str, str], sizes: Mapping[str, int]) -> LevelRecord:
    passes = [record for record in plan.network.passes if record.level == level]
    changes: dict[str, Counter[str]] = {}
    figures: dict[str, int] = {}
    for record in passes:
        changes.setdefault(record.name, Counter()).update(record.applied)
        figures |= {name: _at(amount, sizes) for name, amount in record.figures.items()}
    if level == "layout":
        arrays = [array for array, place in plan.locations.items() if place.storage is Storage.WORKSPACE]
        apart = sum((size_bytes(plan.network.sdfg.arrays[array]) for array in arrays), start=0)
        figures |= {
            "separate_bytes": _at(apart, sizes),
            "workspace_bytes": _at(plan.layout.size_bytes, sizes),
        }
        changes["MemoryPlan"] = Counter({"arrays in one workspace": len(arrays)} if arrays else {})
    return LevelRecord(
        level=level,
        passes={
            name: {what: times for what, times in done.items() if times} for name, done in changes.items()
        },
        refused=tuple(
            _refusal(record, refusal, plan, origins, sizes) for record in passes for refusal in record.refused
        ),
        figures=figures,
    )


def _refusal(
    record: PassRecord, refusal: Refusal, plan: Plan, origins: Mapping[str, str], sizes: Mapping[str, int]
) -> RefusalRecord:
    return RefusalRecord(
        transformation=record.name,
        subject=plan.network.signature.get(refusal.subject, refusal.subject),
        reason=refusal.reason,
        where=refusal.where or origins.get(refusal.subject, ""),
        size_bytes=_at(refusal.size_bytes, sizes),
    )


def _at(amount: Size, sizes: Mapping[str, int]) -> int:
    return int(Cost(unique_bytes=amount).at(sizes).unique_bytes)
