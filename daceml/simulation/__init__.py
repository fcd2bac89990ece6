"""Task graphs, their replay, and what an optimisation would change; imports neither torch nor dace.

graph = build(read_trace("run.json.gz"))        # daceml.profiling.kineto.read_trace
baseline = simulate(graph)                      # a replay
answer = predict(graph, [AutomaticMixedPrecision()])   # daceml.simulation.whatif.amp
"""

from daceml.simulation.building.build import Options, build
from daceml.simulation.engine import Schedule, resimulate, simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.whatif.whatif_result import Prediction, predict, predict_each

__all__ = [
    "Options",
    "Prediction",
    "Schedule",
    "TaskGraph",
    "build",
    "predict",
    "predict_each",
    "resimulate",
    "simulate",
]
