"""720 steps of GPT models on 2, 4 and 8 A100, data-, tensor- and pipeline-parallel, predicted from tables.

What is known: products of matrices in aiconfigurator's table of an A100, vTrain's tables of all-reduces, how
often hosts launch in two recorded runs on A100, what Megatron-LM launches and waits for, and data sheets. No
figure is fitted to a measured step. Which launches and waits are told apart was found while looking at these
720, which are half of the set. vTrain's own predictions, from profiles of each model's layers on the machine
itself, are off by 8.37 % on all (Bang et al., vTrain, MICRO '24).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from benchmarks.bars import Bar
from benchmarks.distributed.a100_operators import operator_times
from benchmarks.distributed.launch_intervals import launch_interval_us
from daceml.simulation.distributed.parallelism.block_times import BlockTimes, HostTimes
from daceml.simulation.distributed.parallelism.communication import Communication
from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from daceml.simulation.distributed.parallelism.step_graph import StepCosts, step_graph
from daceml.simulation.distributed.parallelism.transformer import Transformer
from daceml.simulation.engine import simulate
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology

FOLDER = "measurements/vtrain"
STEPS = "single_node_iteration_times_dev_half.csv"
TABLES = {2: "AR_GPU2_1M_1024M_LUT", 4: "AR_GPU4_1M_1024M_LUT", 8: "AR_GPU8_1M_1024M_LUT"}
VOCABULARY = 50257  # src/config.py of vTrain; so is recomputation: `use_checkpoint`
LATENCY_US = 6.5  # from a launch to its kernel: traces of A100
ERROR, DISORDER, REGRET = 0.084, 0.1, 0.03
COLUMNS = (
    *("gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "sequence"),
    *("tensor", "data", "pipeline"),
)

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One line of the file."""

    model: Transformer
    plan: ParallelPlan
    measured_ms: float

    @property
    def question(self) -> tuple[int, ...]:
        """Who has to choose a plan: model, devices and global batch."""
        return (self.model.hidden, self.model.layers, self.plan.ranks, self.plan.global_batch)


def measured(folder: Path, *, quick: bool) -> tuple[list[Row], list[Bar]]:
    """Every configuration, or every tenth for a first look."""
    cases = configurations(folder / FOLDER / STEPS)[:: 10 if quick else 1]
    call_us = launch_interval_us(folder)
    blocks, communication = BlockTimes(operators=operator_times(folder)), network(folder / FOLDER)
    costs = StepCosts(
        blocks=blocks, communication=communication, host=HostTimes(call_us=call_us, latency_us=LATENCY_US)
    )
    without = StepCosts(blocks=blocks, communication=communication)
    rows = [
        {
            **_told(case),
            "predicted_ms": predicted_ms(case, costs),
            "without_host_ms": predicted_ms(case, without),
        }
        for case in cases
    ]
    return rows, bars(rows, call_us=call_us)


def configurations(path: Path) -> list[Configuration]:
    """What was run, and how long a step took."""
    found: list[Configuration] = []
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.reader(file):
            if line[0].startswith("#"):
                continue
            one = dict(zip(COLUMNS, map(int, line[:-1]), strict=True))
            model = Transformer(
                layers=one["layers"], hidden=one["hidden"], heads=one["heads"], sequence=one["sequence"],
                vocabulary=VOCABULARY,
            )  # fmt: skip
            plan = ParallelPlan(
                data=one["data"], tensor=one["tensor"], pipeline=one["pipeline"],
                micro_batch=one["micro_batch"], global_batch=one["global_batch"], recomputation="layers",
            )  # fmt: skip
            found.append(Configuration(model=model, plan=plan, measured_ms=float(line[-1])))
    return found


def network(folder: Path) -> Communication:
    """One node of A100, with all-reduces as nccl-tests measured them in place."""
    tables: list[MeasuredCollective] = []
    for devices, name in TABLES.items():
        with (folder / name).open(encoding="utf-8", newline="") as file:
            rows = [(float(line[0]), float(line[5]) / 1e3) for line in list(csv.reader(file))[1:]]
        tables.append(
            MeasuredCollective.of(
                rows, collective=Collective.ALL_REDUCE, devices=devices, source=f"vTrain, {name}"
            )
        )
    return Communication(topology=Topology.of("8", "NVLink3"), measured=tuple(tables))


