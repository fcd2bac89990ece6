"""`explain`: what a compiled module does, step by step, and what each level of transformations made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from daceml.distributed.dist_data_parallel import DistDataParallel
from daceml.errors import CallError, ConfigurationError
from daceml.module.compiled_variant import EagerVariant, Variant
from daceml.module.module import DaceModule, compile_module
from daceml.module.onnx_model import ONNXModel
from daceml.module.whole_step.whole_step import CompiledStep
from daceml.report.explanation.levels import Level, levels_of
from daceml.report.explanation.partial_explanation import PartialExplanation, explain_partial
from daceml.runtime.records.levels import LevelRecord, load_levels

if TYPE_CHECKING:
    from daceml.runtime.program import Program
    from daceml.runtime.records.gradients import BucketRecord, StorageRecord
    from daceml.runtime.records.manifest import Manifest, StepRecord
    from daceml.runtime.stored_program import StoredProgram
    from daceml.tuning.comparison_record import OtherImplementation, TorchKernel
    from daceml.tuning.decision import Decision

# StepRecord.kind -> its name among the counts
_COUNTED = {
    "kernel": "kernels",
    "aten": "aten",
    "torch": "torch",
    "onnxruntime": "onnxruntime",
    "copy": "copies",
    "check": "checks",
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What became of a module.

    Attributes:
        name: of the module.
        counts: steps of a call: kernels, aten, torch (operators called by name), onnxruntime, copies, checks;
            distinct_kernels are what was compiled.
        bytes: what a call moves: unique (every byte that a step touches counted once, whether it is read,
            written or both; a stride skips bytes), total (every access counted). Unique is never more than
            total.
        eager: kernels, unique and total bytes of the same operators run one at a time.
        flops: floating-point operations of a call.
        special_functions: calls of exp, log, tanh, … in generated kernels.
        workspace_bytes: memory for everything between inputs and outputs.
        compile_seconds: stage -> seconds; stages that an earlier process ran are its.
        from_cache: whether the program was in the cache.
        compiled_at: date and time at which it was put there, such as "2026-05-20 14:03"; "" where not known.
        steps: in order of execution.
        backward_steps: those of the backward pass; no other figure counts them.
        memory_budget_bytes: what a training step may take at its peak; None without a budget.
        levels: what each level of transformations applied and refused, steps and bytes before and after.
        symbols: sizes left symbolic; figures are for one example value of each.
        storage: what is stored for the backward pass or computed again, largest first; empty without one.
        by_rule, lowered: operators whose gradients come from a rule, and from their lowered form.
        search: what a search for a recipe has found; None without one.
        slower: why calls run eagerly all the same: the program is slower; empty where it runs.
        torch_kernels: operators that torch's own kernels run, because these were measured to be faster.
        implementations: operators that other implementations than their first ones run for that reason.
        gain: what a call takes with these choices and without, in a sentence; empty where there are none.
        buckets: gradients that are averaged over all ranks, in the order in which they are sent.
        ranks: who averages them, such as "2 ranks through gloo".
    """

    name: str
    counts: dict[str, int]
    bytes: dict[str, int]
    eager: dict[str, int]
    flops: int
    special_functions: int
    workspace_bytes: int
    compile_seconds: dict[str, float]
    from_cache: bool
    steps: tuple[StepRecord, ...]
    levels: tuple[Level, ...]
    symbols: tuple[str, ...] = ()
    storage: tuple[StorageRecord, ...] = ()
    by_rule: tuple[str, ...] = ()
    lowered: tuple[str, ...] = ()
    search: Decision | None = None
    backward_steps: tuple[StepRecord, ...] = ()
    memory_budget_bytes: int | None = None
    buckets: tuple[BucketRecord, ...] = ()
    ranks: str = ""
    slower: str = ""
    torch_kernels: tuple[TorchKernel, ...] = ()
    implementations: tuple[OtherImplementation, ...] = ()
    gain: str = ""
    compiled_at: str = ""

    @property
    def choices(self) -> tuple[TorchKernel | OtherImplementation, ...]:
        """Operators that something else runs because it was measured to be faster."""
        return (*self.torch_kernels, *self.implementations)

    @property
    def applied(self) -> dict[str, int]:
        """What was done -> how often, over all levels."""
        applied: Counter[str] = Counter()
        for level in self.levels:
            applied.update(level.applied)
        return dict(applied)

    @property
    def refused(self) -> tuple[str, ...]:
        """What was not done and why: one sentence a reason, level by level, most bytes first."""
        return tuple(group.sentence for level in self.levels for group in level.groups)

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps, with every single refusal."""
        return {**asdict(self), "refused": list(self.refused)}

    def full_text(self) -> str:
        """The report with every single refusal; `str()` groups them by reason and shows the largest."""
        from daceml.report.explanation.explanation_text import explanation_text

        return explanation_text(self, every_refusal=True)

    def __str__(self) -> str:
        from daceml.report.explanation.explanation_text import explanation_text

        return explanation_text(self)

    def _repr_html_(self) -> str:
        from daceml.report.explanation.explanation_html import explanation_html

        return explanation_html(self)


def explain(
    module: nn.Module | ONNXModel | CompiledStep, *args: Any, **kwargs: Any
) -> Explanation | PartialExplanation:
    """Say what a module is compiled to for these arguments; compiles it if need be.

    A module that is one program is not run. One that is cut is called four times, to see what its parts do.
    Its buffers and the states of random generators are put back; other effects of forward happen.

    Args:
        module: an nn.Module, which is compiled without a backward pass; a compiled module, also within
            `DistDataParallel`; an `ONNXModel`, whose arguments may be left out; or what `compile_step`
            returned, with inputs and targets.
        args, kwargs: of a call.
    Returns:
        what the program does; a `PartialExplanation` of a module that is cut.
    Raises:
        ConfigurationError: something that is no module.
        DacemlError: it cannot be compiled; the message says why.
    """
    if isinstance(module, DistDataParallel):
        module = module.module
    if isinstance(module, CompiledStep):
        return explanation_of_step(module, args, kwargs)
    if isinstance(module, DaceModule) and torch.is_grad_enabled():
        return _of_compiled(module, args, kwargs)  # with the backward pass that this call would have
    with torch.no_grad():
        if isinstance(module, ONNXModel):
            if args or kwargs:
                module.prepare(args, kwargs)  # refuses arguments that do not fit
            return explanation_of_model(module)
        if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"explain takes an nn.Module, an ONNXModel or a compiled step, not a {type(module).__name__}",
                fix="pass an instance of a module, then the arguments of a call",
            )
        compiled = module if isinstance(module, DaceModule) else compile_module(module, backward=False)
        assert isinstance(compiled, DaceModule)
        return _of_compiled(compiled, args, kwargs)


def _of_compiled(
    module: DaceModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Explanation | PartialExplanation:
    variant = module.session.any_variant(args, kwargs)
    if isinstance(variant, EagerVariant) and variant.partial is not None:
        return explain_partial(module, args, kwargs)
    return explanation_of(module, module.session.variant(args, kwargs)[0])


def explain_program(module: nn.Module, *args: Any, **kwargs: Any) -> Explanation:
    """As `explain`, of a module that is one program.

    Raises:
        CallError: the module is cut.
    """
    said = explain(module, *args, **kwargs)
    if isinstance(said, Explanation):
        return said
    raise CallError(
        f"{said.name} is not one program",
        why=str(said.eager[0].cuts[0]),
        fix="daceml.explain names its programs, and what runs eagerly between them",
    )


def explanation_of_model(model: ONNXModel) -> Explanation:
    """What the program of an ONNX model does."""
    found = explanation(model.name, *_facts(model.program), model.stages_s)
    return replace(found, compiled_at=_compiled_at(model.program.stored))


def explanation_of_step(step: CompiledStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Explanation:
    """What the program of a whole training step does."""
    stored, stages_s = step.compiled(*args, **kwargs)
    name = f"a training step of {type(step.module.model).__name__}"
    found = explanation(name, stored.manifest, load_levels(stored.folder), stages_s)
    return replace(found, search=step.decision, compiled_at=_compiled_at(stored))


def explanation_of(module: DaceModule, variant: Variant) -> Explanation:
    """What one of a module's programs does."""
    name = type(module.session.eager).__name__
    found = explanation(name, *_facts(variant.program), variant.stages_s)
    slower = variant.loses
    found = replace(
        found,
        search=variant.decision,
        slower="" if slower is None else slower.what,
        compiled_at=_compiled_at(variant.program.stored),
    )
    if (seen := variant.eager) is not None and seen.choices:
        found = replace(
            found, torch_kernels=seen.kernels, implementations=seen.implementations, gain=seen.gain
        )
    if variant.backward is None:
        return found
    record, exchange = variant.backward.record, variant.backward.exchange
    return replace(
        found,
        storage=record.storage,
        by_rule=record.by_rule,
        lowered=record.lowered,
        backward_steps=variant.backward.program.manifest.steps,
        memory_budget_bytes=module.session.options["memory_budget_bytes"],
        buckets=record.buckets,
        ranks="" if exchange is None else exchange.ranks,
    )


