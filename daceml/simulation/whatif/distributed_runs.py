"""Whether a run communicates already, so that nobody adds to it what it does."""

from __future__ import annotations

import re

from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import TaskKind

# torch.distributed's operators, and what its backends call their work; of a CPU there are no others.
_OPERATORS = re.compile(r"^(c10d::|gloo:|nccl:|mpi:|record_param_comms$|horovod)")

ALREADY = "the run communicates with other devices already: another link is option 'link'"


def communicates(graph: TaskGraph) -> bool:
    """Whether some task sends to other devices, by its kind or by its operator."""
    if (graph.tasks.kind == TaskKind.COLLECTIVE).any():
        return True
    return any(
        graph.where_name(lambda name: bool(_OPERATORS.match(name)), of).any() for of in ("name", "operator")
    )