def predicted_ms(case: Configuration, costs: StepCosts) -> float:
    """Of one step."""
    return simulate(step_graph(case.model, case.plan, costs, detail="operators")).makespan_us / 1e3


def _told(case: Configuration) -> Row:
    plan = case.plan
    return {
        "question": case.question,
        "data": plan.data,
        "tensor": plan.tensor,
        "pipeline": plan.pipeline,
        "micro_batch": plan.micro_batch,
        "measured_ms": case.measured_ms,
    }


def bars(rows: Sequence[Row], *, call_us: float) -> list[Bar]:
    """Errors, order and choice; one minus tau, as a bar is a largest figure."""
    if not rows:
        return [Bar(name="vTrain: mean error", figure=None, limit=ERROR, note="no configuration was found")]
    likely, seen = _column(rows, "predicted_ms"), _column(rows, "measured_ms")
    alone = np.abs(_column(rows, "without_host_ms") / seen - 1).mean()
    errors = np.abs(likely / seen - 1)
    note = (
        f"n={len(rows)}, mean {np.mean(likely / seen - 1):+.3f}, 90 % within {np.quantile(errors, 0.9):.3f};"
        f" hosts launch every {call_us:.1f} us, without them {alone:.3f}"
    )
    sets: dict[str, Callable[[Row], Any]] = {
        "models and devices": lambda row: row["question"][:3],
        "models, devices and batches": _question,
    }
    made = [
        Bar(name="vTrain: mean error", figure=float(errors.mean()), limit=ERROR, note=note),
        Bar(name="vTrain: one minus Kendall's tau over all", figure=_disorder(rows), limit=DISORDER),
    ]
    for name, key in sets.items():
        groups = [group for group in grouped(rows, key) if len(group) > 2]
        each = [_disorder(group) for group in groups]
        made.append(
            Bar(
                name=f"vTrain: one minus Kendall's tau among plans of equal {name}, mean",
                figure=float(np.mean(each)) if each else None,
                limit=DISORDER,
                note=f"{len(each)} groups of three and more",
            )
        )
    lost = [regret(group) for group in grouped(rows, _question) if len(group) > 1]
    fastest = np.mean(np.array(lost) == 0) if lost else 0.0
    note = f"{len(lost)} choices, the fastest plan in {fastest:.2f}, worst {max(lost, default=0):.3f}"
    made.append(
        Bar(
            name="vTrain: regret of the plan that is predicted to be fastest, mean",
            figure=float(np.mean(lost)) if lost else None,
            limit=REGRET,
            note=note,
        )
    )
    return made


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[list[Row]]:
    """Rows of equal keys."""
    found: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return list(found.values())


def regret(rows: Sequence[Row]) -> float:
    """How much longer the plan takes that was predicted to be the fastest, than the fastest."""
    chosen = min(rows, key=lambda row: row["predicted_ms"])
    return chosen["measured_ms"] / min(row["measured_ms"] for row in rows) - 1


def by(rows: Sequence[Row], name: str) -> dict[Any, tuple[float, float, int]]:
    """Mean absolute and mean error, and how many, for each value of a column."""
    found: dict[Any, tuple[float, float, int]] = {}
    for group in grouped(rows, lambda row: row[name]):
        error = _column(group, "predicted_ms") / _column(group, "measured_ms") - 1
        found[group[0][name]] = (float(np.abs(error).mean()), float(error.mean()), len(group))
    return dict(sorted(found.items()))


def _question(row: Row) -> Any:
    return row["question"]


def _disorder(rows: Sequence[Row]) -> float:
    tau: Any = kendalltau(_column(rows, "predicted_ms"), _column(rows, "measured_ms"))
    return 1 - float(tau.statistic)


def _column(rows: Sequence[Row], name: str) -> Any:
    return np.array([row[name] for row in rows], np.float64)
