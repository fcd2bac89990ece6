"""What a use of an operator should give: onnxruntime's results, and those of ONNX's reference in Python."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx

from benchmarks.operators.draws import Array, Draw, feeds_of, model_of


class NoOracleError(Exception):
    """Neither can run the use; the message says why."""


def expected(use: Draw) -> list[list[Array]]:
    """The results of every oracle that can run the use, onnxruntime's first.

    Raises:
        NoOracleError: none can.
    """
    try:
        model = model_of([use])
    except Exception as error:
        raise NoOracleError(f"not a valid model: {_short(error)}") from error
    feeds = feeds_of([use])
    found: list[list[Array]] = []
    reasons: list[str] = []
    for oracle in (_onnxruntime, _reference):
        try:
            results = oracle(model, feeds)
        except Exception as error:
            reasons.append(f"{oracle.__name__.strip('_')}: {_short(error)}")
        else:
            found.append([np.asarray(result) for result in results])
    if not found:
        raise NoOracleError("; ".join(reasons))
    return found


def _onnxruntime(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def _reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(ReferenceEvaluator(model).run(None, feeds))


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
