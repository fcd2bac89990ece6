"""Kernels that are known to be half and twice as long: predicted from one recording, then run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.whatif.emulated_device import EmulatedDevice, work_us
from daceml.profiling.kineto import trace_of
from daceml.simulation.analysis.steps import recorded_step_times, step_error, step_times
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.scale import scale

COMPUTE, COMMUNICATION = 7, 9
FACTORS = (0.5, 2.0)
STEPS = 6


def overlapped(device: EmulatedDevice) -> None:
    """Forward and backward on one stream, gradients sent on another one, the host reads the loss."""
    for layer in range(6):
        device.launch(f"forward {layer}", COMPUTE, 2500)
        work_us(300)
    device.synchronize(COMPUTE)
    backward = threading.Thread(target=_backward, args=(device,))
    backward.start()
    backward.join()
    device.wait(COMPUTE, COMMUNICATION)
    device.launch("optimizer", COMPUTE, 3000)
    work_us(2000)


def _backward(device: EmulatedDevice) -> None:
    for layer in reversed(range(6)):
        device.launch(f"backward {layer}", COMPUTE, 4000)
        work_us(400)
        device.wait(COMMUNICATION, COMPUTE)
        device.launch(f"nccl all-reduce {layer}", COMMUNICATION, 3000)


def limited_by_host(device: EmulatedDevice) -> None:
    """Many short kernels, long pauses of the host."""
    for layer in range(12):
        device.launch(f"kernel {layer}", COMPUTE, 1000)
        work_us(1800)
    device.synchronize(COMPUTE)


def limited_by_device(device: EmulatedDevice) -> None:
    """The host is always ahead, and waits for the device once a step."""
    for layer in range(12):
        device.launch(f"kernel {layer}", COMPUTE, 3000)
        work_us(200)
    device.synchronize(COMPUTE)


PROGRAMS: dict[str, Callable[[EmulatedDevice], None]] = {
    "overlapped communication": overlapped,
    "limited by the host": limited_by_host,
    "limited by the device": limited_by_device,
}


def recorded(program: Callable[[EmulatedDevice], None], factor: float) -> TaskGraph:
    """The graph of a run with kernels `factor` times as long."""
    device = EmulatedDevice(factor=factor)
    for number in range(STEPS):
        with device.step(number):
            program(device)
    device.close()
    return build(trace_of(json.dumps({"traceEvents": device.events}).encode(), "emulated device"))


def measure(name: str) -> dict[str, Any]:
    """Steps of the runs, and of the predictions from the run as it is, microseconds."""
    program = PROGRAMS[name]
    graph = recorded(program, 1.0)
    baseline = simulate(graph)
    row: dict[str, Any] = {
        "case": f"slowed kernels, {name}",
        "replay_error": step_error(baseline),
        "step_us": median(step_times(baseline).loop_us.tolist()),
    }
    for factor in FACTORS:
        predicted = simulate(scale(graph, graph.on_device(), factor))
        real = recorded(program, factor)
        predicted_us = median(step_times(predicted).loop_us.tolist())
        real_us = median(recorded_step_times(real).loop_us.tolist())
        row[f"times {factor:g}"] = {
            "predicted_us": predicted_us,
            "measured_us": real_us,
            "error": predicted_us / real_us - 1,
        }
    return row
