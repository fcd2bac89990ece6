"""Laws that every what-if answer obeys: python -m benchmarks.simulation_laws --check.

Each law is tried on training runs that are made up from a seed, and on every trace under $DACEML_DATA:
removing work never lengthens a step, a faster link never slows one, n devices never do more than n times as
much, a question that changes nothing returns the baseline, an answer lies inside its own interval and passes
the guards, and two questions agree in either order where they commute.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from benchmarks import command
from benchmarks.bars import Bar
from daceml.errors import DacemlError, ImplausibleAnswerError, WhatIfError
from daceml.profiling.kineto import read_trace
from daceml.simulation.analysis.steps import StepScale
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate
from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.network.links import Link
from daceml.simulation.network.topology import Topology
from daceml.simulation.primitives.edit import without
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind
from daceml.simulation.whatif.activation_checkpointing import ActivationCheckpointing
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.blueconnect import BlueConnect
from daceml.simulation.whatif.compiled_region import CompiledRegion
from daceml.simulation.whatif.cuda_graphs import CudaGraphs
from daceml.simulation.whatif.data_loader import DataLoaderWorkers
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.deep_gradient_compression import DeepGradientCompression
from daceml.simulation.whatif.faster_device import FasterDevice
from daceml.simulation.whatif.fused_adam import FusedAdam
from daceml.simulation.whatif.gist import Gist
from daceml.simulation.whatif.gradient_accumulation import GradientAccumulation
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.link import AnotherLink
from daceml.simulation.whatif.low_precision import LowPrecision
from daceml.simulation.whatif.metaflow import MetaFlow
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.p3 import PriorityPropagation
from daceml.simulation.whatif.parameter_server import ParameterServer
from daceml.simulation.whatif.restructured_batch_norm import RestructuredBatchNorm
from daceml.simulation.whatif.vdnn import VirtualizedDnn
from daceml.simulation.whatif.whatif_result import Prediction, predict
from daceml.time_budget import budget_s

_ROUNDING = 1e-6  # share by which sums of times may differ
_KERNELS = (
    ("sgemm", "aten::mm"), ("implicit_gemm_conv", "aten::conv2d"), ("vectorized_add", "aten::add"),
    ("bn_fw", "aten::batch_norm"), ("relu_kernel", "aten::relu"), ("max_pool", "aten::max_pool2d"),
)  # fmt: skip
_SLOW, _FAST = Link(bytes_per_s=1e9, latency_us=5.0), Link(bytes_per_s=2e10, latency_us=5.0)
_GRADIENTS = Gradients.of({f"layer{number}.weight": 2e5 for number in range(4)})


@dataclass
class _Draft:
    """Rows of a made-up run; tasks of a lane stand in its order."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    edges: list[tuple[int, int, float, bool, EdgeKind]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict[str, int])

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names)) if text else NOTHING

    def add(
        self, name: str, lane: int, duration_us: float, kind: TaskKind, step: int,
        phase: Phase = Phase.OTHER, *, gap_us: float = 0.0, layer: str = "", operator: str = "",
    ) -> int:  # fmt: skip
        self.rows.append(
            {
                "name": self.name(name), "lane": lane, "duration_us": duration_us, "kind": int(kind),
                "step": step, "phase": int(phase), "gap_us": gap_us, "layer": self.name(layer),
                "operator": self.name(operator),
            }
        )  # fmt: skip
        return len(self.rows) - 1

    def graph(self, lanes: Sequence[Lane], steps: int, host_events: int) -> TaskGraph:
        count = len(self.rows)
        integers = ("name", "lane", "kind", "step", "phase", "layer", "operator")
        columns = {name: np.array([row[name] for row in self.rows], np.int64) for name in integers}
        times = {name: np.array([row[name] for row in self.rows]) for name in ("duration_us", "gap_us")}
        unknown = np.full(count, np.nan)
        return TaskGraph(
            tasks=Tasks(
                key=np.arange(count), recorded_us=unknown, size_bytes=unknown, priority=np.zeros(count),
                **columns, **times,
            ),
            edges=Edges.of(self.edges), lanes=tuple(lanes), names=tuple(self.names),
            step_names=tuple(f"step {number}" for number in range(steps)), source="made up",
            host_events=host_events,
        )  # fmt: skip


