"""The two halves of a Dropout in training, in the domain "daceml": the mask is drawn, and applied.

Drawing is a call, applying it is arithmetic that becomes part of the loops around it.
`daceml.transformations.coarse.dropout_splitting` puts them in the place of ONNX's operator.
"""

from __future__ import annotations

import numpy as np

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Formal, OperatorSchema, exact_float
from daceml.onnx_ops.tracing.tensor import Tensor

DOMAIN = "daceml"
_FLOATS = frozenset(f"tensor({name})" for name in ("float", "double", "float16", "bfloat16"))
_MASK = Formal(name="mask", connector="mask", types=frozenset({"tensor(bool)"}), type_variable="B")
_DATA = Formal(name="data", connector="data", types=_FLOATS, type_variable="T")
_RATIO = Formal(name="ratio", connector="ratio", types=_FLOATS, type_variable="R")

DropoutMask = define_operator(
    OperatorSchema(
        op_type="DropoutMask",
        domain=DOMAIN,
        inputs=(_RATIO,),
        outputs=(_MASK,),
        attributes={},
        doc="True with probability 1 - ratio. The array that it is written to says the shape: an operand "
        "would keep the loop that writes it from joining the one that reads the mask.",
    ),
    module=__name__,
)

DropoutProduct = define_operator(
    OperatorSchema(
        op_type="DropoutProduct",
        domain=DOMAIN,
        inputs=(_DATA, _MASK, _RATIO),
        outputs=(Formal(name="output", connector="output", types=_FLOATS, type_variable="T"),),
        attributes={},
        doc="data * mask / (1 - ratio): a product, so that what is not finite stays so where it is dropped.",
    ),
    module=__name__,
)


def dropped_share(ratio: Tensor | None) -> float:
    """The probability of being dropped, as its author wrote it.

    Args:
        ratio: a constant of one element; ONNX's default where None.
    """
    if ratio is None or ratio.value is None:
        return 0.5
    element = ratio.value.reshape(-1)[0]
    return float(element) if element.dtype == np.float64 else exact_float(element)


def keeping_scale(ratio: Tensor | None) -> float:
    """What is kept is multiplied by this number, so that the mean stays."""
    dropped = dropped_share(ratio)
    return 0.0 if dropped == 1 else 1 / (1 - dropped)
