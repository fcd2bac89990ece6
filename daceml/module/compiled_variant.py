"""One compiled form of a module: a program, and what a call has to do around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch

from daceml.errors import CallError
from daceml.frontend.capture.exportable import Assignment
from daceml.module.module_watch import ModuleWatch
from daceml.module.partial.cut import Cut
from daceml.runtime.autograd import BackwardPass

if TYPE_CHECKING:
    import onnx
    from torch.export import ExportedProgram

    from daceml.frontend.capture.dynamic_shapes import SizeGuard
    from daceml.module.results import ResultTemplate
    from daceml.runtime.program import Program
    from daceml.sdfg.network import Device, Network
    from daceml.transformations.recipe import Recipe
    from daceml.tuning.decision import Decision


@dataclass(eq=False, kw_only=True)
class Variant:
    """One compiled form of a module.

    Attributes:
        program: bound to the module's tensors.
        exported: what torch.export made of the module.
        watch: the state of the module that the variant is right for.
        template: how outputs are put together.
        sizes: the sizes that it is right for; None where all are fixed.
        writes: tensors besides buffers that forward changes: (output, input or tensor of the module).
        assigned: attributes that forward assigns, from values that follow the result.
        optimised: the network that was compiled, where it cannot be made again from `exported` alone.
        auto_optimize: whether the levels of transformations were applied.
        freeze: whether weights were taken for constant.
        recipe: gives what took the place of the standard one: the user's recipe, or what a search has chosen.
        device, architecture: where its tensors lie, see `Network`.
        decision: what a search has found.
        backward: how gradients are computed; None where nothing requires one.
        requiring: tensors of the module and whether they require a gradient, where that matters.
    """

    program: Program
    exported: ExportedProgram
    watch: ModuleWatch
    template: ResultTemplate
    sizes: SizeGuard | None = None
    writes: tuple[tuple[int, int | torch.Tensor], ...] = ()
    assigned: tuple[Assignment, ...] = ()
    optimised: Network | None = None
    auto_optimize: bool = True
    freeze: bool = False
    recipe: Callable[[], Recipe | None] = lambda: None
    device: Device = "cpu"
    architecture: int | None = None
    decision: Decision | None = None
    stages_s: dict[str, float] = field(default_factory=dict[str, float])
    backward: BackwardPass | None = None
    requiring: tuple[tuple[torch.Tensor, bool], ...] = ()

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of a call, without its backward pass."""
        return sum(step.flops for step in self.program.manifest.steps)

    def same_gradients(self) -> bool:
        """Whether the module's tensors still require gradients where they did."""
        return all(tensor.requires_grad is required for tensor, required in self.requiring)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """What forward returns for these tensors of its arguments; it has the effects of forward, too."""
        if self.writes or self.program.mutated:
            self._refuse_shared_memory(tensors)
        contiguous = [x if x.is_contiguous() else x.contiguous() for x in tensors]
        if self.backward is None:
            with torch.no_grad():
                outputs = self.program(contiguous)
        else:
            outputs = self.backward.run(self.program, contiguous)
        if self.writes:
            self._write(outputs, tensors)
        result = self.template.fill(outputs, tensors)
        if self.assigned:
            result, values = result
            for made, value in zip(self.assigned, values, strict=True):
                made.owner.__dict__[made.name] = value
        return result

    def _write(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for index, target in self.writes:
                tensor = inputs[target] if isinstance(target, int) else target
                tensor.copy_(outputs[index])

    def _refuse_shared_memory(self, inputs: Sequence[torch.Tensor]) -> None:
        targets = [inputs[t] if isinstance(t, int) else t for _, t in self.writes]
        changed = {t.untyped_storage().data_ptr() for t in (*targets, *self.program.mutated)} - {0}
        given = [x.untyped_storage().data_ptr() for x in inputs]
        own = {inputs[t].untyped_storage().data_ptr() for _, t in self.writes if isinstance(t, int)}
        held = changed - own
        if any(given.count(start) > 1 for start in own) or any(start in held for start in given):
            raise CallError(
                "inputs share memory with each other or with the module, which changes it in place",
                why="a compiled program reads all inputs before it changes any",
                fix="pass a copy of one of them: tensor.clone()",
            )

    @cached_property
    def onnx_model(self) -> onnx.ModelProto:
        """The ONNX model."""
        import onnx_ir

        from daceml.frontend.onnx_export.export import to_onnx

        return onnx_ir.to_proto(to_onnx(self.exported))

    @cached_property
    def network(self) -> Network:
        """The SDFG after all transformations, with its interface."""
        from daceml.compiler.pipeline import optimised_network

        if self.optimised is not None:
            return self.optimised
        return optimised_network(
            self.exported,
            levels=self.auto_optimize,
            freeze=self.freeze,
            recipe=self.recipe(),
            device=self.device,
            architecture=self.architecture,
        ).network


class Partial(Protocol):
    """Runs a module that is not one program."""

    cuts: list[Cut]

    def add(self, cut: Cut) -> None:
        """Note one more reason why the module is not one program."""
        ...

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What forward returns for these arguments; it has the effects of forward, too."""
        ...


@dataclass(frozen=True)
class EagerVariant:
    """The user's own forward, where one program could not do the same.

    Attributes:
        watch: the state of the module in which it could not; None for any state.
        partial: runs parts of it as programs; None where all of it runs eagerly.
    """

    watch: ModuleWatch | None
    partial: Partial | None = None

    def same_gradients(self) -> bool:
        """It is right whatever requires a gradient."""
        return True
