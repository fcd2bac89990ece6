"""`daceml compile`: compile a model ahead of time into the cache, and write its ONNX model and SDFG."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daceml.cli import options
from daceml.cli.device_kernels import (
    compile_for_device,
    device_kernels_text,
    refuse_beside_kernels,
    resolve_call,
)
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import make_inputs, parse_dims
from daceml.cli.model_reference import resolve
from daceml.cli.output_files import check_targets, written_aside
from daceml.cli.saved_model import save_onnx, save_sdfg
from daceml.cli.search import searching
from daceml.cli.work import working
from daceml.errors import ConfigurationError, ModelReferenceError
from daceml.text_tables import wrapped

if TYPE_CHECKING:
    import dace
    import onnx
    from torch import nn

    from daceml.module.module import DaceModule
    from daceml.report.explanation.explanation import Explanation
    from daceml.runtime.program import Program
    from daceml.runtime.records.manifest import StepRecord

_STDOUT = Path("-")


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    """What a compilation made; the ONNX model and the SDFG are made when asked for."""

    program: Program
    stages_s: dict[str, float]
    explanation: Explanation
    holder: Any

    @property
    def onnx_model(self) -> onnx.ModelProto:
        return self.holder.onnx_model if hasattr(self.holder, "onnx_model") else self.holder.model

    @property
    def sdfg(self) -> dace.SDFG:
        return self.holder.network.sdfg if hasattr(self.holder, "network") else self.holder.sdfg


def compile_model(
    model: options.Model,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="NAME=SIZE",
            help="fixed size of a named dimension of a .onnx file; the others stay symbolic",
        ),
    ] = None,
    train: options.Train = False,
    dynamic: Annotated[
        bool,
        typer.Option("--dynamic", help="symbolic sizes wherever possible: one program for all sizes"),
    ] = False,
    search: options.Search = False,
    onnx_file: Annotated[
        Path | None,
        typer.Option(
            "--onnx", metavar="FILE", help="file for the ONNX model; above 2 GB its data goes into FILE.data"
        ),
    ] = None,
    sdfg_file: Annotated[
        Path | None,
        typer.Option(
            "--sdfg", metavar="FILE", help="file for the final SDFG (.sdfg, or .sdfgz for a compressed one)"
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="file for the result as JSON; - prints it"),
    ] = None,
    device_kernels: Annotated[
        Path | None,
        typer.Option(
            "--device-kernels",
            metavar="FOLDER",
            help="cache folder for the kernels of a CUDA device of another machine",
        ),
    ] = None,
    architecture: Annotated[
        int | None,
        typer.Option("--arch", metavar="N", help="compute capability of that device times 10: 90 for 9.0"),
    ] = None,
    backward: Annotated[
        bool, typer.Option("--backward", help="kernels of the backward pass, too (with --device-kernels)")
    ] = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Compile a model ahead of time into the cache, and print what was built.

    MODEL names a module class without required arguments, an instance, or a function without arguments that
    returns one. --device-kernels compiles only the kernels for a CUDA device; a process with
    DACEML_CACHE=FOLDER on the machine with the device finds them there.
    docs/command_line.md describes --input and --inputs.
    """
    if device_kernels is not None:
        refuse_beside_kernels(
            {"--dynamic": dynamic, "--search": search, "--onnx": onnx_file, "--sdfg": sdfg_file}
        )
        with working(quiet=quiet, imports_torch=True):
            call = resolve_call(model, inputs, inputs_file, dims, train=train)
            made = compile_for_device(call, device_kernels, architecture=architecture, backward=backward)
        typer.echo(json.dumps(made, indent=2) if json_file == _STDOUT else device_kernels_text(made))
        return
    if architecture is not None or backward:
        raise ConfigurationError(
            "--arch and --backward need --device-kernels",
            why="without it, a program for this processor's inference is compiled",
            fix="add --device-kernels FOLDER, or leave them out",
        )
    printed = json_file == _STDOUT
    targets = (("--onnx", onnx_file), ("--sdfg", sdfg_file), ("--json", None if printed else json_file))
    check_targets(targets)
    with working(quiet=quiet, imports_torch=True):
        compiled = _compile(model, inputs, inputs_file, dims, train=train, dynamic=dynamic, search=search)
        if onnx_file is not None:
            with written_aside("--onnx", onnx_file) as path:
                save_onnx(compiled.onnx_model, path)
        if sdfg_file is not None:
            with written_aside("--sdfg", sdfg_file) as path:
                save_sdfg(compiled.sdfg, path)
        record = _record(compiled, {option: str(path) for option, path in targets if path is not None})
        text = json.dumps(record, indent=2)
        if json_file is not None and not printed:
            with written_aside("--json", json_file) as path:
                path.write_text(text + "\n", encoding="utf-8")
    typer.echo(text if printed else _report(record))


