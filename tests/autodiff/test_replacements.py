"""What networks become before they are differentiated: the same function, with statistics to ask for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from daceml.autodiff.replacements import refusal, replace_for_training
from daceml.frontend.onnx_export.export import to_onnx
from daceml.frontend.onnx_import.importer import import_model
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from tests.support.golden import golden
from tests.support.operator_programs import parse


def of_text(body: str) -> Network:
    return import_model(parse(body), name="network")


def node(network: Network) -> ONNXNode:
    (found,) = [n for n in network.state.nodes() if isinstance(n, ONNXNode)]
    return found


NORMALISATIONS = {
    "BatchNormalization": "g (float[2, 3] x, float[3] s, float[3] b, float[3] m, float[3] v) "
    "=> (float[2, 3] y, float[3] rm, float[3] rv) "
    "{ y, rm, rv = BatchNormalization <training_mode = 1, epsilon = 0.25> (x, s, b, m, v) }",
    "LayerNormalization": "g (double[2, 3] x, double[3] s) => (double[2, 3] y) "
    "{ y = LayerNormalization <epsilon = 0.25> (x, s) }",
    "GroupNormalization": "g (float[2, 4] x, float[4] s, float[4] b) => (float[2, 4] y) "
    "{ y = GroupNormalization <num_groups = 2, epsilon = 0.25> (x, s, b) }",
    "InstanceNormalization": "g (float[2, 4, 3] x, float[4] s, float[4] b) => (float[2, 4, 3] y) "
    "{ y = InstanceNormalization <epsilon = 0.25> (x, s, b) }",
    "RMSNormalization": "g (float[2, 3] x, float[3] s) => (float[2, 3] y) "
    "{ y = RMSNormalization <epsilon = 0.25> (x, s) }",
}


@pytest.mark.parametrize("op", NORMALISATIONS)
def test_a_normalisation_becomes_one_that_gives_its_statistics(op: str):
    network = of_text(NORMALISATIONS[op])
    before = node(network)
    assert replace_for_training(network) == 1
    after = node(network)
    assert (after.domain, after.op_type) == ("daceml", f"{op}Saving")
    assert after.epsilon == 0.25
    assert list(after.in_connectors) == list(before.in_connectors)
    assert list(after.out_connectors) == list(before.out_connectors)
    network.sdfg.validate()
    assert replace_for_training(network) == 0


def test_attention_keeps_its_mask_and_attributes():
    network = of_text(
        "g (float[1, 2, 3, 4] q, float[1, 2, 3, 4] k, float[1, 2, 3, 4] v, float[3, 3] m) "
        "=> (float[1, 2, 3, 4] y) { y = Attention <scale = 0.5> (q, k, v, m) }"
    )
    assert replace_for_training(network) == 1
    made = node(network)
    assert (made.op_type, made.scale, made.is_causal) == ("AttentionSaving", 0.5, 0)
    assert "attn_mask" in made.in_connectors
    network.sdfg.validate()


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        (
            "g (float[2, 3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2, 3] y) "
            "{ y = BatchNormalization (x, s, b, m, v) }",
            "inference",
        ),
        (
            "g (float[2, 3] x, float[3] s) => (float[2, 3] y) { y = LayerNormalization (x, s) }",
            "statistics",
        ),
        (
            "g (float[1, 2, 3, 4] q) => (float[1, 2, 3, 4] y) { y = Attention <softcap = 2.0> (q, q, q) }",
            "scores",
        ),
        (
            "g (float[5, 3] w, int64[2] i) => (float[2, 3] y) { y = Gather (w, i) }",
            "gradient",
        ),
        ("g (float[5] x) => (float[5] y) { y = Exp (x) }", "row"),
    ],
)
def test_others_stay_with_a_reason(body: str, fact: str):
    network = of_text(body)
    reason = refusal(node(network), network)
    assert reason == golden()
    assert fact in reason
    assert replace_for_training(network) == 0


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({"padding_idx": 2}, (2, 0)),
        ({"padding_idx": -1}, (5, 0)),
        ({"scale_grad_by_freq": True}, (-1, 1)),
        ({"padding_idx": 0, "scale_grad_by_freq": True}, (0, 1)),
        ({}, None),
    ],
)
def test_what_an_embedding_says_of_its_gradient_reaches_the_network(
    options: dict[str, object], attributes: tuple[int, int] | None
):
    program = torch.export.export(nn.Embedding(6, 4, **options), (torch.tensor([[1, 2]]),))
    network = import_model(to_onnx(program), name="network")
    assert replace_for_training(network) == (attributes is not None)
    made = node(network)
    found = (made.padding, made.by_frequency) if made.op_type == "Embedding" else None
    assert found == attributes
    network.sdfg.validate()