def training_graph(seed: int) -> TaskGraph:
    """A training run of 1 to 4 steps: two threads and streams, and maybe loading and collectives."""
    rng = np.random.default_rng(seed)
    steps, layers = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    loads, joins, sends, marked = rng.random(4) < (0.5, 0.5, 0.25, 0.7)
    host_us, device_us = 10 ** rng.uniform(0.3, 2.0), 10 ** rng.uniform(0.3, 2.3)
    main, backward, stream, side = 0, 1, 2, 3
    draft = _Draft()

    def lasting(scale_us: float) -> float:
        return float(np.round(rng.exponential(scale_us), 2))

    def launched(
        thread: int, on: int, step: int, phase: Phase, layer: str, *, collective: bool = False
    ) -> int:
        name, operator = _KERNELS[rng.integers(len(_KERNELS))]
        gap_us = lasting(host_us) * (100 if rng.random() < 0.01 else 1)
        call = draft.add("cudaLaunchKernel", thread, lasting(5), TaskKind.CALL, step, phase, gap_us=gap_us)
        kind = TaskKind.COLLECTIVE if collective else TaskKind.KERNEL
        name = "ncclKernel_AllReduce" if collective else name
        gap_us = float(rng.uniform(-1, 2))
        work = draft.add(
            name, on, lasting(device_us), kind, step, phase, gap_us=gap_us, layer=layer, operator=operator
        )
        draft.edges.append((call, work, lasting(5), True, EdgeKind.LAUNCH))
        return work

    for step in range(steps):
        if marked:
            draft.add(f"step {step} begins", main, 0.0, TaskKind.MARKER, step, gap_us=lasting(5))
        if loads:
            draft.add("DataLoader", main, lasting(20 * host_us), TaskKind.DATA, step, Phase.DATA)
        last = sent = NOTHING
        for layer in range(layers):
            for _ in range(int(rng.integers(1, 4))):
                last = launched(main, stream, step, Phase.FORWARD, f"layer{layer}")
        handed = draft.add("cudaEventRecord", main, lasting(3), TaskKind.CALL, step)
        first = draft.add("cudaEventQuery", backward, lasting(3), TaskKind.CALL, step, Phase.BACKWARD)
        draft.edges.append((handed, first, 0.0, False, EdgeKind.HANDOVER))
        for layer in reversed(range(layers)):
            for _ in range(int(rng.integers(1, 4))):
                last = launched(backward, stream, step, Phase.BACKWARD, f"layer{layer}")
            if sends:
                sent = launched(backward, side, step, Phase.BACKWARD, "", collective=True)
                draft.edges.append((last, sent, 0.0, False, EdgeKind.STREAM_WAIT))
        returned = draft.add("cudaEventQuery", backward, lasting(3), TaskKind.CALL, step, Phase.BACKWARD)
        resumed = draft.add("optimizer", main, lasting(3), TaskKind.CALL, step, Phase.OPTIMIZER)
        draft.edges.append((returned, resumed, 0.0, False, EdgeKind.HANDOVER))
        for number in range(int(rng.integers(0, 6))):
            update = launched(main, stream, step, Phase.OPTIMIZER, "")
            if sends and not number:
                draft.edges.append((sent, update, 0.0, False, EdgeKind.STREAM_WAIT))
        if joins:
            wait = draft.add("cudaStreamSynchronize", main, lasting(3), TaskKind.CALL, step)
            draft.edges.append((last, wait, lasting(3), False, EdgeKind.SYNC))
        if marked:
            draft.add(f"step {step} ends", main, 0.0, TaskKind.MARKER, step)
    lanes = [
        Lane(kind="cpu", name="thread 1"), Lane(kind="cpu", name="thread 2"),
        Lane(kind="stream", name="stream 7", device=0), Lane(kind="stream", name="stream 20", device=0),
    ]  # fmt: skip
    return draft.graph(lanes, steps, int(rng.integers(0, 3)) * len(draft.rows))


def _devices(nodes: int, each: int, link: Link) -> Topology:
    return Topology(nodes=nodes, devices_per_node=each, inside=link, outside=link if nodes > 1 else None)


def _ddp(link: Link, each: int = 8) -> DataParallel:
    return DataParallel(topology=_devices(1, each, link), gradients=_GRADIENTS)


