"""Questions in words: `--ddp 4x8 --link 100Gbps` as optimisations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from daceml.errors import MissingFactError, WhatIfError
from daceml.simulation.network.links import Link, link_of
from daceml.simulation.network.quantities import size_bytes
from daceml.simulation.network.topology import Topology
from daceml.simulation.whatif.gradients import HOW_TO_GIVE, Gradients
from daceml.simulation.whatif.optimization import Optimization
from daceml.simulation.whatif.registry import OPTIMIZATIONS, parse
from daceml.simulation.whatif.whatif_result import Refusal, none_answered

# The field that a word without a name stands for.
MAIN_FIELD: dict[str, str] = {
    "amp": "compute_speedup",
    "batch": "ratio",
    "checkpointing": "layers",
    "compile": "layers",
    "cuda-graphs": "phases",
    "data-loader": "workers",
    "device": "compute",
    "gradient-accumulation": "every",
    "low-precision": "dtype",
    "metaflow": "remove",
    "ddp": "topology",
    "blueconnect": "topology",
    "dgc": "topology",
    "parameter-server": "workers",
    "p3": "workers",
}


@dataclass(frozen=True, kw_only=True)
class Network:
    """What questions about several devices share.

    Attributes:
        link: between nodes, or between devices where there is one a node.
        inside: between devices of a node.
        gradients: None where nobody knows them.
        card_link: of the card that recorded the run, for devices of one node where nothing else is given.
    """

    link: str | None = None
    card_link: str | None = None
    inside: str | None = None
    gradients: Gradients | None = None


@dataclass
class Words:
    """An option and what was said with it: names and values, "" where a value has no name."""

    option: str
    figures: dict[str, str] = field(default_factory=dict[str, str])


def words_of(arguments: Sequence[str]) -> list[Words]:
    """Options with their figures, in their order.

    Args:
        arguments: "--amp", "--ddp", "8", "--batch", "ratio=4", ...
    Raises:
        WhatIfError: a figure stands before every option, or one is said twice.
    """
    found: list[Words] = []
    for argument in arguments:
        if argument.startswith("--"):
            option, _, value = argument[2:].partition("=")
            found.append(Words(option))
            if not value:
                continue
            argument = value
        if not found:
            raise WhatIfError(f"{argument!r} belongs to no question", fix="begin with one, such as --amp")
        name, separator, value = argument.partition("=")
        if not separator or "," in name:
            name, value = "", argument
        known = found[-1].figures
        if name in known:
            raise WhatIfError(f"--{found[-1].option} has {name or 'its figure'} twice", fix="give it once")
        known[name] = value
    return found


def gradients_of(text: str) -> Gradients:
    """From "102MB" in all, or by name in the order of registration: "fc.weight=8MB,fc.bias=4kB"."""
    if "=" not in text:
        return Gradients.of(text)
    pairs = (part.rpartition("=") for part in text.split(",") if part.strip())
    return Gradients.of({name.strip(): size_bytes(size.strip()) for name, _, size in pairs})


def optimization_of(words: Words, network: Network) -> Optimization:
    """The optimisation that an option and its figures mean.

    Raises:
        WhatIfError: there is no such option or figure, or one is missing.
    """
    figures = dict(words.figures)
    if "" in figures:
        main = MAIN_FIELD.get(words.option)
        if main is None and words.option in OPTIMIZATIONS:
            names = ", ".join(field.name for field in dataclasses.fields(OPTIMIZATIONS[words.option]))
            raise WhatIfError(
                f"--{words.option} takes no figure without a name, but has {figures['']!r}",
                fix=f"name it: {words.option} has {names}",
            )
        if main is not None:
            figures[main] = figures.pop("")
    return parse(words.option, figures, given=_of_network(words.option, figures, network))


def answerable(asked: Sequence[Words], network: Network) -> tuple[list[Optimization], list[Refusal]]:
    """The optimisations of several questions, and those questions that lack a fact.

    Raises:
        WhatIfError: a question that means nothing, or none of them has what it needs; the message says why of
            each.
    """
    found: list[Optimization] = []
    refused: list[Refusal] = []
    first: MissingFactError | None = None
    for words in asked:
        try:
            found.append(optimization_of(words, network))
        except MissingFactError as error:
            first = first or error
            refused.append(
                Refusal(title=f"--{words.option}", reason=f"{error.what}: {error.fix}", code=error.code)
            )
    if first is not None and not found:
        raise none_answered(refused, first)
    return found, refused


def _of_network(option: str, figures: dict[str, str], network: Network) -> Mapping[str, object]:
    """Fields whose values no single word can say; their words leave `figures`."""
    kind = OPTIMIZATIONS.get(option)
    fields = {} if kind is None else {field.name for field in dataclasses.fields(kind)}
    found: dict[str, object] = {}
    if "topology" in fields:
        found["topology"] = _topology(figures.pop("topology", None), option, network)
    if "gradients" in fields:
        told = figures.pop("gradients", None)
        found["gradients"] = network.gradients if told is None else gradients_of(told)
        if found["gradients"] is None:
            raise MissingFactError("the size of the gradients is not known", fix=HOW_TO_GIVE)
    if "link" in fields and "workers" in fields:
        found["link"] = _link(figures.pop("link", network.link or network.card_link), option)
    return found


def _topology(text: str | None, option: str, network: Network) -> Topology:
    if text is None:
        raise WhatIfError(
            f"--{option} does not say how many devices",
            fix=f"give --{option} 8, or nodes times devices of a node: --{option} 4x8",
        )
    link = network.link or network.inside or (None if "x" in text else network.card_link)
    if link is None:
        raise MissingFactError(
            "no interconnect of the devices is given",
            fix="give --link 100Gbps between nodes, --inside NVLink3 in them",
        )
    return Topology.of(text, link, inside=network.inside)


def _link(text: str | None, option: str) -> Link:
    if text is None:
        raise MissingFactError(f"--{option} needs a link", fix="give --link NVLink3, or --link 100Gbps")
    return link_of(text)
