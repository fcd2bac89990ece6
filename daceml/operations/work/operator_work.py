"""What calls of ATen's operators compute and move, from shapes and attributes.

Each tensor counts once, as if the device kept it: `aten::native_layer_norm` reads its operand once, and a
convolution its image. What is known of an operator is a row of a table in `contraction_work`,
`elementwise_work`, `reduction_work` or `movement_work`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from daceml.devices.roofline import Work
from daceml.operations.database.records import Operand, Operation
from daceml.operations.work.contraction_work import CONTRACTIONS
from daceml.operations.work.elementwise_work import ELEMENTWISE
from daceml.operations.work.movement_work import FREE, MOVEMENTS
from daceml.operations.work.reduction_work import REDUCTIONS
from daceml.operations.work.work_rule import Rules, WorkRule, bytes_of

RULES: Rules = {**CONTRACTIONS, **ELEMENTWISE, **REDUCTIONS, **MOVEMENTS}
# Of operands of these types products run in matrix units; what is wider than float32 has no peak in `Device`.
_MATRIX = {
    "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float8_e4m3fn": "float8",
    "float8_e4m3fnuz": "float8", "float8_e5m2": "float8", "float8_e5m2fnuz": "float8",
}  # fmt: skip


def work_of(operation: Operation, results: Sequence[Operand] = ()) -> Work | None:
    """Flops and bytes of one call.

    Args:
        operation: as `daceml measure` and traces record it; "aten::mm" or "aten::mm.out", in place or not.
        results: what it returns, where somebody knows; else sizes follow from operands and attributes.
    Returns:
        None of an operator that no table has, of sizes that do not follow, and of products of float64, whose
        peak is not kept. What only looks at memory is no work at all. Whether anything lies in a cache is
        not known here.
    Raises:
        EntryError: an operand is of a type without a size.
    """
    name = operator_name(operation.operator)
    if name in FREE or name.removesuffix("_") in FREE:
        return Work(flops=0.0, bytes_moved=0.0)
    rule = rule_of(name)
    if rule is None or operation.kernel:
        return None
    written = list(results) or rule.results(operation)
    if written is None:
        return None
    flops = rule.flops(operation, written)
    arithmetic = _arithmetic(rule, operation)
    if flops is None or arithmetic is None:
        return None
    moved = rule.reads(operation, written) + sum(map(bytes_of, written))
    if operation.direction == "backward":
        # the gradient of the results is read besides, and those of floating operands are written
        floating = [one for one in operation.operands if one.dtype.startswith(("float", "bfloat"))]
        flops *= rule.backward
        moved += sum(map(bytes_of, floating))
    return Work(flops=float(flops), bytes_moved=float(moved), arithmetic=arithmetic)


def rule_of(name: str) -> WorkRule | None:
    """What is known of an operator, by its bare name: `add_` writes as much as `add`."""
    found = RULES.get(name)
    return RULES.get(name.removesuffix("_")) if found is None else found


def operator_name(operator: str) -> str:
    """The bare name: without namespace and overload."""
    return operator.rpartition("::")[2].partition(".")[0]


def is_contraction(operator: str) -> bool:
    """Whether vendors' libraries compute it: products, convolutions and attention."""
    rule = rule_of(operator_name(operator))
    return rule is not None and rule.unit == "matrix"


def _arithmetic(rule: WorkRule, operation: Operation) -> str | None:
    if rule.unit == "vector" or not operation.operands:
        return "float32"
    largest = max(operation.operands, key=lambda one: prod(one.shape))
    return _MATRIX.get(largest.dtype)
