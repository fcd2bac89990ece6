"""The steps of a first run, the most valuable ones first. Imports no package."""

from __future__ import annotations

from dataclasses import dataclass

CELLS = "benchmarks.gpu.first_run.cells"
TOTAL_S = 585.0  # of a command that may take ten minutes, the start of Python included
TABLE_S = 12.0  # kept for the summary
SHORTEST_S = 5.0  # a step with less time is not begun
# A rehearsal has two cores, no device, and compiles everything that a kit brings along.
EMULATED_FACTOR = 8.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: a program of its own, with a time limit.

    Attributes:
        limit_s: seconds on the device machine after which it is ended.
        proves: what is known afterwards.
        program: a module for `python -m`, which takes --step, --results and --emulated.
        processes: of how many processes cells are run at once.
        until_time: whether it measures as many cells as there is time for; a rehearsal gives it no more time,
            and prepares none of its cells.
        blocking_again: whether cells that failed run once more with CUDA_LAUNCH_BLOCKING=1, so that the
            launch that failed is the one that reports it.
    """

    name: str
    limit_s: float
    proves: str
    program: str = CELLS
    processes: int = 1
    until_time: bool = False
    blocking_again: bool = False


STEPS: tuple[Step, ...] = (
    Step(
        name="identity",
        limit_s=50,
        proves="device, driver, versions; the launcher builds and loads",
        program="benchmarks.gpu.first_run.identity",
    ),
    Step(
        name="smoke",
        limit_s=60,
        proves="generated kernels, the launcher and cuBLAS, forward and backward",
        blocking_again=True,
    ),
    Step(
        name="calls",
        limit_s=60,
        proves="graphs, dropout, fused attention, embedding, convolution",
        blocking_again=True,
    ),
    Step(name="ceilings", limit_s=20, proves="rates of copies and of matrix multiplications"),
    Step(
        name="prepare",
        limit_s=100,
        proves="everything compiles; later steps find it in their caches",
        processes=12,
    ),
    Step(name="values", limit_s=55, proves="7 blocks, both modes, all precisions, against float64"),
    Step(name="blocks", limit_s=120, proves="blocks as replayed graphs against a copy and torch.compile"),
    Step(name="bert", limit_s=80, proves="a layer of BERT-large in bf16, both modes"),
    Step(name="mbconv", limit_s=50, proves="MBConv, both modes; host overhead of a replayed graph"),
    Step(
        name="counters",
        limit_s=30,
        proves="memory traffic and occupancy of four kernels, by the device's counters",
        program="benchmarks.gpu.first_run.counters",
    ),
    Step(
        name="memory",
        limit_s=35,
        proves="no access outside of arrays, in training steps of the smallest modules",
        program="benchmarks.gpu.first_run.memory",
    ),
    Step(name="networks", limit_s=60, proves="ResNet-50 in inference, DLRM in training"),
    Step(
        name="correctness",
        limit_s=120,
        proves="networks against float64, as many as time allows",
        processes=6,
        until_time=True,
    ),
)
