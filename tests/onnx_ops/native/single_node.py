"""One ONNX node as a network, lowered natively, compiled with many others into one library, and run."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dace
import numpy as np
import onnx
from dace.codegen import codegen
from onnx.reference import ReferenceEvaluator

import daceml
from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.registry import Kind
from daceml.onnx_ops.schema.element_types import ELEMENT_TYPES
from daceml.onnx_ops.schema.nodes import node_class
from daceml.sdfg.network import Network

FLAGS = ("-std=c++20", "-O1", "-w", "-fopenmp", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
_DACE = Path(dace.__file__).parent / "runtime" / "include"
_DACEML = Path(daceml.__path__[0]) / "toolchain" / "include"
_DACE_TYPES = {row.numpy_type: row.dace_type for row in ELEMENT_TYPES}


@dataclass(kw_only=True)
class Case:
    """A node, its operands and what it should compute.

    Attributes:
        inputs: by position; None for an absent optional.
        constants: positions of inputs that the network knows the value of.
        expected: outputs by position (None: absent); from the ONNX reference where not given.
        outputs: number of outputs, where `expected` is not given.
        domain: of the operator.
        symbolic: size -> symbol or expression, for every dimension of every operand that has this size.
        rtol, atol: float32 rounding unless said otherwise.
    """

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    expected: Sequence[np.ndarray | None] | None = None
    outputs: int = 1
    version: int | None = None
    domain: str = ""
    symbolic: Mapping[int, str] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-6

    def reference(self) -> list[np.ndarray | None]:
        """The expected outputs."""
        if self.expected is not None:
            return [None if e is None else np.asarray(e) for e in self.expected]
        names = [f"x{i}" if v is not None else "" for i, v in enumerate(self.inputs)]
        results = [f"y{i}" for i in range(self.outputs)]
        node = onnx.helper.make_node(self.op, names, results, domain=self.domain, **self.attributes)
        graph = onnx.helper.make_graph(
            [node],
            "g",
            [
                onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                for n, v in zip(names, self.inputs, strict=True)
                if v is not None
            ],
            [onnx.helper.make_tensor_value_info(r, onnx.TensorProto.UNDEFINED, None) for r in results],
        )
        opsets = [onnx.helper.make_opsetid(self.domain, self.version or 23)]
        if self.domain:
            opsets.append(onnx.helper.make_opsetid("", 23))
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        feeds = {n: v for n, v in zip(names, self.inputs, strict=True) if v is not None}
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in ReferenceEvaluator(model).run(None, feeds)]


def network_of(case: Case, name: str, results: Sequence[np.ndarray | None]) -> Network:
    """A network of one state with one node."""
    sdfg = dace.SDFG(name)
    state = sdfg.add_state("main")
    cls = node_class(case.op, domain=case.domain, version=case.version)
    ins = cls.schema.connectors("inputs", [v is not None for v in case.inputs])
    outs = cls.schema.connectors("outputs", [v is not None for v in results])
    node = cls(
        inputs=[c for c in ins if c], outputs=[c for c in outs if c], onnx_name=f"/{name}", **case.attributes
    )
    state.add_node(node)
    scalars: set[str] = set()

    def declare(array: str, value: np.ndarray) -> dace.Memlet:
        texts = (case.symbolic.get(s, s) for s in value.shape)
        shape = [s if isinstance(s, int) else dace.symbolic.pystr_to_symbolic(s) for s in texts] or [1]
        for symbol in {s for extent in shape if not isinstance(extent, int) for s in extent.free_symbols}:
            if str(symbol) not in sdfg.symbols:
                sdfg.add_symbol(str(symbol), dace.int64)
        if array not in sdfg.arrays:
            sdfg.add_array(array, shape, _DACE_TYPES[value.dtype])
        if value.ndim == 0:
            scalars.add(array)
        return dace.Memlet.from_array(array, sdfg.arrays[array])

    for i, (connector, value) in enumerate(zip(ins, case.inputs, strict=True)):
        if value is not None:
            state.add_edge(state.add_access(f"x{i}"), None, node, connector, declare(f"x{i}", value))
    for i, (connector, value) in enumerate(zip(outs, results, strict=True)):
        if value is not None:
            state.add_edge(node, connector, state.add_access(f"y{i}"), None, declare(f"y{i}", value))
    return Network(
        sdfg=sdfg,
        inputs=tuple(f"x{i}" for i, v in enumerate(case.inputs) if v is not None and i not in case.constants),
        outputs=tuple(f"y{i}" for i, v in enumerate(results) if v is not None),
        constants={f"x{i}": case.inputs[i] for i in case.constants},
        scalars=frozenset(scalars),
    )


def lowered(case: Case, name: str = "case", allowed: Sequence[Kind] = ("native",)) -> Network:
    """The network of a case after lowering, validated."""
    network = network_of(case, name, case.reference())
    lower(network, allowed=allowed)
    network.sdfg.validate()
    return network


class Library:
    """Compiled SDFGs by name."""

    def __init__(self, sdfgs: Sequence[dace.SDFG], folder: Path, header: Path) -> None:
        self.sdfgs = {s.name: s for s in sdfgs}
        texts = [codegen.generate_code(s, validate=False)[0].clean_code for s in sdfgs]
        source = folder / "cases.cpp"
        source.write_text("\n".join(t.replace('#include "../../include/hash.h"', "") for t in texts))
        self.texts = dict(zip(self.sdfgs, texts, strict=True))
        command = [
            "g++",
            *FLAGS,
            "-include",
            str(header),
            f"-I{_DACE}",
            f"-I{_DACEML}",
            "cases.cpp",
            "-o",
            "cases.so",
        ]
        done = subprocess.run(
            [*command, "-lmvec", "-lm"], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise AssertionError(done.stderr[:4000])
        self.library = ctypes.CDLL(str(folder / "cases.so"))

    def run(self, name: str, arrays: Mapping[str, np.ndarray], symbols: Mapping[str, int]) -> None:
        """Call one of them."""
        arguments = [
            arrays[a].ctypes.data_as(ctypes.c_void_p) if a in arrays else ctypes.c_int64(symbols[a])
            for a in self.sdfgs[name].arglist()
        ]
        self.library[f"__program_{name}"](None, *arguments)


def compile_header(folder: Path) -> Path:
    """The header every case includes, precompiled."""
    header = folder / "cases.h"
    header.write_text("#include <daceml/kernel.h>\n")
    flags = [f for f in FLAGS if f != "-shared"]
    command = [
        "g++",
        *flags,
        f"-I{_DACE}",
        f"-I{_DACEML}",
        "-x",
        "c++-header",
        "cases.h",
        "-o",
        "cases.h.gch",
    ]
    subprocess.run(command, cwd=folder, check=True)
    return header


@dataclass(kw_only=True)
class Outcome:
    """What a case computed, what it should have, and the generated code; or the error it met."""

    actual: list[np.ndarray | None]
    expected: list[np.ndarray | None]
    code: str
    case: Case

    def check(self) -> None:
        """Values within the case's tolerance; NaN equals NaN."""
        for actual, expected in zip(self.actual, self.expected, strict=True):
            if expected is not None:
                as_float = expected.dtype.kind == "V"
                np.testing.assert_allclose(
                    actual.astype(np.float32) if as_float else actual,
                    expected.astype(np.float32) if as_float else expected,
                    rtol=self.case.rtol,
                    atol=self.case.atol,
                )


