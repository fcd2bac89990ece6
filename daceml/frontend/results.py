"""From the tensors that a program returns to what the user's forward returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass(frozen=True, kw_only=True)
class ResultTemplate:
    """The structure of a result.

    Attributes:
        leaves: for each leaf, the index of the program's output, of the user's input that is handed through
            (`~index`), or the constant itself wrapped in a tuple.
        structure: None where the result is the only leaf.
    """

    leaves: tuple[int | tuple[Any], ...]
    structure: pytree.TreeSpec | None

    def fill(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Any:
        """The user's result."""
        if self.structure is None:
            return outputs[0]
        leaves = [
            leaf[0] if isinstance(leaf, tuple) else outputs[leaf] if leaf >= 0 else inputs[~leaf]
            for leaf in self.leaves
        ]
        return pytree.tree_unflatten(leaves, self.structure)


def result_template(program: ExportedProgram) -> ResultTemplate:
    """Read the structure of the result off an exported program.

    The program's outputs are the tensor leaves in order; an input that is returned stays the caller's own
    tensor.
    """
    from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

    inputs = [
        s.arg.name
        for s in program.graph_signature.input_specs
        if s.kind.name == "USER_INPUT" and isinstance(s.arg, TensorArgument)
    ]
    leaves: list[int | tuple[Any]] = []
    count = 0
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            leaves.append((spec.arg.value,))
            continue
        leaves.append(~inputs.index(spec.arg.name) if spec.arg.name in inputs else count)
        count += 1
    structure = program.call_spec.out_spec
    plain = structure is not None and structure.is_leaf() and leaves == [0]
    return ResultTemplate(leaves=tuple(leaves), structure=None if plain else structure)
