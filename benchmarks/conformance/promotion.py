"""Making inputs that operators read at compile time constants, as they are in networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx

from benchmarks.conformance.cases import Case

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
# operator -> positions of operands that say what to do, and are no data
STRUCTURAL: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((f"Reduce{name}" for name in _REDUCTIONS), (1,)),
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Clip": (1, 2),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}


def promoted(case: Case) -> Case | None:
    """The case with such inputs as initializers; None where it has none, or several sets of inputs."""
    inputs = {value.name: index for index, value in enumerate(case.model.graph.input)}
    names = sorted({name for name in _structural(case.model) if name in inputs}, key=inputs.__getitem__)
    if not names or len(case.data) != 1:
        return None
    given, expected = case.data[0]
    found = [(name, given[inputs[name]]) for name in names if inputs[name] < len(given)]
    values = [(name, value) for name, value in found if isinstance(value, np.ndarray)]
    if not values:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    moved = {name for name, _ in values}
    kept = [value for value in case.model.graph.input if value.name not in moved]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values)
    rest = [value for name, value in zip(inputs, given, strict=False) if name not in moved]
    return replace(case, model=model, data=[(rest, expected)])


def _structural(model: onnx.ModelProto) -> Iterator[str]:
    for node in model.graph.node:
        for position in STRUCTURAL.get(node.op_type, ()):
            if node.domain in ("", "ai.onnx") and position < len(node.input) and node.input[position]:
                yield node.input[position]