def _compile(
    reference: str,
    inputs: list[str] | None,
    inputs_file: Path | None,
    dims: list[str] | None,
    *,
    train: bool,
    dynamic: bool,
    search: bool,
) -> _Compiled:
    import torch

    from daceml.module.onnx_model import ONNXModel
    from daceml.report.explanation.explanation import explanation_of, explanation_of_model

    model: Any = resolve(reference, train=train, dims=parse_dims(dims or ()))
    if search:
        model = searching(model)
    with torch.no_grad():
        if isinstance(model, ONNXModel):
            if dynamic or inputs or inputs_file is not None:
                raise ModelReferenceError(
                    f"{model.name} is compiled without --input, --inputs and --dynamic",
                    why="an ONNX file says itself which inputs it has and which dimensions are symbolic",
                    fix="leave them out; --dim NAME=SIZE fixes a symbolic dimension",
                )
            said = explanation_of_model(model)
            return _Compiled(program=model.program, stages_s=model.stages_s, explanation=said, holder=model)
        call = make_inputs(model, inputs, dims, inputs_file)
        compiled = _compiled(model, dynamic=dynamic)
        with blamed_on_inputs(model, call):
            variant, _ = compiled.session.variant(call.args, call.kwargs)
        said = explanation_of(compiled, variant)
        return _Compiled(program=variant.program, stages_s=variant.stages_s, explanation=said, holder=variant)


def _compiled(module: nn.Module, *, dynamic: bool) -> DaceModule:
    from daceml.module.module import DaceModule, compile_module

    chosen: dict[str, Any] = {"dynamic": True} if dynamic else {}
    if isinstance(module, DaceModule):
        chosen = {**module.session.options, **chosen}
    compiled = compile_module(module, **{**chosen, "backward": False, "fullgraph": True})
    assert isinstance(compiled, DaceModule)
    return compiled


def _record(compiled: _Compiled, files: dict[str, str]) -> dict[str, Any]:
    said, manifest, folder = compiled.explanation, compiled.program.manifest, compiled.program.stored.folder
    return {
        "model": said.name,
        "from_cache": said.from_cache,
        "program": str(folder),
        "size_bytes": sum(file.stat().st_size for file in folder.iterdir()),
        "inputs": [{"name": t.name, "shape": list(t.shape)} for t in manifest.inputs],
        "outputs": [{"name": t.name, "shape": list(t.shape)} for t in manifest.outputs],
        "symbols": list(manifest.symbols),
        "counts": said.counts,
        "bytes": said.bytes,
        "eager": said.eager,
        "workspace_bytes": said.workspace_bytes,
        "stages_s": compiled.stages_s,
        "compile_seconds": said.compile_seconds,
        **{kind: [_place(s) for s in said.steps if s.kind == kind] for kind in ("torch", "onnxruntime")},
        "files": {option.removeprefix("--"): path for option, path in files.items()},
    }


def _place(step: StepRecord) -> dict[str, Any]:
    refusals = list(step.refusals)
    return {"label": step.label, "module_path": step.module_path, "source": step.source, "refusals": refusals}


def _report(record: dict[str, Any]) -> str:
    counts = record["counts"]
    moved, apart = (_mb(record[name]["unique"]) for name in ("bytes", "eager"))
    seconds = ", ".join(f"{name} {s:.2f}" for name, s in record["stages_s"].items() if s >= 0.005)
    how = "loaded from the cache" if record["from_cache"] else "compiled"
    shapes = [f"{tensor['name']} ({', '.join(map(str, tensor['shape']))})" for tensor in record["inputs"]]
    lines = [
        f"{record['model']}: {how} in {sum(record['stages_s'].values()):.2f} s",
        *_wrapped("inputs", ", ".join(shapes) or "none"),
        *_wrapped("stages, s", seconds or "less than 0.01"),
        f"  kernels:     {counts['distinct_kernels']}, called {counts['kernels']} times",
        f"  aten:        {counts['aten']} calls",
        *(
            line
            for kind, noun in (("torch", "operators"), ("onnxruntime", "nodes"))
            for line in (
                f"  {f'{kind}:':<12} {counts[kind]} {noun}",
                *(
                    f"    {node['label']} ({', '.join(filter(None, (node['module_path'], node['source'])))})"
                    for node in record[kind]
                ),
            )
        ),
        f"  moves:       {moved} MB a call, {apart} MB one operator at a time",
        f"  workspace:   {_mb(record['workspace_bytes'])} MB",
        *_wrapped("program", f"{record['program']} ({_mb(record['size_bytes'])} MB)"),
        *(f"  {option + ':':<12} {path}" for option, path in record["files"].items()),
    ]
    return "\n".join(lines)


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.3g}" if size_bytes < 1e9 else f"{size_bytes / 1e6:,.0f}"


def _wrapped(title: str, text: str) -> list[str]:
    return wrapped(f"{title + ':':<13}{text}", indent=2, hanging=13)
