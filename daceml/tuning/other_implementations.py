"""Operators of a program that another implementation runs faster: it is compiled and timed alone."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from daceml.compiler.keys.program_key import package_digest
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.scratch_program import scratch_program
from daceml.onnx_ops.lowering import refusal
from daceml.onnx_ops.registry import implementations_of
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.single_node import single_node_network
from daceml.runtime.timing.comparison import disturbing
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.runtime.timing.machine_load import Others
from daceml.runtime.torch_types import DTYPES
from daceml.sdfg.sizes import row_major
from daceml.toolchain.cache import digest
from daceml.tuning.comparison_record import OtherImplementation
from daceml.tuning.program_run import ProgramRun

if TYPE_CHECKING:
    from daceml.runtime.records.manifest import StepRecord, TensorRecord
    from daceml.sdfg.network import Network
    from daceml.toolchain.cache import Cache

log = logging.getLogger(__name__)

_LEAST_SHARE = 0.05  # of a call: what takes less is not looked at
_LEAST_US = 20.0  # that a choice gains
_CHOSEN_BY_PASSES = 1000  # rank of implementations that no node comes to by itself
_RUNS = 5
_SHARE_OF_ONE = 0.05  # of the limit, for the calls of one operator
_SLOWEST_SHARE = 1 / 8  # of the limit: another implementation may take many times as long


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An operator that has another implementation.

    Attributes:
        node: in `network`, which was lowered.
        other: title of an implementation that applies, too.
        us: of the step that computes it.
    """

    node: ONNXNode
    network: Network
    other: str
    us: float

    def alone(self) -> Network:
        """The network of the node, which prefers the other implementation."""
        outer = self.network
        found = single_node_network(self.node, outer.state, outer.sdfg, outer.constants)
        found.scalars = frozenset(name for name, array in _operands(self) if array in outer.scalars)
        found.inputs = tuple(name for name in found.inputs if name not in found.constants)
        found.preferred = {self.node.title: self.other}
        return found

    def key(self, cache_of: str) -> str:
        """Of what another implementation takes: operator, operands, this machine and what compiles it."""
        arrays, constants = self.network.sdfg.arrays, self.network.constants
        operands = [
            f"{name} {arrays[array].dtype} {arrays[array].shape} {constants.get(array)}"
            for name, array in _operands(self)
        ]
        attributes = sorted((name, str(value)) for name, value in self.node.attribute_values().items())
        about = (self.node.domain, self.node.op_type, self.other, str(attributes), *operands)
        return digest(cache_of, *about, fingerprint(), torch.__version__, package_digest())


def candidates(
    steps: Sequence[StepRecord], steps_us: Sequence[float], network: Network, call_us: float
) -> Iterator[Candidate]:
    """Calls of torch's kernels that take much of a call and whose operators have another implementation.

    Of a generated loop torch's kernel is the other implementation, see `torch_kernels`.

    Args:
        network: that the program was made of.
    """
    by_name = {
        node.title: node
        for node in network.state.nodes()
        if isinstance(node, ONNXNode) and node.onnx_name and node.implementation
    }
    for step, us in zip(steps, steps_us, strict=True):
        names = {f"{origin.operator} {origin.onnx_name}" for origin in step.nodes}
        if step.kind != "aten" or len(names) != 1 or us < _LEAST_SHARE * call_us:
            continue
        node = by_name.get(min(names))
        if node is None or node.implementation != step.implementation:
            continue
        for row in implementations_of(node.op_type, node.domain):
            if row.kind not in ("aten", "native") or row.title == node.implementation:
                continue
            if row.rank < _CHOSEN_BY_PASSES and network.device in row.devices:
                found = Candidate(node=node, network=network, other=row.title, us=us)
                if _is_plain(found) and refusal(row, node, network) is None:
                    yield found


def _operands(candidate: Candidate) -> list[tuple[str, str]]:
    """Connectors and arrays."""
    edges = candidate.network.state.all_edges(candidate.node)
    named = ((e.dst_conn if e.dst is candidate.node else e.src_conn, e.data.data) for e in edges)
    return [(str(name), str(array)) for name, array in named if name]


def _is_plain(candidate: Candidate) -> bool:
    """Whether all operands have known sizes and lie in row-major order."""
    network = candidate.network
    for _, array in _operands(candidate):
        desc: Any = network.sdfg.arrays[array]
        made = network.prepared.get(array)
        if desc.free_symbols or (made is not None and made.packed):
            return False
        if tuple(desc.strides) != row_major(tuple(desc.shape)):
            return False
    return True


def faster_implementations(
    found: Sequence[Candidate], cache: Cache, *, limit_s: float, margin: float
) -> list[OtherImplementation]:
    """The operators that another implementation runs faster, those that gain most first.

    What one took is kept in the cache, for other programs with the same operator.

    Args:
        limit_s: after which no more operator is compiled and timed.
        margin: by which the program's time is larger.
    """
    end = time.perf_counter() + limit_s
    faster: list[OtherImplementation] = []
    known: dict[str, float | None] = {}
    for one in sorted(found, key=lambda one: -one.us):
        if one.us < _LEAST_US or one.us > _SLOWEST_SHARE * limit_s * 1e6:
            continue
        key = one.key("other implementation")
        if key not in known and (kept := cache.find("decisions", key)) is not None:
            known[key] = json.loads((kept / "operator.json").read_text())["us"]
        if key not in known:
            if time.perf_counter() > end:
                continue
            known[key] = _timed_alone(one, cache, key, limit_s * _SHARE_OF_ONE)
        us = known[key]
        if us is None or one.us < margin * us or one.us - us < _LEAST_US:
            continue
        node = one.node
        where = ", ".join(filter(None, (node.module_path, node.source)))
        faster.append(
            OtherImplementation(
                node=node.title, where=where, before=str(node.implementation), chosen=one.other,
                program_us=one.us, other_us=us,
            )
        )  # fmt: skip
    best: dict[str, OtherImplementation] = {}
    for choice in sorted(faster, key=lambda choice: -choice.lost_us):
        best.setdefault(choice.node, choice)
    return list(best.values())


def _timed_alone(candidate: Candidate, cache: Cache, key: str, patience_s: float) -> float | None:
    """Microseconds of the other implementation; None where it cannot be compiled alone."""
    others = Others()
    try:
        optimised = optimise(candidate.alone(), Stages(), training=True)
        if [report.chosen for report in optimised.lowering.nodes] != [candidate.other]:
            return None
        with scratch_program(optimised, Stages(), lambda _: {}) as program:
            inputs = [_drawn(record) for record in program.manifest.inputs]
            us = sum(ProgramRun(program, None, inputs, limit=0.0).profile(_RUNS, patience_s))
    except Exception as error:  # whatever an operator cannot do alone: it stays as it is
        log.debug("%s is not timed for %s: %s", candidate.other, candidate.node.title, error)
        return None
    if not disturbing(others.share()):
        _keep(cache, key, us)
    return us


def _keep(cache: Cache, key: str, us: float) -> None:
    def save(folder: Path) -> None:
        (folder / "operator.json").write_text(json.dumps({"us": us}))

    try:
        cache.get("decisions", key, save)
    except OSError as error:  # another program measures again
        log.info("the time of an operator is not stored: %s", error)


def _drawn(record: TensorRecord) -> torch.Tensor:
    """Numbers around zero; zeros where these are no floats, which are positions everywhere."""
    shape, element = tuple(map(int, record.shape)), DTYPES[record.dtype]
    if not element.is_floating_point:
        return torch.zeros(shape, dtype=element)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(element)
