"""The folder of a compiled program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from daceml.runtime.records.manifest import Manifest
from daceml.runtime.torch_types import DTYPES


@dataclass(frozen=True)
class StoredProgram:
    """The folder of a compiled program in the cache."""

    folder: Path

    @cached_property
    def manifest(self) -> Manifest:
        """Its interface, steps and costs."""
        return Manifest.load(self.folder)

    def constants(self) -> list[torch.Tensor]:
        """The tensors of `constants.bin`, sharing one buffer."""
        records = self.manifest.constants
        if not records:
            return []
        data = bytearray((self.folder / "constants.bin").read_bytes())
        tensors: list[torch.Tensor] = []
        for record in records:
            count = 1
            for extent in record.shape:
                count *= extent
            dtype = DTYPES[record.dtype]
            flat = (
                torch.frombuffer(data, dtype=dtype, count=count, offset=record.offset_bytes)
                if count
                else torch.empty(0, dtype=dtype)
            )
            tensors.append(flat.reshape(record.shape))
        return tensors
