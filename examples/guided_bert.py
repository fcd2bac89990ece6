"""A layer of BERT's encoder, from the automatic recipe on: python -m examples.guided_bert.

The steps are those of the paper's case study (Rausch et al., DaCeML, ICS '22, §6.4), on a CPU, in float32.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from daceml.transformations import Recipe, Rewrite, standard_recipe
from examples.encoder_layer import EncoderLayer
from examples.guided import GuidedStep, measure, print_rows


class RelayoutIntoProduct(Rewrite):
    """Transpose(MatMul(a, Transpose(b))) -> Einsum(a, b): heads are put in order by the product itself"""

    def pattern(self, op: Any, a: Any, b: Any) -> Any:
        heads = op.Transpose(b, name="before", perm=[0, 2, 1, 3])
        return op.Transpose(op.MatMul(a, heads), name="after", perm=[0, 2, 1, 3])

    def check(self, a: Any, b: Any) -> str | None:
        return (
            None if a.rank == b.rank == 4 and a.shape[:2] == (b.shape[0], b.shape[2]) else "other dimensions"
        )

    def rewrite(self, op: Any, a: Any, b: Any) -> Any:
        return op.Einsum(a, b, equation="nhqk,nkhd->nqhd")


RECIPE = standard_recipe()
PASSES = Recipe(RelayoutIntoProduct())
STEPS = (
    GuidedStep(
        name="before",
        note="the automatic recipe without the passes that the next steps are",
        recipe=RECIPE.without("fuse_contractions")
        .without("fuse_subgraphs")
        .without("lift_layer_normalization"),
    ),
    GuidedStep(
        name="softmax fusion",
        note="part of the automatic recipe: softmax is loops and no call, and fuse_subgraphs makes one "
        "kernel of them and of the scaling in front",
        recipe=RECIPE.without("fuse_contractions").without("lift_layer_normalization"),
    ),
    GuidedStep(
        name="layer-normalization fusion",
        note="part of the automatic recipe: the operators become one, whose gradients have a rule, and the "
        "residual in front joins its kernel",
        recipe=RECIPE.without("fuse_contractions"),
    ),
    GuidedStep(
        name="reshape-relayout fusion",
        note="part of the automatic recipe: fuse_contractions makes strides of transpositions around a "
        "product, where it stays one call: of one sequence all of them; views cost nothing anyway",
        recipe=RECIPE,
    ),
    GuidedStep(
        name="relayout into a loop",
        note="a rewrite of this script: for several sequences no strides put heads in order, so the product "
        "of weights and values becomes a loop that does",
        recipe=RECIPE + PASSES,
    ),
)


def main(width: int = 64, length: int = 32, batch: int = 2) -> int:
    """Measure and print every step for x: [batch, length, width] float32."""
    torch.manual_seed(0)
    rows = measure(EncoderLayer(width=width, inner=4 * width), torch.randn(batch, length, width), STEPS)
    print_rows(f"encoder layer, {batch} x {length} x {width}", rows, STEPS)
    return 0 if all(row.error < 1e-4 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
