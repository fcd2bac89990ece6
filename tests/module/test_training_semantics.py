"""What a module in training does to its buffers and with random numbers, its ONNX model does too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from benchmarks.models.reduced import REDUCED
from daceml.errors import ExportError
from daceml.frontend.capture.traceable import traceable
from daceml.frontend.onnx_export.export import export_program, to_onnx
from tests.support.exported_models import (
    agrees,
    follows,
    mutations,
    onnx_of,
    operators,
    tensor,
    trains,
)
from tests.support.golden import raises
from tests.support.sampling import sampled

N = torch.export.Dim("N", min=2)
STATISTICS = ["running_mean", "running_var", "num_batches_tracked"]


def affine(module: nn.Module) -> nn.Module:
    """Weights and statistics that a wrong formula would not survive."""
    generator = torch.Generator().manual_seed(1)
    for tensors in (*module.parameters(), *module.buffers()):
        if tensors.is_floating_point():
            tensors.data.copy_(torch.rand(tensors.shape, generator=generator) + 0.5)
    return module.train()


# --- normalisation ---

BATCH_NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "of rows": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "of sequences": (lambda: nn.BatchNorm1d(4), (3, 4, 5)),
    "of images": (lambda: nn.BatchNorm2d(4, momentum=0.3, eps=1e-3), (3, 4, 5, 2)),
    "of volumes": (lambda: nn.BatchNorm3d(4), (2, 4, 1, 3, 2)),
    "without weights": (lambda: nn.BatchNorm1d(4, affine=False), (6, 4)),
    "that keeps nothing": (lambda: nn.BatchNorm2d(4, momentum=1.0), (3, 4, 5, 2)),
    "that learns nothing": (lambda: nn.BatchNorm2d(4, momentum=0.0), (3, 4, 5, 2)),
    "of averages over all batches": (lambda: nn.BatchNorm2d(4, momentum=None), (3, 4, 5, 2)),
}


@pytest.mark.parametrize(
    ("name", "batch"),
    sampled(
        product(BATCH_NORMS, ["static", "symbolic"]),
        *product(BATCH_NORMS, ["symbolic"]),
        ("of rows", "static"), ("of averages over all batches", "static"),
    ),
)  # fmt: skip
def test_batch_norm(name: str, batch: str):
    build, shape = BATCH_NORMS[name]
    x = tensor(*shape)
    later = [(tensor(*shape) * 2 + 1,), (tensor(shape[0] + 3, *shape[1:]) if batch == "symbolic" else x,)]
    dynamic = {"input": {0: N}} if batch == "symbolic" else None
    model = trains(affine(build()), x, calls=[(x,), *later], dynamic_shapes=dynamic)
    assert sorted(mutations(model).values()) == sorted(STATISTICS)


def test_batch_norm_costs_three_nodes_for_the_variance_and_one_for_the_counter():
    static = onnx_of(nn.BatchNorm2d(4), tensor(3, 4, 5, 2))
    assert operators(static) == {"BatchNormalization": 1, "Mul": 2, "Add": 2}
    symbolic = onnx_of(nn.BatchNorm2d(4), tensor(3, 4, 5, 2), dynamic_shapes={"input": {0: N}})
    # n = Size / C, k = n / (n - 1), (1 - k) kept
    assert operators(symbolic) - operators(static) == {"Size": 1, "Div": 2, "Cast": 1, "Sub": 2, "Mul": 1}


def test_statistics_in_double_are_exact():
    norm = affine(nn.Sequential(nn.BatchNorm1d(4, momentum=0.3), nn.BatchNorm1d(4, momentum=None)).double())
    # ONNX's attributes are single: momentum and eps are off by 1e-8
    trains(norm, tensor(6, 4, dtype=torch.float64), tolerance=1e-7)


def test_batch_norm_without_statistics_changes_nothing():
    model = trains(affine(nn.BatchNorm1d(4, track_running_stats=False)), tensor(6, 4))
    assert operators(model) == {"BatchNormalization": 1} and mutations(model) == {}


def test_frozen_batch_norm_in_a_training_module():
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(4, 4), affine(nn.BatchNorm1d(4)).eval()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.linear(x))

    model = trains(Frozen(), tensor(6, 4))
    assert operators(model) == {"Gemm": 1, "BatchNormalization": 1} and mutations(model) == {}


@pytest.mark.parametrize(
    ("inputs", "states"), [("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float16", "float16")]
)
def test_half_batch_norm_keeps_the_types_of_its_buffers(inputs: str, states: str):
    norm = affine(nn.BatchNorm1d(4).to(getattr(torch, states)))
    model = onnx_of(norm, tensor(6, 4, dtype=getattr(torch, inputs)), dynamic_shapes={"input": {0: N}})
    kinds = {"bfloat16": ir.DataType.BFLOAT16, "float32": ir.DataType.FLOAT, "float16": ir.DataType.FLOAT16}
    assert [value.dtype for value in model.graph.outputs if value.name.startswith("running")] == [
        kinds[states]
    ] * 2


def test_half_statistics_are_corrected_in_single():
    """float16 ends at 65504, which is no many values; and 1.0001, their n / (n - 1), is 1 in it."""
    model = onnx_of(
        affine(nn.BatchNorm2d(2).half()), tensor(2, 2, 3, 3).half(), dynamic_shapes={"input": {0: N}}
    )
    by_type = Counter(node.outputs[0].dtype for node in model.graph if node.op_type in ("Div", "Sub", "Mul"))
    assert by_type == {ir.DataType.FLOAT: 6, ir.DataType.INT64: 1}


NORMS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), (3, 4, 3, 2), ""),
    "instance norm that tracks": (
        lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        (3, 4, 3, 2),
        "running_mean running_var",
    ),
    "instance norm of one sample that tracks": (
        lambda: nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True, momentum=0.3)),
        (4, 5),
        "0.running_mean 0.running_var",
    ),
    "instance norm that only seems to track": (
        lambda: nn.InstanceNorm1d(4, track_running_stats=True, momentum=None),
        (3, 4, 5),
        "",
    ),
    "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5), ""),
    "group norm without weights": (lambda: nn.GroupNorm(2, 4, affine=False), (3, 4), ""),
    "layer norm": (lambda: nn.LayerNorm((4, 3)), (2, 4, 3), ""),
    "layer norm without weights": (lambda: nn.LayerNorm(4, elementwise_affine=False), (3, 4), ""),
    "layer norm without bias": (lambda: nn.LayerNorm(4, bias=False), (3, 4), ""),
    "root mean square norm": (lambda: nn.RMSNorm(4), (3, 4), ""),
}


@pytest.mark.parametrize("name", NORMS)
def test_other_norms(name: str):
    build, shape, changed = NORMS[name]
    assert sorted(mutations(trains(affine(build()), tensor(*shape))).values()) == changed.split()


def test_layers_in_their_traceable_form_are_put_back():
    norm, instance = nn.BatchNorm1d(4, momentum=None), nn.InstanceNorm1d(4, track_running_stats=True)
    module = nn.Sequential(norm, instance)
    with traceable(module):
        assert "forward" in vars(norm) and "_apply_instance_norm" in vars(instance)
    assert "forward" not in vars(norm) and "_apply_instance_norm" not in vars(instance)
    with traceable(module.eval()):
        assert "forward" not in vars(norm)


def test_statistics_over_processes_are_refused():
    module = nn.Sequential(nn.Linear(4, 4), nn.SyncBatchNorm(4))
    with (
        raises(ExportError, "SyncBatchNorm '1'", "BatchNorm2d", "eval()"),
        traceable(module),
    ):
        pass
    agrees(nn.Sequential(nn.SyncBatchNorm(4)).eval(), tensor(6, 4))


@pytest.mark.parametrize(
    ("build", "x", "changed"),
    [
        (lambda: parametrizations.spectral_norm(nn.Linear(4, 5)), tensor(3, 4), 2),
        (lambda: parametrizations.spectral_norm(nn.Conv2d(2, 3, 3)), tensor(1, 2, 4, 4), 2),
        (lambda: parametrizations.weight_norm(nn.Conv1d(4, 5, 2)), tensor(3, 4, 4), 0),
    ],
    ids=["spectral norm", "spectral norm of a convolution", "weight norm"],
)
def test_parametrized_weights(build: Callable[[], nn.Module], x: torch.Tensor, changed: int):
    torch.manual_seed(0)
    assert len(mutations(trains(build().train(), x))) == changed


# --- buffers ---


class Buffers(nn.Module):
    """Named buffers, and a function of them and the inputs."""

    def __init__(self, forward: Any, **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = forward
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=not name.startswith("_"))

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


def moving_average(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.steps += 1
    m.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return x - m.average / m.steps


def moving_average_by_interpolation(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.steps.add_(x.shape[0])
    m.average.lerp_(x.mean(0), 0.1)
    return x - m.average


def largest_so_far(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.largest.copy_(torch.maximum(m.largest, x.abs().max()))
    return x / m.largest


def counts(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.positive += (x > 0).sum(0).to(torch.int32)
    m.seen.fill_(True)
    return x * m.positive


def rows_of_a_cache(m: Any, x: torch.Tensor) -> torch.Tensor:
    m._cache[1:3].add_(x)
    m._cache[0] = x[0]
    return m._cache.sum(1)


def used_before_it_is_cleared(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.scale
    m.scale.zero_()
    return y


BUFFERS: dict[str, tuple[Any, dict[str, torch.Tensor], tuple[int, ...], bool]] = {
    "moving average": (moving_average, {"average": tensor(4), "steps": torch.tensor(3)}, (5, 4), True),
    "moving average by interpolation": (
        moving_average_by_interpolation,
        {"average": tensor(4), "steps": torch.tensor(3)},
        (5, 4),
        True,
    ),
    "largest so far": (largest_so_far, {"largest": torch.tensor(0.5)}, (5, 4), False),
    "counts and flags": (
        counts,
        {"positive": torch.zeros(4, dtype=torch.int32), "seen": torch.tensor(False)},
        (5, 4),
        False,
    ),
    "rows of a cache": (rows_of_a_cache, {"_cache": tensor(4, 3)}, (2, 3), False),
    "used before it is cleared": (used_before_it_is_cleared, {"scale": tensor(4)}, (5, 4), False),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_changed_by_hand(name: str):
    forward, buffers, shape, symbolic = BUFFERS[name]
    dynamic = [{0: N}] if symbolic else None
    model = trains(
        Buffers(forward, **{k: v.clone() for k, v in buffers.items()}), tensor(*shape), dynamic_shapes=dynamic
    )
    assert set(mutations(model).values()) == set(buffers)
    assert not operators(model).keys() & {"ScatterND", "Shape", "Range"} - ({"Shape"} if symbolic else set())


# --- networks ---

CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceEmpty", "SequenceAt", "ConcatFromSequence"}


@pytest.mark.parametrize(
    "name",
    sampled(
        [name for name in REDUCED if name != "bert_autocast"],
        "mish", "mbconv", "resnet50", "efficientnet_b0", "mlp_mixer", "bert", "wavenet", "dlrm",
    ),
)  # fmt: skip
def test_reduced_networks_in_training(name: str):
    spec = REDUCED[name]
    module, inputs = spec.module().double().train(), spec.example(dtype=torch.float64)
    model = to_onnx(export_program(module, inputs))
    onnx.checker.check_model(ir.serde.serialize_model(model), full_check=True)
    norms = [path for path, layer in module.named_modules() if isinstance(layer, nn.BatchNorm2d)]
    assert set(mutations(model).values()) == {
        f"{path}.{statistic}" for path in norms for statistic in STATISTICS
    }
    found = operators(model)
    assert not found.keys() & (CONTROL_FLOW | {"CastLike"})
    assert found["BatchNormalization"] == len(norms)
    if name != "efficientnet_b0":  # drops samples by numbers of its own, which cannot be switched off
        for layer in module.modules():
            if isinstance(layer, nn.Dropout | nn.Dropout2d):
                layer.p = 0.0
        # ONNX's attributes are single: momenta and epsilons are off by 1e-8, which 60 layers enlarge
        follows(model, module, [inputs], 1e-5)
