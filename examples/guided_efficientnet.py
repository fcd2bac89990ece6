"""EfficientNet's first block, from the automatic recipe on: python -m examples.guided_efficientnet.

The steps are those of the paper's case study (Rausch et al., DaCeML, ICS '22, §6.3), on a CPU.
"""

from __future__ import annotations

import sys

import torch

from daceml.onnx_ops.lowering import apply, choose
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.builder import Builder
from daceml.sdfg.network import Network
from daceml.transformations import Recipe, Step, standard_recipe
from examples.guided import GuidedStep, measure, print_rows
from examples.mbconv import MBConv


def depthwise_as_loops(network: Network) -> int:
    """Let depthwise convolutions be loops instead of calls, so that they can be fused."""
    builder, found = Builder(network.sdfg, network.state), 0
    for node in [n for n in network.state.nodes() if isinstance(n, ONNXNode) and n.op_type == "Conv"]:
        if node.attribute_values()["group"] > 1:
            apply(choose(node, network, allowed=("native",)), node, network, builder)
            found += 1
    return found


RECIPE = standard_recipe()
PASSES = Recipe(Step(depthwise_as_loops, at="operators"))
LOOPS = RECIPE + PASSES
STEPS = (
    GuidedStep(name="automatic recipe", note="standard_recipe()", recipe=RECIPE),
    GuidedStep(
        name="map fission",
        note="part of the automatic recipe: gradients are gathered, so that there are no atomic operations "
        "to avoid, and sums over rows are added up in runs in the order of memory (sum_columns)",
        recipe=None,
    ),
    GuidedStep(
        name="fused convolution",
        note="depthwise convolutions are loops instead of calls of oneDNN; the exchange of loops that makes "
        "two convolutions one is no pass of daceml, so that bytes may grow here",
        recipe=LOOPS,
    ),
    GuidedStep(
        name="full fusion and vectorization",
        note="recompute='cheap': the backward pass computes again what costs no more than to store; fusing "
        "and vectorising are part of the automatic recipe",
        recipe=LOOPS,
        options={"recompute": "cheap"},
    ),
)


def main(channels: int = 8, size: int = 28, batch: int = 2) -> int:
    """Measure and print every step for x: [batch, channels, size, size] float32."""
    torch.manual_seed(0)
    rows = measure(MBConv(channels=channels), torch.randn(batch, channels, size, size), STEPS)
    print_rows(f"MBConv, {batch} x {channels} x {size} x {size}", rows, STEPS)
    return 0 if all(row.error < 1e-4 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
