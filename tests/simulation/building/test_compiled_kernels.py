"""Kernels of compiled programs in a trace get the modules that they compute."""

from __future__ import annotations

from typing import Any

from daceml.profiling.kineto import trace_of
from daceml.simulation.building.build import build
from daceml.simulation.graph import TaskGraph
from tests.support.recorded_calls import Recording

NORM, GELU = "Norm_0_0_3_aa", "Gelu_0_0_3_bb"


def kernel(function: str) -> str:
    return f"daceml::kernel::{function}(float const*, float*)"


def program(number: int | None, *kernels: tuple[str, str]) -> dict[str, Any]:
    """Steps (function, layer), and one that launches nothing."""
    steps = [{"function": function, "layers": [layer], "nodes": []} for function, layer in kernels]
    return {"number": number, "steps": [{"function": None, "layers": ["fc"], "nodes": []}, *steps]}


def called(run: Recording, at: float, *functions: str, number: int | None = None) -> None:
    """A call of a program: launches 10 us apart, and the recorder's mark."""
    run.operator("daceml::call", at, 10 * len(functions) + 10)
    if number is not None:
        run.operator("daceml.kernel: Norm k_1", at + 1, 5, program=number, step=1)
    for place, function in enumerate(functions):
        begin = at + 2 + 10 * place
        run.call("cudaLaunchKernel", begin, 3, (kernel(function), 7, begin + 5, 4))


def layers(run: Recording, *programs: dict[str, Any]) -> list[str]:
    graph: TaskGraph = build(run.trace(daceml={"programs": list(programs)}))
    ours = [task for task in graph if graph.name_of(task).startswith("daceml::kernel")]
    return [graph.layer_of(task) for task in ours]


BLOCKS = program(1, (NORM, "blocks.0.norm"), (GELU, "blocks.0.act"), (NORM, "blocks.1.norm"))


def test_one_kernel_of_two_layers_is_known_by_its_place_in_the_call():
    run = Recording()
    called(run, 0, NORM, GELU, NORM)
    called(run, 100, NORM, GELU, NORM)
    assert layers(run, BLOCKS) == ["blocks.0.norm", "blocks.0.act", "blocks.1.norm"] * 2


def test_without_its_call_a_kernel_belongs_to_what_all_its_steps_share():
    run = Recording()
    run.call("cudaLaunchKernel", 0, 3, (kernel(NORM), 7, 5, 4))
    run.call("cudaLaunchKernel", 10, 3, (kernel(GELU), 7, 15, 4))
    assert layers(run, BLOCKS) == ["blocks", "blocks.0.act"]


def test_two_programs_with_the_same_kernels_are_told_apart_by_the_recorders_mark():
    left, right = (program(one, (NORM, f"{side}.norm")) for one, side in ((1, "left"), (2, "right")))
    run = Recording()
    called(run, 0, NORM, number=2)
    called(run, 100, NORM, number=1)
    assert layers(run, left, right) == ["right.norm", "left.norm"]
    unmarked = Recording()
    called(unmarked, 0, NORM)
    assert layers(unmarked, left, right) == [""]


def test_a_layer_that_the_trace_marks_stays_where_the_program_knows_none():
    run = Recording()
    run.annotation("daceml.layer: net", 0, 100)
    called(run, 10, NORM, GELU)
    assert layers(run, program(1, (NORM, ""), (GELU, "net.act"))) == ["net", "net.act"]


def test_kernels_of_others_keep_their_layers():
    run = Recording()
    run.annotation("daceml.layer: head", 0, 100)
    run.operator("aten::mm", 10, 20)
    run.call("cudaLaunchKernel", 12, 3, ("sgemm", 7, 20, 4))
    graph = build(run.trace(daceml={"programs": [BLOCKS]}))
    assert [graph.layer_of(task) for task in graph if graph.name_of(task) == "sgemm"] == ["head"]


def test_the_file_that_a_profiler_writes_is_read_the_same():
    """The programs stand in the header of the file itself."""
    import json

    run = Recording()
    called(run, 0, NORM, GELU, NORM)
    text = json.dumps({"schemaVersion": 1, "traceEvents": run.events, "daceml": {"programs": [BLOCKS]}})
    graph = build(trace_of(text.encode(), "run.json"))
    ours = [graph.layer_of(task) for task in graph if graph.name_of(task).startswith("daceml::kernel")]
    assert ours == ["blocks.0.norm", "blocks.0.act", "blocks.1.norm"]
