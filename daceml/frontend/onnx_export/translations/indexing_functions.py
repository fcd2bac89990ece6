"""Local ONNX functions of the domain "daceml" for indexing, with a body in standard operators."""

# onnxscript types the operators for its scripts in part only.
# pyright: reportArgumentType=false, reportReturnType=false

from __future__ import annotations

from collections.abc import Sequence

from onnxscript import FLOAT, INT64, script
from onnxscript import opset18 as op

from daceml.frontend.onnx_export.translations.embedding_functions import DACEML


@script(DACEML, default_opset=op)
def GatherPairs(  # noqa: N802
    data: FLOAT, first: INT64, second: INT64, perm: Sequence[int], inverse: Sequence[int]
) -> FLOAT:
    """data[..., first, second, ...] at dimensions perm[0] and perm[0] + 1.

    `perm` brings the two dimensions to the front, `inverse` what is read back to their place.
    """
    last = op.Constant(value_ints=[-1])
    pairs = op.Concat(op.Unsqueeze(first, last), op.Unsqueeze(second, last), axis=-1)
    return op.Transpose(op.GatherND(op.Transpose(data, perm=perm), pairs), perm=inverse)
