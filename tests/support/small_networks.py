"""Small networks written by hand, and programs built from them."""

from __future__ import annotations

from pathlib import Path

import dace
import torch
from dace.subsets import Range

from daceml.codegen.build import build_program
from daceml.codegen.constants import save_constants
from daceml.codegen.planning.plan import make_plan
from daceml.compiler.stages.manifest_writer import make_manifest
from daceml.config import config
from daceml.onnx_ops.external import external_call
from daceml.onnx_ops.lowering import LoweringReport
from daceml.runtime.program import Program
from daceml.runtime.stored_program import StoredProgram
from daceml.sdfg.network import Network
from daceml.toolchain.cache import Cache


def elementwise(codes: list[str], shape: tuple[int, ...] = (8, 32), *, language: str = "Python") -> Network:
    """x0 -> x1 -> … by one map each; `_a` is read, `_out` written."""
    sdfg = dace.SDFG("network")
    state = sdfg.add_state()
    last = len(codes)
    for i in range(last + 1):
        sdfg.add_array(f"x{i}", list(shape), dace.float32, transient=0 < i < last)
    params = {f"i{d}": f"0:{n}" for d, n in enumerate(shape)}
    index = ", ".join(params)
    nodes = [state.add_access(f"x{i}") for i in range(last + 1)]
    for i, code in enumerate(codes):
        state.add_mapped_tasklet(
            f"step{i}",
            params,
            {"_a": dace.Memlet(f"x{i}[{index}]")},
            code,
            {"_out": dace.Memlet(f"x{i + 1}[{index}]")},
            language=dace.Language[language],
            external_edges=True,
            input_nodes={f"x{i}": nodes[i]},
            output_nodes={f"x{i + 1}": nodes[i + 1]},
        )
    return Network(sdfg=sdfg, inputs=("x0",), outputs=(f"x{last}",))


def whole(sdfg: dace.SDFG, array: str) -> dace.Memlet:
    """A memlet of all of an array."""
    return dace.Memlet(data=array, subset=Range([(0, n - 1, 1) for n in sdfg.arrays[array].shape]))


def build(
    network: Network, folder: Path, state: dict[str, torch.Tensor] | None = None, key: str = "test"
) -> Program:
    """Build a lowered network below `folder` and bind it; the cache of all tests has kernels and headers."""

    def write(place: Path) -> None:
        plan = make_plan(network, external_call)
        constants = save_constants(plan, place)
        build_program(plan, Cache(config().cache_folder), place)
        manifest = make_manifest(
            plan, LoweringReport(nodes=()), absorbed={}, constants=constants, fallbacks=()
        )
        manifest.save(place)

    return Program(StoredProgram(Cache(folder).get("programs", key, write)), state or {})
