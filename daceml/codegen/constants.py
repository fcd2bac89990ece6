"""Constants of a program in one file: what is neither parameter nor buffer of the module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from daceml.codegen.planning.workspace_offsets import ALIGNMENT_BYTES
from daceml.runtime.records.manifest import ConstantRecord
from daceml.sdfg.element_codes import torch_code

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan


def save_constants(plan: Plan, folder: Path) -> tuple[ConstantRecord, ...]:
    """Write `constants.bin`: the constants that some step reads, in the plan's order."""
    network = plan.network
    records: list[ConstantRecord] = []
    with (folder / "constants.bin").open("wb") as stream:
        for name in plan.weights:
            if name not in network.constants:
                continue
            value = np.ascontiguousarray(network.constants[name])
            stream.write(b"\0" * (-stream.tell() % ALIGNMENT_BYTES))
            code = torch_code(network.sdfg.arrays[name].dtype)
            shape = () if name in network.scalars else tuple(int(n) for n in value.shape)
            records.append(ConstantRecord(dtype=code, shape=shape, offset_bytes=stream.tell()))
            stream.write(value.tobytes())
    return tuple(records)
