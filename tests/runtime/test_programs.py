"""Programs: what a call computes, what it refuses, and what several calls at once do to each other."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import dace
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from daceml.errors import CallError, ExecutionError
from daceml.onnx_ops.schema import nodes
from daceml.runtime import launcher
from daceml.sdfg.network import Network
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from tests.support.golden import raises
from tests.support.small_networks import build, elementwise, whole


def linear_network() -> Network:
    """y = (2 x) w, with w a weight."""
    network = elementwise(["_out = _a * dace.float32(2)", "_out = _a"], (8, 32))
    sdfg, state = network.sdfg, network.state
    for node in list(state.nodes()):
        if isinstance(node, dace.nodes.MapEntry | dace.nodes.MapExit | dace.nodes.Tasklet) and "1" in str(
            node.label
        ):
            state.remove_node(node)
    sdfg.add_array("w", [32, 32], dace.float32)
    matmul = nodes.MatMul("matmul", inputs=["A", "B"], outputs=["Y"])
    matmul.implementation = "aten:matmul"
    state.add_node(matmul)
    found = {n.data: n for n in state.data_nodes()}
    state.add_edge(found["x1"], None, matmul, "A", whole(sdfg, "x1"))
    state.add_edge(state.add_access("w"), None, matmul, "B", whole(sdfg, "w"))
    state.add_edge(matmul, "Y", found["x2"], None, whole(sdfg, "x2"))
    network.weights["w"] = "layer.weight"
    return network


def test_kernels_and_vendor_calls_share_memory_and_weights(tmp_path: Path):
    weight = torch.nn.Parameter(torch.randn(32, 32))
    program = build(linear_network(), tmp_path, {"layer.weight": weight})
    x = torch.randn(8, 32)
    (y,) = program([x])
    assert torch.equal(y, (2 * x) @ weight.detach())
    assert not y.requires_grad
    with torch.no_grad():
        weight.mul_(3)
    assert torch.equal(program([x])[0], (2 * x) @ weight.detach())
    weight.data = torch.randn(32, 32)  # moves the memory without telling anyone
    assert torch.equal(program([x])[0], (2 * x) @ weight.detach())


def test_what_a_program_would_misread_is_refused(tmp_path: Path):
    weight = torch.randn(32, 32)
    program = build(linear_network(), tmp_path, {"layer.weight": weight})
    for bad, facts in [
        (torch.randn(8, 31), ["'x0'", "[8, 31]", "[8, 32]"]),
        (torch.randn(8, 32).double(), ["'x0'", "element type"]),
        (torch.randn(32, 8).t(), ["'x0'", "contiguous"]),
    ]:
        with raises(ExecutionError, *facts):
            program([bad])
    with raises(ExecutionError, "1 tensors", "got 0"):
        program([])
    with raises(CallError, "'layer.weight'", "contiguous"):
        build(linear_network(), tmp_path, {"layer.weight": weight.t()})
    weight.data = torch.randn(3, 3)
    with raises(ExecutionError, "layer.weight", "[3, 3]", "[32, 32]"):
        program([torch.randn(8, 32)])


def test_an_unknown_program_number_is_refused(tmp_path: Path):
    build(elementwise(["_out = _a"]), tmp_path)
    with raises(RuntimeError, "program 123456"):
        torch.ops.daceml.call([], 123456)


def test_the_operator_passes_opcheck(tmp_path: Path):
    program = build(elementwise(["_out = _a + dace.float32(1)", "_out = _a * _a"]), tmp_path)
    torch.library.opcheck(torch.ops.daceml.call.default, ([torch.randn(8, 32)], program.number))


def counting_network() -> Network:
    """y = 2 x, and the buffer `count` becomes count + 1."""
    network = elementwise(["_out = _a * dace.float32(2)"])
    sdfg, state = network.sdfg, network.state
    sdfg.add_array("count", [1], dace.float32)
    sdfg.add_array("count_next", [1], dace.float32)
    state.add_mapped_tasklet(
        "add",
        {"i": "0:1"},
        {"_a": dace.Memlet("count[i]")},
        "_out = _a + dace.float32(1)",
        {"_out": dace.Memlet("count_next[i]")},
        external_edges=True,
    )
    network.weights["count"] = "count"
    network.mutations["count_next"] = "count"
    network.scalars = frozenset({"count", "count_next"})
    return network


def test_buffers_are_written_and_declared(tmp_path: Path):
    count = torch.zeros(())
    program = build(counting_network(), tmp_path, {"count": count})
    x = torch.randn(8, 32)
    version = count._version
    for expected in (1, 2, 3):
        assert torch.equal(program([x])[0], 2 * x)
        assert count.item() == expected
    assert count._version > version
    written = [torch.empty(8, 32), count]
    torch.library.opcheck(torch.ops.daceml.call_into.default, ([x], written, program.number))


def test_two_threads_do_not_disturb_each_other(tmp_path: Path):
    steps = ["_out = _a + dace.float32(1)", "_out = _a * dace.float32(3)", "_out = _a - dace.float32(2)"]
    program = build(elementwise(steps, (64, 257)), tmp_path)
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = torch.full((64, 257), float(seed))
        wrong.extend(seed for _ in range(200) if not torch.equal(program([x])[0], (x + 1) * 3 - 2))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_of_two_live_calls_are_separate(tmp_path: Path):
    program = build(elementwise(["_out = _a + dace.float32(1)"]), tmp_path)
    first, second = program([torch.zeros(8, 32)])[0], program([torch.ones(8, 32)])[0]
    assert first.eq(1).all()
    assert second.eq(2).all()


def test_threads_obey_torch(tmp_path: Path):
    """Each element says which thread wrote it."""
    network = elementwise(
        ["_out = (float)(((uintptr_t)__builtin_thread_pointer() >> 12) & 0xFFFFFF) + 0 * _a;"],
        (64, 512),
        language="CPP",
    )
    schedule_maps(network)
    program = build(network, tmp_path)
    x = torch.zeros(64, 512)

    def threads() -> int:
        return program([x])[0].unique().numel()

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert threads() == 2
        torch.set_num_threads(1)
        assert threads() == 1
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(threads()))
        thread.start()
        thread.join()
        assert seen == [1]
    finally:
        torch.set_num_threads(before)


def test_a_program_that_is_collected_within_a_trace_leaves_no_mark(tmp_path: Path):
    """The collector may run anywhere: an operator that a finalizer calls would become part of the graph."""
    programs = [build(elementwise(["_out = _a"], (8, 32)), tmp_path)]
    number = programs[0].number

    def forward(x):
        y = x + 1
        programs.clear()
        gc.collect()
        return y * 2

    graph = make_fx(forward, pre_dispatch=True)(torch.ones(2)).graph
    assert [n.name for n in graph.nodes if n.op == "call_function"] == ["add", "mul"]
    assert number not in launcher.folders()
