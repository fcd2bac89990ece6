"""Gist: activations are kept for the backward phase in fewer bits; kernels encode and decode them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.insert import NewKernel, insert_kernels
from daceml.simulation.task import Phase
from daceml.simulation.whatif.blocks import Block, Pair, blocks, launch_of, pairs
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.work import has_device, of_layers


@dataclass(frozen=True, kw_only=True)
class Gist(Optimization):
    """One bit a value of an activation before pooling, a sparse form of one before a convolution.

    Durations are shares of that of the activation, which reads and writes each value once.

    Attributes:
        binarize_share: of a kernel that reads all and writes a bit each.
        sparse_share: of one that makes the sparse form, or takes it apart.
        reduce_share: of one that writes half of the bytes.
        lossy: outputs of convolutions and pooling are kept in half precision as well.
    """

    option: ClassVar[str] = "gist"
    title: ClassVar[str] = "Gist encodings"
    source: ClassVar[str] = "Jain et al., Gist (ISCA '18); Zhu et al., Daydream (ATC '20), Algorithm 11"

    binarize_share: Estimate = Estimate(0.55, fast=0.5, slow=0.8)
    sparse_share: Estimate = Estimate(2.0, fast=1.0, slow=4.0)
    reduce_share: Estimate = Estimate(0.75, fast=0.75, slow=1.0)
    lossy: bool = False

    def check(self, graph: TaskGraph) -> str | None:
        if not has_device(graph):
            return "the run has no kernels of a device"
        if not self._encoded(graph):
            return "no activation stands right before a pooling layer or a convolution"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        launches, duration_us = launch_of(graph), graph.tasks.duration_us
        backward = {pair.forward.tasks[0]: pair.backward for pair in self._convolutions(graph)}
        encoding: list[NewKernel] = []
        decoding: list[NewKernel] = []  # behind all that encodes at the same place

        def encode(what: str, after: int, share: float, base_us: float) -> None:
            if launches[after] >= 0:
                encoding.append(
                    NewKernel(
                        name=f"{what} encode", after=after, launch_after=int(launches[after]), like=after,
                        duration_us=share * base_us,
                    )
                )  # fmt: skip

        def decode(what: str, before: int, share: float, base_us: float) -> None:
            if launches[before] >= 0:
                decoding.append(
                    NewKernel(
                        name=f"{what} decode", before=before, launch_before=int(launches[before]),
                        like=before, duration_us=share * base_us,
                    )
                )  # fmt: skip

        for activation, following in self._encoded(graph):
            base_us = float(duration_us[list(activation.tasks)].sum())
            if following in backward:
                encode("sparse", activation.tasks[-1], self.sparse_share.likely, base_us)
                decode("sparse", backward[following].tasks[0], self.sparse_share.likely, base_us)
            else:  # the backward activation reads the bits as they are
                encode("binary", activation.tasks[-1], self.binarize_share.likely, base_us)
        if self.lossy:
            usual_us = float(
                np.median([duration_us[list(block.tasks)].sum() for block, _ in self._encoded(graph)])
            )
            for pair in self._convolutions(graph):
                encode("reduced", pair.forward.tasks[-1], self.reduce_share.likely, usual_us)
                decode("reduced", pair.backward.tasks[0], self.reduce_share.likely, usual_us)
        return insert_kernels(graph, encoding + decoding)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        assumed = ["each encoding is one kernel, launched as slowly as others of the run"]
        if self.lossy:
            assumed.append("outputs of convolutions are as large as the usual activation")
        if not self._convolutions(graph):
            assumed.append(
                "which convolution is which in the backward phase is unknown: nothing is decoded there"
            )
        return tuple(assumed)

    def _encoded(self, graph: TaskGraph) -> list[tuple[Block, int]]:
        """Activations of the forward phase, each with the pooling or convolution right behind it."""
        wanted = of_layers(graph, "pooling") | of_layers(graph, "convolution")
        found: list[tuple[Block, int]] = []
        for block in blocks(graph, of_layers(graph, "activation"), Phase.FORWARD):
            following = int(graph.structure.after[block.tasks[-1]])
            if following >= 0 and wanted[following] and graph.tasks.step[following] == block.step:
                found.append((block, following))
        return found

    def _convolutions(self, graph: TaskGraph) -> list[Pair]:
        return pairs(graph, of_layers(graph, "convolution"))[0]
