"""What a stored program says about itself: enough to load it without ONNX or DaCe, and to explain it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from daceml.runtime.records.kernel_facts import KernelFacts
from daceml.runtime.records.levels import LevelRecord, save_levels
from daceml.sdfg.origin import NodeOrigin

FORMAT = 1

# Costs of programs with symbolic sizes are stated at this value of every symbol
EXAMPLE_SIZE = 16

# Why a program gave up that another one takes the place of
OUTSIDE_LIMITS = "a magnitude is outside the limits of this program"
# Why a program gave up that makes its prepared arrays again
OTHER_WEIGHTS = "weights are others than those of which arrays were prepared"


@dataclass(frozen=True, kw_only=True)
class TensorRecord:
    """A tensor at the program's boundary.

    Attributes:
        name: as the user knows it.
        dtype: torch's number of the element type.
        shape: ints, or strings over the program's symbols.
    """

    name: str
    dtype: int
    shape: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class ConstantRecord:
    """A constant in `constants.bin`."""

    dtype: int
    shape: tuple[int, ...]
    offset_bytes: int


@dataclass(frozen=True, kw_only=True)
class PreparedRecord:
    """An array that is made when a program is bound: a `function` of `daceml.runtime.weight_preparation`.

    Attributes:
        keys: what it is made of: keys of the state_dict, numbers of records before this one, or None.
        read: whether the program reads it; else only other records do.
    """

    function: str
    keys: tuple[str | int | None, ...]
    numbers: tuple[tuple[int, ...], ...] = ()
    reals: tuple[float, ...] = ()
    read: bool = True


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """How the kernel of a step runs on a device.

    Attributes:
        function: by which profilers know it, in the namespace `daceml::kernel`.
        grid: blocks along x, y, z: numbers, or expressions over the program's symbols.
        block: threads of each block along x, y, z.
        blocks, threads: of all dimensions, at the sizes of the example inputs.
        shared_bytes: of each block, beside what the kernel itself declares.
        architecture: that it was compiled for: 90 for compute capability 9.0; None in emulation.
        facts: what the assembler says of it; None in emulation.
        goes_round: whether grid and blocks are what a launch has at most: a small device gets fewer.
    """

    function: str
    grid: tuple[int | str, ...]
    block: tuple[int | str, ...]
    blocks: int
    threads: int
    shared_bytes: int = 0
    architecture: int | None = None
    facts: KernelFacts | None = None
    goes_round: bool = False

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> LaunchRecord:
        facts = record.pop("facts", None)
        return cls(**_with_tuples(record), facts=None if facts is None else KernelFacts(**facts))


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step as `explain` shows it; costs at the sizes of the example inputs.

    Attributes:
        kind: kernel, aten, torch (an operator called by name), onnxruntime, copy, check or collective.
        kernel: the kernel's name; empty for other kinds.
        refusals: implementations that ranked higher and why they refused, one sentence each.
        nodes: what it computes, also where fusion has made one step of several; empty for what came from no
            node, and in programs that were compiled before this was recorded.
        launch: of a kernel for a device; None for other steps, and in programs that were compiled before.
    """

    kind: str
    label: str
    kernel: str = ""
    module_path: str = ""
    source: str = ""
    implementation: str = ""
    refusals: tuple[str, ...] = ()
    unique_bytes: int = 0
    total_bytes: int = 0
    flops: int = 0
    special_functions: int = 0
    nodes: tuple[NodeOrigin, ...] = ()
    launch: LaunchRecord | None = None

    @property
    def title(self) -> str:
        """Its operators: "Conv + Relu" of a call, the label of a kernel, which names them."""
        operators = dict.fromkeys(node.operator for node in self.nodes)
        return self.label if self.kind == "kernel" else " + ".join(operators) or self.label

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> StepRecord:
        """Fields that a program was compiled without have their defaults."""
        nodes, launch = record.pop("nodes", ()), record.pop("launch", None)
        return cls(
            **_with_tuples(record),
            nodes=tuple(NodeOrigin(**node) for node in nodes),
            launch=None if launch is None else LaunchRecord.from_json(launch),
        )


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything about a program but its code.

    Attributes:
        weights: state_dict keys in the order of `daceml::bind`; constants follow them, then
            what is prepared.
        prepared: what is made of weights when the program is bound.
        mutated: state_dict keys of the buffers that a call writes.
        symbols: names of symbolic sizes.
        workspace_bytes: at the example inputs.
        unfused: number and cost of the generated kernels before any fusion, one operator at a time.
        stages_s: seconds that each stage of the compilation took.
        fallbacks: steps that ONNX Runtime executes; `fallback_<step>.onnx` holds the node.
        applied: transformation -> how often it was applied.
        levels: what each level did; saved beside the manifest, and left out by `load` (see `load_levels`).
    """

    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    weights: tuple[str, ...]
    constants: tuple[ConstantRecord, ...]
    mutated: tuple[str, ...]
    symbols: tuple[str, ...]
    steps: tuple[StepRecord, ...]
    workspace_bytes: int
    kernels: int
    fallbacks: tuple[int, ...] = ()
    prepared: tuple[PreparedRecord, ...] = ()
    unfused: dict[str, int] = field(default_factory=dict[str, int])
    applied: dict[str, int] = field(default_factory=dict[str, int])
    refused: tuple[str, ...] = ()
    stages_s: dict[str, float] = field(default_factory=dict[str, float])
    levels: tuple[LevelRecord, ...] = ()

    def save(self, folder: Path) -> None:
        """Write `manifest.json` and `levels.json`."""
        record = asdict(replace(self, levels=()))
        del record["levels"]
        (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, **record}, indent=1))
        save_levels(self.levels, folder)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read `manifest.json`."""
        record: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
        record.pop("format")
        for name, kind in (
            ("inputs", TensorRecord),
            ("outputs", TensorRecord),
            ("constants", ConstantRecord),
            ("prepared", PreparedRecord),
        ):
            record[name] = tuple(kind(**_with_tuples(row)) for row in record[name])
        record["steps"] = tuple(map(StepRecord.from_json, record["steps"]))
        return cls(**_with_tuples(record))


def _with_tuples(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where the records have tuples."""
    return {k: tuple(cast("list[Any]", v)) if isinstance(v, list) else v for k, v in record.items()}
