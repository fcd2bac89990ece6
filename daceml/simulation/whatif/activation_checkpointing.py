"""Activation checkpointing: what a layer runs forward runs again before its backward phase."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.edit import FIRST, NewTask, with_tasks
from daceml.simulation.primitives.insert import NewKernel, insert_kernels
from daceml.simulation.task import Phase, TaskKind
from daceml.simulation.whatif.blocks import launch_of
from daceml.simulation.whatif.optimization import Optimization
from daceml.simulation.whatif.work import has_device, work


@dataclass(frozen=True, kw_only=True)
class ActivationCheckpointing(Optimization):
    """The forward work of the chosen layers a second time, with its launches.

    Attributes:
        layers: regular expression; layers for which it finds the same text are one region: "^layer\\d+"
            makes one of layer1.0.conv1 and layer1.1.bn2.
    """

    option: ClassVar[str] = "checkpointing"
    title: ClassVar[str] = "activation checkpointing"
    source: ClassVar[str] = "Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv:1604.06174)"

    layers: str

    def check(self, graph: TaskGraph) -> str | None:
        if not (graph.tasks.layer[work(graph)] >= 0).any():
            return "the run does not tell which layer its work belongs to"
        try:
            regions = self.regions(graph)
        except re.error as error:
            return f"{self.layers!r} is no regular expression: {error}"
        if not regions:
            return f"no layer that {self.layers!r} finds runs both forward and backward"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        launches, tasks = launch_of(graph), graph.tasks
        kernels: list[NewKernel] = []
        operators: list[NewTask] = []
        for forward, backward in self.regions(graph):
            first = min(backward, key=lambda task: (launches[task], task))
            for task in forward:
                name, duration_us = f"again {graph.name_of(task)}", float(tasks.duration_us[task])
                if not has_device(graph):
                    before = int(graph.structure.before[first])
                    operators.append(
                        NewTask(
                            name=name, kind=TaskKind.OPERATOR, lane=int(tasks.lane[first]), like=task,
                            after=FIRST if before < 0 else before, duration_us=duration_us,
                            gap_us=max(float(tasks.gap_us[task]), 0.0), phase=Phase.BACKWARD,
                        )
                    )  # fmt: skip
                elif launches[task] >= 0 and launches[first] >= 0:
                    call = int(launches[task])
                    kernels.append(
                        NewKernel(
                            name=name, before=first, launch_before=int(launches[first]), like=first,
                            duration_us=duration_us, launch_us=float(tasks.duration_us[call]),
                            launch_gap_us=max(float(tasks.gap_us[call]), 0.0),
                        )
                    )  # fmt: skip
        return insert_kernels(graph, kernels) if has_device(graph) else with_tasks(graph, operators)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return ("what runs again takes as long as the first time", "saving random states costs nothing")

    def regions(self, graph: TaskGraph) -> list[tuple[list[int], list[int]]]:
        """Forward and backward work of each region, in each step."""
        pattern = re.compile(self.layers)
        found: dict[tuple[int, str], tuple[list[int], list[int]]] = {}
        for task in np.flatnonzero(work(graph)).tolist():
            match = pattern.search(graph.layer_of(task))
            if match is None:
                continue
            lists = found.setdefault((int(graph.tasks.step[task]), match[0]), ([], []))
            if graph.tasks.phase[task] == Phase.FORWARD:
                lists[0].append(task)
            elif graph.tasks.phase[task] == Phase.BACKWARD:
                lists[1].append(task)
        return [lists for lists in found.values() if lists[0] and lists[1]]
