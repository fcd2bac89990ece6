"""The backward pass of any DaCe program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dace
from dace.sdfg.propagation import propagate_memlets_sdfg
from dace.sdfg.state import LoopRegion

from daceml.autodiff.sdfg_backward.backward import Backward
from daceml.autodiff.sdfg_backward.backward_plan import Plan
from daceml.autodiff.sdfg_backward.normal_form import OWN_NAMES, simple_form
from daceml.autodiff.sdfg_backward.stored_values import Records, assigned_symbols
from daceml.autodiff.sdfg_backward.writer import Writer
from daceml.errors import GradientError
from daceml.sdfg.builder import Computation, parameters
from daceml.sdfg.scalar import FLOATS, compute_type, literal, read
from daceml.sdfg.scalar_rewrite import as_index


def add_backward_pass(sdfg: dace.SDFG, outputs: Sequence[str], inputs: Sequence[str]) -> dict[str, str]:
    """Add the backward pass to a DaCe program. Mutates it; what it computes stays the same.

    A call of the program then takes `gradient_<name>` for each output, which holds its cotangent, and for
    each input, into which its gradient is written. For an array that is both, the cotangent goes in and the
    gradient with respect to the array's first value comes out; other cotangents are left as they are.

    Args:
        sdfg: made by `@dace.program` or by hand, simplified or not; its nested programs are inlined and its
            library nodes expanded.
        outputs: arrays of floating-point numbers that the program writes.
        inputs: arrays of floating-point numbers that it reads.
    Returns:
        array -> name of the array with its gradient.
    Raises:
        GradientError: something in the program cannot be run backwards; the message says what.
    """
    _check(sdfg, outputs, inputs)
    _check_names(sdfg)
    simple_form(sdfg)
    plan = Plan(sdfg, outputs, inputs)
    records = _store(sdfg, plan)
    gradients = {
        a: _gradient(sdfg, a, a in outputs or a in inputs) for a in _in_order(sdfg, plan, outputs, inputs)
    }
    writer = Writer(sdfg, sdfg, plan.blocks[-1])
    public = dict(gradients)
    for array in outputs:
        if array not in inputs and array in plan.active:
            gradients[array] = _working_copy(sdfg, writer, gradients[array])
    backward = Backward(sdfg, plan, records, gradients, set(outputs) & plan.active)
    backward.write(writer)
    for array in inputs:
        if array in plan.active or array not in outputs:
            backward.zero(writer, array)
    _finish(sdfg)
    return {array: public[array] for array in (*outputs, *inputs)}


def append_gradients(
    sdfg: dace.SDFG, cotangents: Mapping[str, str | None], leaves: Sequence[str]
) -> tuple[dict[str, str], Writer]:
    """Add to what a program does so far the gradients of some of its arrays. Mutates it; it may go on behind.

    Args:
        sdfg: as for `add_backward_pass`; not validated, as it need not be complete.
        cotangents: array of floating-point numbers -> array that holds its cotangent; None stands for ones.
        leaves: arrays whose gradients are asked for. Whatever the program assigns to one, its gradient is
            that of all that has been read of it, and none flows into what was assigned.
    Returns:
        leaf -> new array with its gradient, for those that the cotangents reach; and what adds blocks behind.
    Raises:
        GradientError: something in the program cannot be run backwards; the message says what.
    """
    _check_names(sdfg)
    simple_form(sdfg)
    plan = Plan(sdfg, list(cotangents), leaves, leaves=True)
    records = _store(sdfg, plan)
    gradients = {a: _gradient(sdfg, a, False) for a in _in_order(sdfg, plan, list(cotangents), leaves)}
    writer = Writer(sdfg, sdfg, plan.blocks[-1])
    for array, cotangent in cotangents.items():
        _begin_gradient(sdfg, writer, gradients[array], cotangent)
    backward = Backward(sdfg, plan, records, gradients, set(cotangents), goes_on=True)
    backward.write(writer)
    reached = {a: gradients[a] for a in leaves if a in plan.active}
    for array in reached:
        backward.zero(writer, array)
    sdfg.reset_cfg_list()
    return reached, writer


def _store(sdfg: dace.SDFG, plan: Plan) -> Records:
    loops = [b for b in sdfg.all_control_flow_blocks() if isinstance(b, LoopRegion)]
    changing = {b.loop_variable for b in loops} | assigned_symbols(sdfg)
    records = Records(sdfg, changing | set(sdfg.arrays))
    plan.store(records)
    return records


def _finish(sdfg: dace.SDFG) -> None:
    sdfg.reset_cfg_list()
    propagate_memlets_sdfg(sdfg)
    sdfg.validate()


def _begin_gradient(sdfg: dace.SDFG, writer: Writer, gradient: str, cotangent: str | None) -> None:
    desc = sdfg.arrays[gradient]
    shape = tuple(map(as_index, desc.shape))
    places = parameters(len(shape))
    ones = literal(1, compute_type(desc.dtype))
    value = ones if cotangent is None else read(cotangent, sdfg.arrays[cotangent].dtype, places, shape)
    writer.compute(
        Computation(label=gradient, target=gradient, index=places, params=places, extents=shape, value=value)
    )


def _in_order(sdfg: dace.SDFG, plan: Plan, outputs: Sequence[str], inputs: Sequence[str]) -> list[str]:
    return [a for a in list(sdfg.arrays) if a in plan.active or a in outputs or a in inputs]


def _gradient(sdfg: dace.SDFG, array: str, public: bool) -> str:
    desc = sdfg.arrays[array]
    name = f"gradient_{array}"
    if public and name in sdfg.arrays:
        raise GradientError(
            f"{name} is the name of an array already",
            where=sdfg.name,
            why=f"it is what the gradient of {array} is called",
            fix="give the array another name; a program is differentiated once",
        )
    found, _ = sdfg.add_array(name, desc.shape, desc.dtype, transient=not public, find_new_name=True)
    return found


def _working_copy(sdfg: dace.SDFG, writer: Writer, cotangent: str) -> str:
    desc = sdfg.arrays[cotangent]
    shape = tuple(map(as_index, desc.shape))
    name, _ = sdfg.add_transient(f"{cotangent}_left", shape, desc.dtype, find_new_name=True)
    places = parameters(len(shape))
    writer.compute(
        Computation(
            label=name, target=name, index=places, params=places, extents=shape,
            value=read(cotangent, desc.dtype, places, shape),
        )
    )  # fmt: skip
    return name


def _check(sdfg: dace.SDFG, outputs: Sequence[str], inputs: Sequence[str]) -> None:
    for array in (*outputs, *inputs):
        desc = sdfg.arrays.get(array)
        why = (
            f"the program has {', '.join(sorted(a for a, d in sdfg.arrays.items() if not d.transient))}"
            if desc is None
            else "it is a transient, which no caller can pass or receive"
            if desc.transient
            else f"its elements are {desc.dtype.to_string()}"
            if desc.dtype not in FLOATS
            else None
        )
        if why is not None:
            raise GradientError(
                f"there is no gradient of {array}", where=sdfg.name, why=why,
                fix="name arguments of floating-point type",
            )  # fmt: skip


def _check_names(sdfg: dace.SDFG) -> None:
    taken = {*sdfg.arrays, *map(str, sdfg.free_symbols)}
    taken |= {b.loop_variable for b in sdfg.all_control_flow_blocks() if isinstance(b, LoopRegion)}
    if clash := sorted(n for n in taken if OWN_NAMES.fullmatch(n)):
        raise GradientError(
            f"the name {clash[0]} cannot be used",
            where=sdfg.name,
            why="the backward pass calls its own indices so",
            fix="give the array or symbol another name",
        )
