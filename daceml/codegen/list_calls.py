"""C++ of a call over lists of arrays: tables of them, and one parallel loop over parts of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from daceml.config import config
from daceml.sdfg.tensor_lists import ListCall

if TYPE_CHECKING:
    import dace

INCLUDE = "#include <daceml/tensor_lists.h>"

# One part takes some microseconds, so that what it costs to begin one does not count
_PART_ELEMENTS = 4096


def list_call_lines(
    call: ListCall,
    signature: Sequence[str],
    pointer: Callable[[str], str],
    arrays: Mapping[str, dace.data.Data],
) -> list[str]:
    """The lines of a step.

    Args:
        signature: names of the kernel's parameters in order.
        pointer: array -> C++ expression of its address.
    """
    starts = [0]
    for row in call.rows:
        starts.append(starts[-1] - -row.elements // _PART_ELEMENTS)
    values: list[str] = ["nullptr"]
    for parameter in signature:
        column = call.columns[int(parameter[1:])] if parameter.startswith("a") else None
        if not parameter.startswith("a"):
            values.append("count")
        elif column is None:
            values.append(f"numbers + rows[t] * {arrays[call.numbers].shape[1]}")
        else:
            item_bytes = arrays[call.rows[0].arrays[column]].dtype.bytes
            values.append(f"(char*)arrays[t][{column}] + first * {item_bytes}")
    parallel = "true" if call.elements >= config().parallel_threshold else "false"
    return [
        f"double* const numbers = (double*){pointer(call.numbers)};",
        _table("starts", starts),
        _table("elements", [row.elements for row in call.rows]),
        _table("rows", [row.number for row in call.rows]),
        f"void* const arrays[][{len(call.rows[0].arrays)}] = {{",
        *(f"  {{{', '.join(map(pointer, row.arrays))}}}," for row in call.rows),
        "};",
        f"daceml::for_parts(starts, elements, {len(call.rows)}, {_PART_ELEMENTS}, {parallel},",
        "                  [&](int64_t t, int64_t first, int64_t count) {",
        f"  __program_{call.kernel.name}({', '.join(values)});",
        "});",
    ]


def _table(name: str, values: Sequence[int]) -> str:
    return f"static const int64_t {name}[] = {{{', '.join(map(str, values))}}};"
