"""Programs of one operator, each node with the implementation that is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx.parser
import torch

from daceml.compiler.keys.program_key import package_digest
from daceml.compiler.stages.lowered_network import Optimised as Lowered
from daceml.compiler.stages.program_folder import build
from daceml.compiler.stages.stage_timer import Stages
from daceml.config import config
from daceml.frontend.onnx_import.importer import import_model
from daceml.onnx_ops.lowering import LoweringReport, lower
from daceml.onnx_ops.registry import KINDS, Kind
from daceml.runtime.program import Program
from daceml.runtime.stored_program import StoredProgram
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import toolchain
from daceml.transformations.hardware.cpu_schedule import schedule_maps

# every implementation, and those that need no library
BOTH: tuple[tuple[Kind, ...], ...] = (KINDS, ("native",))


def parse(text: str) -> onnx.ModelProto:
    """A model of opset 23 from the body of a graph in ONNX's text form."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23, "daceml" : 1]> {text}')


def lowered(text: str, allowed: tuple[Kind, ...] = KINDS) -> tuple[LoweringReport, Lowered]:
    """The network of a graph after lowering."""
    network = import_model(parse(text), name="network")
    report = lower(network, allowed=allowed)
    schedule_maps(network)
    return report, Lowered(network=network, lowering=report, unfused={})


def program(text: str, allowed: tuple[Kind, ...] = KINDS) -> Program:
    """The compiled graph."""
    cache = Cache(config().cache_folder)
    _, network = lowered(text, allowed)

    def write(folder: Path) -> None:
        build(network, cache, folder, Stages())

    key = digest("test", text, *allowed, toolchain().fingerprint, package_digest())
    return Program(StoredProgram(cache.get("programs", key, write)), {})


def chosen(text: str) -> str:
    """Title of the implementation of the last node."""
    return lowered(text)[0].nodes[-1].chosen


def chosen_of_all(text: str) -> list[str]:
    """Titles of the implementations of all nodes."""
    return [node.chosen for node in lowered(text)[0].nodes]


def joined(*texts: str) -> str:
    """One graph of several of one node each: names are single capitals, and get the number of their graph."""
    parts = [
        re.fullmatch(r"g \((.*?)\) => \((.*?)\) \{(.*)\}", re.sub(r"\b([A-Z])\b", rf"\g<1>{n}", text))
        for n, text in enumerate(texts)
    ]
    inputs, outputs, nodes = zip(*(part.groups() for part in parts if part), strict=True)
    return f"g ({', '.join(inputs)}) => ({', '.join(outputs)}) {{{''.join(nodes)}}}"


def refusal(text: str, title: str) -> str:
    """Why an implementation refused the last node."""
    return dict(lowered(text)[0].nodes[-1].refusals)[title]


def run(text: str, *inputs: torch.Tensor, allowed: tuple[Kind, ...] = KINDS) -> torch.Tensor:
    """The only output."""
    (output,) = program(text, allowed)(inputs)
    return output
