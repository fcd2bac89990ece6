"""The cells of each step: cases of the GPU suite, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from benchmarks.gpu.case import Case
from benchmarks.gpu.cases import OVERHEAD, precisions_of, timed_precision
from benchmarks.gpu.first_run.plan import STEPS
from benchmarks.peers import Mode

MODES: tuple[Mode, ...] = get_args(Mode)
# Blocks have no matrix multiplications, so that TF32 is float32 in them.
BLOCK_PRECISIONS = ("fp32", "bf16", "fp16")
# Blocks in the order of what their times say: elementwise, rows, whole arrays.
BLOCK_ORDER = ("mish", "layer_norm", "softmax", "batch_norm", "dropout_layer_norm", "bias_gelu", "silu")
# The steps whose cells are compiled ahead.
PREPARED = ("values", "blocks", "bert", "mbconv", "networks", "correctness")
# In the order of what a fault would cost; YOLOv4 and Wide ResNet-50 take longest to compile.
CORRECTNESS = ("bert", "mbconv", "mobilenetv2", "mlp_mixer", "resnet50", "dlrm", "wavenet")

CORRECTNESS_PRECISIONS = ("fp32", "bf16", "tf32", "fp16")
# Of a quick rehearsal, the network that compiles fastest, in one precision: step values has the others.
_QUICK_NETWORK, _QUICK_PRECISION = "mbconv", "fp32"


def cells_of(step: str, *, emulated: bool, quick: bool = False) -> list[Case]:
    """The cases of a step; one of each kind where it is to be quick.

    Raises:
        KeyError: the step has no cells.
    """
    if step == "prepare":
        names = [one.name for one in STEPS if one.name in PREPARED and not (emulated and one.until_time)]
        later = [case for one in names for case in cells_of(one, emulated=emulated, quick=quick)]
        return [replace(case, question="prepare") for case in later]
    cells = [replace(case, emulated=emulated, quick=quick) for case in _CELLS[step]()]
    if not quick:
        return cells
    if step == "correctness":
        return [case for case in cells if (case.name, case.precision) == (_QUICK_NETWORK, _QUICK_PRECISION)]
    return list({(case.kind, case.mode, case.precision): case for case in reversed(cells)}.values())[::-1]


def _smoke() -> Iterator[Case]:
    for name in ("mish", "linear_norm", "softmax", "mlp"):
        for mode in MODES:
            yield Case(kind="small", name=name, mode=mode)


def _calls() -> Iterator[Case]:
    for check in ("training", "draws", "graphs"):
        yield Case(kind="check", name=check, precision="")
    for precision in ("bf16", "fp32"):  # flash attention is for half types, the efficient one for float32
        for name in ("attention", "masked_attention", "convolution", "lookup"):
            for mode in MODES:
                yield Case(kind="small", name=name, mode=mode, precision=precision)


def _ceilings() -> Iterator[Case]:
    yield Case(kind="check", name="ceilings", precision="")


def _values() -> Iterator[Case]:
    for precision in BLOCK_PRECISIONS:
        for name in BLOCK_ORDER:
            for mode in MODES:
                yield Case(kind="values", name=name, mode=mode, precision=precision)


def _blocks() -> Iterator[Case]:
    for name in BLOCK_ORDER:
        for mode in MODES:
            yield Case(kind="replays", name=name, mode=mode)


def _bert() -> Iterator[Case]:
    for mode in MODES:
        yield Case(kind="times", name="bert", mode=mode, precision="bf16")


def _mbconv() -> Iterator[Case]:
    for mode in MODES:
        yield Case(kind="times", name="mbconv", mode=mode, precision=timed_precision("mbconv"))
    yield Case(kind="overhead", name=OVERHEAD, mode="inference")


def _networks() -> Iterator[Case]:
    yield Case(kind="times", name="resnet50", mode="inference", precision=timed_precision("resnet50"))
    yield Case(kind="times", name="dlrm", mode="training", precision=timed_precision("dlrm"))


def _correctness() -> Iterator[Case]:
    for precision in CORRECTNESS_PRECISIONS:
        for name in CORRECTNESS:
            for mode in MODES if precision in precisions_of(name) else ():
                yield Case(kind="correctness", name=name, mode=mode, precision=precision)


_CELLS = {
    "smoke": _smoke,
    "calls": _calls,
    "ceilings": _ceilings,
    "values": _values,
    "blocks": _blocks,
    "bert": _bert,
    "mbconv": _mbconv,
    "networks": _networks,
    "correctness": _correctness,
}
