"""The process in which ONNX's C++ code meets models that nobody vouches for; see `onnx_process`.

Started as a script: it imports neither daceml nor torch. A request is one letter and a length, then a model;
the answer is one letter (`+` or `-`) and a length, then a model or the text of the error. Before a model that
is to be converted, two bytes say to which opset.
"""

from __future__ import annotations

import resource
import struct
import sys
from collections.abc import Callable

HEADER = struct.Struct("<cQ")
# Metadata of an inferred model: the first node that could not be inferred, and why
COMPLAINT = "daceml.complaint"
# A shape that claims to be huge must not take the machine down with it.
_MEMORY_BYTES = 8 << 30
_CPU_S = 600


def main() -> None:
    """Answer requests until stdin ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    import onnx
    import onnx.shape_inference
    import onnx.version_converter

    def infer(data: bytes) -> bytes:
        try:
            return onnx.shape_inference.infer_shapes(
                data, strict_mode=True, data_prop=True
            ).SerializeToString()
        except onnx.shape_inference.InferenceError as error:
            inferred = onnx.shape_inference.infer_shapes(data, data_prop=True)
            inferred.metadata_props.add(key=COMPLAINT, value=str(error).strip())
            return inferred.SerializeToString()

    def convert(data: bytes) -> bytes:
        model, opset = onnx.ModelProto.FromString(data[2:]), int.from_bytes(data[:2], "little")
        return onnx.version_converter.convert_version(model, opset).SerializeToString()

    answers: dict[bytes, Callable[[bytes], bytes]] = {b"i": infer, b"c": convert}
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while header := source.read(HEADER.size):
        kind, length = HEADER.unpack(header)
        data = source.read(length)
        try:
            sign, answer = b"+", answers[kind](data)
        except Exception as error:  # the C++ code raises several unrelated types
            sign, answer = b"-", str(error).strip().encode(errors="replace")
        target.write(HEADER.pack(sign, len(answer)))
        target.write(answer)
        target.flush()


if __name__ == "__main__":
    main()
