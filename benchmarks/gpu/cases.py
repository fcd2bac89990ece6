"""The shards, as lists of cases: what is measured, of which network, how, and in which precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from benchmarks.blocks.definitions import BLOCKS
from benchmarks.gpu.case import Case
from benchmarks.models import MODELS
from benchmarks.peers import Mode

# Of about equal length: networks with many distinct convolutions take the longest to compile for the peers.
NETWORKS: dict[str, tuple[str, ...]] = {
    "A": ("mish", "mbconv", "mobilenetv2", "efficientnet_b0"),
    "B": ("resnet50", "wide_resnet50", "fcn8s", "yolov4"),
    "C": ("bert", "bert_autocast", "mlp_mixer", "wavenet", "dlrm"),
}
# First sizes of the inputs that are timed: enough to fill a device. Values are compared at the usual sizes.
BATCHES = {
    "mish": 64, "mbconv": 64, "mobilenetv2": 64, "efficientnet_b0": 64,
    "resnet50": 32, "wide_resnet50": 32, "fcn8s": 8, "yolov4": 8,
    "bert": 16, "bert_autocast": 16, "mlp_mixer": 64, "wavenet": 4, "dlrm": 2048,
}  # fmt: skip
AUTOTUNED = ("bert", "mlp_mixer", "efficientnet_b0")
CHECKS = ("environment", "doctor", "ceilings", "training", "draws", "graphs")
MODES: tuple[Mode, ...] = get_args(Mode)
OVERHEAD = "host overhead"
GUIDED = "mbconv, guided"


def precisions_of(network: str) -> tuple[str, ...]:
    """In which a network is compared with eager."""
    return ("fp32", "tf32", "bf16", "fp16") if MODELS[network].autocast is None else ("autocast",)


def _correctness(letter: str) -> Iterator[Case]:
    for name in NETWORKS[letter]:
        for precision in precisions_of(name):
            for mode in MODES:
                yield Case(kind="correctness", name=name, mode=mode, precision=precision)


def timed_precision(network: str) -> str:
    """In which a network is timed: what a user asks for who wants float32 to be fast."""
    return "tf32" if MODELS[network].autocast is None else "autocast"


def _times(letter: str) -> Iterator[Case]:
    names = [(name, timed_precision(name)) for name in NETWORKS[letter]]
    if "bert" in NETWORKS[letter]:
        names.append(("bert", "bf16"))
    for name, precision in names:
        for mode in MODES:
            yield Case(kind="times", name=name, mode=mode, precision=precision)
    if letter == "A":
        yield Case(kind="overhead", name=OVERHEAD, mode="inference")


def _blocks() -> Iterator[Case]:
    for name in BLOCKS:
        for mode in MODES:
            yield Case(kind="block", name=name, mode=mode)
    yield Case(kind="guided", name=GUIDED, mode="inference")


def cases_of(shard: str) -> list[Case]:
    """The cases of a shard, in the order in which they run.

    Raises:
        KeyError: there is no such shard.
    """
    kind, _, letter = shard.partition("-")
    match kind:
        case "doctor":
            return [Case(kind="check", name=name, precision="") for name in CHECKS]
        case "blocks":
            return list(_blocks())
        case "correctness" if letter in NETWORKS:
            return list(_correctness(letter))
        case "times" if letter in NETWORKS:
            return list(_times(letter))
        case "autotune":
            return [
                Case(kind="autotune", name=name, mode="inference", precision="bf16") for name in AUTOTUNED
            ]
        case _:
            raise KeyError(shard)


SHARDS = (
    "doctor",
    "blocks",
    *(f"correctness-{letter}" for letter in NETWORKS),
    *(f"times-{letter}" for letter in NETWORKS),
    "autotune",
)
