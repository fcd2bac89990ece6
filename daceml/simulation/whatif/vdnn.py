"""vDNN: inputs of convolutions wait in the host's memory for their backward phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.copy import NewCopy, copy_stream, insert_copies
from daceml.simulation.whatif.blocks import Pair, launch_of, pairs
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.work import has_device, of_layers


@dataclass(frozen=True, kw_only=True)
class VirtualizedDnn(Optimization):
    """Copies to the host while a convolution runs forward, and back while the one behind it runs backward.

    Attributes:
        activation_bytes: layer -> bytes of its input.
        usual_bytes: of layers that are not named.
        bytes_per_s: between device and host; PCIe 3 x16 carries 12e9 of its 15.75e9.
        release: the next layer waits until the copy to the host is done, as the memory is given back then.
    """

    option: ClassVar[str] = "vdnn"
    title: ClassVar[str] = "vDNN offloading"
    source: ClassVar[str] = (
        "Rhu et al., vDNN (MICRO '16), policy conv; Zhu et al., Daydream (ATC '20), Algorithm 10"
    )

    activation_bytes: Mapping[str, float] = field(default_factory=dict[str, float])
    usual_bytes: float | None = None
    bytes_per_s: Estimate = Estimate(12e9, fast=13e9, slow=9e9)
    release: bool = True

    def check(self, graph: TaskGraph) -> str | None:
        if not has_device(graph):
            return "the run has no kernels of a device"
        found, reason = pairs(graph, of_layers(graph, "convolution"))
        if reason is not None:
            return f"the convolutions of a step must be known forward and backward: {reason}"
        if not found:
            return "no convolution of the run belongs to a step, forward and backward"
        launches = launch_of(graph)
        if any(launches[pair.forward.tasks[0]] < 0 or launches[pair.backward.tasks[0]] < 0 for pair in found):
            return "the launches of some convolutions were not recorded"
        unknown = [pair.forward.layer or "?" for pair in found if self._bytes(pair) is None]
        if unknown:
            return f"the size of the input of {unknown[0]!r} is unknown: give activation_bytes or usual_bytes"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        found, _ = pairs(graph, of_layers(graph, "convolution"))
        launches = launch_of(graph)
        structure = graph.structure
        copies: list[NewCopy] = []
        for step in sorted({pair.forward.step for pair in found}):
            layers = [pair for pair in found if pair.forward.step == step]
            for pair in layers:
                first, last = pair.forward.tasks[0], pair.forward.tasks[-1]
                before, behind = int(structure.before[first]), int(structure.after[last])
                copies.append(
                    NewCopy(
                        name=f"offload {pair.forward.layer}".strip(), size_bytes=self._bytes(pair) or 0.0,
                        direction="to host", source=None if before < 0 else before,
                        target=behind if self.release and behind >= 0 else None,
                        launch_before=int(launches[first]),
                    )
                )  # fmt: skip
            backward = sorted(layers, key=lambda pair: pair.backward.tasks[0])
            for number, pair in enumerate(backward):
                # It is fetched while the convolution that runs backward before it does so.
                ahead = backward[max(number - 1, 0)].backward.tasks[0]
                before = int(structure.before[ahead])
                copies.append(
                    NewCopy(
                        name=f"prefetch {pair.forward.layer}".strip(), size_bytes=self._bytes(pair) or 0.0,
                        direction="to device", source=None if before < 0 else before,
                        target=pair.backward.tasks[0], launch_before=int(launches[ahead]),
                    )
                )  # fmt: skip
        stream = copy_stream(graph, "vDNN copies", like=found[0].forward.tasks[0])
        return insert_copies(graph, copies, stream=stream, bytes_per_s=self.bytes_per_s.likely)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return ("copies do not slow down kernels", "memory is taken and given back at no cost")

    def _bytes(self, pair: Pair) -> float | None:
        return self.activation_bytes.get(pair.forward.layer, self.usual_bytes)