QUESTIONS: tuple[Optimization, ...] = (
    AutomaticMixedPrecision(), FusedAdam(), CudaGraphs(), CompiledRegion(), LowPrecision(),
    ActivationCheckpointing(layers="layer0"), DataLoaderWorkers(workers=1), DataLoaderWorkers(workers=4),
    DataLoaderWorkers(remove=True), GradientAccumulation(), LargerBatch(),
    FasterDevice(compute=Estimate.known(2.0), memory=Estimate.known(1.5)),
    FasterDevice(cpu=Estimate.known(2.0)), RestructuredBatchNorm(), MetaFlow(remove=("layer0",)),
    VirtualizedDnn(usual_bytes=2e7), Gist(), _ddp(_SLOW), _ddp(_FAST), _ddp(_FAST, 2),
    DataParallel(topology=_devices(4, 8, _FAST), gradients=_GRADIENTS),
    BlueConnect(topology=_devices(4, 8, _FAST), gradients=_GRADIENTS),
    DeepGradientCompression(topology=_devices(1, 8, _SLOW), gradients=_GRADIENTS),
    AnotherLink(recorded=_SLOW, wanted=_FAST), ParameterServer(workers=4, link=_FAST, gradients=_GRADIENTS),
    ParameterServer(workers=4, servers=2, beside_workers=False, link=_SLOW, gradients=_GRADIENTS),
    PriorityPropagation(workers=4, link=_FAST, gradients=_GRADIENTS, slice_bytes=1e5),
)  # fmt: skip
NOTHING_CHANGES: tuple[Optimization, ...] = (
    DataLoaderWorkers(workers=0), LargerBatch(ratio=1.0), MetaFlow(scale={"layer0": 1.0}),
    AnotherLink(recorded=_FAST, wanted=_FAST),
)  # fmt: skip
COMMUTE: tuple[tuple[Optimization, Optimization], ...] = (
    (AutomaticMixedPrecision(), DataLoaderWorkers(workers=1)),
    (AutomaticMixedPrecision(), FasterDevice(cpu=Estimate.known(2.0))),
    (AutomaticMixedPrecision(), AnotherLink(recorded=_SLOW, wanted=_FAST)),
    (DataLoaderWorkers(remove=True), MetaFlow(scale={"layer0": 0.5})),
    (DataLoaderWorkers(workers=4), _ddp(_FAST)),
)


class _Run:
    """A graph, with answers that several laws need."""

    def __init__(self, graph: TaskGraph, seed: int) -> None:
        self.graph, self.seed = graph, seed
        self.replay = simulate(graph)
        self.answers: dict[int, Prediction | None] = {}

    def answer(self, *asked: Optimization) -> Prediction | None:
        """None where the run refuses the question; an implausible answer is an error."""
        try:
            return predict(self.graph, asked, baseline=self.replay)
        except WhatIfError:
            return None

    def known(self, number: int) -> Prediction | None:
        if number not in self.answers:
            self.answers[number] = self.answer(QUESTIONS[number])
        return self.answers[number]


def _more(first_us: float, second_us: float) -> bool:
    return first_us > second_us * (1 + _ROUNDING) + 1e-6


def _removing_work(run: _Run) -> Iterator[str]:
    rng = np.random.default_rng(run.seed)
    scale, graph = StepScale.of(run.replay), run.graph
    for share in (0.02, 0.3, 1.0):
        gone = (rng.random(len(graph)) < share) & (graph.tasks.kind != TaskKind.MARKER)
        duration_us = np.where(gone, 0.0, graph.tasks.duration_us)
        free_us = scale.step_us(simulate(graph.with_times(duration_us=duration_us)))
        if _more(free_us, scale.recorded_us):
            yield f"{gone.sum()} tasks that take no time: {free_us} instead of {scale.recorded_us} us"
        kernels = gone & graph.on_device()
        left_us = scale.step_us(simulate(without(graph, kernels)))
        if _more(left_us, scale.recorded_us):
            yield f"without {kernels.sum()} tasks of devices: {left_us} instead of {scale.recorded_us} us"


def _faster_link(run: _Run) -> Iterator[str]:
    pairs: list[tuple[Optimization, Optimization]] = [(_ddp(_SLOW), _ddp(_FAST))]
    pairs.append((AnotherLink(recorded=_SLOW, wanted=_SLOW), AnotherLink(recorded=_SLOW, wanted=_FAST)))
    for slow, fast in pairs:
        first, second = run.answer(slow), run.answer(fast)
        if first is not None and second is not None and _more(second.step_us, first.step_us):
            yield f"{slow.title}: {second.step_us} us over the faster link, {first.step_us} over the slower"


def _devices_at_most_linear(run: _Run) -> Iterator[str]:
    for number, question in enumerate(QUESTIONS):
        seen = run.known(number) if question.devices > 1 else None
        if seen is not None and _more(seen.speedup, question.devices):
            yield f"{question.title}: {seen.speedup} times by {question.devices:g} devices"


def _nothing_changes(run: _Run) -> Iterator[str]:
    for question in NOTHING_CHANGES:
        seen = run.answer(question)
        if seen is not None and abs(seen.step_us - seen.baseline_us) > _ROUNDING * seen.baseline_us:
            yield f"{question.title}: {seen.step_us} us instead of {seen.baseline_us}"


