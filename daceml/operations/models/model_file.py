"""Models in one file: plain arrays and a text of JSON, in NumPy's npz; nothing in it is ever executed."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from daceml.errors import EstimationError
from daceml.operations.models.boosted_trees import BoostedTrees
from daceml.operations.models.bounds import Limits
from daceml.operations.models.operator_model import OperatorModel
from daceml.operations.models.perceptron import Perceptron
from daceml.operations.models.principal_component import PrincipalComponent
from daceml.plain_files import read_plain

VERSION = 1

_FORMAT = "daceml operator models"
_DAMAGE = (
    *(KeyError, TypeError, ValueError, EOFError, IndexError, AttributeError, RecursionError),
    *(NotImplementedError, zipfile.BadZipFile, zlib.error),
)
_TREE_ARRAYS = ("roots", "feature", "threshold", "left", "right", "missing_left", "value")
_LIMIT_ARRAYS = ("numbers", "of_size", "logarithm_s", "base")
_LIMIT_NUMBERS = ("slack", "factor", "reach")


def write_models(models: Sequence[OperatorModel], path: str | Path) -> None:
    """Write a file at once: what was there stays whole until all of it is written."""
    path, arrays = Path(path), dict[str, Any]()
    told = [_told(model, f"{index}/", arrays) for index, model in enumerate(models)]
    head = json.dumps({"format": _FORMAT, "version": VERSION, "models": told})
    aside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with aside.open("wb") as file:
            np.savez_compressed(file, head=np.frombuffer(head.encode(), np.uint8), **arrays)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def read_models(path: str | Path) -> list[OperatorModel]:
    """Read a file.

    Raises:
        EstimationError: there is none, it is damaged, or of another kind or version.
    """
    path = Path(path)
    try:
        content = read_plain(path)
    except OSError as error:
        raise EstimationError(
            f"{path} cannot be read", why=str(error), fix="daceml learn makes such a file"
        ) from error
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            head = json.loads(bytes(arrays["head"]).decode())
            _check_head(head, path)
            return [_model(told, f"{i}/", arrays) for i, told in enumerate(head["models"])]
    except _DAMAGE as error:
        raise EstimationError(
            f"{path} is damaged, or holds no models",
            why=f"it is no such archive of arrays ({type(error).__name__})",
            fix="fit the models again: daceml learn",
        ) from error


def _check_head(head: Any, path: Path) -> None:
    if head["format"] != _FORMAT or head["version"] != VERSION:
        raise EstimationError(
            f"the models in {path} are of another version",
            why=f"it says {head['format']} {head['version']}; this is {_FORMAT} {VERSION}",
            fix="fit them again: daceml learn",
        )


def _told(model: OperatorModel, prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """What JSON holds of a model; its arrays go into `arrays`."""
    for name in _LIMIT_ARRAYS:
        arrays[f"{prefix}limits/{name}"] = getattr(model.limits, name)
    _put_trees(model.spread, f"{prefix}spread/", arrays)
    if model.trees is not None:
        _put_trees(model.trees, f"{prefix}trees/", arrays)
    if model.perceptron is not None:
        arrays[f"{prefix}perceptron/centre"] = model.perceptron.centre
        arrays[f"{prefix}perceptron/scale"] = model.perceptron.scale
        for i, (weight, bias) in enumerate(
            zip(model.perceptron.weights, model.perceptron.biases, strict=True)
        ):
            arrays[f"{prefix}perceptron/weight{i}"] = weight
            arrays[f"{prefix}perceptron/bias{i}"] = bias
    component = model.component
    return {
        "device": model.device,
        "kind": model.kind,
        "timing": model.timing,
        "component": None
        if component is None
        else {
            "exponents": dict(component.exponents),
            "correlation": component.correlation,
            "error": component.error,
        },
        "floor_s": model.floor_s,
        "references": list(model.references),
        "names": list(model.names),
        "trees": None if model.trees is None else model.trees.start,
        "layers": 0 if model.perceptron is None else len(model.perceptron.weights),
        "share": model.share,
        "spread": model.spread.start,
        "width": model.width,
        "limits": {name: getattr(model.limits, name) for name in _LIMIT_NUMBERS},
    }


def _put_trees(trees: BoostedTrees, prefix: str, arrays: dict[str, Any]) -> None:
    for name in _TREE_ARRAYS:
        arrays[prefix + name] = getattr(trees, name)


def _model(told: dict[str, Any], prefix: str, arrays: Any) -> OperatorModel:
    component = told["component"]
    return OperatorModel(
        device=told["device"],
        kind=str(told["kind"]),
        timing=told["timing"],
        component=None if component is None else PrincipalComponent(**component),
        floor_s=float(told["floor_s"]),
        references=tuple(told["references"]),
        names=tuple(told["names"]),
        trees=None if told["trees"] is None else _trees(told["trees"], f"{prefix}trees/", arrays),
        perceptron=_perceptron(told["layers"], f"{prefix}perceptron/", arrays) if told["layers"] else None,
        share=float(told["share"]),
        spread=_trees(told["spread"], f"{prefix}spread/", arrays),
        width=float(told["width"]),
        limits=_limits(told["limits"], f"{prefix}limits/", arrays),
    )


def _limits(told: dict[str, float], prefix: str, arrays: Any) -> Limits:
    columns: dict[str, Any] = {name: arrays[prefix + name] for name in _LIMIT_ARRAYS}
    numbers: dict[str, Any] = {name: float(told[name]) for name in _LIMIT_NUMBERS}
    return Limits(**columns, **numbers)


def _trees(start: float, prefix: str, arrays: Any) -> BoostedTrees:
    return BoostedTrees(start=float(start), **{name: arrays[prefix + name] for name in _TREE_ARRAYS})


def _perceptron(layers: int, prefix: str, arrays: Any) -> Perceptron:
    def layer(name: str) -> tuple[NDArray[np.float64], ...]:
        return tuple(arrays[f"{prefix}{name}{i}"] for i in range(layers))

    return Perceptron(
        centre=arrays[f"{prefix}centre"],
        scale=arrays[f"{prefix}scale"],
        weights=layer("weight"),
        biases=layer("bias"),
    )
