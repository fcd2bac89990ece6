"""Whether models of other libraries run compiled, and give PyTorch's numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml
from benchmarks.outputs import named_outputs
from benchmarks.parity_training import restore
from benchmarks.replayed_draws import RecordedDraws, ReplayedDraws
from benchmarks.strangers.stranger import Inputs, Stranger, called
from benchmarks.strangers.torchvision_operators import declare_torchvision
from daceml.errors import DacemlError
from daceml.module.partial.cut import Cut
from daceml.module.partial.region_ledger import recorded_regions
from daceml.verification.accuracy import compare

Mode = Literal["evaluation", "training"]
Kind = Literal["equal", "refused", "foreign", "wrong", "not made"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one model came to in one mode.

    Attributes:
        programs: of a call; 1 where the whole forward is one.
        compilations: programs of the calls of all sizes; as many as of one where none is compiled again.
        compiled_flops: share of the forward pass's FLOPs, counted by torch's formulas.
        cut: whether something was cut out of the program.
        note: what is wrong, or why it is not one program.
    """

    model: str
    mode: Mode
    dynamic: bool
    kind: Kind
    programs: int = 0
    compilations: int = 0
    compiled_flops: float = 0.0
    cut: bool = False
    seconds: float = 0.0
    note: str = ""

    def row(self) -> dict[str, Any]:
        return asdict(self)


def run(stranger: Stranger, mode: Mode, *, dynamic: bool) -> Run:
    """Compile a model, and compare it with eager PyTorch for one batch size; if dynamic, for three."""
    declare_torchvision()
    facts: dict[str, Any] = {"model": stranger.name, "mode": mode, "dynamic": dynamic}
    torch.manual_seed(0)
    try:
        module = stranger.make().train(mode == "training")
        _step(module, module, _inputs(stranger, stranger.batches[0]), mode)
    except Exception as error:
        return not_made(stranger.name, mode, error, dynamic=dynamic)
    sizes = [
        stranger.batches[0],
        *(n for n in (*stranger.batches[1:], 1) if dynamic and _takes(stranger, module, n, mode)),
    ]
    start = time.perf_counter()
    compiled = daceml.compile(module, backward=mode == "training", dynamic=dynamic, fullgraph=False)
    try:
        wrong = [
            text
            for size in sizes
            for text in _differences(stranger, module, compiled, _inputs(stranger, size), mode)
        ]
        programs, compilations, share, note = _regions(stranger, module, compiled, sizes, mode)
    except DacemlError as error:
        return Run(**facts, kind="refused", note=_first(error))
    except Exception as error:
        return Run(**facts, kind="foreign", note=f"{type(error).__name__}: {_first(error)}")
    kind: Kind = "wrong" if wrong else "equal"
    facts |= {"programs": programs, "compilations": compilations, "compiled_flops": share, "cut": bool(note)}
    seconds = time.perf_counter() - start
    return Run(**facts, kind=kind, seconds=seconds, note=f"{len(wrong)}: {wrong[0]}" if wrong else note)


def not_made(name: str, mode: Mode, error: BaseException, *, dynamic: bool) -> Run:
    """A model that eager PyTorch does not make or run as it is configured here."""
    return Run(model=name, mode=mode, dynamic=dynamic, kind="not made", note=_first(error))


def _first(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _takes(stranger: Stranger, module: nn.Module, size: int, mode: Mode) -> bool:
    """Whether eager PyTorch runs a batch of this size: a batch norm trains on no single value."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        _step(module, module, _inputs(stranger, size), mode)
    except Exception:
        return False
    finally:
        restore(module, buffers)
    return True


def _inputs(stranger: Stranger, size: int) -> Inputs:
    torch.manual_seed(size)
    return stranger.inputs(size)


def _differences(
    stranger: Stranger, module: nn.Module, compiled: nn.Module, inputs: Inputs, mode: Mode
) -> list[str]:
    """What lies outside the limits of float32 arithmetic, in three calls: the way to cut settles in them."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    recorded = RecordedDraws()
    eager = _step(module, module, inputs, mode, drawing=recorded)
    restore(module, buffers)
    found: list[str] = []
    steps = []
    for _ in range(3):
        steps.append(_step(module, compiled, inputs, mode))
        restore(module, buffers)
    precise = (stranger.make_precise or stranger.make)().train(mode == "training")
    precise.load_state_dict(module.state_dict())
    for name, buffer in module.named_buffers():
        precise.get_buffer(name).copy_(buffer)
    exact = pytree.tree_map_only(
        torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, dict(inputs)
    )
    # a network in which rounding grows is judged by what eager makes of it in another order of additions
    with torch.backends.mkldnn.flags(enabled=False):
        reordered = _step(module, module, inputs, mode)
    restore(module, buffers)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        reference = _step(precise.double(), precise, exact, mode, drawing=ReplayedDraws(recorded.draws))
    except Exception:
        reference = None  # it computes in float32 by name
    finally:
        torch.set_default_dtype(default)
    for ours in steps:
        if ours.keys() != eager.keys():
            return [f"other results: {sorted(ours.keys() ^ eager.keys())[:3]}"]
        known = reference if reference is not None and reference.keys() == eager.keys() else eager
        accuracy = compare(ours, eager, known, depth=2 * stranger.depth)
        same = compare(reordered, eager, known, depth=2 * stranger.depth)
        if len(accuracy.failures) > 2 * len(same.failures):
            found += [f"{t.name} off by {t.error:.2g}, limit {t.limit:.2g}" for t in accuracy.failures]
    return found


def _step(
    module: nn.Module,
    call: nn.Module,
    inputs: Inputs,
    mode: Mode,
    *,
    drawing: AbstractContextManager[Any] | None = None,
) -> dict[str, torch.Tensor]:
    """Results, buffers and, in training, every parameter's gradient."""
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(mode == "training"):
        torch.manual_seed(7)
        with drawing or nullcontext():
            outputs = {k: v for k, v in named_outputs(called(call, inputs), "").items() if v.numel()}
    gradients: dict[str, torch.Tensor] = {}
    moving = [y for y in outputs.values() if y.requires_grad]
    if moving:
        module.zero_grad()
        generator = torch.Generator().manual_seed(11)
        given = [torch.randn(y.shape, generator=generator, dtype=torch.float32).to(y) for y in moving]
        torch.autograd.backward(moving, given)
        gradients = {f"{n}.grad": p.grad for n, p in module.named_parameters() if p.grad is not None}
        module.zero_grad()
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    return {**{name: y.detach() for name, y in outputs.items()}, **gradients, **buffers}


def _regions(
    stranger: Stranger, module: nn.Module, compiled: nn.Module, sizes: Sequence[int], mode: Mode
) -> tuple[int, int, float, str]:
    """Programs of a call, of calls of all sizes, their share of its FLOPs, and why it is not one program."""
    inputs = _inputs(stranger, sizes[0])
    with torch.set_grad_enabled(mode == "training"):
        with recorded_regions() as whole, whole.inside(None, "eager", [Cut(what="nothing is compiled")]):
            called(module, inputs)
        with recorded_regions() as parts:
            called(compiled, inputs)
        with recorded_regions() as every:
            for size in sizes:
                called(compiled, _inputs(stranger, size))
    programs, compilations = (
        sum(not region.cuts for region in ledger.regions.values()) for ledger in (parts, every)
    )
    share = 1 - parts.eager_flops / whole.eager_flops if whole.eager_flops else 1.0
    assert isinstance(compiled, daceml.DaceModule)
    partial = compiled.session.partial
    return programs, compilations, share, "" if partial is None else str(partial.cuts[0])
