"""nn.Module -> ExportedProgram: one call as a graph, and which other calls the graph is right for."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from daceml.errors import ConfigurationError, ExportError
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.attributes_read import AttributesRead
from daceml.frontend.capture.autocast_regions import marked_in_autocast
from daceml.frontend.capture.exportable import Assignment, RunsEagerlyError, exportable
from daceml.frontend.capture.forward_errors import note_tracing, raised_by_forward, refusal_of_torch
from daceml.frontend.capture.gradients.own_gradients import refuse_gradient_hooks, without_own_gradients
from daceml.frontend.capture.mixed_types import refuse_mixed_types
from daceml.frontend.capture.module_attributes import adopt, unchanged_tensors
from daceml.frontend.capture.number_uses import only_values
from daceml.frontend.capture.object_arguments import Change, kinds_of_objects
from daceml.frontend.capture.random_generators import draw_from_torchs_generator
from daceml.frontend.capture.refused_traces import refuse_errors, refuse_wrapped
from daceml.frontend.capture.sizes.dynamic_shapes import (
    SizeGuard,
    Spec,
    ambiguous,
    conditions_fix,
    example,
    few_conditions,
    kept_marks,
    size_guard,
    tensor_specs,
)
from daceml.frontend.capture.sizes.named_dims import broken_promise, check_named_sizes
from daceml.frontend.capture.sizes.recurrent_shapes import recurrent_layers_by_shape
from daceml.frontend.capture.traceable import traceable
from daceml.frontend.capture.traced_memory import correct_memory
from daceml.frontend.capture.values_read import ReadValues, ValueRead

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

log = logging.getLogger(__name__)

DIM_NAMES = "daceml.dim_names"
"""Key in a graph module's meta: the program's symbol of each dimension that the user has named."""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """One call of a module, traced.

    Attributes:
        program: its inputs are the tensors of the arguments; its results those of forward, then the values
            that forward assigned to attributes, then new contents of objects, lists and dicts of the call.
        sizes: which other sizes it is right for; None where all are fixed.
        assigned: attributes that forward assigned.
        attributes: those of modules that forward read.
        changes: objects, lists and dicts of the call that forward changed.
        classes: of objects among the arguments and the results.
        held: tensors that the module holds in plain attributes, by the names that the program has for them.
        reads: values that forward read from tensors of the call, and that are constants of the trace.
        other_reads: whether there are such constants that come from elsewhere.
        moving: of each tensor among the results, whether it requires a gradient.
    """

    program: ExportedProgram
    sizes: SizeGuard | None
    assigned: tuple[Assignment, ...]
    held: dict[str, torch.Tensor]
    attributes: AttributesRead
    changes: tuple[Change, ...] = ()
    classes: tuple[type, ...] = ()
    reads: tuple[ValueRead, ...] = ()
    other_reads: bool = False
    moving: tuple[bool, ...] = ()


def export_program(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Trace a module as it stands (training or evaluation) into an exported program.

    Args:
        args, kwargs: example inputs; their sizes are fixed unless `dynamic_shapes` names them.
        dynamic_shapes: as in `torch.export.export`; names of dimensions appear in the ONNX model.
    Raises:
        ExportError: torch.export cannot take the module; `where` is the user's line.
        RunsEagerlyError: forward does something that no graph can repeat.
        Exception: what forward itself raises, see `capture`.
    """
    return capture(module, Arguments(args, kwargs or {}), dynamic_shapes=dynamic_shapes).program


