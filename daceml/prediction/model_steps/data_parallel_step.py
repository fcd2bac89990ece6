"""A step on several devices: buckets of gradients summed beside the backward phase."""

from __future__ import annotations

from daceml.devices.specification import Device
from daceml.prediction.model_step import ModelStep
from daceml.prediction.model_steps.device_links import topology_of
from daceml.prediction.model_steps.step_graph import layer_of
from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.links import Link
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.network.topology import Topology
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Gradient, Gradients
from daceml.simulation.whatif.optimization import Estimate, applied


def data_parallel(
    step: ModelStep,
    device: Device,
    devices: int,
    *,
    link: Link | None = None,
    measured: MeasuredCollective | None = None,
    interference: Estimate | None = None,
) -> DataParallel | None:
    """What several devices add to a step; None on one, or where nothing is trained.

    Args:
        link: between two devices, in the place of the device's own.
        measured: times of all-reduces by so many devices, in the place of a formula.
        interference: share of a device that an all-reduce takes from kernels; None for the usual one.
    Raises:
        StepPredictionError: a number of devices whose links are not known.
    """
    if link is None:
        topology, efficiency = topology_of(device, devices)
    else:
        topology, efficiency = Topology(devices_per_node=devices, inside=link), DataParallel.efficiency
    if devices == 1 or not step.parameters or not step.trains:
        return None
    return DataParallel(
        topology=topology,
        efficiency=efficiency,
        gradients=gradients_of(step),
        measured=measured,
        interference=DataParallel.interference if interference is None else interference,
    )


def gradients_of(step: ModelStep) -> Gradients:
    """The gradients of a step, in the order in which they become ready where that is known."""
    ready = {
        name: place
        for place, name in enumerate(name for operation in step.operations for name in operation.ready)
    }
    rows = tuple(
        Gradient(
            name=one.name,
            layer=layer_of(step, one.layer),
            size_bytes=float(one.size_bytes),
            ready=ready.get(one.name),
            element=one.element,
        )
        for one in step.parameters
        if one.size_bytes > 0
    )
    return Gradients(rows=rows, total_bytes=sum(row.size_bytes for row in rows))


def with_devices(graph: TaskGraph, sending: DataParallel | None) -> TaskGraph:
    """The graph of a step with what several devices add to it.

    Raises:
        WhatIfError: it cannot be added; the message says why.
    """
    return graph if sending is None else applied(sending, graph)
