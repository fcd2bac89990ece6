"""Collectives as sends and receives: alone they take what the formula says, together they share links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daceml.errors import ExpansionError
from daceml.simulation import Schedule, TaskGraph, simulate
from daceml.simulation.distributed.expansion.expand import Expansion, expand
from daceml.simulation.distributed.expansion.phases import phases_of
from daceml.simulation.distributed.expansion.transfers import TransferPhase, push_pull, ring
from daceml.simulation.distributed.expansion.tree import FILLING
from daceml.simulation.distributed.parallelism.block_times import BlockTimes
from daceml.simulation.distributed.parallelism.communication import Communication
from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from daceml.simulation.distributed.parallelism.step_graph import StepCosts, step_graph
from daceml.simulation.distributed.parallelism.transformer import Transformer
from daceml.simulation.network.collectives import WAYS, Collective, collective_us
from daceml.simulation.network.links import Link
from daceml.simulation.network.topology import Topology
from daceml.simulation.task import TaskKind
from tests.support.golden import raises
from tests.support.task_stories import graph_of

INSIDE, OUTSIDE = Link(bytes_per_s=100e9, latency_us=2), Link(bytes_per_s=10e9, latency_us=6)
MEGABYTE = 1e6
SIMPLE = WAYS[0]


def ranks(ready_us: list[float], collectives: int = 1) -> TaskGraph:
    """Each rank computes, all take part in collectives one after the other, and each goes on for 1 us."""
    names = " ".join(f"before{rank}" for rank in range(len(ready_us)))
    last = f"reduce{collectives - 1}"
    graph = graph_of(
        *(f"before{rank} gpu{rank} {us}" for rank, us in enumerate(ready_us)),
        *(f"reduce{number} channel 1000 after {names}" for number in range(collectives)),
        *(f"behind{rank} gpu{rank} 1 after {last}" for rank in range(len(ready_us))),
    )
    lanes = tuple(
        replace(lane, device=int(lane.name[3:]) if lane.kind == "stream" else None) for lane in graph.lanes
    )
    return replace(graph, lanes=lanes)


def place_of(graph: TaskGraph, name: str) -> int:
    return int(np.flatnonzero(graph.where_name(lambda known: known == name))[0])


def replayed(graph: TaskGraph, topology: Topology, *phases: tuple[TransferPhase, ...]) -> Schedule:
    wanted = [
        Expansion(task=place_of(graph, f"reduce{number}"), phases=one) for number, one in enumerate(phases)
    ]
    return simulate(expand(graph, wanted, topology))


def alone_us(
    topology: Topology, size_bytes: float, algorithm: str, what: Collective = Collective.ALL_REDUCE
) -> float:
    graph = ranks([10.0] * topology.devices)
    phases = phases_of(what, size_bytes, range(topology.devices), topology, algorithm)  # pyright: ignore
    return replayed(graph, topology, phases).makespan_us - 11


@pytest.mark.parametrize("what", [Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER])
@pytest.mark.parametrize("devices", [2, 3, 8])
@pytest.mark.parametrize("size_bytes", [1e3, 64 * MEGABYTE])
def test_a_ring_of_one_node_takes_what_the_formula_says(what: Collective, devices: int, size_bytes: float):
    topology = Topology(devices_per_node=devices, inside=INSIDE)
    formula_us = collective_us(what, size_bytes, topology, "ring")
    assert alone_us(topology, size_bytes, "ring", what) == pytest.approx(formula_us)


def test_a_ring_of_nodes_takes_what_the_formula_says_but_for_a_hop_or_two():
    # the formula counts links of nodes alone, and two hops fewer between them than a part may go
    topology = Topology(devices_per_node=4, nodes=3, inside=INSIDE, outside=OUTSIDE)
    for size_bytes, hops in ((1e3, 2), (64 * MEGABYTE, 10)):
        formula_us = collective_us(Collective.ALL_REDUCE, size_bytes, topology, "ring")
        assert alone_us(topology, size_bytes, "ring") == pytest.approx(
            formula_us, abs=hops * OUTSIDE.latency_us
        )


@pytest.mark.parametrize(("nodes", "each"), [(1, 4), (4, 1), (8, 1), (5, 1)])
def test_a_tree_takes_what_the_formula_says_once_it_is_full(nodes: int, each: int):
    free = Link(bytes_per_s=10e9, latency_us=0)
    topology = Topology(devices_per_node=each, nodes=nodes, inside=free, outside=free, overhead_us=0)
    formula_us = collective_us(Collective.ALL_REDUCE, 64 * MEGABYTE, topology, "tree")
    assert alone_us(topology, 64 * MEGABYTE, "tree") == pytest.approx(formula_us, rel=1.5 * FILLING)


@pytest.mark.parametrize("latency_us", [0.0, 6.0])
def test_a_hierarchical_all_reduce_takes_what_the_formula_says_or_hides_latency(latency_us: float):
    # the four rings between nodes share links: while one waits for a hop, another sends
    outside = replace(OUTSIDE, latency_us=latency_us)
    topology = Topology(devices_per_node=4, nodes=4, inside=INSIDE, outside=outside)
    formula_us = collective_us(Collective.ALL_REDUCE, 64 * MEGABYTE, topology, "hierarchical")
    hidden_us = 2 * 3 * latency_us
    seen_us = alone_us(topology, 64 * MEGABYTE, "hierarchical")
    assert formula_us - hidden_us <= seen_us * (1 + 1e-9) and seen_us <= formula_us * (1 + 1e-9)
    if latency_us == 0:
        assert seen_us == pytest.approx(formula_us)


@pytest.mark.parametrize(("workers", "servers"), [(4, 4), (8, 2), (2, 4)])
def test_pushing_and_pulling_takes_the_busiest_link_twice(workers: int, servers: int):
    # as whatif.parameter_server has it: a server's link carries what all workers send it
    link = Link(bytes_per_s=10e9, latency_us=3)
    topology = Topology(devices_per_node=workers + servers, inside=link, overhead_us=0)
    transfers = push_pull(MEGABYTE, range(workers), range(workers, workers + servers))
    graph = ranks([0.0] * workers)
    seen = replayed(graph, topology, (TransferPhase(transfers=transfers, way=SIMPLE),))
    once_us = 3 + MEGABYTE * max(1.0, workers / servers) / 10e9 * 1e6
    if workers >= servers:
        assert seen.makespan_us - 1 == pytest.approx(2 * once_us)
    else:  # servers that have all answer while workers still push to others
        assert once_us < seen.makespan_us - 1 < 2 * once_us


def test_servers_beside_workers_keep_their_own_part():
    transfers = push_pull(MEGABYTE, range(4), range(4))
    assert len(transfers) == 2 * 4 * 3
    assert all(one.source != one.target for one in transfers)


def test_a_rank_that_comes_late_holds_up_the_others():
    topology = Topology(devices_per_node=4, inside=INSIDE, overhead_us=0)
    phases = phases_of(Collective.ALL_REDUCE, MEGABYTE, range(4), topology, "ring")
    in_time, late = (replayed(ranks(ready), topology, phases) for ready in ([0.0] * 4, [0.0, 0.0, 50.0, 0.0]))
    for rank in range(4):
        assert late[f"behind{rank}"][0] >= 50
    assert late.makespan_us == 50 + in_time.makespan_us  # its part has to go all the way round


@pytest.mark.parametrize("late", range(4))
@pytest.mark.parametrize("way", ["ring", "tree", "hierarchical", "push and pull"])
def test_nobody_ends_before_the_last_one_began(way: str, late: int):
    outside = Link(bytes_per_s=1e9, latency_us=5)
    topology = Topology(devices_per_node=2, nodes=2, inside=INSIDE, outside=outside, overhead_us=0)
    if way == "push and pull":
        phases = (TransferPhase(transfers=push_pull(MEGABYTE, range(4), range(4)), way=SIMPLE),)
    else:
        phases = phases_of(Collective.ALL_REDUCE, MEGABYTE, range(4), topology, way)  # pyright: ignore[reportArgumentType]
    seen = replayed(ranks([1e6 if rank == late else 0.0 for rank in range(4)]), topology, phases)
    assert all(seen[f"behind{rank}"][0] >= 1e6 for rank in range(4))


def test_two_collectives_on_the_same_links_take_turns():
    topology = Topology(devices_per_node=4, inside=replace(INSIDE, latency_us=0), overhead_us=0)
    names = " ".join(f"before{rank}" for rank in range(4))
    graph = ranks([0.0] * 4)
    other = graph_of(
        *(f"before{rank} gpu{rank} 0" for rank in range(4)),
        f"reduce0 channel 1000 after {names}",
        f"reduce1 channel1 1000 after {names}",
        *(f"behind{rank} gpu{rank} 1 after reduce0 reduce1" for rank in range(4)),
    )
    lanes = tuple(
        replace(one, device=int(one.name[3:]) if one.kind == "stream" else None) for one in other.lanes
    )
    other = replace(other, lanes=lanes)
    phases = phases_of(Collective.ALL_REDUCE, 8 * MEGABYTE, range(4), topology, "ring")
    one_us = replayed(graph, topology, phases)["behind0"][0]
    assert replayed(other, topology, phases, phases)["behind0"][0] == pytest.approx(2 * one_us)


def test_collectives_of_one_channel_keep_their_order():
    topology = Topology(devices_per_node=4, inside=INSIDE)
    phases = phases_of(Collective.ALL_REDUCE, MEGABYTE, range(4), topology, "ring")
    one_us = collective_us(Collective.ALL_REDUCE, MEGABYTE, topology, "ring")
    seen = replayed(ranks([0.0] * 4, collectives=2), topology, phases, phases)
    assert seen["reduce0"] == pytest.approx((one_us, one_us))  # the moment at which all are done
    assert seen["behind0"][0] == pytest.approx(2 * one_us)


def test_gradients_of_a_step_take_as_long_on_links_as_by_the_formula():
    topology = Topology(devices_per_node=4, inside=INSIDE, overhead_us=0)
    costs = StepCosts(
        blocks=BlockTimes(operators=lambda operation: operation.operands[0].elements / 1e4),
        communication=Communication(topology=topology),
    )
    model = Transformer(layers=4, hidden=256, heads=4, sequence=64, vocabulary=1000)
    plan = ParallelPlan(data=4, global_batch=4, bucket_bytes=2e6)
    graph = step_graph(model, plan, costs, ranks="all")
    reduced = np.flatnonzero(graph.tasks.kind == TaskKind.COLLECTIVE).tolist()
    assert len(reduced) > 2
    sizes = graph.tasks.size_bytes
    on_links = expand(
        graph,
        [
            Expansion(
                task=task,
                phases=phases_of(Collective.ALL_REDUCE, float(sizes[task]), range(4), topology, "ring"),
            )
            for task in reduced
        ],
        topology,
    )
    assert simulate(on_links).makespan_us == pytest.approx(simulate(graph).makespan_us)


def test_what_cannot_be_expanded_is_refused():
    topology = Topology(devices_per_node=2, inside=INSIDE)
    graph = ranks([0.0, 0.0])
    phases = phases_of(Collective.ALL_REDUCE, MEGABYTE, range(2), topology, "ring")
    with raises(ExpansionError, "'before0'"):
        expand(graph, [Expansion(task=place_of(graph, "before0"), phases=phases)], topology)
    task = place_of(graph, "reduce0")
    with raises(ExpansionError, "'reduce0'"):
        expand(graph, [Expansion(task=task, phases=phases)] * 2, topology)
    far = TransferPhase(transfers=ring(Collective.ALL_REDUCE, MEGABYTE, (0, 7)), way=SIMPLE)
    with raises(ExpansionError, "7", "2"):
        expand(graph, [Expansion(task=task, phases=(far,))], topology)


def test_algorithms_say_what_they_do_not_do():
    topology = Topology(devices_per_node=2, nodes=2, inside=INSIDE, outside=OUTSIDE)
    with raises(ExpansionError, "tree", "all-gather"):
        phases_of(Collective.ALL_GATHER, 1.0, range(4), topology, "tree")
    with raises(ExpansionError, "ring", "all-to-all"):
        phases_of(Collective.ALL_TO_ALL, 1.0, range(4), topology, "ring")
    with raises(ExpansionError, "node 0", "2", "node 1", "1"):
        phases_of(Collective.ALL_REDUCE, 1.0, range(3), topology, "ring")
    with raises(ExpansionError, "device 4"):
        phases_of(Collective.ALL_REDUCE, 1.0, (0, 4), topology, "ring")
    with raises(ExpansionError, "1", "0"):
        push_pull(1.0, (0,), ())
