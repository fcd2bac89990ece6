"""Wrong and unusual calls of compiled modules and ONNX models, as data.

Each case makes one call of the callable that it is given. It is given the compiled form and then its peer:
eager PyTorch for modules, and for ONNX models the same graph as a module. The compiled form has to refuse
with an error of daceml's, to fail as the peer does, or to return the peer's result.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Generator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

Call = Callable[[Callable[..., Any]], Any]


class Affine(nn.Module):
    """Arguments by position and name, one with a default, one optional, one a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(
        self, x: torch.Tensor, y: torch.Tensor | None = None, *, scale: float = 1.0, flip: bool = False
    ) -> torch.Tensor:
        result = self.linear(x) * scale
        if y is not None:
            result = result + y
        return -result if flip else result


class Lookup(nn.Module):
    """Indices, which have to be in range."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)

    def forward(self, indices: torch.Tensor, pair: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
        result = self.embedding(indices)
        return result if pair is None else result + pair["a"] - pair["b"]


class Strict(nn.Module):
    """Checks its arguments by itself, and changes the first in place."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, levels: dict[str, float] | None = None
    ) -> torch.Tensor:
        if x.dim() != 2:
            raise ValueError(f"x must have two dimensions, not {x.dim()}")
        assert y is not None, "y is needed"
        if levels is not None:
            y = y * levels["high"]
        if x.shape[0] > 5:
            raise TooLargeError(x.shape[0])
        return x.add_(y) * 2


class TooLargeError(Exception):
    """Somebody's exception."""


class Subclass(torch.Tensor):
    """Somebody's tensor."""


X = torch.linspace(-1, 1, 8).reshape(2, 4)
Y = torch.linspace(0, 2, 6).reshape(2, 3)
INDICES = torch.tensor([[0, 6], [3, 1]])