def run_cases(cases: Mapping[str, Case], folder: Path, header: Path) -> dict[str, Outcome | Exception]:
    """Lower, compile and run cases; a case that cannot be lowered gives its exception."""
    found: dict[str, Outcome | Exception] = {}
    networks: dict[str, tuple[Network, list[np.ndarray | None]]] = {}
    for i, (title, case) in enumerate(cases.items()):
        try:
            expected = case.reference()
            network = network_of(case, f"case_{i}", expected)
            lower(network, allowed=("native",))
            network.sdfg.validate()
            networks[title] = network, expected
        except Exception as error:
            found[title] = error
    library = Library([n.sdfg for n, _ in networks.values()], folder, header)
    for title, (network, expected) in networks.items():
        case = cases[title]
        arrays = {f"x{i}": np.ascontiguousarray(v) for i, v in enumerate(case.inputs) if v is not None}
        actual = [None if e is None else np.full(e.shape, 77, e.dtype) for e in expected]
        arrays |= {f"y{i}": v for i, v in enumerate(actual) if v is not None}
        arrays = {a: v.reshape(1) if v.ndim == 0 else v for a, v in arrays.items()}
        symbols = {symbol: size for size, symbol in case.symbolic.items() if symbol.isidentifier()}
        library.run(network.sdfg.name, arrays, symbols)
        found[title] = Outcome(
            actual=actual, expected=expected, code=library.texts[network.sdfg.name], case=case
        )
    return found


def random(
    *shape: int, dtype: Callable[..., Any] = np.float32, seed: int = 0, scale: float = 1.0
) -> np.ndarray:
    """Standard normal numbers, the same for the same seed."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return np.asarray(values).astype(dtype)