def _inside(run: _Run) -> Iterator[str]:
    for number, question in enumerate(QUESTIONS):
        seen = run.known(number)
        if seen is None:
            continue
        if _more(seen.fast_us, seen.step_us) or _more(seen.step_us, seen.slow_us):
            yield f"{question.label}: {seen.step_us} us is not between {seen.fast_us} and {seen.slow_us}"
        if _more(seen.speedup_low, seen.speedup) or _more(seen.speedup, seen.speedup_high):
            yield f"{question.label}: {seen.speedup} is not in [{seen.speedup_low}, {seen.speedup_high}]"


def _order(run: _Run) -> Iterator[str]:
    for first, second in COMMUTE:
        one, other = run.answer(first, second), run.answer(second, first)
        if (one is None) != (other is None):
            yield f"{first.title} and {second.title}: one order is refused"
        elif (
            one is not None
            and other is not None
            and abs(one.step_us - other.step_us) > _ROUNDING * one.step_us
        ):
            yield f"{first.title} and {second.title}: {one.step_us} and {other.step_us} us"


LAWS: Mapping[str, Callable[[_Run], Iterator[str]]] = {
    "removing work never lengthens a step": _removing_work,
    "a faster link never slows one": _faster_link,
    "n devices never give more than n": _devices_at_most_linear,
    "a question that changes nothing returns the baseline": _nothing_changes,
    "an answer lies inside its own interval": _inside,
    "two questions agree in either order": _order,
}


def faults_of(graph: TaskGraph, seed: int = 0) -> dict[str, list[str]]:
    """Law -> how a graph breaks it; an answer that the guards refuse breaks the law it was asked for."""
    run = _Run(graph, seed)
    found: dict[str, list[str]] = {}
    for name, law in LAWS.items():
        try:
            found[name] = list(law(run))
        except ImplausibleAnswerError as error:
            found[name] = [f"{error.what}: {error.why}"]
        except Exception as error:  # what is no refusal is a fault, too
            found[name] = [f"{type(error).__name__}: {error}"]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Try the laws of what-if answers on generated graphs and recorded traces.")
    parser.add_argument("--count", type=int, default=None, help="generated graphs; 5000, with --quick 200")
    parser.add_argument("--seed", type=int, default=0, help="of the first graph; the next ones count up")
    parser.add_argument("--budget", default=None, metavar="TIME", help="for each kind of case: 90s, 10m")
    options = parser.parse_args(arguments)
    limit_s = float("inf") if options.budget is None else budget_s(options.budget)
    count = options.count if options.count is not None else 200 if options.quick else 5000
    folder = os.environ.get("DACEML_DATA")
    traces = sorted((Path(folder) / "traces").rglob("*.json.gz")) if folder else []
    traces = sorted(traces, key=lambda trace: trace.stat().st_size)  # the largest last
    rows: list[dict[str, Any]] = []
    counts: dict[str, Counter[str]] = {"generated graphs": Counter(), "traces": Counter()}
    examples: dict[str, str] = {}

    def tried(kind: str, case: str, graph: TaskGraph, seed: int) -> None:
        counts[kind]["cases"] += 1
        for law, faults in faults_of(graph, seed).items():
            counts[kind][law] += bool(faults)
            if faults:
                examples.setdefault(f"{kind}: {law}", f"{case}: {faults[0]}")
                rows.append({"kind": kind, "case": case, "law": law, "faults": faults})
                print(f"{case}: {law}: {faults[0]}", flush=True)

    until = monotonic() + limit_s
    for trace in traces:
        if monotonic() > until:
            break
        case = str(trace.relative_to(Path(folder or "") / "traces"))
        try:
            graph = build(read_trace(trace))
        except DacemlError as error:
            rows.append({"kind": "traces", "case": case, "refused": str(error)})
            continue
        tried("traces", case, graph, 0)
    until = monotonic() + limit_s
    for seed in range(options.seed, options.seed + count):
        if monotonic() > until:
            break
        tried("generated graphs", f"seed {seed}", training_graph(seed), seed)
    met: list[Bar] = []
    for kind, seen in counts.items():
        cases = seen["cases"]
        for law in LAWS if cases else ():
            note = examples.get(f"{kind}: {law}", f"of {cases}, {len(QUESTIONS)} questions each")
            met.append(Bar(name=f"{kind}: {law}", figure=seen[law], limit=0, note=note))
        of = {"traces": len(traces), "generated graphs": count}[kind]
        rows.append({"kind": kind, "cases": cases, "of": of, **{law: seen[law] for law in LAWS}})
        print(f"{kind}: {cases} cases, {sum(seen[law] for law in LAWS)} broken laws", flush=True)
    return command.finish("simulation_laws", options, rows, met)


if __name__ == "__main__":
    sys.exit(main())
