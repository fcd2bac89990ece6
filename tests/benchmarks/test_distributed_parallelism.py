"""Benchmarks of parallel training: what they read, how they judge, and that all ranks are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.distributed import scale, scale_process, vtrain
from benchmarks.distributed.a100_operators import batched_us
from benchmarks.distributed.launch_intervals import FEWEST, intervals_us
from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation
from daceml.operations.models.product_table import ProductTable
from daceml.simulation.distributed.parallelism.block_times import BlockTimes
from daceml.simulation.distributed.parallelism.step_graph import StepCosts
from tests.support.task_stories import graph_of

STEPS = """# GPUs,global batch,micro batch,hidden size,heads,# layers,sequence length,tensor,data,pipeline,ms
2,16,4,64,4,8,32,1,1,2,200.5
4,16,1,64,4,8,32,2,2,1,100.25
"""
TABLE = """size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)
1000,1,float,9000,1,10000,1
2000,1,float,9000,1,20000,1
"""


def row(question: int, measured_ms: float, predicted_ms: float) -> dict[str, Any]:
    return {
        "question": (question, 0, 0, question % 2),
        "measured_ms": measured_ms,
        "predicted_ms": predicted_ms,
        "without_host_ms": predicted_ms / 2,
    }


def test_configurations_are_models_with_plans(tmp_path: Path):
    path = tmp_path / vtrain.STEPS
    path.write_text(STEPS)
    first, second = vtrain.configurations(path)
    assert (first.plan.pipeline, first.plan.micro_batches, first.measured_ms) == (2, 4, 200.5)
    assert (second.plan.tensor, second.plan.data, second.plan.recomputation) == (2, 2, "layers")
    assert first.question == (64, 8, 2, 16)


def test_all_reduces_are_those_of_the_tables_and_steps_are_made_of_them(tmp_path: Path):
    for name in vtrain.TABLES.values():
        (tmp_path / name).write_text(TABLE)
    (tmp_path / vtrain.STEPS).write_text(STEPS)
    network = vtrain.network(tmp_path)
    assert [table.duration_us(1500) for table in network.measured] == [15, 15, 15]
    costs = StepCosts(blocks=BlockTimes(operators=lambda operation: 0.0), communication=network)
    _, case = vtrain.configurations(tmp_path / vtrain.STEPS)
    # two tensor-parallel ranks; of each micro-batch, 6 all-reduces of 4 KiB in eight layers, one of embedding
    # and head, and two small ones of the loss
    assert case.plan.micro_batches == 8
    model = case.model
    ends = model.embedding_parameters(2) + model.position_parameters()
    gradients = 2 * (8 * model.layer_parameters(2) + ends)
    inside_us = 8 * ((8 * 6 + 2) * 20 * 4.096 / 2 + 2 * 10)
    assert vtrain.predicted_ms(case, costs) == pytest.approx((inside_us + gradients / 2000 * 20) / 1e3)


def test_regret_is_what_the_chosen_plan_takes_longer():
    assert vtrain.regret([row(0, 100, 90), row(0, 80, 95), row(0, 120, 200)]) == 0.25
    assert vtrain.regret([row(0, 100, 90)]) == 0


def test_bars_tell_the_error_the_order_and_the_choice():
    rows = [row(0, 100, 110), row(0, 200, 190), row(0, 300, 330), row(1, 400, 300), row(1, 380, 410)]
    error, overall, models, batches, chosen = vtrain.bars(rows, call_us=12.3)
    assert error.figure == pytest.approx((0.1 + 0.05 + 0.1 + 0.25 + 30 / 380) / 5) and not error.met
    assert "hosts launch every 12.3 us" in error.note
    # of ten pairs, 300 ms was predicted for 400, below those of 300 and 380
    assert overall.figure == pytest.approx(1 - (8 - 2) / 10)
    assert models.figure == batches.figure == pytest.approx(0), "one group has three"
    assert chosen.figure == pytest.approx((0 + 20 / 380) / 2) and "in 0.50" in chosen.note
    assert not vtrain.bars([], call_us=1.0)[0].met


def test_errors_by_a_column():
    rows = [{**row(0, 100, 110), "tensor": 2}, {**row(0, 100, 80), "tensor": 2}]
    assert vtrain.by(rows, "tensor") == {2: (pytest.approx(0.15), pytest.approx(-0.05), 2)}


def test_intervals_between_launches_of_busy_threads():
    busy = [
        f"cudaLaunchKernel{n} cpu0 1 at {40 * n if n < FEWEST - 1 else 40 * n + 5000}" for n in range(FEWEST)
    ]
    idle = [f"cudaLaunchKernel cpu1 1 at {7 * n}" for n in range(3)]
    other = ["cudaMemcpyAsync cpu0 1 at 3"]
    found = intervals_us(
        graph_of(*busy, *(text.replace("Kernel", f"Kernel_{n}") for n, text in enumerate(idle)), *other)
    )
    np.testing.assert_array_equal(found, np.full(FEWEST - 2, 40.0))


def test_products_of_a_batch_take_as_long_as_one_of_their_rows():
    def entry(m: int) -> Entry:
        shapes = ((m, 64), (128, 64))
        operands = tuple(Operand(shape=shape, dtype="bfloat16") for shape in shapes)
        return Entry(
            operation=Operation(operator="aten::linear", operands=operands),
            environment=Environment(device="a test"),
            duration=Duration(median_s=m * 1e-6),
            provenance="imported",
            source="a story",
            licence="CC0-1.0",
            date="2026-11-20",
        )

    table = ProductTable.of([entry(256), entry(1024)])
    batch = (Operand(shape=(4, 128, 64), dtype="float16"), Operand(shape=(4, 64, 128), dtype="float16"))
    assert batched_us(Operation(operator="aten::bmm", operands=batch), table) == pytest.approx(512)
    many = (Operand(shape=(16, 128, 64), dtype="float16"), Operand(shape=(16, 64, 128), dtype="float16"))
    assert batched_us(Operation(operator="aten::bmm", operands=many), table) == pytest.approx(2048)


@pytest.mark.parametrize("operators", [True, False])
def test_all_ranks_take_as_long_as_those_that_stand_for_them(operators: bool):
    plan = {"data": 4, "tensor": 2, "pipeline": 2, "global_batch": 8}
    case = {"plan": plan, "operators": operators, "host": operators, "fold": False}
    every, few = (scale_process.replay({**case, "ranks": ranks}) for ranks in ("all", "representatives"))
    folded = scale_process.replay({**case, "ranks": "all", "fold": True})
    assert every["step_us"] == few["step_us"] == folded["step_us"]
    assert every["tasks"] > 5 * few["tasks"] and folded["folded_tasks"] == few["tasks"]
    assert every["ranks"] == 16 and every["peak_bytes"] > 0


def test_a_process_that_fails_is_no_figure():
    seen = {"case": "a", "tasks": 2, "edges": 1, "build_s": 1.0, "replay_s": 2.0, "peak_bytes": 2**30}
    seconds, memory, failed, _ = scale.bars([seen, {"case": "b", "failed": "no memory"}])
    assert (seconds.figure, memory.figure, failed.met) == (3.0, 1.0, False)
