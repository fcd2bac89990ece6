"""The search for what to fuse and send together: BERT-base on 16 V100, with and without what makes it fast.

Durations are a roofline's; what is judged is how long the search takes, as in dPRO's Table 5, and that the
step it finds is no longer than that of DistributedDataParallel's default, both by simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.bars import Bar
from benchmarks.whatif.networks import Bert
from daceml.devices.catalogue import find_device
from daceml.operations.duration_chain import DurationLadder
from daceml.prediction.model_steps.planned_step import PlannedStep, planned_step
from daceml.prediction.model_steps.predict_step import captured
from daceml.prediction.model_steps.step_durations import step_durations
from daceml.simulation.distributed.strategy.evaluation import Accelerations
from daceml.simulation.distributed.strategy.search import Found, Problem, search
from daceml.simulation.distributed.strategy.synchronization import PARTS, Synchronization
from daceml.simulation.network.topology import Topology

DEVICE, NODES, PER_NODE, INSIDE = "V100-SXM2-32GB", 2, 8, "NVLink2"
LINKS = ("100Gbps", "10Gbps")
SAMPLES, TOKENS = 32, 128
LIMIT_S = 120.0
# After so long a search is stopped, and the rest extrapolated
STOPPED_S, QUICK_STOPPED_S = 600.0, 5.0
ALL = "all accelerations"
# As in Table 5, each on top of those before it
TABLE: tuple[tuple[str, Accelerations], ...] = (
    ("none", Accelerations(coarsened=False, partial=False, symmetric=False)),
    ("coarsened view", Accelerations(coarsened=True, partial=False, symmetric=False)),
    ("partial replay", Accelerations(coarsened=True, partial=True, symmetric=False)),
    ("symmetry", Accelerations()),
)


def measured(*, quick: bool) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Both links with everything; on the first one also the rows of the table."""
    planned = bert(layers=2 if quick else 12)
    stopped_s = QUICK_STOPPED_S if quick else STOPPED_S
    rows: list[dict[str, Any]] = []
    for link in LINKS:
        problem = problem_of(planned, link)
        rows.append(row(ALL, link, search(problem, budget_s=LIMIT_S)))
        print(f"{link}, {ALL}: {rows[-1]['seconds']:.1f} s", flush=True)
    rows += table(problem_of(planned, LINKS[0]), stopped_s)
    return rows, bars(rows)


def table(problem: Problem, stopped_s: float) -> list[dict[str, Any]]:
    """Algorithm 1 alone, with each acceleration on top of those before it."""
    rows: list[dict[str, Any]] = []
    for name, accelerations in TABLE:
        found = search(problem, budget_s=stopped_s, accelerations=accelerations, refine=False)
        rows.append(row(name, LINKS[0], found))
        rows[-1]["extrapolated_s"] = (
            None if found.converged else extrapolated_s(problem, accelerations, found)
        )
        print(f"{name}: {found.seconds:.1f} s{'' if found.converged else ', stopped'}", flush=True)
    return rows


def extrapolated_s(problem: Problem, accelerations: Accelerations, stopped: Found) -> float:
    """What a stopped search would have taken: its time for one replay, by the replays that it needs.

    Without partial replay every time of a sum costs a replay of the step for each number of parts. How often
    one is wanted is counted in a search of the same chain with partial replay.
    """
    partial = Accelerations(
        coarsened=accelerations.coarsened, partial=True, symmetric=accelerations.symmetric
    )
    counted = search(problem, budget_s=LIMIT_S, accelerations=partial, refine=False)
    needed = counted.simulated + counted.asked * len(PARTS)
    return stopped.seconds / max(stopped.simulated, 1) * needed


def bert(layers: int) -> PlannedStep:
    """A training step of BERT-base, from its shapes alone."""
    with torch.device("meta"):
        model, ids = Bert(layers), torch.empty(SAMPLES, TOKENS, dtype=torch.long)
    device = find_device(DEVICE)
    step = captured(model, ids)
    durations = step_durations(step, device, DurationLadder(None))
    return planned_step(step, durations, device, devices=NODES * PER_NODE)


def problem_of(planned: PlannedStep, link: str) -> Problem:
    """With all-reduces in the nodes and between them."""
    topology = Topology.of(f"{NODES}x{PER_NODE}", link, inside=INSIDE)
    return Problem(
        step=planned.training,
        synchronization=Synchronization.all_reduce(topology, "hierarchical"),
        fused_us=planned.fused_us,
    )


def row(name: str, link: str, found: Found) -> dict[str, Any]:
    """What a search took and found."""
    return {
        "search": name,
        "link": link,
        "seconds": found.seconds,
        "converged": found.converged,
        "simulated": found.simulated,
        "rounds": found.rounds,
        "buckets": len(found.plan.buckets),
        "groups": len(found.plan.groups),
        "default_us": found.default_us,
        "best_limit_mib": found.limit_bytes / 2**20,
        "best_limit_us": found.limit_us,
        "found_us": found.step_us,
    }


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """The time of each whole search, and its step beside the default one."""
    made: list[Bar] = []
    for one in rows:
        if one["search"] == ALL:
            name = f"search, BERT-base on {NODES * PER_NODE} ranks, {one['link']}"
            made += [
                Bar(name=f"{name}: seconds", figure=one["seconds"], limit=LIMIT_S),
                Bar(
                    name=f"{name}: step over the default's",
                    figure=one["found_us"] / one["default_us"],
                    limit=1.0,
                    note=f"{one['simulated']} simulated steps",
                ),
            ]
    return made
