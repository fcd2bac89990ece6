"""Functions with loops that drivers call: compiled once, and linked to each driver that calls one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.sdfg.external import AtenCall
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import toolchain, torch_header

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Step

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class DriverPart:
    """A source of such functions.

    Attributes:
        functions: beginnings of their names, in namespace `daceml::aten`.
        header: declares them.
        source: defines them.
    """

    functions: tuple[str, ...]
    header: str
    source: Path

    def object(self, cache: Cache) -> Path:
        """Its object for this processor.

        Raises:
            BuildError: the compiler refused it.
        """
        tools, declared = toolchain(), torch_header(cache)
        # the fingerprint covers the headers
        key = digest(tools.fingerprint, declared.name, self.source.read_text())
        folder = cache.get("kernels", key, lambda folder: tools.compile_part(self.source, folder, declared))
        return folder / f"{self.source.stem}.o"


PARTS = (
    DriverPart(
        functions=("attention_spelled",),
        header="daceml/aten_attention.h",
        source=_FOLDER / "attention.cpp",
    ),
    DriverPart(
        functions=("depthwise", "pointwise"),
        header="daceml/aten_convolution.h",
        source=_FOLDER / "convolutions.cpp",
    ),
    DriverPart(
        functions=("recurrent_layer",),
        header="daceml/aten_recurrent.h",
        source=_FOLDER / "recurrent_layers.cpp",
    ),
)


def parts_of(steps: Iterable[Step]) -> list[DriverPart]:
    """The parts of which a step calls a function."""
    called = {step.action.function for step in steps if isinstance(step.action, AtenCall)}
    return [part for part in PARTS if any(name.startswith(part.functions) for name in called)]