def _compiled_at(stored: StoredProgram) -> str:
    try:
        written_s = (stored.folder / "manifest.json").stat().st_mtime
    except OSError:  # the cache was cleared meanwhile
        return ""
    return f"{datetime.fromtimestamp(written_s):%Y-%m-%d %H:%M}"


def _facts(program: Program) -> tuple[Manifest, tuple[LevelRecord, ...]]:
    return program.manifest, load_levels(program.stored.folder)


def explanation(
    name: str, manifest: Manifest, records: Sequence[LevelRecord], stages_s: Mapping[str, float]
) -> Explanation:
    """Read an explanation off a manifest. Pure.

    Args:
        name: of the module.
        manifest: of its program.
        records: of its levels.
        stages_s: seconds of this process; the manifest has those of the process that compiled.
    """
    steps = manifest.steps
    counts = dict.fromkeys(_COUNTED.values(), 0)
    for step in steps:
        counts[_COUNTED[step.kind]] += 1
    moved = {"unique": sum(s.unique_bytes for s in steps), "total": sum(s.total_bytes for s in steps)}
    eager = _one_at_a_time(manifest)
    lowered = {"steps": eager["kernels"], "unique_bytes": eager["unique"]}
    final = {"steps": len(steps), "unique_bytes": moved["unique"]}
    return Explanation(
        name=name,
        counts={**counts, "distinct_kernels": manifest.kernels},
        bytes=moved,
        eager=eager,
        flops=sum(step.flops for step in steps),
        special_functions=sum(step.special_functions for step in steps),
        workspace_bytes=manifest.workspace_bytes,
        compile_seconds={**manifest.stages_s, **stages_s},
        from_cache=bool(set(manifest.stages_s) - set(stages_s)),
        steps=steps,
        levels=levels_of(records, lowered=lowered, final=final),
        symbols=manifest.symbols,
    )


def _one_at_a_time(manifest: Manifest) -> dict[str, int]:
    """Kernels before any fusion, and the external calls, which fusion does not change."""
    unfused = manifest.unfused
    calls = [step for step in manifest.steps if step.kind in ("aten", "torch", "onnxruntime")]
    return {
        "kernels": unfused.get("kernels", 0) + len(calls),
        "unique": unfused.get("unique_bytes", 0) + sum(step.unique_bytes for step in calls),
        "total": unfused.get("total_bytes", 0) + sum(step.total_bytes for step in calls),
    }
