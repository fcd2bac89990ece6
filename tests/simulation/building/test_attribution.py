from __future__ import annotations

from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import Phase, TaskKind
from tests.support.golden import golden
from tests.support.recorded_calls import Recording

AUTOGRAD = 200


def facts(graph: TaskGraph, name: str) -> tuple[str, str, Phase]:
    (task,) = (task for task in graph if graph.name_of(task) == name)
    return graph.operator_of(task), graph.layer_of(task), Phase(graph.tasks.phase[task])


def training_step() -> Recording:
    run = Recording()
    run.annotation("ProfilerStep#3", 0, 1000)
    run.annotation("daceml.layer: net.conv", 10, 50)
    run.operator("aten::conv2d", 20, 30, sequence=7)
    run.operator("aten::cudnn_convolution", 22, 20, sequence=7)
    run.call("cudaLaunchKernel", 25, 5, ("fprop", 7, 40, 10))
    run.operator(
        "autograd::engine::evaluate_function: ConvolutionBackward0",
        400,
        90,
        thread=AUTOGRAD,
        sequence=7,
    )
    run.operator("aten::convolution_backward", 410, 50, thread=AUTOGRAD)
    run.call("cudaLaunchKernel", 420, 5, ("dgrad", 7, 440, 10), thread=AUTOGRAD)
    run.annotation("Optimizer.step#SGD.step", 800, 100)
    run.operator("aten::add_", 810, 40)
    run.call("cudaLaunchKernel", 820, 5, ("update", 7, 830, 10))
    return run


def test_kernels_belong_where_their_launch_was_made():
    graph = training_step().graph()
    assert facts(graph, "fprop") == ("aten::conv2d", "net.conv", Phase.FORWARD)
    assert facts(graph, "update") == ("aten::add_", "", Phase.OPTIMIZER)


def test_backward_work_belongs_to_the_layer_of_its_forward_operator():
    assert facts(training_step().graph(), "dgrad") == ("aten::conv2d", "net.conv", Phase.BACKWARD)


def test_every_task_of_a_step_knows_it():
    graph = training_step().graph()
    assert graph.step_names == ("ProfilerStep#3",)
    assert (graph.tasks.step == 0).all()
    assert (graph.tasks.kind == TaskKind.MARKER).sum() == 2


def test_without_its_mark_the_optimizer_is_what_follows_backward():
    run = training_step()
    run.events = [event for event in run.events if not event["name"].startswith("Optimizer")]
    graph = run.graph()
    assert facts(graph, "update")[2] is Phase.OPTIMIZER
    assert graph.notes == (golden(),)
    assert facts(graph, "fprop")[2] is Phase.FORWARD


def test_a_run_without_a_device_has_operators_for_tasks():
    run = Recording()
    run.annotation("Optimizer.step#SGD.step", 100, 50)
    run.operator("aten::linear", 0, 40, sequence=1)
    run.operator("aten::addmm", 5, 30, sequence=1)
    run.operator("autograd::engine::evaluate_function: AddmmBackward0", 50, 40, sequence=1)
    run.operator("aten::mm", 55, 30)
    run.operator("aten::add_", 110, 20)
    graph = run.graph()
    assert [graph.name_of(task) for task in graph] == ["aten::linear", "aten::mm", "aten::add_"]
    assert facts(graph, "aten::mm") == ("aten::linear", "", Phase.BACKWARD)
    assert facts(graph, "aten::add_")[2] is Phase.OPTIMIZER
