"""Products of tensors of two element types: torch's trace lets them pass, an eager call does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daceml.errors import ExportRuntimeError
from daceml.frontend.capture.provenance import module_of_node, source_of_node

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

    from daceml.frontend.capture.arguments import Arguments

_PRODUCTS = frozenset(
    f"aten.{name}.default"
    for name in ("linear", "matmul", "mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "addbmm")
)


def refuse_mixed_types(program: ExportedProgram, module: nn.Module, arguments: Arguments) -> None:
    """Refuse the first product whose operands differ in element type, by the user's names for them.

    Raises:
        ExportRuntimeError: eager PyTorch raises a RuntimeError for it.
    """
    for node in program.graph.nodes:
        if str(node.target) not in _PRODUCTS:
            continue
        operands = [operand for operand in node.args if hasattr(operand, "meta")]
        types = [_type(operand) for operand in operands]
        if len(set(types)) > 1:
            names = _names(program, module, arguments)
            told = ", ".join(
                f"{names.get(operand.name) or _origin(operand)} is {kind}"
                for operand, kind in zip(operands, types, strict=True)
            )
            line, path = source_of_node(node), module_of_node(node)
            own = [k for o, k in zip(operands, types, strict=True) if _is_state(program, o)]
            wanted = own[0] if own else types[-1]
            raise ExportRuntimeError(
                f"{node.target.__name__.partition('.')[0]} cannot mix element types",
                where=f"{path} ({line})" if path and line else path or line,
                why=f"{told}\ncalled with {arguments.describe(module.forward)}",
                fix=f"pass tensor.to(torch.{wanted}), or convert the module with module.to(dtype)",
            )


def _is_state(program: ExportedProgram, node: torch.fx.Node) -> bool:
    signature = program.graph_signature
    return node.name in signature.inputs_to_parameters or node.name in signature.inputs_to_buffers


def _type(node: torch.fx.Node) -> str:
    return str(node.meta["val"].dtype).removeprefix("torch.")


def _names(program: ExportedProgram, module: nn.Module, arguments: Arguments) -> dict[str, str]:
    """What the user calls a graph's inputs: arguments as forward knows them, parameters by their keys."""
    signature: Any = program.graph_signature
    inputs = [name for name in signature.user_inputs if isinstance(name, str)]
    spelled = dict(zip(inputs, arguments.spellings(module.forward), strict=True))
    return {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **spelled}


def _origin(node: torch.fx.Node) -> str:
    kind = getattr(node.target, "__name__", str(node.target)).partition(".")[0]
    return f"the result of {kind}" + (f" at {source}" if (source := source_of_node(node)) else "")
