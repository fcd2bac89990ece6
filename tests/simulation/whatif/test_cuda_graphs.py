"""One launch for the kernels of a step."""

from __future__ import annotations

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.cuda_graphs import CudaGraphs
from daceml.simulation.whatif.optimization import Estimate, applied
from daceml.simulation.whatif.whatif_result import predict
from tests.support.golden import golden
from tests.support.task_stories import graph_of

CERTAIN = CudaGraphs(
    launch_us=Estimate.known(8),
    kernel_launch_us=Estimate.known(0.5),
    spacing_us=Estimate.known(1),
    python_us=Estimate.known(20),
)


def step(number: int = 0) -> list[str]:
    """A batch is copied and waited for; four kernels follow whose launches take longer than they do."""
    kernels = [
        sentence
        for k in range(4)
        for sentence in (
            f"l{k} cpu 4 gap 26 phase forward step {number}",
            f"k{k} gpu0 10 gap 1.5 with l{k} + 5 phase forward step {number}",
        )
    ]
    return [
        f"cpy cpu 2 gap 10 phase forward step {number}",
        f"HtoD gpu0 6 with cpy + 5 kind copy phase forward step {number}",
        f"sync cpu 1 after HtoD phase forward step {number}",
        *kernels,
    ]


def test_gaps_and_launches_become_one_call_and_kernels_follow_each_other():
    graph = graph_of(*step(), "end cpu 1 after k3")
    assert simulate(graph)["k3"] == (143, 153)
    schedule = simulate(applied(CERTAIN, graph))
    assert schedule["cudaGraphLaunch"] == (22, 52)  # 20 of Python, 8, and a half for each kernel
    assert schedule["k0"] == (47, 57) and schedule["k1"] == (58, 68) and schedule["k3"] == (80, 90)
    assert schedule["end"] == (90, 91)


def test_launches_of_autograds_thread_go_as_well():
    graph = graph_of(
        "l0 cpu 4 gap 6 phase forward step 0",
        "k0 gpu0 10 with l0 + 5 phase forward step 0",
        "l1 cpu1 4 after l0 + 30 phase backward step 0",
        "k1 gpu0 10 gap 1.5 with l1 + 5 phase backward step 0",
        "next cpu 4 after l1 + 30 phase optimizer step 0",
    )
    schedule = simulate(applied(CERTAIN, graph))
    assert schedule["next"] == (35, 39) and schedule["k1"] == (42, 52)


def test_kernels_that_follow_each_other_sooner_already_keep_their_spacing():
    graph = graph_of(*(line.replace("gap 1.5", "gap 0.25") for line in step()), "end cpu 1 after k3")
    schedule = simulate(applied(CERTAIN, graph))
    assert schedule["k0"] == (47, 57) and schedule["k1"] == (57.25, 67.25)


def test_the_cpu_is_one_graph_ahead_at_most():
    steps = [line.replace("step 0", f"step {k}") for k in range(3) for line in step()[3:]]
    schedule = simulate(applied(CERTAIN, graph_of(*steps)))
    calls = [task for task in range(len(schedule)) if schedule.graph.name_of(task) == "cudaGraphLaunch"]
    # Graphs begin at 51, 95.5 and 140; the third call could at 86, and does with the second graph.
    assert schedule.start_us[calls].tolist() == [26, 56, 95.5]


def test_a_step_that_waits_for_the_device_in_between_is_refused():
    graph = graph_of(*step(), "item cpu 3 after k3 phase forward step 0", *step()[3:])
    reason = CERTAIN.check(graph)
    assert reason == golden() and all(fact in reason for fact in ("item", "8", "4"))


def test_a_run_without_launches_or_with_graphs_is_refused():
    assert CERTAIN.check(graph_of("op cpu 1 kind operator phase forward")) == golden()
    used = graph_of("g cpu 1 phase forward", *(f"k{n} gpu0 1 with g phase forward" for n in range(9)))
    reason = CERTAIN.check(used)
    assert reason == golden() and "CUDA graph" in reason


def test_host_work_that_is_no_dispatch_stays():
    """Between the launches something else takes 20 ms, and one call allocates for 3 ms."""
    graph = graph_of(
        "cudaLaunchKernel cpu 5 step 0 phase forward", "a gpu0 10 with cudaLaunchKernel step 0 phase forward",
        "cudaMalloc cpu 3000 step 0 phase forward",
        "cudaLaunchKernel cpu 5 gap 20000 step 0 phase forward",
        "b gpu0 10 with cudaLaunchKernel step 0 phase forward",
    )  # fmt: skip
    seen = predict(graph, [CudaGraphs()])
    assert seen.step_us > 20_000 - 200 + 3000 - 200
    assert seen.speedup < 1.1
