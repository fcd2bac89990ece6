"""The steps of a program that ONNX Runtime executes, on the program's own memory."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from daceml.runtime.launcher import FallbackFunction

if TYPE_CHECKING:
    import onnxruntime

    from daceml.runtime.program import StoredProgram

log = logging.getLogger(__name__)


def fallback_function(stored: StoredProgram) -> Any:
    """A C function that runs steps of the program in ONNX Runtime; keep it alive as long as the program."""
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    sessions = {
        step: onnxruntime.InferenceSession(
            str(stored.folder / f"fallback_{step}.onnx"), options, providers=["CPUExecutionProvider"]
        )
        for step in stored.manifest.fallbacks
    }
    names = stored.manifest.symbols

    def run(step: int, pointers: Any, symbols: Any) -> int:
        try:
            values = {name: symbols[k] for k, name in enumerate(names)}
            _run(sessions[step], pointers, values)
        except Exception as error:
            # nothing may be raised into C; its caller makes an error with the operator's name of the status
            log.warning("ONNX Runtime in step %d: %s", step, str(error).splitlines()[0])
            log.debug("", exc_info=error)
            return 1
        return 0

    import ctypes

    def typed(step: int, pointers: Any, symbols: int | None) -> int:
        return run(step, pointers, ctypes.cast(symbols or 0, ctypes.POINTER(ctypes.c_int64)))

    return FallbackFunction(typed)


def _run(session: onnxruntime.InferenceSession, pointers: Any, symbols: dict[str, int]) -> None:
    from daceml.runtime.program import evaluate_size

    binding = session.io_binding()
    at = iter(range(len(session.get_inputs()) + len(session.get_outputs())))
    for record, bind in [
        *((i, binding.bind_input) for i in session.get_inputs()),
        *((o, binding.bind_output) for o in session.get_outputs()),
    ]:
        shape = [evaluate_size(n, symbols) if isinstance(n, str) else n for n in record.shape]
        pointer = pointers[next(at)] or 0
        if math.prod(shape) == 0 and not pointer:
            pointer = 1  # ONNX Runtime wants an address even where nothing is read
        bind(record.name, "cpu", 0, _element_type(record.type), shape, pointer)
    session.run_with_iobinding(binding)


def _element_type(text: str) -> int:
    from onnx import TensorProto

    name = text.removeprefix("tensor(").removesuffix(")")
    return TensorProto.DataType.Value({"float": "FLOAT", "double": "DOUBLE"}.get(name, name.upper()))
