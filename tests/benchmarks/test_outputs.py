"""Names of outputs."""

from __future__ import annotations

import torch

from benchmarks.outputs import named_outputs


def test_outputs_are_named_by_where_they_stand():
    one, two = torch.zeros(1), torch.ones(1)
    assert list(named_outputs({"a": one, "b": (one, [two])}, "seed3")) == [
        "seed3.output.a",
        "seed3.output.b.0",
        "seed3.output.b.1.0",
    ]
