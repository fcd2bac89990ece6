"""Models that no network can hold, run by ONNX Runtime as a whole.

They have strings, sequences, control flow, or shapes that depend on data and are not declared. Nothing of
such a model is compiled. That is said once in the log, and `explain` gives the reason as an error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from daceml.errors import CallError, DacemlError, ExecutionError, NoImplementationError
from daceml.module.arrays.array_kinds import Convert, results_like, to_numpy
from daceml.module.arrays.dlpack import NotAnArrayError, tensor_of

if TYPE_CHECKING:
    from daceml.frontend.onnx_import.model_file import ModelSource

log = logging.getLogger(__name__)


class OutsideModel:
    """A model as ONNX Runtime runs it.

    Args:
        source: the model, checked.
        reason: why no network can hold it.
    Raises:
        NoImplementationError: ONNX Runtime cannot run it either.
    """

    def __init__(self, source: ModelSource, reason: DacemlError) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        # data in other files is found beside the model's own file
        given = source.model.SerializeToString() if source.file is None else str(source.file)
        try:
            self._session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise NoImplementationError(
                f"neither a network nor onnxruntime can run {source.name}",
                where=reason.where,
                why=f"{reason.what}: {reason.why}\nonnxruntime: {_first_line(error)}",
                fix=reason.fix,
            ) from reason
        self.name = source.name
        self.nodes = len(source.model.graph.node)
        log.warning(
            "%s runs in ONNX Runtime as a whole, nothing of it is compiled: %s", self.name, reason.what
        )

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Results as ONNX Runtime gives them, arrays in the kind that came in, lists for sequences.

        Raises:
            CallError: inputs whose number, name, kind or shape does not fit.
            ExecutionError: an operator failed.
        """
        names = [record.name for record in self._session.get_inputs()]
        values = dict(zip(names, args, strict=False)) | dict(kwargs)
        if len(args) > len(names) or sorted(values) != sorted(names):
            raise CallError(
                f"{self.name} cannot be called with these inputs",
                why=f"it takes {', '.join(names) or 'none'}; given were {len(args)} by position"
                + (f" and {', '.join(kwargs)}" if kwargs else ""),
                fix="pass one value for each input",
            )
        feeds = {name: self._given(name, values[name]) for name in names}
        try:
            results: list[Any] = list(self._session.run(None, feeds))  # pyright: ignore[reportArgumentType]
        except Exception as error:
            kind = CallError if "INVALID_ARGUMENT" in str(error) else ExecutionError
            raise kind(
                f"{self.name} failed in ONNX Runtime",
                why=_first_line(error),
                fix="check the inputs against what the model declares",
            ) from error
        tensors = any(isinstance(value, torch.Tensor) for value in values.values())
        convert = None if tensors else results_like(values.values())
        if tensors or convert not in (None, to_numpy):
            results = [_as_tensors(value, convert) for value in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _given(self, name: str, value: Any) -> Any:
        try:
            return _given(value)
        except NotAnArrayError as error:
            raise CallError(
                f"input {name!r} of {self.name} {error.what}",
                why="ONNX Runtime takes numpy arrays, and what can be read as one",
                fix=error.fix,
            ) from error


def _given(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return to_numpy(value.detach().cpu().contiguous())
    if isinstance(value, list | tuple):
        parts: list[Any] = [_given(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
        return (
            np.asarray(parts, dtype=object)
            if all(isinstance(part, str) for part in parts) and parts
            else parts
        )
    if hasattr(type(value), "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        return to_numpy(tensor_of(value).cpu().contiguous())
    return np.asarray(value) if isinstance(value, bool | int | float) else value


def _as_tensors(value: Any, convert: Convert | None) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        tensor = torch.from_numpy(value)
        return tensor if convert is None else convert(tensor)
    return [_as_tensors(part, convert) for part in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
