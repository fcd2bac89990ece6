"""The steps of a program that ONNX Runtime executes, on the program's own memory."""

from __future__ import annotations

import itertools
import logging
import math
from typing import TYPE_CHECKING, Any

from daceml.runtime.launcher import FallbackFunction

if TYPE_CHECKING:
    import onnxruntime

    from daceml.runtime.stored_program import StoredProgram

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

    def run(step: int, pointers: Any, sizes: Any) -> int:
        try:
            _run(sessions[step], pointers, sizes)
        except Exception as error:
            # nothing may be raised into C; its caller makes an error with the operator's name of the status
            log.warning("ONNX Runtime in step %d: %s", step, str(error).splitlines()[0])
            log.debug("", exc_info=error)
            return 1
        return 0

    import ctypes

    def typed(step: int, pointers: Any, sizes: int | None) -> int:
        return run(step, pointers, ctypes.cast(sizes or 0, ctypes.POINTER(ctypes.c_int64)))

    return FallbackFunction(typed)


def _run(session: onnxruntime.InferenceSession, pointers: Any, sizes: Any) -> None:
    """Args: `sizes` has the sizes of every array's dimensions, one array after the other."""
    binding = session.io_binding()
    pointer_at, size_at = itertools.count(), itertools.count()
    for record, bind in [
        *((i, binding.bind_input) for i in session.get_inputs()),
        *((o, binding.bind_output) for o in session.get_outputs()),
    ]:
        shape = [sizes[next(size_at)] for _ in record.shape]
        pointer = pointers[next(pointer_at)] or 0
        if math.prod(shape) == 0 and not pointer:
            pointer = 1  # ONNX Runtime wants an address even where nothing is read
        bind(record.name, "cpu", 0, _element_type(record.type), shape, pointer)
    session.run_with_iobinding(binding)


def _element_type(text: str) -> int:
    from onnx import TensorProto

    name = text.removeprefix("tensor(").removesuffix(")")
    return TensorProto.DataType.Value({"float": "FLOAT", "double": "DOUBLE"}.get(name, name.upper()))
