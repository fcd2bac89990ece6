"""Deep gradient compression on two devices that send 1 byte a microsecond."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.deep_gradient_compression import DeepGradientCompression
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.simulation.whatif.training_runs import gradients, pair, two_layers, two_layers_on_cpu
from tests.support.golden import raises
from tests.support.task_stories import graph_of

USUAL: dict[str, object] = {
    "topology": pair(), "gradients": gradients(), "efficiency": Estimate.known(1.0),
    "interference": Estimate.known(0.0), "first_bucket_bytes": 25, "bucket_bytes": 25,
}  # fmt: skip
FREE = {"compression": Estimate.known(0.0), "decompression": Estimate.known(0.0)}


def compressed(**options: object) -> DeepGradientCompression:
    return DeepGradientCompression(**(USUAL | options))  # pyright: ignore[reportArgumentType]


def test_kernels_compress_before_the_all_gather_and_decompress_after_it():
    # The optimizer takes 10 us for 50 bytes; half of it compresses a bucket, a quarter decompresses it.
    # 25 bytes become 2, values and places; each device gets the 2 of the other one: 2 us.
    what = compressed(ratio=0.04, compression=Estimate.known(1.0), decompression=Estimate.known(0.5))
    schedule = simulate(applied(what, two_layers(1)))
    assert schedule["b.bw.0"] == (41, 71) and schedule["compression of bucket 0"] == (71, 76)
    assert schedule["all-gather of bucket 0"] == pytest.approx((76, 78))
    assert schedule["a.bw.0"] == (76, 106) and schedule["compression of bucket 1"] == (106, 111)
    assert schedule["decompression of bucket 0"] == (111, 113.5)
    assert schedule["all-gather of bucket 1"] == pytest.approx((111, 113))
    assert schedule["decompression of bucket 1"] == (113.5, 116)
    assert schedule["sgd.0"] == (116, 126)


def test_each_kernel_has_a_launch_behind_the_one_before_it():
    graph = applied(compressed(ratio=0.04), two_layers(1))
    thread = [graph.name_of(task) for task in graph.lane_members(0)]
    assert thread == [
        "launch.a.fw.0",
        "launch.b.fw.0",
        "launch.b.bw.0",
        "launch of compression of bucket 0",
        "launch.a.bw.0",
        "launch of compression of bucket 1",
        "launch of decompression of bucket 0",
        "launch of decompression of bucket 1",
        "launch.sgd.0",
    ]


def test_on_a_cpu_operators_compress():
    schedule = simulate(
        applied(
            compressed(ratio=0.04, compression=Estimate.known(1.0), decompression=Estimate.known(0.0)),
            two_layers_on_cpu(),
        )
    )
    assert schedule["compression of bucket 0"] == (70, 75) and schedule["a.bw"] == (75, 105)
    assert schedule["all-gather of bucket 1"] == pytest.approx((110, 112)) and schedule["sgd"][
        0
    ] == pytest.approx(112)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_without_kernels_and_with_all_gradients_it_is_data_parallel_training(ratio: float):
    # Half of the gradients with their places are as many bytes as all; nothing is gained.
    plain = DataParallel(**USUAL)  # pyright: ignore[reportArgumentType]
    expected, got = (
        simulate(applied(what, two_layers())) for what in (plain, compressed(ratio=ratio, **FREE))
    )
    assert [got.graph.name_of(task) for task in got.graph] == [
        expected.graph.name_of(task) for task in expected.graph
    ]
    assert (got.start_us == expected.start_us).all() and (got.end_us == expected.end_us).all()


@pytest.mark.parametrize(
    ("what", "fact"),
    [
        (compressed(ratio=0), "0"),
        (compressed(ratio=2), "2"),
        (compressed(gradients=None), "`gradients`"),
    ],
    ids=["nothing", "twice", "no gradients"],
)
def test_options_that_make_no_sense_are_refused(what: DeepGradientCompression, fact: str):
    with raises(WhatIfError, DeepGradientCompression.title, fact):
        applied(what, two_layers(1))


def test_a_run_without_an_optimizer_does_not_tell_how_long_kernels_take():
    graph = graph_of("fw gpu0 20 phase forward layer a step 0", "bw gpu0 30 phase backward layer a step 0")
    with raises(WhatIfError, DeepGradientCompression.title, "optimizer.step()"):
        applied(compressed(), graph)
    assert compressed(**FREE).check(graph) is None
