"""Every network that a benchmark can be asked for by a word."""

from __future__ import annotations

from benchmarks.models import MODELS, bert_encoder
from benchmarks.models.further import FURTHER
from benchmarks.models.reduced import REDUCED
from benchmarks.models.resnet50 import RESNET152
from benchmarks.models.spec import ModelSpec


def spec_named(name: str) -> ModelSpec:
    """A registered or further network, `reduced:NETWORK` for its small replica, `resnet152`, or
    `bert_encoder:LAYERS`.

    Raises:
        KeyError: there is no such network.
    """
    kind, _, rest = name.partition(":")
    match kind:
        case "bert_encoder":
            return bert_encoder(int(rest))
        case "reduced":
            return REDUCED[rest]
        case "resnet152":
            return RESNET152
        case _:
            return FURTHER[name] if name in FURTHER else MODELS[name]
