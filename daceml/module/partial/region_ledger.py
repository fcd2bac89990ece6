"""What runs compiled and what eagerly in one call: FLOPs and seconds of each region."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from daceml.frontend.capture.number_uses import reads_a_number
from daceml.module.partial.cut import Cut

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_FORMULAS = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[
        torch.ops.aten._scaled_dot_product_flash_attention
    ],
}


@dataclass(kw_only=True)
class Region:
    """A part of a model that runs as one program, or eagerly.

    Attributes:
        name: of the module or graph.
        cuts: why it runs eagerly; () for a program.
        calls: in the call that was recorded.
        flops: floating-point operations of its forward pass; eagerly, those of matrix multiplications,
            convolutions and attention.
        seconds: of its forward pass.
    """

    name: str
    cuts: tuple[Cut, ...]
    calls: int = 0
    flops: int = 0
    seconds: float = 0.0


class RegionLedger:
    """The regions of one call, in the order in which they were entered."""

    def __init__(self) -> None:
        self.regions: dict[object, Region] = {}
        self._open: list[Region] = []
        self._since = 0.0

    @property
    def compiled_flops(self) -> int:
        return sum(region.flops for region in self.regions.values() if not region.cuts)

    @property
    def eager_flops(self) -> int:
        return sum(region.flops for region in self.regions.values() if region.cuts)

    @contextmanager
    def inside(self, key: object, name: str, cuts: Sequence[Cut] = (), *, flops: int = 0) -> Generator[None]:
        """Attribute what happens within the block to a region, and not to the one around it."""
        region = self.regions.setdefault(key, Region(name=name, cuts=tuple(cuts)))
        region.calls += 1
        region.flops += flops
        self._charge()
        self._open.append(region)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def count(self, flops: int) -> None:
        """Attribute operations that run eagerly to the innermost region."""
        if self._open:
            self._open[-1].flops += flops

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._open:
            self._open[-1].seconds += now - self._since
        self._since = now


def share_text(share: float) -> str:
    """A share as a percentage, never rounded up: only a whole is 100.0%."""
    return f"{math.floor(1000 * share + 1e-6) / 10:.1f}%"


def flops_of(program: ExportedProgram) -> int:
    """FLOPs of one run, counted as those of eager code: an exported program runs on its fake tensors.

    Symbolic sizes count as they were in the call that was traced, and those that depend on data as
    `_UNKNOWN_SIZE`.
    """
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    values = [node.meta.get("val") for node in placeholders]
    ledger = RegionLedger()
    # what is made from nothing, or of a number that forward reads from a tensor, is fake as well: random
    # numbers are not drawn, and numbers have no value
    fake = detect_fake_mode(values) or FakeTensorMode(allow_non_fake_inputs=True)
    with ExitStack() as stack:
        stack.enter_context(fake)
        stack.enter_context(enable_python_dispatcher())  # as in tracing: some kernels take no symbolic sizes
        if fake.shape_env is not None and any(map(reads_a_number, program.graph.nodes)):
            stack.enter_context(fake.shape_env.ignore_fresh_unbacked_symbols())
        stack.enter_context(ledger.inside(None, ""))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_EagerOperations(ledger))
        fx.Interpreter(program.graph_module).run(*values)
    return _at_example(ledger.compiled_flops)


_UNKNOWN_SIZE = 64


def _at_example(amount: Any) -> int:
    if not isinstance(amount, torch.SymInt | torch.SymFloat):
        return int(amount)
    node = amount.node
    if node.has_hint():
        return int(node.hint)
    environment = node.shape_env
    # the name of torch 2.13, and the one before
    known = getattr(environment, "backed_var_to_val", None) or environment.var_to_val
    return int(node.expr.subs({s: known.get(s, _UNKNOWN_SIZE) for s in node.expr.free_symbols}))


class _EagerOperations(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, ledger: RegionLedger) -> None:
        super().__init__()
        self.ledger = ledger

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Dynamo compiles as if there were no such mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        formula = _FORMULAS.get(getattr(func, "_overloadpacket", None))
        if formula is not None:
            self.ledger.count(formula(*args, **(kwargs or {}), out_val=result))
        return result


recording: dict[int, RegionLedger] = {}
"""Threads whose calls are recorded now."""


def open_ledger() -> RegionLedger | None:
    """The ledger of the call that this thread records, if any."""
    return recording.get(threading.get_ident()) if recording else None


@contextmanager
def recorded_regions() -> Generator[RegionLedger]:
    """Record the regions of the calls within the block; an outer recording goes on."""
    outer = open_ledger()
    if outer is not None:
        yield outer
        return
    ledger = RegionLedger()
    recording[threading.get_ident()] = ledger
    try:
        with _EagerOperations(ledger):
            yield ledger
    finally:
        del recording[threading.get_ident()]
