"""The cases of the ONNX standard's own backend tests, as the installed `onnx` package has them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

KINDS = ("node", "light", "pytorch-converted", "pytorch-operator", "simple")
# Nothing that is computed in another order gives these operators' numbers again.
_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
# In the expansion of an operator into a function the standard leaves these out of the name.
_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model with its inputs and the results that the standard asks for.

    Attributes:
        operator: what it is a case of; with its domain where that is not the standard's own.
        expanded: a second form of another case, with the operator written as a function of others.
        data: (inputs, expected results), once or several times.
        statistical: the results are random.
    """

    kind: str
    name: str
    operator: str
    expanded: bool
    model: onnx.ModelProto
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float
    statistical: bool


def load(kind: str) -> list[Case]:
    """All cases of a kind, by name."""
    found = _node_cases() if kind == "node" else _light_cases() if kind == "light" else _stored_cases(kind)
    cases = sorted(found, key=lambda case: case.name)
    operators = {case.name: case.operator for case in cases}
    return [_named(case, operators) for case in cases]


def _named(case: Case, operators: dict[str, str]) -> Case:
    """The same case; an expanded one is of the operator that its twin is of."""
    from dataclasses import replace

    twin = _EXPANDED.sub("", case.name)
    return replace(case, operator=operators.get(twin, case.operator))


def _node_cases() -> Iterator[Case]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflows that cases are about
        tests = collect_testcases(None)
    for test in tests:
        data = [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in test.data_sets or ()]
        assert test.model is not None, "a node's case is made with its model"
        yield _case("node", test.name, test.model, data, test.rtol, test.atol)


def _stored_cases(kind: str) -> Iterator[Case]:
    import onnx
    from onnx.backend.test.loader import load_model_tests

    for test in load_model_tests(kind=kind):
        assert test.model_dir is not None, "a stored case has a folder"
        folder = Path(test.model_dir)
        model = onnx.load(folder / "model.onnx")
        data = [
            (_read(found, "input", model.graph.input), _read(found, "output", model.graph.output))
            for found in sorted(folder.glob("test_data_set*"))
        ]
        yield _case(kind, test.name, model, data, test.rtol, test.atol)


def _light_cases() -> Iterator[Case]:
    """Known networks whose weights all are one number, so that their files are small."""
    import onnx
    from onnx.backend.test.loader import DATA_DIR, load_model_tests

    for test in load_model_tests(kind="real"):
        assert test.url is not None, "a real case names its archive"
        file = Path(DATA_DIR, "light", Path(test.url).name)
        if not file.is_file():
            continue
        model = onnx.load(file)
        initializers = {tensor.name for tensor in model.graph.initializer}
        inputs = [_ramp(value) for value in model.graph.input if value.name not in initializers]
        expected = [
            onnx.numpy_helper.to_array(onnx.load_tensor(f"{file.with_suffix('')}_output_{i}.pb"))
            for i in range(len(model.graph.output))
        ]
        yield _case("light", test.name, model, [(inputs, expected)], test.rtol, test.atol)


def _ramp(value: onnx.ValueInfoProto) -> np.ndarray:
    """The input that the expected results of the light networks were made of."""
    shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def _case(
    kind: str,
    name: str,
    model: onnx.ModelProto,
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]],
    rtol: float,
    atol: float,
) -> Case:
    return Case(
        kind=kind,
        name=name,
        operator=name.removeprefix("test_") if kind == "light" else _operator(model),
        expanded=_EXPANDED.search(name) is not None,
        model=model,
        data=data,
        rtol=rtol,
        atol=atol,
        statistical=_is_random(model, data[0][0]) if data else False,
    )


def _operator(model: onnx.ModelProto) -> str:
    node = model.graph.node[-1]
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _is_random(model: onnx.ModelProto, inputs: Sequence[Any]) -> bool:
    values = dict(zip((value.name for value in model.graph.input), inputs, strict=False))
    for node in model.graph.node:
        if node.op_type in _RANDOM:
            return True
        if node.op_type == "Dropout" and len(node.input) > 2:
            ratio = values.get(node.input[1], 0.5)
            if values.get(node.input[2], False) and ratio != 0:
                return True
    return False


def _read(folder: Path, side: str, values: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    import onnx
    from onnx import numpy_helper

    found: list[Any] = []
    for index, value in enumerate(values):
        file = folder / f"{side}_{index}.pb"
        if not file.is_file():
            break
        if value.type.WhichOneof("value") == "sequence_type":
            found.append(numpy_helper.to_list(onnx.SequenceProto.FromString(file.read_bytes())))
        else:
            found.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes())))
    return found


def _arrays(values: Sequence[Any]) -> list[Any]:
    """The standard's cases hold arrays, numpy's scalars, protobufs, and lists of these."""
    import onnx

    return [
        onnx.numpy_helper.to_array(value)
        if isinstance(value, onnx.TensorProto)
        else np.asarray(value)
        if isinstance(value, np.generic)
        else value
        for value in values
    ]
