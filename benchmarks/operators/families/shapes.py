"""Elements in another order or shape, and values that come from shapes alone."""

from __future__ import annotations

import numpy as np

from benchmarks.operators.draws import Chance, Draw, draws


@draws("Split")
def split(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4)
    axis = c.axis(len(shape))
    parts = c.between(1, 3)
    cuts = sorted(c.between(0, shape[axis]) for _ in range(parts - 1))
    sizes = np.diff([0, *cuts, shape[axis]]).astype(np.int64)
    return Draw(
        op_type=op,
        inputs=[c.values(shape, "float32"), sizes],
        attributes={"axis": axis},
        constants=c.constant(1),
        outputs=parts,
        exact=True,
    )


@draws("Concat")
def concat(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(1, 4), c.of(("float32", "int64", "bool"))
    axis = c.axis(len(shape))
    at = axis % len(shape)
    inputs = [c.values((*shape[:at], c.size(), *shape[at + 1 :]), dtype) for _ in range(c.between(1, 4))]
    return Draw(op_type=op, inputs=inputs, attributes={"axis": axis}, exact=True)


@draws("Tile")
def tile(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4)
    repeats = np.asarray([c.of((1, 1, 2, 3, 0)) for _ in shape], np.int64)
    return Draw(op_type=op, inputs=[c.values(shape, "float32"), repeats], constants=c.constant(1), exact=True)


@draws("Expand")
def expand(c: Chance, op: str) -> Draw:
    shape = c.shape()
    given = c.values(c.broadcast(shape), c.of(("float32", "int64")))
    return Draw(op_type=op, inputs=[given, np.asarray(shape, np.int64)], constants=c.constant(1), exact=True)


@draws("Reshape")
def reshape(c: Chance, op: str) -> Draw:
    shape = c.shape(empty=False)
    order = c.permutation(len(shape))
    target = [shape[i] for i in order]
    if target and c.one_in(2):
        target[c.between(0, len(target) - 1)] = -1
    elif len(target) > 1 and c.one_in(2):
        target[:2] = [target[0] * target[1]]
    return Draw(
        op_type=op,
        inputs=[c.values(shape, c.of(("float32", "int64"))), np.asarray(target, np.int64)],
        constants=c.constant(1),
        exact=True,
    )


@draws("Transpose")
def transpose(c: Chance, op: str) -> Draw:
    shape = c.shape()
    attributes = {} if c.one_in(4) else {"perm": c.permutation(len(shape))}
    return Draw(
        op_type=op, inputs=[c.values(shape, c.of(("float32", "bool")))], attributes=attributes, exact=True
    )


@draws("Squeeze", "Unsqueeze")
def squeeze(c: Chance, op: str) -> Draw:
    shape = list(c.shape(1, 3))
    if op == "Squeeze":
        axes = c.axes(len(shape))
        for a in axes:
            shape[a] = 1
    else:
        rank = len(shape) + c.between(1, 2)
        axes = c.permutation(rank)[: rank - len(shape)]
        axes = [a - rank if c.one_in(2) else a for a in axes]
    inputs = [c.values(shape, "float32"), np.asarray(axes, np.int64)]
    return Draw(op_type=op, inputs=inputs, constants=c.constant(1), exact=True)


@draws("Flatten")
def flatten(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4)
    axis = c.between(-len(shape), len(shape))
    return Draw(op_type=op, inputs=[c.values(shape, "float32")], attributes={"axis": axis}, exact=True)


@draws("DepthToSpace", "SpaceToDepth")
def depth_space(c: Chance, op: str) -> Draw:
    block = c.of((1, 2, 3))
    n, depth, h, w = c.size(empty=False), c.between(1, 3), c.between(1, 4), c.between(1, 5)
    if op == "DepthToSpace":
        attributes, shape = {"blocksize": block, "mode": c.of(("DCR", "CRD"))}, (n, depth * block**2, h, w)
    else:
        attributes, shape = {"blocksize": block}, (n, depth, h * block, w * block)
    return Draw(op_type=op, inputs=[c.values(shape, "float32")], attributes=attributes, exact=True)


@draws("Range")
def ranges(c: Chance, op: str) -> Draw:
    dtype = c.of(("int32", "int64", "float32"))
    start, step = c.between(-5, 5), c.of((1, 2, -1, 3))
    stop = start + step * c.between(0, 7)
    inputs = [np.asarray(value, dtype) for value in (start, stop, step)]
    return Draw(op_type=op, inputs=inputs, constants=frozenset({0, 1, 2}), exact=True)


@draws("EyeLike")
def eye_like(c: Chance, op: str) -> Draw:
    return Draw(
        op_type=op,
        inputs=[c.values(c.shape(2, 2), "float32")],
        attributes={"k": c.between(-3, 3)},
        exact=True,
    )


@draws("ConstantOfShape")
def constant_of_shape(c: Chance, op: str) -> Draw:
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.asarray([c.between(-3, 3)], c.of(("float32", "int64"))))
    shape = np.asarray(c.shape(1, 4), np.int64)
    return Draw(op_type=op, inputs=[shape], attributes={"value": value}, constants=c.constant(0), exact=True)


@draws("Shape", "Size")
def shape_of(c: Chance, op: str) -> Draw:
    x = c.values(c.shape(), "float32")
    attributes = {"start": c.between(-2, 2)} if op == "Shape" and c.one_in(2) else {}
    return Draw(op_type=op, inputs=[x], attributes=attributes, exact=True)
