"""A mend of dace 2.0.0b1: its element types have an order, which SymPy needs to sort the factors of a size.

The type of a map's range is inferred from an expression whose literals are tagged with types; SymPy compares
these tags where a product has several sums, as in (H // 2 + 1) * (W // 2 + 1), and dace gives them no order.
"""

from __future__ import annotations

from dace.dtypes import typeclass


def order_types() -> None:
    """Give dace's element types an order by name; does nothing where they have one."""
    if "__lt__" not in typeclass.__dict__:
        typeclass.__lt__ = _less  # pyright: ignore[reportAttributeAccessIssue]
        typeclass.__gt__ = lambda self, other: _less(other, self)  # pyright: ignore[reportAttributeAccessIssue]


def _less(one: typeclass, other: typeclass) -> bool:
    return str(one.to_string()) < str(other.to_string())