def capture(
    module: nn.Module,
    arguments: Arguments,
    *,
    dynamic_shapes: Any = None,
    dynamic: bool | Sequence[frozenset[int]] = False,
    autocast: tuple[torch.dtype | None, ...] = (),
    gradients: bool = False,
    output: bool = True,
) -> Capture:
    """Trace one call of a module as it stands.

    Numbers that forward reads from tensors of the call stay tensors where it only computes with them; else
    they are constants.

    Args:
        dynamic_shapes: as in `torch.export.export`; a named size may be 0 or 1 in this call, too.
        dynamic: make every size symbolic that the module allows to be, or those of certain dimensions of each
            tensor.
        autocast: the types of the autocast regions that the call is in, see `call_device.autocast_types`.
        gradients: whether a backward pass will be derived from the trace.
        output: see `exportable`.
    Raises:
        ExportError: torch.export cannot take the module; `where` is the user's line.
        ConfigurationError: `dynamic_shapes` does not fit the arguments.
        CallError: the sizes of named dimensions contradict their names or ranges.
        RunsEagerlyError: forward does something that no graph can repeat.
        Exception: what forward itself raises, with a note: an exception that comes from a line outside torch
            and daceml is the user's, as in an eager call. What torch raises is an ExportError, and a
            RuntimeError, TypeError, ValueError, IndexError, KeyError or AttributeError where torch's is one.
    """
    given: dict[str, Any] = {
        "dynamic_shapes": dynamic_shapes, "dynamic": dynamic, "autocast": autocast, "gradients": gradients,
        "output": output,
    }  # fmt: skip
    try:
        return _with_values(module, arguments, **given)
    except RunsEagerlyError as effect:
        if effect.forget is None:
            raise
        try:  # what forward has remembered is there now
            return _with_values(module, arguments, **given)
        except Exception as again:
            if isinstance(again, RunsEagerlyError) and again.forget is not None:
                again.forget()
            effect.forget()
            raise


def _with_values(module: nn.Module, arguments: Arguments, **given: Any) -> Capture:
    """Trace with values of tensors as symbols; as constants where a program has no use for the symbols."""
    reads = ReadValues(constants=False)
    try:
        captured = _capture(module, arguments, reads, **given)
    except RunsEagerlyError:
        raise
    except Exception:
        if not reads.symbols:
            raise
    else:
        if not reads.symbols or only_values(captured.program):
            return captured
    return _capture(module, arguments, ReadValues(constants=True), **given)


def _capture(
    module: nn.Module,
    arguments: Arguments,
    reads: ReadValues,
    *,
    dynamic_shapes: Any,
    dynamic: bool | Sequence[frozenset[int]],
    autocast: tuple[torch.dtype | None, ...],
    gradients: bool,
    output: bool,
    closed: Sequence[frozenset[int]] = (),
) -> Capture:
    """Trace once.

    Args:
        closed: of each tensor, dimensions that are fixed all the same.
    """
    import torch

    from daceml.frontend.capture.quiet_torch import quiet

    specs = tensor_specs(arguments, module.forward, dynamic_shapes, everything=dynamic)
    if specs is not None:
        check_named_sizes(arguments, module.forward, specs)
        specs = _without(specs, closed)
    tensors = arguments.tensors if specs is None else example(arguments.tensors, specs)
    tensors = _apart(tensors, module)
    if gradients:
        refuse_gradient_hooks(module)
    around = _followed if gradients else nullcontext
    view_of_call = exportable(module, arguments, reads, autocast, around, output=output)
    with traceable(module), unchanged_tensors(module), view_of_call as view:
        try:
            conditions = few_conditions() if dynamic else nullcontext()
            with quiet(), _without_dumps(), kept_marks(tensors), conditions, recurrent_layers_by_shape():
                program = torch.export.export(view.module, tuple(tensors), dynamic_shapes=specs, strict=False)
        except (RunsEagerlyError, ConfigurationError, ExportError):
            raise
        except Exception as error:
            if raised_by_forward(error):
                note_tracing(module, error)
                raise
            broken = broken_promise(error, module, arguments, specs)
            raise broken or refusal_of_torch(module, arguments, error) from error
    refuse_wrapped(program)
    refuse_mixed_types(program, module, arguments)
    correct_memory(program)
    if specs is not None and any(found := ambiguous(program, specs)):
        closed = [axes | more for axes, more in zip_longest(closed, found, fillvalue=frozenset[int]())]
        return _capture(
            module, arguments, ReadValues(constants=reads.constants), dynamic_shapes=dynamic_shapes,
            dynamic=dynamic, autocast=autocast, gradients=gradients, output=output, closed=closed,
        )  # fmt: skip
    _refuse_overwritten(reads)
    if reads.rebound:
        raise RunsEagerlyError("forward assigns the data of a tensor, which no trace shows")
    draw_from_torchs_generator(program)
    refuse_errors(program)
    _refuse_state(program, view.assigned)
    if not (view.assigned or view.changes):
        _drop_assigned(program)
    if specs is not None:
        program.graph_module.meta[DIM_NAMES] = _dim_names(program, specs)
    sizes = None if specs is None else size_guard(program)
    if dynamic and conditions_fix(program):
        log.info("%s: sizes on which forward sets many conditions stay fixed", type(module).__name__)
    program.example_inputs = None  # a batch, as long as the program lives
    return Capture(
        program=program,
        sizes=sizes,
        assigned=tuple(view.assigned),
        held=adopt(program, module),
        changes=tuple(view.changes),
        classes=tuple(dict.fromkeys((*arguments.classes, *kinds_of_objects(program.call_spec.out_spec)))),
        reads=tuple(reads.found),
        other_reads=reads.unknown,
        attributes=view.attributes,
        moving=view.moving,
    )


