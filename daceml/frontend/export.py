"""nn.Module -> ExportedProgram -> ONNX, with parameters, buffers, training mode and symbolic sizes kept.

The ONNX model has the user's tensors as inputs, one initializer for each parameter and buffer under its
state_dict key, and the new values of changed buffers as last outputs. Nothing is folded, and nothing is
decomposed that ONNX has an operator for.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daceml.errors import ExportError
from daceml.frontend.provenance import source_of_node, source_of_trace, source_of_traceback

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch
    from torch import nn
    from torch.export import ExportedProgram

_DIM_NAMES = "daceml.dim_names"
_REASON_LINES = 6
_ROUNDS = 4
"""Decompositions of decompositions that are tried before an operator counts as unknown."""


def export_program(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Trace a module as it stands (training or evaluation) into an exported program.

    Args:
        args: example inputs; their sizes are fixed unless `dynamic_shapes` names them.
        dynamic_shapes: as in `torch.export.export`; names of dimensions appear in the ONNX model.
    Raises:
        ExportError: torch.export cannot take the module; `where` is the user's line.
    """
    import torch

    from daceml.frontend.exporter_internals import quiet

    try:
        with quiet():
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        raise _capture_error(module, error) from error
    if dynamic_shapes is not None:
        program.graph_module.meta[_DIM_NAMES] = _dim_names(
            module, program, args, kwargs or {}, dynamic_shapes
        )
    return program


def to_onnx(program: ExportedProgram) -> ir.Model:
    """Translate an exported program, which is not changed, to an ONNX model of opset 23.

    Inputs are the user's tensors, flattened, in order; outputs the user's, then one `<buffer>::next` for
    each changed buffer. Metadata: `daceml.parameters`, `daceml.buffers`, `daceml.buffer_mutations` and
    `daceml.tied` on the model, `daceml.module` and `daceml.source` on nodes.

    Raises:
        ExportError: an operator has no translation, or the module changes its inputs or parameters.
    """
    from daceml.frontend import exporter_internals as internals
    from daceml.frontend.finishing import finish

    dim_names = program.graph_module.meta.get(_DIM_NAMES, {})
    with internals.quiet():
        translate = internals.private_exporter()
        prepared = _prepare(program) if translate is not None else program.run_decompositions({})
        flat, mutated = internals.with_mutations_as_outputs(prepared)
        try:
            model = translate(flat) if translate is not None else internals.public_exporter(flat)
        except Exception as error:
            raise _translation_error(error, flat) from error
        finish(model, flat, mutated=mutated, dim_names=dim_names)
    return model


def _prepare(program: ExportedProgram) -> ExportedProgram:
    """A functional graph whose every operator has a translation."""
    from daceml.frontend.exporter_internals import Registry
    from daceml.frontend.functionalize import functionalize, log
    from daceml.frontend.promotion import promote
    from daceml.frontend.simplification import simplify

    registry = Registry()
    for _ in range(_ROUNDS):
        prepared = functionalize(program)
        simplify(prepared)
        promote(prepared)
        unknown = _unknown(prepared, registry)
        if not unknown:
            return prepared
        decompositions = _decompositions(unknown)
        if not decompositions:
            break
        log.info("decomposing %s: no translation", ", ".join(sorted(map(str, decompositions))))
        try:
            program = program.run_decompositions(decompositions)
        except Exception as error:
            raise _unknown_error(prepared, unknown) from error
    raise _unknown_error(prepared, unknown)  # pyright: ignore[reportPossiblyUnboundVariable]


def _unknown(program: ExportedProgram, registry: Any) -> dict[Any, list[torch.fx.Node]]:
    """Targets without translation, and the nodes that call them."""
    import operator

    found: dict[Any, list[torch.fx.Node]] = {}
    known: set[Any] = {operator.getitem}
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target in known:
            continue
        if node.target in found or not registry.is_registered(node.target):
            found.setdefault(node.target, []).append(node)
        else:
            known.add(node.target)
    return found


def _decompositions(targets: Mapping[Any, Any]) -> dict[Any, Any]:
    """How torch writes each target with other operators, where it can."""
    import torch
    from torch._decomp import decomposition_table
    from torch._ops import OpOverload

    core, more = torch.export.default_decompositions(), decomposition_table
    found: dict[Any, Any] = {}
    for target in targets:
        if not isinstance(target, OpOverload):
            continue
        if target in core:
            found[target] = core[target]
        elif target.has_kernel_for_dispatch_key(torch.DispatchKey.CompositeImplicitAutograd):
            found[target] = target.decompose
        elif target in more:
            found[target] = more[target]
    return found


