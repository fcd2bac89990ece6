"""What a comparison with eager PyTorch has found, and its place in the cache, where later processes look."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from daceml.config import config
from daceml.frontend.onnx_export.chosen_implementations import with_implementations
from daceml.frontend.onnx_export.chosen_kernels import with_torch_kernels
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.toolchain.cache import digest

if TYPE_CHECKING:
    from daceml.compiler.program_builder import Making

log = logging.getLogger(__name__)

_MOST_TRIES = 5  # on a machine that never is quiet


@dataclass(frozen=True, kw_only=True)
class TorchKernel:
    """An operator that torch's own kernel runs, because it was measured to be faster.

    Attributes:
        node: of the functional form of the trace.
        operator: as torch names it, such as `aten.lstm.input`.
        where: the module and the user's line that it came from.
        program_us: of the steps that computed it in the program without this choice, gradients included. Of
            a step of several operators it has the share that these have of eager's time.
        torch_us: of torch's kernel, and of its derivative, on the same operands.
    """

    node: str
    operator: str
    where: str
    program_us: float
    torch_us: float

    @property
    def by(self) -> str:
        """What runs it."""
        return "torch's kernel"

    @property
    def chosen_us(self) -> float:
        """Of what runs it."""
        return self.torch_us

    @property
    def lost_us(self) -> float:
        """What the program loses by not calling torch's kernel."""
        return self.program_us - self.torch_us


@dataclass(frozen=True, kw_only=True)
class OtherImplementation:
    """An operator that another implementation than its first one runs, because it was measured to be faster.

    Attributes:
        node: operator and name of the ONNX node.
        where: the module and the user's line that it came from.
        before, chosen: titles of the implementations, such as `aten:bmm` and `native:einsum`.
        program_us: of the step that computed it in the program without this choice.
        other_us: of the other implementation, compiled and run alone at the same sizes.
    """

    node: str
    where: str
    before: str
    chosen: str
    program_us: float
    other_us: float

    @property
    def operator(self) -> str:
        """As ONNX names it."""
        return self.node.partition(" ")[0]

    @property
    def name(self) -> str:
        """Of the ONNX node."""
        return self.node.partition(" ")[2]

    @property
    def by(self) -> str:
        """What runs it."""
        return self.chosen

    @property
    def chosen_us(self) -> float:
        """Of what runs it."""
        return self.other_us

    @property
    def lost_us(self) -> float:
        """What the program loses without this choice."""
        return self.program_us - self.other_us


@dataclass(frozen=True, kw_only=True)
class EagerComparison:
    """Milliseconds of a call, side by side.

    Attributes:
        program_ms, eager_ms: medians; 0 where a call took too long to be repeated.
        rounds: in which each of them ran.
        slower: whether the program lost by more than noise and the start of a call.
        disturbed: whether others took cores meanwhile.
        limit_s: after which no round began.
        tries: processes that have compared the two; the earlier ones were disturbed.
        kernels: operators of the program that torch's kernels run, because these are faster.
        implementations: operators that other implementations run for the same reason.
        without_ms: of the program without these choices; 0 where there is none.
    """

    program_ms: float
    eager_ms: float
    rounds: int
    slower: bool
    disturbed: bool = False
    limit_s: float = 0.0
    tries: int = 1
    kernels: tuple[TorchKernel, ...] = ()
    implementations: tuple[OtherImplementation, ...] = ()
    without_ms: float = 0.0

    @property
    def sentence(self) -> str:
        """What was seen."""
        times = f"eager PyTorch takes {self.eager_ms:.3g} ms here, the program {self.program_ms:.3g} ms"
        return f"{times}; {self.circumstances}"

    @property
    def circumstances(self) -> str:
        """How often it was measured, and whether others disturbed."""
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        return f"{rounds}, disturbed by other processes" if self.disturbed else rounds

    @property
    def is_doubtful(self) -> bool:
        """Whether a later process compares again, since others disturbed."""
        return self.disturbed and self.tries < _MOST_TRIES

    @property
    def choices(self) -> tuple[TorchKernel | OtherImplementation, ...]:
        """Operators that something else runs than without measuring."""
        return (*self.kernels, *self.implementations)

    @property
    def gain(self) -> str:
        """What the choices bring the program."""
        parts = [
            f"{who} {len(these)} operator{'' if len(these) == 1 else 's'}"
            for who, these in (
                ("torch's kernels run", self.kernels),
                ("other implementations run", self.implementations),
            )
            if these
        ]
        return (
            f"{' and '.join(parts)}, which was measured to be faster: a call takes "
            f"{self.program_ms:.3g} ms instead of {self.without_ms:.3g} ms; "
            f"eager PyTorch takes {self.eager_ms:.3g} ms ({self.circumstances})"
        )


def may_compare(making: Making) -> bool:
    """Whether programs of this kind are compared at all."""
    return config().measure != 0 and making.target == "cpu"


def remembered(making: Making, inputs: Sequence[torch.Tensor]) -> tuple[Making, EagerComparison | None]:
    """How the program is made that an earlier comparison has found to be fastest, and what it has seen.

    Args:
        making: of the program as it is without any choice.
        inputs: of a call.
    """
    known = stored_comparison(making, inputs)
    return (with_choices(making, known.choices) if known and known.choices else making), known


def stored_comparison(making: Making, inputs: Sequence[torch.Tensor]) -> EagerComparison | None:
    """What an earlier comparison has seen; see `remembered`."""
    known = None
    while may_compare(making) and (known is None or known.is_doubtful):
        tries = 1 if known is None else known.tries + 1
        folder = making.cache.find("decisions", _key(making, inputs, tries))
        if folder is None:
            break
        record = json.loads((folder / "eager.json").read_text())
        kernels = tuple(TorchKernel(**kernel) for kernel in record.pop("kernels"))
        others = tuple(OtherImplementation(**other) for other in record.pop("implementations"))
        known = EagerComparison(**record, kernels=kernels, implementations=others)
    return known


def remember(making: Making, inputs: Sequence[torch.Tensor], found: EagerComparison) -> None:
    """Store what was found for a program as it is without any choice, unless the disk is full."""

    def save(folder: Path) -> None:
        (folder / "eager.json").write_text(json.dumps(asdict(found), indent=1))

    try:
        making.cache.get("decisions", _key(making, inputs, found.tries), save)
    except OSError as error:  # a later process compares again
        log.info("the comparison with eager PyTorch is not stored: %s", error)


def with_choices(making: Making, choices: Collection[TorchKernel | OtherImplementation]) -> Making:
    """The same programs with these choices."""
    kernels = [choice.node for choice in choices if isinstance(choice, TorchKernel)]
    others = {c.node: c.chosen for c in choices if isinstance(c, OtherImplementation)}
    exported = with_torch_kernels(making.exported, kernels)
    exported = with_implementations(exported, others)
    return replace(making, exported=exported, made=[], record=None, known_key="", objects=None)


def size_class(inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Sizes for which one comparison holds where they are symbolic: 0, or up to the next power of two."""
    return tuple((size - 1).bit_length() if size else -1 for x in inputs for size in x.shape)


def _key(making: Making, inputs: Sequence[torch.Tensor], tries: int) -> str:
    symbolic = bool(making.exported.range_constraints)
    shapes = str(size_class(inputs) if symbolic else [tuple(x.shape) for x in inputs])
    again = () if tries == 1 else (f"try {tries}",)
    return digest(making.key(), "eager", fingerprint(), torch.__version__, shapes, *again)
