"""Operations of a trace's kernels, with the shapes and arguments that the profiler wrote."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from daceml.operations.database.records import Operand
from daceml.operations.measuring.calls import call_of
from daceml.operations.work.operator_work import work_of
from daceml.prediction.recorded_runs.recorded_operations import operation_of, recorded_operations
from daceml.profiling.kineto import read_trace
from daceml.profiling.trace import EventKind
from tests.support.recorded_operators import ADD, GEMM, Run, square


def test_the_innermost_operator_whose_work_is_known():
    run = Run().operator("aten::mm", (GEMM, 4.0), dims=square(8), types=["c10::Half"] * 2)
    trace = run.operator("mine::op", (ADD, 4.0)).wait().trace()
    product, mine = recorded_operations(trace).values()
    assert product.operator == "aten::mm" and product.operation is not None
    assert product.operation.operands == (Operand(shape=(8, 8), dtype="float16"),) * 2
    assert mine.operator == "mine::op" and mine.operation is None


def test_arguments_have_the_names_of_the_operator():
    details = {
        "Input Dims": [[2, 8, 9, 9], [4, 2, 3, 3], [], [], [], [], [], [], []],
        "Input type": ["float", "float", "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar"],
        "Concrete Inputs": ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "4"],
    }
    found = operation_of("aten::convolution", details)
    assert found is not None and found.attributes == {
        "stride": (2, 2),
        "padding": (1, 1),
        "dilation": (1, 1),
        "transposed": False,
        "output_padding": (0, 0),
        "groups": 4,
    }
    work = work_of(found)
    assert work is not None and work.flops == 2 * 2 * 5 * 5 * 4 * 2 * 3 * 3


def test_lists_of_tensors():
    details = {
        "Input Dims": [[[2, 3], [4]], [[2, 3], [4]], []],
        "Input type": ["TensorList", "TensorList", "Scalar"],
    }
    found = operation_of("aten::_foreach_add_", details)
    assert found is not None and [one.shape for one in found.operands] == [(2, 3), (4,), (2, 3), (4,)]
    assert found.attributes == {"self": 2}


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"Input Dims": [[2]]},
        {"Input Dims": [[2]], "Input type": []},
        {"Input Dims": "?", "Input type": "?"},
    ],
)
def test_without_shapes_there_is_no_operation(details: dict[str, object]):
    assert operation_of("aten::add", details) is None


def test_what_torch_s_profiler_writes_is_what_its_dispatcher_saw(tmp_path: object):
    """The work of every operator is the same, whether it was measured or recorded."""
    x, weight = torch.randn(2, 8, 9, 9), torch.randn(4, 2, 3, 3)
    file = f"{tmp_path}/run.json"
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        torch.nn.functional.conv2d(x, weight, stride=2, padding=1, groups=4).sum((1, 2))
    recorded.export_chrome_trace(file)
    trace = read_trace(file)
    works = {
        trace.name_of(event): work_of(operation)
        for event in trace.events.of(EventKind.OPERATOR).tolist()
        if (operation := operation_of(trace.name_of(event), trace.events.details[event])) is not None
    }
    told = call_of(
        torch.ops.aten.convolution.default, (x, weight, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 4), {}
    )
    assert works["aten::convolution"] == work_of(told.operation()) is not None
    summed = call_of(torch.ops.aten.sum.dim_IntList, (torch.empty(2, 4, 5, 5), [1, 2]), {})
    assert works["aten::sum"] == work_of(summed.operation()) is not None
