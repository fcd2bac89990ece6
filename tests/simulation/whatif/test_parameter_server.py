"""Parameter servers, with and without P3: a layer has 25 bytes, the link carries 1 a microsecond."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.links import Link
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.optimization import Estimate, applied
from daceml.simulation.whatif.p3 import PriorityPropagation
from daceml.simulation.whatif.parameter_server import ParameterServer
from tests.simulation.whatif.training_runs import gradients, two_layers
from tests.support.golden import raises
from tests.support.task_stories import graph_of


def usual(**options: object) -> dict[str, object]:
    known: dict[str, object] = {
        "workers": 2, "beside_workers": True, "link": Link(bytes_per_s=1e6, latency_us=0),
        "gradients": gradients(), "efficiency": Estimate.known(1.0),
    }  # fmt: skip
    return known | options


def server(**options: object) -> ParameterServer:
    return ParameterServer(**usual(**options))  # pyright: ignore[reportArgumentType]


def p3(**options: object) -> PriorityPropagation:
    return PriorityPropagation(**usual(**options))  # pyright: ignore[reportArgumentType]


def run(what: ParameterServer, graph: TaskGraph) -> Schedule:
    return simulate(applied(what, graph), what.policy)


def spans(schedule: Schedule, name: str) -> list[tuple[float, float]]:
    tasks = np.flatnonzero(schedule.graph.where_name(lambda known: known == name))
    return sorted((float(schedule.start_us[task]), float(schedule.end_us[task])) for task in tasks)


def test_the_next_step_waits_for_the_weights_of_each_layer():
    # Two workers with a server beside each: in each direction half of the 25 bytes of the worker, and half of
    # those that its server has to do with: 25 us.
    schedule = run(server(), two_layers(2))
    assert schedule["b.bw.0"] == (41, 71) and spans(schedule, "push of b.weight")[0] == (71, 96)
    assert spans(schedule, "pull of b.weight")[0] == (96, 121)
    assert schedule["a.bw.0"] == (71, 101) and spans(schedule, "push of a.weight")[0] == (101, 126)
    assert spans(schedule, "pull of a.weight")[0] == (126, 151)
    assert schedule["a.fw.1"] == (151, 171) and schedule["b.fw.1"] == (171, 191)


def test_an_update_is_not_free_so_that_n_workers_are_at_most_n_times_as_fast():
    graph = applied(server(workers=8, link=Link(bytes_per_s=1e15, latency_us=0)), two_layers(2))
    assert simulate(graph).makespan_us == pytest.approx(simulate(two_layers(2)).makespan_us)


@pytest.mark.parametrize(
    ("servers", "beside", "duration_us"),
    [
        (None, True, 37.5),  # (3/4 + 3/4) * 25: a worker's own, and its server's
        (1, True, 93.75),  # (3/4 + 3) * 25: the one server's link is the busiest
        (4, False, 25),  # as much as each worker sends
        (2, False, 50),  # each server gets what two workers send
    ],
)
def test_the_busiest_link_decides(servers: int | None, beside: bool, duration_us: float):
    what = server(workers=4, servers=servers, beside_workers=beside)
    assert what.transfer_us(25) == duration_us


def slow_last_layer() -> TaskGraph:
    """Layer b has 100 bytes and is ready at 20; layer a, which the next step needs first, 20 bytes at 40."""
    return graph_of(
        "a.fw.0 gpu0 10 phase forward layer a step 0",
        "b.fw.0 gpu0 10 phase forward layer b step 0",
        "b.bw.0 gpu0 20 phase backward layer b step 0",
        "a.bw.0 gpu0 20 phase backward layer a step 0",
        "a.fw.1 gpu0 100 phase forward layer a step 1",
        "b.fw.1 gpu0 10 phase forward layer b step 1",
    )


def test_small_slices_let_the_layer_pass_that_the_next_step_needs_first():
    told = Gradients.of({"a.weight": 20, "b.weight": 100})
    plain = run(server(gradients=told), slow_last_layer())
    # First come, first served: b from 40 to 140, then a; its weights are back after two more transfers.
    assert spans(plain, "push of b.weight") == [(40, 140)] and spans(plain, "push of a.weight") == [
        (140, 160)
    ]
    assert spans(plain, "pull of a.weight") == [(240, 260)] and plain["a.fw.1"] == (260, 360)
    sliced = run(p3(gradients=told, slice_bytes=20), slow_last_layer())
    # Slices of 20 us: when a is ready at 60, one of b's is done, and a goes first on both channels.
    assert spans(sliced, "push of b.weight") == [(40, 60), (80, 100), (100, 120), (120, 140), (140, 160)]
    assert spans(sliced, "push of a.weight") == [(60, 80)] and spans(sliced, "pull of a.weight") == [
        (80, 100)
    ]
    assert sliced["a.fw.1"] == (100, 200) and sliced["b.fw.1"] == (200, 210)


def test_one_slice_and_no_priority_is_the_plain_server():
    whole = p3(slice_bytes=1e9)
    assert run(server(), two_layers(3)).makespan_us == simulate(applied(whole, two_layers(3))).makespan_us


def test_a_single_worker_sends_nothing():
    alone = run(server(workers=1), two_layers(2))
    assert spans(alone, "push of a.weight")[0] == (101, 101) and alone["a.fw.1"] == (111, 131)


@pytest.mark.parametrize(
    ("what", "facts"),
    [
        (server(gradients=None), ("`gradients`",)),
        (server(gradients=Gradients.of(50)), ("gradients",)),
        (server(servers=3), ("3 servers", "2 workers")),
        (p3(slice_bytes=0), ("0 bytes",)),
    ],
    ids=["no gradients", "a total alone", "more servers than workers", "no bytes"],
)
def test_options_that_make_no_sense_are_refused(what: ParameterServer, facts: tuple[str, ...]):
    with raises(WhatIfError, what.title, *facts):
        applied(what, two_layers(2))


def test_a_run_without_layers_or_that_communicates_is_refused():
    bare = graph_of("fw gpu0 20 phase forward step 0", "bw gpu0 30 phase backward layer a step 0")
    with raises(WhatIfError, p3().title, "forward"):
        applied(p3(), bare)
    with raises(WhatIfError, p3().title, "'faster-link'"):
        applied(p3(), applied(server(), two_layers(2)))
    with raises(WhatIfError, p3().title, "backward"):
        applied(p3(), graph_of("fw gpu0 20 phase forward layer a step 0"))
