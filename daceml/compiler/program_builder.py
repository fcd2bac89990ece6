"""The programs of a variant: which key they have, how they are built where the cache has none, how bound."""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.compiler.averaging import Averaging
from daceml.compiler.keys.program_key import program_key
from daceml.compiler.stages.recomputation import Recomputation
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.stance import current_stance
from daceml.errors import RecompileError
from daceml.frontend.capture.call_device import CPU, without_autocast
from daceml.frontend.capture.gradients.cloned_operands import cloned_operands
from daceml.frontend.capture.gradients.torch_forward import (
    TorchForward,
    UnlikeEagerError,
    changed_inputs,
    draws,
    kept_state,
)
from daceml.frontend.capture.trace_lock import tracing
from daceml.garbage_collection import without_collection
from daceml.runtime.autograd import BackwardPass, GradientExchange, Narrowed
from daceml.runtime.program import Program
from daceml.runtime.records.gradients import GradientRecord, Wanted
from daceml.runtime.stored_program import StoredProgram
from daceml.toolchain.cache import Cache, digest

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from daceml.codegen.kernel_objects import KernelObjects
    from daceml.compiler.stages.lowered_network import Optimised
    from daceml.compiler.verification.verify_passes import Sample
    from daceml.sdfg.network import Device, Network
    from daceml.transformations.recipe import Recipe

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Making:
    """Builds the programs of a variant where the cache has none; both come from one differentiation.

    Attributes:
        live: whether programs read weights at each call, and prepare nothing of them.
        recipe: gives the passes in the place of the standard ones, or None; asked for where it matters.
        known_key: of the programs, where somebody has computed it already.
        ahead: whether kernels of a training step are compiled as soon as they are known, while Python goes
            on; False for programs that are only looked at.
        objects: of kernels that both programs have, while they are built.
        device: where the tensors lie.
        architecture: of a CUDA device: 90 for compute capability 9.0.
        averaging: which gradients are averaged over all ranks; None in one process.
        exchange: runs the all-reduces of the backward programs.
    """

    exported: ExportedProgram
    stages: Stages
    hooks: Callable[[Network], None] | None
    autodiff_hooks: Callable[..., None] | None
    wanted: Wanted | None
    cache: Cache
    levels: bool
    freeze: bool
    live: bool = False
    recomputation: Recomputation
    prefer_native: bool
    ranges: bool
    recipe: Callable[[], Recipe | None]
    sample: Callable[[], Sample] | None
    made: list[Optimised] = field(default_factory=lambda: [])
    record: GradientRecord | None = None
    known_key: str = ""
    device: torch.device = CPU
    architecture: int | None = None
    ahead: bool = True
    objects: KernelObjects | None = None
    averaging: Averaging | None = None
    exchange: GradientExchange | None = None

    @property
    def target(self) -> Device:
        """The kind of device that programs are made for."""
        return "cuda" if self.device.type == "cuda" else "cpu"

    def key(self) -> str:
        """Of the forward program; that of the backward program is a digest of it."""
        if not self.known_key:
            self.known_key = program_key(
                self.exported,
                auto_optimize=self.levels,
                freeze=self.freeze,
                wanted=self.wanted,
                recomputation=None if self.wanted is None else self.recomputation,
                prefer_native=self.prefer_native,
                recipe=self.recipe(),
                verify=self.sample is not None,
                device=self.target,
                architecture=self.architecture,
                ranges=self.ranges,
                averaging=None if self.averaging is None else self.averaging.key(),
            )
            if self.hooks is not None:
                log.info("not looked up in the cache: what hooks do is not part of its key")
                self.known_key = digest(self.known_key, uuid.uuid4().hex)
        return self.known_key

    def stored(self) -> tuple[StoredProgram, Path | None]:
        """The forward program, and the folder of the backward one, out of the cache or built."""
        key = self.key()
        try:
            folder = self.cache.get("programs", key, self.forward)
            if self.wanted is None:
                return StoredProgram(folder), None
            return StoredProgram(folder), self.cache.get("programs", digest(key, "backward"), self.backward)
        finally:
            self._close()

    def bind(self, state: Mapping[str, torch.Tensor]) -> tuple[Program, BackwardPass | None]:
        """Forward program and backward pass.

        Args:
            state: key -> the tensors that they share.
        """
        stored, behind = self.stored()
        with self.stages.stage("bind"):
            program = Program(stored, state, self.device)
            if program.conditional:
                program.substitute = functools.partial(self._unconditional, state)
            if behind is None:
                return program, None
            return program, backward_pass(behind, self, self.key(), state, program.changed)

    def _unconditional(self, state: Mapping[str, torch.Tensor]) -> Program:
        """The program that reads weights at each call, and whose activations keep NaN without limits."""
        import torch

        kept = replace(self, made=[], record=None, freeze=False, live=True, sample=None, stages=Stages())
        with tracing(), without_autocast(), torch.no_grad():
            folder = self.cache.get("programs", digest(self.key(), "live"), kept.forward)
            return Program(StoredProgram(folder), state, self.device)

    def averaging_as(self, averaging: Averaging) -> Making:
        """The same programs with other buckets."""
        return replace(self, averaging=averaging, made=[], record=None, known_key="", stages=Stages())

    def forward(self, folder: Path) -> None:
        with without_collection():
            given = None if self.wanted is None else ()
            self._build(self.optimised()[0], folder, given)

    def backward(self, folder: Path) -> None:
        with without_collection():
            optimised = self.optimised()[1]
            assert self.record is not None, "networks with a backward pass have a record"
            given = self.record.saved_of(optimised.network.inputs)
            self._build(optimised, folder, given)
        self.record.save(folder)
        self._close()

    def _build(self, optimised: Optimised, folder: Path, given: Collection[str] | None) -> None:
        from daceml.compiler.stages.program_folder import build

        build(
            optimised, self.cache, folder, self.stages, given=given, objects=self.objects, ranges=self.ranges
        )

    def _close(self) -> None:
        if self.objects is not None:
            self.objects.close()
            self.objects = None

    def optimised(self) -> list[Optimised]:
        if not self.made:
            with self.stages.stage("import"):
                from daceml.codegen.kernel_objects import KernelObjects
                from daceml.compiler.pipeline import optimised_network, training_networks
                from daceml.compiler.stages.gradient_averaging import with_all_reduces

            hooks, autodiff_hooks = self.hooks, self.autodiff_hooks
            sample = None if self.sample is None else self.sample()
            if self.wanted is None:
                self.made = [
                    optimised_network(
                        self.exported,
                        self.stages,
                        levels=self.levels,
                        freeze=self.freeze,
                        live=self.live,
                        hooks=hooks,
                        autodiff_hooks=autodiff_hooks,
                        recipe=self.recipe(),
                        sample=sample,
                        device=self.target,
                        architecture=self.architecture,
                    )
                ]
            else:
                if self.objects is None:
                    self.objects = KernelObjects(self.cache, self.target, self.architecture)
                self.made, self.record = training_networks(
                    self.exported,
                    self.wanted,
                    self.stages,
                    levels=self.levels,
                    hooks=hooks,
                    autodiff_hooks=autodiff_hooks,
                    recomputation=self.recomputation,
                    prefer_native=self.prefer_native,
                    recipe=self.recipe(),
                    sample=sample,
                    ahead=self.objects.begin_all if self.ahead else None,
                    device=self.target,
                    architecture=self.architecture,
                )
                if self.averaging is not None:
                    self.record = with_all_reduces(
                        self.made[1], self.record, self.wanted, self.averaging, self.objects.outliner
                    )
        return self.made