def _unknown_error(program: ExportedProgram, unknown: Mapping[Any, Sequence[torch.fx.Node]]) -> ExportError:
    names = ", ".join(sorted(map(str, unknown)))
    first = next(iter(unknown.values()))[0]
    return ExportError(
        f"no translation of {names} to ONNX",
        where="; ".join(dict.fromkeys(source_of_node(nodes[0]) for nodes in unknown.values())),
        why=f"no translation here or in torch, and no decomposition that helps (node {first.name})",
        fix=f'write it with other operators, or add @translates("{first.target}") to frontend/translations',
    )


def _translation_error(error: Exception, program: ExportedProgram) -> ExportError:
    """The refusal of a translation, found in the exporter's chain of errors."""
    from daceml.frontend.translations import UntranslatableError

    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    reason = next((link for link in chain if isinstance(link, UntranslatableError)), chain[-1])
    named = re.search(r"node %(\w+)", str(error))
    node = next((node for node in program.graph.nodes if named and node.name == named[1]), None)
    target = "the graph" if node is None else str(node.target)
    return ExportError(
        f"{target} cannot be translated to ONNX here",
        where="" if node is None else f"{source_of_node(node)}, node {node.name}",
        why=_first_lines(str(reason) or type(reason).__name__),
        fix="write it with other operators, or extend its entry in daceml/frontend/translations",
    )


def _capture_error(module: nn.Module, error: Exception) -> ExportError:
    text = str(error)
    if "data-dependent" in text or "DataDependent" in type(error).__name__:
        fix = (
            "replace the branch on tensor values by torch.where, or compile the part of the model without it"
        )
    elif "dynamic_shapes" in text or "Constraints violated" in text:
        fix = "leave the named dimensions static, or give them the range that torch asks for"
    else:
        fix = "change forward until torch.export.export(..., strict=False) takes it, or compile a submodule"
    return ExportError(
        f"torch.export cannot take {type(module).__name__}",
        where=source_of_traceback(error.__traceback__) or source_of_trace(text),
        why=f"{type(error).__name__}: {_first_lines(text)}",
        fix=fix,
    )


def _first_lines(text: str) -> str:
    """The reason without colours, code frames and advice for torch's own developers."""
    kept: list[str] = []
    lines = iter(re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())
    for line in lines:
        if re.match(r'\s*File "', line):
            next(lines, None)
        elif re.match(
            r"\s*(Traceback|from user code|The above exception|Set TORCH|For more information)", line
        ):
            break
        elif line.strip():
            kept.append(line.rstrip())
    return "\n".join(kept[:_REASON_LINES])


def _dim_names(
    module: nn.Module,
    program: ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
) -> dict[str, str]:
    """The program's symbol of each dimension that the user has named."""
    import torch

    named: list[Any] = []

    def walk(value: Any, spec: Any) -> None:
        """Collect the specification of every tensor, in the order of the flattened arguments."""
        if isinstance(value, torch.Tensor):
            named.append(spec)
        elif isinstance(value, Mapping):
            for key, part in value.items():
                walk(part, spec.get(key) if isinstance(spec, Mapping) else None)
        elif isinstance(value, list | tuple):
            for position, part in enumerate(value):
                walk(
                    part, spec[position] if isinstance(spec, list | tuple) and position < len(spec) else None
                )

    if isinstance(dynamic_shapes, Mapping):
        walk(inspect.signature(module.forward).bind(*args, **kwargs).arguments, dynamic_shapes)
    else:
        walk((*args, *kwargs.values()), dynamic_shapes)
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    tensors = [
        node.meta["val"]
        for name in program.graph_signature.user_inputs
        if isinstance(name, str) and isinstance((node := placeholders[name]).meta.get("val"), torch.Tensor)
    ]
    names: dict[str, str] = {}
    for tensor, spec in zip(tensors, named, strict=False):
        entries = spec.items() if isinstance(spec, Mapping) else enumerate(spec or ())
        for axis, dim in entries:
            symbol, name = tensor.shape[axis], getattr(dim, "__name__", dim)
            if isinstance(symbol, torch.SymInt) and isinstance(name, str) and str(symbol).isidentifier():
                names.setdefault(str(symbol), name)
    return names
