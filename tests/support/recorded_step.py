"""A recorded step of one launch and one kernel, as a task graph."""

from __future__ import annotations

import dataclasses

from daceml.simulation.graph import TaskGraph
from tests.support.task_stories import graph_of


def run() -> TaskGraph:
    """A step of 90 ms that its kernel takes, with a note and a name that HTML has to escape."""
    graph = graph_of(
        "begin cpu 0 kind marker step 0 at 0",
        "launch cpu 5000 step 0 at 0",
        "end cpu 0 kind marker step 0 at 5000",
        "volta_sgemm<128> gpu0 90000 with launch + 10 step 0 phase forward layer net.fc at 10",
    )
    return dataclasses.replace(graph, step_names=("ProfilerStep#1",), source="run.json", notes=("a <note>",))
