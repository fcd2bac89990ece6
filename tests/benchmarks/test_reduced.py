"""Small replicas of all networks, compiled."""

from __future__ import annotations

import pytest

from benchmarks import parity
from benchmarks.models.reduced import REDUCED
from benchmarks.parity_static import inference
from tests.support.sampling import sampled


@pytest.mark.parametrize("name", sampled(REDUCED, "mish", "resnet50", "bert", "dlrm"))
def test_a_replica_is_compiled_and_equals_eager(name: str):
    seen = inference(REDUCED[name], parity.compile_with_daceml, parity.count_with_daceml, seeds=(0,))
    assert seen.accuracy.failures == ()
    assert seen.onnxruntime_nodes == 0
