"""Which implementations there are, and in which order they are tried."""

from __future__ import annotations

import pytest

from daceml.onnx_ops import registry
from daceml.onnx_ops.registry import Implementation, implementations_of, implemented_operators, implements
from tests.support.golden import raises


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of this test's own."""
    registry.load_implementations()
    monkeypatch.setattr(registry, "_registered", registry.defaultdict(list))


@pytest.mark.usefixtures("own")
def test_kinds_are_ranked_and_ties_keep_their_order() -> None:
    @implements("Op", kind="onnxruntime")
    @implements("Op", name="second")
    @implements("Op", name="first")
    @implements("Op", kind="aten")
    @implements("Op", kind="alias")
    def function(X, Y) -> None: ...

    assert [i.title for i in implementations_of("Op")] == [
        "alias:function",
        "aten:function",
        "native:first",
        "native:second",
        "onnxruntime",
    ]


@pytest.mark.usefixtures("own")
def test_a_rank_of_its_own_comes_first() -> None:
    @implements("Op", name="slow")
    @implements("Op", name="fast", rank=150)
    def function(X, Y) -> None: ...

    assert [i.name for i in implementations_of("Op")] == ["fast", "slow"]


@pytest.mark.usefixtures("own")
def test_an_implementation_of_every_operator_is_one_of_each() -> None:
    @implements("*", kind="onnxruntime", name="any")
    def function(node, network) -> None: ...

    assert [i.name for i in implementations_of("Whatever")] == ["any"]


@pytest.mark.usefixtures("own")
def test_a_signature_says_formals_and_attributes() -> None:
    @implements("Op")
    def function(X, Y, *, axis=-1) -> None: ...

    (found,) = implementations_of("Op")
    assert isinstance(found, Implementation)
    assert (found.formals, found.attributes) == (("X", "Y"), ("axis",))


@pytest.mark.usefixtures("own")
def test_a_name_can_be_registered_once() -> None:
    implements("Op", name="a")(lambda X, Y: None)
    with raises(ValueError, "native:a", "Op"):
        implements("Op", name="a")(lambda X, Y: None)


def test_the_operators_of_common_networks_are_native() -> None:
    native = set(implemented_operators("native"))
    assert native >= {
        "Add",
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "Gather",
        "Gemm",
        "LayerNormalization",
        "MatMul",
    }
    assert native >= {
        "Attention",
        "Clip",
        "Concat",
        "Einsum",
        "Gelu",
        "MaxPool",
        "Mish",
        "Pad",
        "ReduceMean",
        "Softmax",
    }
    assert set(implemented_operators("alias")) == {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