def _without(specs: Sequence[Spec], closed: Sequence[frozenset[int]]) -> tuple[Spec, ...] | None:
    """The specifications without some dimensions; None where all are fixed now."""
    if not closed:
        return tuple(specs)
    open_axes = tuple(
        {axis: dim for axis, dim in (spec or {}).items() if axis not in axes}
        for spec, axes in zip(specs, closed, strict=True)
    )
    return open_axes if any(open_axes) else None


def _refuse_overwritten(reads: ReadValues) -> None:
    if reads.overwritten:
        raise ExportError(
            "forward reads a number from a tensor",
            why=f"it changes {reads.overwritten} afterwards, so the number is another one at the next call",
            fix="compute with the tensor, without .item(), .tolist(), float() or int();\n"
            "or compile the parts of the model around it",
        )


def _apart(tensors: Sequence[torch.Tensor], module: nn.Module) -> list[torch.Tensor]:
    """Examples without memory in common, outside inference mode.

    A trace would take what this call shares for shared in every call, and change no inference tensor.

    A call whose arguments share memory is right as well: what is written to shared memory is refused.
    """
    import torch

    known = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())} - {0}
    found: list[torch.Tensor] = []
    for tensor in tensors:
        place = tensor.untyped_storage().data_ptr()
        if tensor.is_inference() or (place and place in known):
            made = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )
            tensor = made.zero_().requires_grad_(tensor.requires_grad)
        known.add(place)
        found.append(tensor)
    return found


@contextmanager
def _followed(given: Sequence[torch.Tensor]) -> Generator[None]:
    """Trace forward within the block for a backward pass."""
    with without_own_gradients(given), marked_in_autocast():
        yield


@contextmanager
def _without_dumps() -> Generator[None]:
    """Keep back what torch writes of a graph that it could not finish; what forward writes comes through."""
    written = io.StringIO()
    dump = ""
    try:
        with redirect_stderr(written):
            yield
    except Exception as error:
        dump = str(getattr(error, "partial_fx_graph", ""))
        raise
    finally:
        text = written.getvalue()
        text = text.replace(f"{dump}\n", "") if dump else text
        if text.strip():
            sys.stderr.write(text)


def _refuse_state(program: ExportedProgram, assigned: Sequence[Assignment]) -> None:
    """An attribute that forward both reads and assigns is state; what it reads would be a constant."""
    import torch
    from torch.utils._pytree import tree_leaves

    read = {t.data_ptr() for t in program.constants.values() if isinstance(t, torch.Tensor)}
    for made in assigned:
        before = [t for t in tree_leaves(made.before) if isinstance(t, torch.Tensor)]
        if any(t.data_ptr() in read for t in before):
            raise RunsEagerlyError(
                f"forward keeps a tensor between calls in the attribute {made.name!r}, which is not a buffer"
            )


def _drop_assigned(program: ExportedProgram) -> None:
    """Make the structure of the result that of forward, where nothing comes beside it."""
    signature = program.module_call_graph[0].signature
    assert signature is not None
    signature.out_spec = signature.out_spec.child(0)


def _dim_names(program: ExportedProgram, specs: Sequence[Spec]) -> dict[str, str]:
    """The program's symbol of each dimension that the user has named."""
    import torch

    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    tensors = [placeholders[n].meta["val"] for n in program.graph_signature.user_inputs if isinstance(n, str)]
    names: dict[str, str] = {}
    for tensor, spec in zip(tensors, specs, strict=True):
        for axis, dim in (spec or {}).items():
            symbol, name = tensor.shape[axis], getattr(dim, "__name__", None)
            if isinstance(symbol, torch.SymInt) and isinstance(name, str) and str(symbol).isidentifier():
                names.setdefault(str(symbol), name)
    return names
