"""Operators that move elements."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

X = random(2, 3, 4)
array = np.array


def slices(
    starts: list[int], ends: list[int], axes: list[int] | None = None, steps: list[int] | None = None
) -> Case:
    inputs = [
        random(6, 7, 5),
        array(starts),
        array(ends),
        None if axes is None else array(axes),
        None if steps is None else array(steps),
    ]
    while inputs[-1] is None:
        inputs.pop()
    return Case(
        op="Slice", inputs=inputs, constants=[i for i in range(1, len(inputs)) if inputs[i] is not None]
    )


def reshape(x: np.ndarray, shape: list[int], **more) -> Case:
    return Case(op="Reshape", inputs=[x, array(shape)], constants=[1], expected=[x.reshape(shape)], **more)


CASES = {
    "Reshape merges": reshape(X, [6, 4]),
    "Reshape splits": reshape(random(6, 8), [2, 3, 4, 2]),
    "Reshape both": reshape(random(6, 4, 5), [2, 12, 5]),
    "Reshape crosswise": reshape(random(6, 4), [8, 3]),
    "Reshape units": reshape(X, [1, 2, 1, 12, 1]),
    "Reshape to rank 0": Case(
        op="Reshape", inputs=[random(1, 1), np.zeros(0, np.int64)], constants=[1], expected=[random(1)[0]]
    ),
    "Reshape empty": reshape(random(0, 4), [2, 0]),
    "Reshape symbolic": reshape(random(7, 2, 6), [7, 12], symbolic={7: "N"}),
    "Flatten": Case(op="Flatten", inputs=[X], attributes={"axis": 2}),
    "Flatten 0": Case(op="Flatten", inputs=[X], attributes={"axis": 0}),
    "Squeeze": Case(op="Squeeze", inputs=[random(3, 1, 2, 1), array([1, -1])], constants=[1]),
    "Unsqueeze": Case(op="Unsqueeze", inputs=[X, array([0, -1])], constants=[1]),
    "Unsqueeze rank 0": Case(op="Unsqueeze", inputs=[np.array(3.5, np.float32), array([0])], constants=[1]),
    "Identity": Case(op="Identity", inputs=[X]),
    "Transpose": Case(op="Transpose", inputs=[X]),
    "Transpose perm": Case(op="Transpose", inputs=[X], attributes={"perm": [1, 2, 0]}),
    "Expand": Case(op="Expand", inputs=[random(3, 1), array([2, 3, 4])], constants=[1]),
    "Expand the other way": Case(op="Expand", inputs=[random(3, 4), array([1, 1])], constants=[1]),
    "Tile": Case(op="Tile", inputs=[X, array([2, 1, 3])], constants=[1]),
    "Concat": Case(op="Concat", inputs=[X, random(2, 1, 4), random(2, 2, 4)], attributes={"axis": -2}),
    "Concat with nothing": Case(op="Concat", inputs=[X, random(2, 0, 4)], attributes={"axis": 1}),
    "Split": Case(op="Split", inputs=[X, array([1, 3])], constants=[1], attributes={"axis": -1}, outputs=2),
    "Split equally": Case(op="Split", inputs=[X], attributes={"axis": 2, "num_outputs": 2}, outputs=2),
    "Slice": slices([1, 2], [4, 5]),
    "Slice negative": slices([-4, 1], [-1, 1000], [0, -1]),
    "Slice steps": slices([0, 1], [6, 7], [0, 1], [2, 3]),
    "Slice backwards": slices([5, 6], [0, -1000], [0, 1], [-1, -2]),
    "Slice backwards from the end": slices([-1], [-9999999], [1], [-1]),
    "Slice to nothing": slices([3], [2], [0]),
    "Slice 1": Case(
        op="Slice",
        inputs=[random(5, 4)],
        attributes={"starts": [1, 0], "ends": [3, -1]},
        version=1,
        expected=[random(5, 4)[1:3, :-1]],
    ),
    "Slice symbolic": Case(
        op="Slice",
        inputs=[random(7, 4), array([-1]), array([2**62]), array([0])],
        constants=[1, 2, 3],
        symbolic={7: "N"},
    ),
    "Shape": Case(op="Shape", inputs=[X]),
    "Shape of a part": Case(op="Shape", inputs=[X], attributes={"start": -2, "end": 3}),
    "Shape symbolic": Case(op="Shape", inputs=[random(7, 2)], symbolic={7: "N"}),
    "Size": Case(op="Size", inputs=[X]),
    "ConstantOfShape": Case(
        op="ConstantOfShape",
        inputs=[array([2, 3])],
        constants=[0],
        attributes={"value": np.array([5], np.int64)},
        expected=[np.full((2, 3), 5)],
    ),
    "ConstantOfShape zeros": Case(op="ConstantOfShape", inputs=[array([2, 3])], constants=[0]),
    "Range": Case(
        op="Range", inputs=[np.array(1.0, np.float32), np.array(2.0, np.float32), np.array(0.3, np.float32)]
    ),
    "Range of integers": Case(op="Range", inputs=[array(10), array(0), array(-3)], constants=[0, 1, 2]),
    **{
        f"Cast {x.dtype} to {to}": Case(
            op="Cast", inputs=[x], attributes={"to": code}, expected=[x.astype(to)]
        )
        for x in (X * 5, X.astype(np.float16), (X * 5).astype(np.int32), X > 0)
        for to, code in (
            (np.float32, 1),
            (np.int64, 7),
            (bool, 9),
            (np.float16, 10),
            (np.float64, 11),
            (np.int8, 3),
        )
    },
    "CastLike": Case(op="CastLike", inputs=[X, array([1])]),
    "DepthToSpace": Case(op="DepthToSpace", inputs=[random(2, 8, 3, 2)], attributes={"blocksize": 2}),
    "DepthToSpace CRD": Case(
        op="DepthToSpace", inputs=[random(2, 8, 3, 2)], attributes={"blocksize": 2, "mode": "CRD"}
    ),
    "SpaceToDepth": Case(op="SpaceToDepth", inputs=[random(2, 3, 4, 6)], attributes={"blocksize": 2}),
    "SpaceToDepth CRD": Case(
        op="SpaceToDepth", inputs=[random(2, 3, 4, 6)], attributes={"blocksize": 2, "mode": "CRD"}
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