@cache
def subject(name: str, compiled: bool = True) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The compiled form of a subject, and its peer.

    Args:
        compiled: False gives the peer for both.
    """
    torch.manual_seed(0)
    if name == "onnx":
        return (_compiled_onnx() if compiled else _onnx_peer), _onnx_peer
    kinds = {"affine": Affine, "lookup": Lookup, "strict": Strict}
    module: nn.Module = kinds[name]().eval().requires_grad_(False)
    return (_compiled(module) if compiled else module), module


def _compiled(module: nn.Module) -> nn.Module:
    import daceml

    return daceml.compile(module, backward=False)


def _compiled_onnx() -> Callable[..., Any]:
    import daceml

    return daceml.ONNXModel(_onnx_affine())


def _onnx_peer(x: Any, y: Any) -> torch.Tensor:
    return torch.relu(_as_tensor(x) + _as_tensor(y))


def _as_tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="))))
    return value


def _onnx_affine() -> Any:
    """relu(x + y) of x: [N, 4], y: [4]."""
    from onnx import TensorProto, helper

    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["N", 4]), ("y", [4]))]
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Relu", ["s"], ["z"])]
    out = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 4])
    return helper.make_model(helper.make_graph(nodes, "affine", infos, [out]), ir_version=10)


def _values() -> dict[str, Callable[[], Any]]:
    """Things to pass where a float32 tensor of shape [2, 4] belongs, made when they are used."""
    coo = lambda: X.to_sparse()  # noqa: E731
    return {
        **{f"dtype {d}": lambda d=d: X.to(d) for d in (
            torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool,
            torch.complex64,
        )},
        **{f"shape {list(s)}": lambda s=s: torch.ones(s) for s in (
            (), (4,), (1, 4), (3, 4), (0, 4), (2, 0), (2, 5), (2, 3, 4), (1, 1, 1, 1, 4), (4, 2),
        )},
        "meta": lambda: X.to("meta"), "sparse coo": coo, "sparse csr": lambda: X.to_sparse_csr(),
        "mkldnn": lambda: X.to_mkldnn(), "subclass": lambda: X.as_subclass(Subclass),
        "parameter": lambda: nn.Parameter(X.clone(), requires_grad=False),
        "quantised": lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
        "nested": lambda: torch.nested.nested_tensor([X[0], X[1]]),
        "fake": _fake, "requires grad": lambda: X.clone().requires_grad_(),
        "transposed": lambda: X.t().contiguous().t(), "expanded": lambda: X[:1].expand(2, 4),
        "huge and expanded": lambda: torch.ones(1, 4).expand(2**40, 4),
        "strided": lambda: torch.ones(4, 8)[::2, ::2],
        "offset": lambda: torch.arange(12.0)[3:11].reshape(2, 4),
        "misaligned": lambda: torch.frombuffer(bytearray(33), dtype=torch.uint8)[1:].view(2, 16)[:, :16],
        "conjugated": lambda: torch.ones(2, 4, dtype=torch.complex64).conj(),
        "negated view": lambda: torch.complex(X, X).conj().imag,
        "nan": lambda: torch.full((2, 4), float("nan")), "infinite": lambda: torch.full((2, 4), float("inf")),
        "inference tensor": _inference, "freed storage": _freed, "None": lambda: None,
        "string": lambda: "text",
        "int": lambda: 3, "float": lambda: 2.5, "huge int": lambda: 10**40, "list": lambda: [[1.0] * 4] * 2,
        "tuple of tensors": lambda: (X, X), "dict": lambda: {"x": X}, "set": lambda: {1, 2}, "object": object,
        "function": lambda: len, "generator": lambda: (i for i in range(3)), "module": lambda: nn.ReLU(),
        "numpy": lambda: X.numpy(), "numpy strings": lambda: np.array([["a"] * 4] * 2),
        "numpy objects": lambda: np.array([[None] * 4] * 2), "big-endian": lambda: X.numpy().astype(">f4"),
        "reversed numpy": lambda: X.numpy()[::-1], "bytes": lambda: b"1234", "size": lambda: X.shape,
        "deep list": _deep, "cyclic list": _cyclic, "file": lambda: io.BytesIO(b"x"),
    }  # fmt: skip


def _fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2, 4)


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return X.clone()


def _freed() -> torch.Tensor:
    tensor = X.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    return value


def _cyclic() -> list[Any]:
    value: list[Any] = [X]
    value.append(value)
    return value


@contextlib.contextmanager
def _default_dtype() -> Generator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _in_thread(call: Callable[[], Any]) -> Any:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def _grad_of(f: Callable[..., Any]) -> Any:
    return torch.func.grad(lambda x: f(x, Y).sum())(X)


def _tangent(f: Callable[..., Any]) -> Any:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X.clone(), torch.ones_like(X))
        return torch.autograd.forward_ad.unpack_dual(f(dual, Y)).tangent


def _under(context: Callable[[], Any]) -> Call:
    def call(f: Callable[..., Any]) -> Any:
        with context():
            return f(X, Y)

    return call


# Calls of Affine, by what is wrong or unusual in them
AFFINE: dict[str, Call] = {
    "no arguments": lambda f: f(),
    "too many": lambda f: f(X, Y, Y),
    "keyword only, by position": lambda f: f(X, Y, 2.0),
    "unknown name": lambda f: f(X, z=Y),
    "given twice": lambda f: f(X, x=X),
    "empty name": lambda f: f(X, **{"": Y}),
    "all by name": lambda f: f(y=Y, x=X),
    "swapped": lambda f: f(Y, X),
    "scale is a tensor": lambda f: f(X, scale=torch.tensor(2.0)),
    "scale is numpy": lambda f: f(X, scale=np.float32(2)),
    "scale is text": lambda f: f(X, scale="2"),
    "scale is None": lambda f: f(X, scale=None),
    "scale is a list": lambda f: f(X, scale=[2.0]),
    "scale is nan": lambda f: f(X, scale=float("nan")),
    "scale is -0.0 after 0.0": lambda f: (f(X, scale=0.0), f(X, scale=-0.0))[1],
    "scale is 1 after 1.0 and True": lambda f: (f(X, scale=1.0), f(X, scale=True), f(X, scale=1))[2],
    "scale is a dict": lambda f: f(X, scale={"a": 1}),
    "flip is a tensor": lambda f: f(X, flip=torch.tensor(True)),
    "flip is 2": lambda f: f(X, flip=2),
    "y has another type": lambda f: f(X, Y.double()),
    "y broadcasts": lambda f: f(X, Y[:1]),
    "y does not fit": lambda f: f(X, torch.ones(5)),
    "y has another rank": lambda f: f(torch.ones(3, 4), torch.ones(3)),
    "the same tensor twice": lambda f: f(X[:, :4], X[:, :3]),
    "autocast": _under(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "inference mode": _under(torch.inference_mode),
    "no grad": _under(torch.no_grad),
    "default dtype float64": _under(_default_dtype),
    "default device meta": _under(lambda: torch.device("meta")),
    "fake mode": _under(lambda: __import__("torch._subclasses.fake_tensor", fromlist=["x"]).FakeTensorMode()),
    "vmap": lambda f: torch.func.vmap(f)(X, Y),
    "vmap over one": lambda f: torch.func.vmap(f, in_dims=(0, None))(X, Y[0]),
    "func.grad": _grad_of,
    "jvp": _tangent,
    "functionalize": lambda f: torch.func.functionalize(f)(X, Y),
    "in a thread": lambda f: _in_thread(lambda: f(X, Y)),
    "a copy of the module": lambda f: __import__("copy").deepcopy(f)(X, Y),
    "after a failed call": lambda f: (_fails(lambda: f(X[:, :3])), f(X, Y))[1],
    "results as inputs": lambda f: f(X, f(X, Y)),
}

# Calls of Lookup
LOOKUP: dict[str, Call] = {
    "index too large": lambda f: f(torch.tensor([[0, 7]])),
    "index far too large": lambda f: f(torch.tensor([2**62])),
    "index negative": lambda f: f(torch.tensor([[-1, 2]])),
    "index most negative": lambda f: f(torch.tensor([-(2**63)])),
    "no index": lambda f: f(torch.empty(0, dtype=torch.int64)),
    "one index": lambda f: f(torch.tensor(3)),
    "int32": lambda f: f(INDICES.int()),
    "int16": lambda f: f(INDICES.short()),
    "uint8": lambda f: f(INDICES.byte()),
    "bool": lambda f: f(INDICES.bool()),
    "float": lambda f: f(INDICES.float()),
    "a list of numbers": lambda f: f([1, 2]),
    "good after bad": lambda f: (_fails(lambda: f(torch.tensor([[0, 9], [0, 0]]))), f(INDICES))[1],
    "a dict": lambda f: f(INDICES, {"a": torch.ones(4), "b": torch.zeros(2, 2, 4)}),
    "a dict in another order": lambda f: f(INDICES, {"b": torch.ones(4), "a": torch.zeros(4)}),
    "a dict with more": lambda f: f(INDICES, {"b": torch.ones(4), "a": torch.zeros(4), "c": object()}),
    "a dict with less": lambda f: f(INDICES, {"a": torch.ones(4)}),
    "a dict of lists": lambda f: f(INDICES, {"a": [1.0], "b": [2.0]}),
    "a dict with odd keys": lambda f: f(INDICES, {"a": torch.ones(4), "b": torch.ones(4), 3: 4, None: X}),
}

# Calls of Strict, with tensors of their own
STRICT: dict[str, Call] = {
    "x is a vector": lambda f: f(X[0].clone(), X[0]),
    "x is too large": lambda f: f(torch.ones(6, 4), X[:1]),
    "y is None": lambda f: f(X.clone(), None),
    "no such level": lambda f: f(X.clone(), X, {"low": 1.0}),
    "level is text": lambda f: f(X.clone(), X, {"high": "2"}),
    "level is an object": lambda f: f(X.clone(), X, {"high": object()}),
    "good after an exception": lambda f: (_fails(lambda: f(X[0].clone(), X[0])), f(X.clone(), X))[1],
    "one tensor twice": lambda f: (lambda x: f(x, x))(X.clone()),
    "overlapping": lambda f: (lambda x: f(x[:2], x[1:]))(torch.ones(3, 4)),
    "side by side": lambda f: (lambda x: f(x[:2], x[2:]))(torch.ones(4, 4)),
    "its transpose": lambda f: (lambda x: f(x, x.t()))(torch.arange(16.0).reshape(4, 4)),
    "x is expanded": lambda f: f(torch.ones(1, 4).expand(2, 4), X),
    "x is an integer": lambda f: f(torch.ones(2, 4, dtype=torch.int64), X),
    "y is larger": lambda f: f(torch.ones(1, 4), X),
    "x in inference mode": lambda f: f(_inference(), X),
    "x requires grad": lambda f: f(X.clone().requires_grad_(), X),
    "x is freed": lambda f: f(_freed(), X),
}

# Calls of the ONNX model
ONNX: dict[str, Call] = {
    "no arguments": lambda f: f(),
    "too many": lambda f: f(X, X[0], X),
    "unknown name": lambda f: f(X, z=X[0]),
    "given twice": lambda f: f(X, x=X),
    "numpy with a list": lambda f: f(X.numpy(), [1.0, 2.0, 3.0, 4.0]),
    "autocast": lambda f: _with(torch.autocast("cpu", dtype=torch.bfloat16), lambda: f(X, X[0])),
    "inference mode": lambda f: _with(torch.inference_mode(), lambda: f(X, X[0])),
    "vmap": lambda f: torch.func.vmap(f, in_dims=(0, None))(X.reshape(1, 2, 4), X[0]),
    "jvp": lambda f: torch.func.jvp(lambda x: f(x, X[0]), (X,), (X,))[1],
    "in a thread": lambda f: _in_thread(lambda: f(X, X[0])),
}


def _with(context: Any, call: Callable[[], Any]) -> Any:
    with context:
        return call()


def _fails(call: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):
        call()


_TABLES = {"affine": AFFINE, "lookup": LOOKUP, "strict": STRICT, "onnx": ONNX}


def _cases() -> dict[str, tuple[str, Call]]:
    cases: dict[str, tuple[str, Call]] = {}
    for name, table in _TABLES.items():
        cases |= {f"{name}: {title}": (name, call) for title, call in table.items()}
    for title, make in _values().items():
        cases[f"affine: x is {title}"] = "affine", lambda f, make=make: f(make(), Y)
        cases[f"onnx: x is {title}"] = "onnx", lambda f, make=make: f(make(), X[0])
        if title in ("None", "string", "list", "object", "numpy", "int", "subclass", "meta", "sparse coo"):
            cases[f"affine: y is {title}"] = "affine", lambda f, make=make: f(X, make())
            cases[f"lookup: indices are {title}"] = "lookup", lambda f, make=make: f(make())
    return cases


# Name -> the subject that is called, and the call
CASES: dict[str, tuple[str, Call]] = _cases()
