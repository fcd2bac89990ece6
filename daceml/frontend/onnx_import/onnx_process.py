"""ONNX's shape inference and version converter behind a process boundary.

Both are C++ that trusts its input: a missing operand, a zero stride or a shape of 2**62 elements makes them
crash, hang or take all memory (measured with onnx 1.23: one random malformed node in two thousand). In a
process of its own that is an error like any other. The process costs 0.2 s, once for each model that is
compiled; modules, whose graphs daceml makes itself, do not need it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import onnx
from google.protobuf.message import DecodeError

from daceml.frontend.onnx_import.onnx_worker import HEADER

_WORKER = Path(__file__).with_name("onnx_worker.py")
_TIME_LIMIT_S = 60.0


class OnnxProcessError(Exception):
    """ONNX refused a model, or did not survive it; the text says which."""


class OnnxProcess:
    """A child process that runs ONNX's C++ code. Started at once; importing onnx there overlaps with our
    work.

    Args:
        time_limit_s: for one request.
    """

    def __init__(self, *, time_limit_s: float = _TIME_LIMIT_S) -> None:
        self._time_limit_s = time_limit_s
        self._command = [sys.executable, "-P", str(_WORKER)]
        self._child = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def infer_shapes(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The model with the types and shapes that follow from its inputs.

        Raises:
            OnnxProcessError: shape inference rejects the model, crashes or takes too long.
        """
        return self._ask(b"i", model.SerializeToString())

    def convert(self, model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
        """The model at another opset.

        Raises:
            OnnxProcessError: the converter rejects the model, crashes or takes too long.
        """
        return self._ask(b"c", opset.to_bytes(2, "little") + model.SerializeToString())

    def _ask(self, kind: bytes, data: bytes) -> onnx.ModelProto:
        late = threading.Event()
        timer = threading.Timer(self._time_limit_s, lambda: (late.set(), self._child.kill()))
        timer.daemon = True
        timer.start()
        try:
            sign, answer = self._exchange(kind, data)
        except (OSError, EOFError) as error:
            code = self._stop()
            reason = f"no answer within {self._time_limit_s:.0f} s" if late.is_set() else _end(code)
            self._child = self._start()
            raise OnnxProcessError(f"onnx {onnx.__version__} does not survive it: {reason}") from error
        finally:
            timer.cancel()
        if sign != b"+":
            raise OnnxProcessError(answer.decode(errors="replace").strip() or "onnx gives no reason")
        try:
            return onnx.ModelProto.FromString(answer)
        except DecodeError as error:
            raise OnnxProcessError(f"onnx returned no model: {error}") from error

    def _exchange(self, kind: bytes, data: bytes) -> tuple[bytes, bytes]:
        to, back = self._child.stdin, self._child.stdout
        assert to is not None
        assert back is not None
        to.write(HEADER.pack(kind, len(data)))
        to.write(data)
        to.flush()
        sign, length = HEADER.unpack(_read(back, HEADER.size))
        return sign, _read(back, length)

    def _start(self) -> subprocess.Popen[bytes]:
        paths = [path for path in sys.path if path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def _stop(self) -> int:
        child = self._child
        for stream in (child.stdin, child.stdout):
            assert stream is not None
            try:
                stream.close()
            except OSError:  # what is still buffered cannot be written any more
                continue
        try:
            return child.wait(timeout=1)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()


def _read(stream: Any, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def _end(code: int) -> str:
    if code >= 0:
        return f"its process ended with status {code}"
    return f"its process was ended by signal {-code} ({signal.strsignal(-code)})"
