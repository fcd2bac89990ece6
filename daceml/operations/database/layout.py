"""How the elements of an operand follow each other, in the words of `records.Operand`."""

from __future__ import annotations

from collections.abc import Sequence


def layout_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> str | tuple[int, ...]:
    """ "contiguous", "channels_last", or the strides.

    Args:
        strides: in elements; as many as there are sizes.
    """
    if _dense(shape, strides, range(len(shape))):
        return "contiguous"
    if len(shape) in (4, 5) and _dense(shape, strides, (0, *range(2, len(shape)), 1)):
        return "channels_last"
    return strides


def _dense(shape: tuple[int, ...], strides: tuple[int, ...], order: Sequence[int]) -> bool:
    """Whether axes, outermost first, follow each other in memory; strides of axes of size 1 do not count."""
    expected = 1
    for axis in reversed(order):
        if shape[axis] != 1:
            if strides[axis] != expected:
                return False
            expected *= shape[axis]
    return True
