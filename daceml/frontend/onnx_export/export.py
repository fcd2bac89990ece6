"""nn.Module -> ExportedProgram -> ONNX, with parameters, buffers, training mode and symbolic sizes kept.

The ONNX model has the user's tensors as inputs, one initializer for each parameter and buffer under its
state_dict key, and the new values of changed buffers as last outputs. Nothing is folded, and nothing is
decomposed that ONNX has an operator for.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload

from daceml.errors import ExportError
from daceml.frontend.capture.capture import DIM_NAMES, export_program
from daceml.frontend.capture.eager_strides import correct_strides
from daceml.frontend.capture.forward_errors import first_lines
from daceml.frontend.capture.provenance import module_of_node, source_of_node
from daceml.frontend.capture.quiet_torch import quiet
from daceml.frontend.onnx_export import exporter_internals as internals
from daceml.frontend.onnx_export.chosen_kernels import functional_form
from daceml.frontend.onnx_export.complex_parts import write_complex_as_pairs
from daceml.frontend.onnx_export.decompositions import SOMETIMES, is_decomposed, is_spelled
from daceml.frontend.onnx_export.exporter_internals import Registry
from daceml.frontend.onnx_export.finalize_model import finish
from daceml.frontend.onnx_export.functionalize import copied, decomposed, functionalize, kept_whole, log
from daceml.frontend.onnx_export.graph_cleanup import simplify
from daceml.frontend.onnx_export.inlined_rules import NeedsWholeGraphError, inline
from daceml.frontend.onnx_export.memory_views import views_of_memory
from daceml.frontend.onnx_export.negative_zeros import separate_negative_zeros
from daceml.frontend.onnx_export.own_decompositions import OWN
from daceml.frontend.onnx_export.promotion import promote
from daceml.frontend.onnx_export.random_memory_order import draw_in_memory_order
from daceml.frontend.onnx_export.symbolic_numbers import numbers_as_tensors
from daceml.frontend.onnx_export.symbolic_parts import parts_as_slices
from daceml.frontend.onnx_export.torch_fallback import call_by_name, refusal, touches_complex
from daceml.frontend.onnx_export.translations import UntranslatableError

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

__all__ = ["export_program", "to_onnx"]

_ROUNDS = 8
"""Decompositions of decompositions that are tried before an operator counts as unknown."""


def to_onnx(program: ExportedProgram) -> ir.Model:
    """Translate an exported program, which is not changed, to an ONNX model of opset 23.

    Inputs are the user's tensors, flattened, in order; outputs the user's, then one `<buffer>::next` for each
    changed input, parameter and buffer. Metadata: `daceml.parameters`, `daceml.buffers`,
    `daceml.buffer_mutations`, `daceml.other_mutations` and `daceml.tied` on the model, `daceml.module` and
    `daceml.source` on nodes.

    Raises:
        ExportError: an operator has no translation, or the module changes a plain tensor attribute.
    """
    dim_names = program.graph_module.meta.get(DIM_NAMES, {})
    # an operator whose operands are numbers alone, such as randperm, draws where it is tried
    with quiet(), torch.random.fork_rng(devices=()):
        translate = internals.private_exporter()
        flat, changed = internals.with_mutations_as_outputs(_prepare(program))
        negative = separate_negative_zeros(flat)
        if negative is not None and translate is None:
            raise _negative_zero_error(negative)
        while True:
            try:
                model = translate(flat) if translate is not None else internals.public_exporter(flat)
            except Exception as error:
                refused, reason = _refused_translation(error, flat)
                if refused is None or refusal(refused) is not None:
                    raise _translation_error(refused, reason) from error
                log.info("%s has no translation here: %s", refused.target, reason)
                call_by_name(flat, [n for n in flat.graph.nodes if _is_alike(n, refused)])
                continue
            beyond = [node for node in _beyond_networks(model) if refusal(node) is None]
            if not beyond:
                break
            call_by_name(flat, beyond)
        finish(model, flat, changed=changed, dim_names=dim_names)
    return model


_BEYOND = frozenset({"NonZero", "SequenceMap"})
"""Operators of ONNX in translations of torch's, which no network can hold."""


def _beyond_networks(model: ir.Model) -> list[torch.fx.Node]:
    """The nodes of a program whose translations no network can hold."""
    bodies = {name for name, f in model.functions.items() if any(n.op_type in _BEYOND for n in f)}
    found = [
        node.meta.get("node")
        for node in model.graph
        if node.op_type in _BEYOND or node.op_identifier() in bodies
    ]
    return list(dict.fromkeys(node for node in found if node is not None))


def _is_alike(node: torch.fx.Node, other: torch.fx.Node) -> bool:
    """Whether a node is refused where another one is: a call of one operator, on tensors of such a kind."""

    def kinds(node: torch.fx.Node) -> list[Any]:
        values = [operand.meta.get("val") for operand in node.all_input_nodes]
        return [(v.dtype, v.dim()) if isinstance(v, torch.Tensor) else type(v) for v in values]

    return node is other or (
        node.target is other.target and kinds(node) == kinds(other) and not refusal(node)
    )


