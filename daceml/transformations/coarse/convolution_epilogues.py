"""ConvolutionEpilogues: on CUDA devices cuDNN applies a sum and a relu inside a convolution.

Relu(Conv(X, W, B))       ->   ConvActivation(X, W, B)
Relu(Conv(X, W, B) + Z)   ->   ConvActivation(X, W, B, Z)

A pass to add to a recipe for a device, which does not have it: the relu of cuDNN's fused kernels may turn NaN
into 0, where eager keeps it, and what it brings is not measured. For inference; batch norms are folded in
front of it where weights are frozen.
"""

from __future__ import annotations

from typing import Any

from daceml.onnx_ops.domain.convolution_activation import DOMAIN
from daceml.sdfg.network import Device, Network
from daceml.sdfg.passes import by_place
from daceml.transformations.coarse.forms import Form, rewrite_forms

NAME = "ConvolutionEpilogues"
DEVICE: Device = "cuda"
_TYPES = ("float32", "float16", "bfloat16")
_GEOMETRY = ("strides", "pads", "dilations", "kernel_shape", "auto_pad")


@by_place
def fuse_convolution_epilogues(network: Network) -> int:
    """Let convolutions apply what follows them. Mutates the network, which is not lowered yet.

    Returns:
        how many do.
    """
    return rewrite_forms(network, (_Added(NAME), _Alone(NAME)), marks=("Conv",))


class _Alone(Form):
    """relu(convolution)"""

    shape_of = ""

    def pattern(self, op: Any, x: Any, w: Any, b: Any) -> Any:
        return op.Relu(op.Conv(x, w, b, name="convolution"))

    def check(self, x: Any, convolution: Any) -> str | None:
        if x.graph.network.device != DEVICE:
            return "cuDNN is for CUDA devices"
        if x.rank != 4:
            return f"a convolution over {x.rank - 2} dimensions, not two"
        if x.dtype.to_string() not in _TYPES:
            return f"cuDNN's fused convolution is not for {x.dtype.to_string()}"
        if convolution.group != 1:
            return f"{convolution.group} groups: cuDNN fuses few convolutions of groups"
        pads = convolution.pads
        if pads and tuple(pads[:2]) != tuple(pads[2:]):
            return f"pads {list(pads)} differ between the two sides"
        if convolution.auto_pad not in ("NOTSET", "VALID", "", None):
            return f"auto_pad={convolution.auto_pad}"
        return None

    def rewrite(self, op: Any, x: Any, w: Any, b: Any, convolution: Any) -> Any:
        return self._made(op, convolution, x, w, b)

    def _made(self, op: Any, convolution: Any, *operands: Any) -> Any:
        (result,) = convolution.results
        values = convolution.node.attribute_values()
        kept = {name: values[name] for name in _GEOMETRY if values.get(name) is not None}
        return op.ConvActivation(
            *operands,
            domain=DOMAIN,
            shape=result.shape,
            dtype=result.dtype,
            activation="relu",
            **{name: list(v) if isinstance(v, tuple) else v for name, v in kept.items()},
        )


class _Added(_Alone):
    """relu(convolution + z)"""

    def pattern(self, op: Any, x: Any, w: Any, b: Any, z: Any) -> Any:  # pyright: ignore
        return op.Relu(op.Add(op.Conv(x, w, b, name="convolution"), z))

    def check(self, x: Any, z: Any, convolution: Any) -> str | None:  # pyright: ignore
        (result,) = convolution.results
        if z.shape != result.shape or z.dtype != result.dtype:
            return "its addend differs in shape or type"
        return super().check(x, convolution)

    def rewrite(self, op: Any, x: Any, w: Any, b: Any, z: Any, convolution: Any) -> Any:  # pyright: ignore
        return self._made(op, convolution, x, w, b, z)