def backward_pass(
    folder: Path, making: Making, key: str, state: Mapping[str, torch.Tensor], changed: Collection[str]
) -> BackwardPass:
    """The backward half of a program.

    Args:
        changed: what the program changes, by key or by name of the input.
    """
    record, wanted = GradientRecord.load(folder), making.wanted
    assert wanted is not None, "what is differentiated is wanted"
    # the second half of a budget's plan goes with its first, a hook sees each pass once, and ranks that use
    # other results have to send the same buckets
    alone = making.recomputation.mode != "budget" and making.hooks is None and making.exchange is None
    kept = replace(making, made=[], record=None)  # what was built goes
    return BackwardPass(
        program=_bound(folder, making, record),
        record=record,
        wanted=wanted,
        state=tuple(state[key] for key in wanted.state),
        read={key: state[key] for _, key in record.reads if isinstance(key, str)},
        narrow=functools.partial(_narrowed, kept, key, record) if alone else lambda _: None,
        exchange=making.exchange,
        torch_forward=functools.partial(_torch_forward, making, state, changed),
        draws=draws(making.exported),
        watched=tuple(state[key] for key in kept_state(making.exported, changed) if key in state),
        changed=changed_inputs(making.exported, changed),
        cloned=cloned_operands(making.exported),
    )


def _torch_forward(
    making: Making, state: Mapping[str, torch.Tensor], changed: Collection[str]
) -> TorchForward | None:
    if making.target != "cpu" and draws(making.exported):
        return None  # from the device's generator, whose state is not kept
    try:
        return TorchForward(making.exported, state, changed)
    except UnlikeEagerError as error:
        log.info("gradients cannot be differentiated again: %s", error)
        return None


def _narrowed(making: Making, key: str, whole: GradientRecord, places: tuple[int, ...]) -> Narrowed | None:
    """The backward program for cotangents of fewer results; None where it would read what is not kept."""
    import torch

    assert making.wanted is not None, "what is differentiated is wanted"
    if current_stance() == "fail_on_recompile":
        raise RecompileError(
            "a backward pass would have to be compiled",
            why=f"only the results at {list(places)} have cotangents, and the stance is fail_on_recompile",
            fix="run one such step before, or let the loss use every result",
        )
    fewer = replace(making, wanted=replace(making.wanted, outputs=places), stages=Stages(), sample=None)
    with tracing(), without_autocast(), torch.no_grad():
        folder = making.cache.get("programs", digest(key, "backward", repr(places)), fewer.backward)
        record = GradientRecord.load(folder)
        takes = record.places_in(whole)
        if takes is None:
            log.warning("zeros stand for the cotangents of unused results: what is stored is for all of them")
            return None
        log.info("a backward pass for the results at %s alone", list(places))
        return Narrowed(program=_bound(folder, making, record), record=record, takes=takes)


def _bound(folder: Path, making: Making, record: GradientRecord) -> Program:
    """A backward program, whose all-reduces somebody runs if it has any."""
    program = Program(StoredProgram(folder), {}, making.device)
    if making.exchange is not None and record.buckets:
        making.exchange.attach(program, record.buckets)
    return program