def _prepare(program: ExportedProgram) -> ExportedProgram:
    """A functional graph whose every operator has a translation."""
    registry = Registry()
    functional = functional_form(program)
    for _ in range(_ROUNDS):
        prepared = copied(functional)
        correct_strides(prepared)
        draw_in_memory_order(prepared)  # before copies go, whose layout counts
        views_of_memory(prepared)
        simplify(prepared)
        write_complex_as_pairs(prepared)
        parts_as_slices(prepared)
        numbers_as_tensors(prepared)
        promote(prepared)
        unknown = _unknown(prepared, registry)
        decompositions = {
            target: rule
            for target, rule in _decompositions(unknown).items()
            if (target in OWN and any(map(is_decomposed, unknown[target])))
            or any(map(refusal, unknown[target]))
            or all(is_spelled(n, rule, registry) for n in unknown[target])
        }
        if not decompositions:
            break
        log.info("decomposing %s: no translation", ", ".join(sorted(map(str, decompositions))))
        try:
            functional = _with_rules(functional, decompositions)
        except Exception as error:
            raise _unknown_error(prepared, unknown) from error
    else:
        raise _unknown_error(prepared, unknown)  # pyright: ignore[reportPossiblyUnboundVariable]
    refused = {target: nodes for target, nodes in unknown.items() if any(map(refusal, nodes))}
    if refused:
        raise _unknown_error(prepared, refused)
    complex_numbers = [node for node in prepared.graph.nodes if touches_complex(node)]
    if node := next(filter(refusal, complex_numbers), None):
        raise _complex_error(node)
    left = [node for nodes in unknown.values() for node in nodes]
    call_by_name(prepared, dict.fromkeys([*left, *complex_numbers]))
    return prepared


def _with_rules(program: ExportedProgram, rules: Mapping[Any, Any]) -> ExportedProgram:
    """A functional program with operators replaced by their rules; where it has to be, traced again."""
    try:
        with kept_whole():
            return inline(program, rules)
    except NeedsWholeGraphError as reason:
        log.info("decomposing by a second trace: %s", reason)
        return functionalize(decomposed(program, rules))


def _complex_error(node: torch.fx.Node) -> ExportError:
    return ExportError(
        f"{node.target} computes with complex numbers",
        where=_place(node),
        why=f"ONNX operators have none, and it cannot be a call of torch's kernel: {refusal(node)}",
        fix="write it with real and imaginary parts, or leave this part of the model eager",
    )


def _unknown(program: ExportedProgram, registry: Any) -> dict[Any, list[torch.fx.Node]]:
    """Targets without translation, or with one that cannot take a call of theirs; and the nodes."""
    found: dict[Any, list[torch.fx.Node]] = {}
    known: set[Any] = {operator.getitem}
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target in known:
            continue
        if node.target in found or not registry.is_registered(node.target) or is_decomposed(node):
            found.setdefault(node.target, []).append(node)
        elif str(node.target) not in SOMETIMES:
            known.add(node.target)
    return found


@cache
def _core_decompositions() -> Mapping[Any, Any]:
    """torch's own, of its operators: reading them takes 50 ms."""
    table = torch.export.default_decompositions()
    table.materialize()
    return table


def _decompositions(targets: Mapping[Any, Any]) -> dict[Any, Any]:
    """How each target is written with other operators, where it can be."""
    core, more = _core_decompositions() if targets else {}, decomposition_table
    found: dict[Any, Any] = {}
    for target in targets:
        if not isinstance(target, OpOverload):
            continue
        if target in OWN:
            found[target] = OWN[target]
        elif target in core:
            found[target] = core[target]
        elif target.has_kernel_for_dispatch_key(torch.DispatchKey.CompositeImplicitAutograd):
            found[target] = target.decompose
        elif target in more:
            found[target] = more[target]
    return found


def _place(node: torch.fx.Node) -> str:
    return ", ".join(filter(None, (source_of_node(node) or module_of_node(node), f"node {node.name}")))


def _unknown_error(program: ExportedProgram, unknown: Mapping[Any, Sequence[torch.fx.Node]]) -> ExportError:
    names = ", ".join(sorted(map(str, unknown)))
    first = next(iter(unknown.values()))[0]
    return ExportError(
        f"no translation of {names} to ONNX",
        where="; ".join(dict.fromkeys(source_of_node(nodes[0]) for nodes in unknown.values())),
        why=f"no translation here or in torch, and no decomposition that helps (node {first.name});\n"
        f"it cannot be a call of torch's kernel: {refusal(first)}",
        fix=f'write it with other operators, or add @translates("{first.target}") to\n'
        "daceml/frontend/onnx_export/translations",
    )


def _negative_zero_error(node: torch.fx.Node) -> ExportError:
    return ExportError(
        f"-0.0, which {node.target} is given, would become 0.0",
        where=_place(node),
        why="torch.onnx.export keeps one constant for numbers that are equal",
        fix="turn off public_exporter (DACEML_PUBLIC_EXPORTER), or leave this part of the model eager",
    )


def _refused_translation(error: Exception, program: ExportedProgram) -> tuple[torch.fx.Node | None, str]:
    """The node that a translation has refused, and why, found in the exporter's chain of errors."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    reason = next((link for link in chain if isinstance(link, UntranslatableError)), chain[-1])
    named = re.search(r"node %(\w+)", str(error))
    node = next((node for node in program.graph.nodes if named and node.name == named[1]), None)
    return node, first_lines(str(reason) or type(reason).__name__)


def _translation_error(node: torch.fx.Node | None, reason: str) -> ExportError:
    target = "the graph" if node is None else str(node.target)
    return ExportError(
        f"{target} cannot be translated to ONNX here",
        where="" if node is None else _place(node),
        why=reason,
        fix="write it with other operators, or extend its entry in daceml/frontend/onnx_export/translations",
    )
