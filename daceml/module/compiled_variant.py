"""One compiled form of a module: a program, and what a call has to do around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch

from daceml.errors import InferenceTensorError, SharedMemoryError
from daceml.frontend.capture.exportable import Assignment
from daceml.frontend.capture.object_arguments import Change
from daceml.module.module_watch import ModuleWatch
from daceml.module.partial.cut import Cut
from daceml.module.partial.region_ledger import flops_of
from daceml.runtime.autograd import BackwardPass

if TYPE_CHECKING:
    import onnx
    from torch.export import ExportedProgram

    from daceml.compiler.guards import CallKey
    from daceml.frontend.capture.sizes.dynamic_shapes import SizeGuard
    from daceml.frontend.capture.values_read import ValueRead
    from daceml.module.results import ResultTemplate
    from daceml.runtime.program import Program
    from daceml.sdfg.network import Device, Network
    from daceml.transformations.recipe import Recipe
    from daceml.tuning.comparison_record import EagerComparison
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
        changes: objects, lists and dicts of the call that forward changes, from contents that follow those.
        optimised: the network that was compiled, where it cannot be made again from `exported` alone.
        auto_optimize: whether the levels of transformations were applied.
        freeze: whether weights were taken for constant.
        recipe: gives what took the place of the standard one: the user's recipe, or what a search has chosen.
        device, architecture: where its tensors lie, see `Network`.
        decision: what a search has found.
        eager: how fast eager PyTorch is next to it; None where that is not known.
        compare: tells the same at other sizes, where sizes are symbolic; None where `eager` holds for all.
        backward: how gradients are computed; None where nothing requires one.
        requiring: tensors of the module and whether they require a gradient, where that matters.
        reads: values of tensors of the arguments that it has for constants.
    """

    program: Program
    exported: ExportedProgram
    watch: ModuleWatch
    template: ResultTemplate
    sizes: SizeGuard | None = None
    writes: tuple[tuple[int, int | torch.Tensor], ...] = ()
    assigned: tuple[Assignment, ...] = ()
    changes: tuple[Change, ...] = ()
    optimised: Network | None = None
    auto_optimize: bool = True
    freeze: bool = False
    recipe: Callable[[], Recipe | None] = lambda: None
    device: Device = "cpu"
    architecture: int | None = None
    decision: Decision | None = None
    eager: EagerComparison | None = None
    compare: Callable[[Sequence[torch.Tensor]], EagerComparison | None] | None = None
    stages_s: dict[str, float] = field(default_factory=dict[str, float])
    backward: BackwardPass | None = None
    requiring: tuple[tuple[torch.Tensor, bool], ...] = ()
    reads: tuple[ValueRead, ...] = ()

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of matrix multiplications, convolutions and attention in a call, without
        its backward pass."""
        return flops_of(self.exported)

    @property
    def loses(self) -> Cut | None:
        """Why calls run eagerly all the same: the program is slower. None where it runs."""
        return _cut(self.eager)

    def loses_at(self, tensors: Sequence[torch.Tensor]) -> Cut | None:
        """`loses` at the sizes of these arguments."""
        return _cut(self.eager if self.compare is None else self.compare(tensors))

    def same_gradients(self) -> bool:
        """Whether the module's tensors still require gradients where they did."""
        return all(tensor.requires_grad is required for tensor, required in self.requiring)

    def same_values(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these arguments hold the values that are constants of it."""
        return not self.reads or all(read.holds(tensors) for read in self.reads)

    def other_value(self, tensors: Sequence[torch.Tensor]) -> str:
        """Which constant of it is another value in these arguments, in words; empty if none."""
        for read in self.reads:
            if not read.holds(tensors):
                return f"the value of {read.name} is {read.now(tensors)} instead of {read.value}"
        return ""

    def __call__(
        self,
        tensors: Sequence[torch.Tensor],
        finish: Callable[[list[Any]], list[Any]] | None = None,
        *,
        given: Callable[[], Sequence[Any]] = tuple,
    ) -> Any:
        """What forward returns for these tensors of its arguments; it has the effects of forward, too.

        Args:
            finish: in inference mode, is given the tensors that forward returns and keeps, and what else it
                returns, and gives them back as the caller shall have them.
            given: the objects, lists and dicts of the call, see `containers`.
        Raises:
            SharedMemoryError: forward writes to memory that another input, or the module, reads.
            InferenceTensorError: forward writes to a tensor of inference mode, and the call is outside it.
        """
        if self.writes or self.program.mutated:
            self._refuse_shared_memory(tensors)
            if finish is None:
                self._refuse_inference_tensors(tensors)
        contiguous = [x if x.is_contiguous() else x.contiguous() for x in tensors]
        if self.backward is not None:
            outputs = self.backward.run(self.program, contiguous)
        elif torch.is_grad_enabled():
            with torch.no_grad():
                outputs = self.program(contiguous)
        else:
            outputs = self.program(contiguous)
        if self.writes:
            self._write(outputs, tensors)
        held = given() if self.changes or self.template.gives_back else ()
        result = self.template.fill(outputs, tensors, held, finish)
        if self.assigned or self.changes:
            result, values, contents = result
            for made, value in zip(self.assigned, values, strict=True):
                made.owner.__dict__[made.name] = value
            for change, content in zip(self.changes, contents, strict=True):
                change.apply(held, content)
        return result

    def _write(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for index, target in self.writes:
                tensor = inputs[target] if isinstance(target, int) else target
                # a program runs outside inference mode, where torch refuses to write to its tensors
                with torch.inference_mode() if tensor.is_inference() else nullcontext():
                    tensor.copy_(outputs[index])

    def _refuse_inference_tensors(self, inputs: Sequence[torch.Tensor]) -> None:
        written = [inputs[t] if isinstance(t, int) else t for _, t in self.writes]
        if any(tensor.is_inference() for tensor in (*written, *self.program.mutated)):
            raise InferenceTensorError(
                "forward writes to a tensor that was made in inference mode",
                why="outside inference mode such a tensor cannot be changed, as in eager PyTorch",
                fix="pass a copy of it, tensor.clone(), or make the call within torch.inference_mode()",
            )

    def _refuse_shared_memory(self, inputs: Sequence[torch.Tensor]) -> None:
        places = [_place(tensor) for tensor in inputs]
        written = (t for _, t in self.writes if not isinstance(t, int))
        held = {_place(tensor) for tensor in (*self.program.mutated, *written)}
        own = [t for _, t in self.writes if isinstance(t, int)]
        if held.isdisjoint(places) and all(places.count(places[t]) == 1 or not places[t] for t in own):
            return
        names = [name for name in self.exported.graph_signature.user_inputs if isinstance(name, str)]
        outputs, mutated = self.program.manifest.outputs, self.program.manifest.mutated
        changed = [(names[t], places[t]) for t in own]
        changed += [(key, _place(t)) for key, t in zip(mutated, self.program.mutated, strict=True)]
        changed += [
            (outputs[i].name.partition("::next")[0], _place(t))
            for i, t in self.writes
            if not isinstance(t, int)
        ]
        for name, place in changed:
            others = [n for n, other in zip(names, places, strict=True) if other == place and n != name]
            if place and others:
                raise SharedMemoryError(
                    "inputs share memory with each other or with the module, which changes it in place",
                    why=f"{name} and {others[0]} have memory in common that forward changes;\n"
                    "a compiled program reads all inputs before it changes any",
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


def _cut(seen: EagerComparison | None) -> Cut | None:
    if seen is None or not seen.slower:
        return None
    return Cut(
        what=seen.sentence,
        why="the two were timed side by side when the program was compiled",
        fix="set DACEML_MEASURE=0, or compile with fullgraph=True, to run the program in any case",
    )


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Partial(Protocol):
    """Runs a module that is not one program."""

    cuts: list[Cut]

    def add(self, cut: Cut) -> None:
        """Note one more reason why the module is not one program."""
        ...

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What forward returns for these arguments; it has the effects of forward, too."""
        ...


@dataclass
class EagerVariant:
    """The user's own forward, where one program could not do the same.

    Attributes:
        watch: the state of the module in which it could not; None for any state.
        cut: why it is not one program; None where a tracer follows it.
        partial: runs parts of it as programs; None where all of it runs eagerly.
        fills: key of a call that fills a cache of the module's, eagerly and as a whole; None for others.
    """

    watch: ModuleWatch | None
    cut: Cut | None = None
    partial: Partial | None = None
    fills: CallKey | None = None

    def same_gradients(self) -> bool:
        """It is right whatever requires a gradient."""
        return True

    def same_values(self, tensors: Sequence[torch.Tensor]) -> bool:
        """It is right for all values."""
        return True
