"""The one place that knows torch's ONNX exporter from the inside.

It uses one private function, the translation of a program's graph as it stands, and torch's private
tables of translations. Where they are missing, or `DACEML_PUBLIC_EXPORTER=1`, the public exporter does
the same work: slower, because it traces the graph again and converts the version of the result, which
also inlines local functions. Written for torch 2.11 to 2.13.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from daceml.config import config
from daceml.frontend.onnx_export.functionalize import copied
from daceml.frontend.onnx_export.translations import (
    Translation,
    UnsupportedError,
    UntranslatableError,
    table,
)
from daceml.runtime.torch_fallback import torch_operator

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

OPSET = 23


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """What the exporter's dispatch reads of a registered translation."""

    onnx_function: Translation
    is_complex: bool = False
    is_custom: bool = True


def _target_name(target: Any) -> str:
    """`aten::conv2d.padding` for an overload, `_operator::add` or `math::ceil` for a Python function."""
    if hasattr(target, "_schema"):
        return target.name()
    return f"{getattr(target, '__module__', '')}::{getattr(target, '__name__', target)}"


@functools.cache
def _torchlib() -> dict[str, list[Any]]:
    """torch's own translations by name; importing them takes about 0.3 s, so only where one is needed."""
    from torch.onnx._internal._lazy_import import onnxscript_apis  # pyright: ignore[reportPrivateImportUsage]
    from torch.onnx._internal.exporter._torchlib import _torchlib_registry

    found: dict[str, list[Any]] = {}
    newest: dict[str, int] = {}
    for entry in _torchlib_registry.get_torchlib_ops():
        name, since = _target_name(entry.fx_target), entry.opset_introduced
        if OPSET >= since > newest.get(name, 0):
            newest[name] = since
            found[name] = [entry]
    for entry in onnxscript_apis.get_torchlib_ops():
        name = entry.qualified_name
        if name not in newest:
            found.setdefault(name, []).append(
                _Entry(onnx_function=entry.function, is_complex=entry.is_complex)
            )
    return found


class Registry:
    """The exporter's view of our table, with torch's own behind it."""

    opset_version = OPSET

    def get_decomps(self, target: Any) -> list[Any]:
        """Translations of a graph node's target, best first."""
        ours = table().get(str(target)) or table().get(_target_name(target))
        if ours is not None:
            found = _Entry(onnx_function=with_fallback(ours, target))
            # the dispatch takes one of the second kind where an operand is complex
            return [found, replace(found, is_complex=True)] if target is torch_operator() else [found]
        if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
            return []  # torch's translations draw other numbers than an eager call
        with contextlib.suppress(ImportError):
            return _torchlib().get(_target_name(target), [])
        return []

    def is_registered(self, target: Any) -> bool:
        """Whether a target has a translation, ours or torch's."""
        return bool(self.get_decomps(target))


def with_fallback(translation: Translation, target: Any) -> Translation:
    """Our translation of a target; torch's where ours refuses, or else our reason."""

    @functools.wraps(translation)
    def translate(*args: Any, **kwargs: Any) -> Any:
        try:
            return translation(*args, **kwargs)
        except UntranslatableError as refusal:
            if isinstance(refusal, UnsupportedError):
                raise
            with contextlib.suppress(ImportError):
                for entry in _torchlib().get(_target_name(target), []):
                    if not entry.is_complex:
                        return entry.onnx_function(*args, **kwargs)
            raise

    return translate


def private_exporter() -> Callable[[ExportedProgram], ir.Model] | None:
    """The translation of a program's graph as it stands, or None where this torch does not have it."""
    if config().public_exporter:
        return None
    try:
        from torch.onnx._internal.exporter._core import (
            _exported_program_to_onnx_program as translate,  # pyright: ignore[reportPrivateUsage]
        )
    except ImportError:
        return None
    return lambda program: translate(program, registry=Registry()).model  # pyright: ignore[reportArgumentType]


def public_exporter(program: ExportedProgram) -> ir.Model:
    """The same through `torch.onnx.export`, which wants a program whose signature fits its graph.

    Args:
        program: functional; its outputs are user outputs only (`with_mutations_as_outputs`).
    """
    targets: dict[Any, Translation] = {}
    for overload, translation in table().items():
        if "::" in overload:
            continue  # a function of Python, which torch.onnx.export takes for itself
        namespace, packet, name = overload.split(".")
        target = getattr(getattr(getattr(torch.ops, namespace), packet, None), name, None)
        if target is not None:
            targets[target] = with_fallback(translation, target)
    exported = torch.onnx.export(
        program,
        dynamo=True,
        optimize=False,
        opset_version=OPSET,
        verbose=False,
        custom_translation_table=targets,
    )
    assert exported is not None
    return exported.model


def _drop_plain_outputs(program: ExportedProgram) -> None:
    """Numbers, sizes and None that forward returns are no tensors: the caller puts them back."""
    from torch.export.graph_signature import TensorArgument

    specs = program.graph_signature.output_specs
    kept = [i for i, spec in enumerate(specs) if isinstance(spec.arg, TensorArgument)]
    if len(kept) == len(specs):
        return
    (output,) = [node for node in program.graph.nodes if node.op == "output"]
    output.args = (tuple(output.args[0][i] for i in kept),)
    specs[:] = [specs[i] for i in kept]


@dataclass(frozen=True, kw_only=True)
class Changed:
    """Tensors that a program changes.

    Attributes:
        buffers: state_dict keys; their new values are the first outputs.
        others: names of inputs and keys of parameters; their new values are the last outputs.
    """

    buffers: list[str]
    others: list[str]


def with_mutations_as_outputs(program: ExportedProgram) -> tuple[ExportedProgram, Changed]:
    """The program with the new values of what it changes as plain outputs, and what they replace."""
    import copy

    import torch.utils._pytree as pytree
    from torch.export.graph_signature import OutputKind

    program = copied(program)
    _drop_plain_outputs(program)
    specs = program.graph_signature.output_specs
    buffers = [i for i, spec in enumerate(specs) if spec.kind is OutputKind.BUFFER_MUTATION]
    results = [i for i, spec in enumerate(specs) if spec.kind is OutputKind.USER_OUTPUT]
    others = [i for i in range(len(specs)) if i not in {*buffers, *results}]
    changed = Changed(
        buffers=[specs[i].target or "" for i in buffers], others=[specs[i].target or "" for i in others]
    )
    order = [*buffers, *results, *others]
    (output,) = [node for node in program.graph.nodes if node.op == "output"]
    output.args = (tuple(output.args[0][i] for i in order),)
    specs[:] = [specs[i] for i in order]
    for spec in specs:
        spec.kind, spec.target = OutputKind.USER_OUTPUT, None
    calls = copy.deepcopy(program.module_call_graph)
    signature = calls[0].signature
    if signature is not None:
        signature.out_spec = pytree.tree_structure((0,) * len(specs))
    program._module_call_graph = calls  # pyright: ignore[reportPrivateUsage]
    return program, changed
