"""Operators of the domain "daceml" that are ONNX's with what their gradients need as further outputs.

No front end writes them: `daceml.autodiff.replacements` puts them in the place of ONNX's where a network is
differentiated.
"""

from __future__ import annotations

from dataclasses import replace

from daceml.onnx_ops.schema.nodes import define_operator
from daceml.onnx_ops.schema.schema import Attribute, Formal, OperatorSchema, read_schema

DOMAIN = "daceml"

# ONNX's operator -> further outputs, all optional.
SAVED: dict[str, tuple[str, ...]] = {
    "BatchNormalization": ("Mean", "InvStdDev"),
    "LayerNormalization": (),  # it has them, but never in float64
    "GroupNormalization": ("Mean", "InvStdDev"),
    "InstanceNormalization": ("Mean", "InvStdDev"),
    "RMSNormalization": ("InvStdDev",),
    "Attention": ("LogSumExp",),
    # [directions, steps + 1, batch, parts * hidden], in float32 for half types
    "RNN": ("State",),
    "GRU": ("State",),
    "LSTM": ("State",),
}

# Recurrent operator -> parts of its state: h, for LSTM c, the gates before their functions, for GRU what its
# last gate is given of h.
STATE_PARTS = {"RNN": 2, "GRU": 5, "LSTM": 6}

# Further attributes. `as_spelled`: a softmax of nothing is NaN, as its steps give it, and not 0;
# `channel_axis`: 1, or the last one;
# `mask_hides`: where the mask is -inf it takes the place of a score, and is added elsewhere.
_FURTHER: dict[str, tuple[Attribute, ...]] = {
    "BatchNormalization": (Attribute(name="channel_axis", kind="int", default=1),),
    "Attention": tuple(Attribute(name=name, kind="int", default=0) for name in ("as_spelled", "mask_hides")),
}

# Inputs and outputs of ONNX's operator that the one here has not.
_LEFT_OUT = frozenset(
    {"past_key", "past_value", "nonpad_kv_seqlen", "present_key", "present_value", "qk_matmul_output"}
)
# Attributes of ONNX's operator that the one here has not.
_PLAIN = frozenset(
    {"softcap", "qk_matmul_output_mode", "softmax_precision", "left_window_size", "right_window_size"}
)


def saving(op_type: str) -> str:
    """Name of the operator here that stands for one of ONNX's."""
    return f"{op_type}Saving"


def _define(op_type: str, saved: tuple[str, ...]) -> None:
    schema = read_schema(op_type)
    statistics = frozenset({"Mean", "InvStdDev"})
    outputs = tuple(
        replace(f, types=frozenset[str](), type_variable=None, option="optional")
        if f.connector in statistics
        else f
        for f in schema.outputs
        if f.connector not in _LEFT_OUT
    )
    globals()[saving(op_type)] = define_operator(
        OperatorSchema(
            op_type=saving(op_type),
            domain=DOMAIN,
            inputs=tuple(f for f in schema.inputs if f.connector not in _LEFT_OUT),
            outputs=(*outputs, *(Formal(name=s, connector=s, option="optional") for s in saved)),
            attributes={
                **{n: a for n, a in schema.attributes.items() if n not in _PLAIN},
                **{a.name: a for a in _FURTHER.get(op_type, ())},
            },
            doc=f"ONNX's {op_type} with what its gradient needs.",
        ),
        module=__name__,
    )


for _op_type, _saved in SAVED.items():
    _define(_op_type, _saved)

Embedding = define_operator(
    OperatorSchema(
        op_type="Embedding",
        domain=DOMAIN,
        inputs=(
            Formal(name="weight", connector="weight", type_variable="T"),
            Formal(
                name="indices",
                connector="indices",
                types=frozenset({"tensor(int64)", "tensor(int32)"}),
                type_variable="I",
            ),
        ),
        outputs=(Formal(name="result", connector="result", type_variable="T"),),
        attributes={
            "padding": Attribute(name="padding", kind="int", default=-1),
            "by_frequency": Attribute(name="by_frequency", kind="int", default=0),
        },
        doc="Rows of a table: [V, ...], [...] -> [..., ...]; row `padding` gets no gradient, and with "
        "`by_frequency` each row's is divided by how often it was looked up.",
    ),
    module=__name__,
)
