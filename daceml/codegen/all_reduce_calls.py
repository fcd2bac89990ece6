"""C++ of the two halves of an all-reduce: a table of arrays, and a call to whoever runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from daceml.sdfg.all_reduce import BeginAllReduce, WaitAllReduce
from daceml.sdfg.element_codes import torch_code
from daceml.sdfg.sizes import cpp, product, size

if TYPE_CHECKING:
    import dace

    from daceml.codegen.planning.steps import Step


def ticket_lines(steps: Sequence[Step]) -> list[str]:
    """What a program keeps of its all-reduces under way."""
    begun = (step.action.bucket for step in steps if isinstance(step.action, BeginAllReduce))
    return [f"  int64_t ticket{bucket} = -1;" for bucket in begun]


def all_reduce_lines(
    half: BeginAllReduce | WaitAllReduce, pointer: Callable[[str], str], arrays: Mapping[str, dace.data.Data]
) -> list[str]:
    """The lines of a step.

    Args:
        pointer: array -> C++ expression of its address.
    """
    begins = isinstance(half, BeginAllReduce)
    taken = half.gradients if begins else half.averaged
    pointers = ", ".join(map(pointer, taken)) or "nullptr"
    elements = ", ".join(cpp(product(size(n) for n in arrays[a].shape)) for a in taken) or "0"
    code = torch_code(arrays[taken[0]].dtype) if taken else 0
    ticket = f"ticket{half.bucket}"  # in the processor's memory, wherever the arrays lie
    number = f"{half.bucket}" if begins else ticket
    call = f"c->all_reduce({int(not begins)}, {number}, arrays, elements, {len(taken)}, {code})"
    return [
        f"void* const arrays[] = {{{pointers}}};",
        f"const int64_t elements[] = {{{elements}}};",
        'DACEML_TRY(c, c->all_reduce == nullptr, "no ranks were given to exchange gradients with");',
        f"const int64_t told = {call};",
        f'DACEML_TRY(c, told < 0, "all-reduce {half.bucket} of gradients failed");',
        *([f"{ticket} = told;"] if begins else []),
    ]
