"""How long compiling takes, from nothing and with a filled cache: python -m benchmarks.startup --check.

With --split, where the time of a cold start goes, operator by operator of the ONNX model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar

ENCODER_LIMIT = 1.5  # a deep encoder over one layer: equal layers share kernels
WARM_LIMIT = 2.0  # a warm start over torch.export alone
LOWERING_LIMIT_MS = 20.0  # for each operator, from the ONNX model to maps
SPLIT_MODELS = ("resnet50", "bert")
ROOT = Path(__file__).resolve().parent.parent

# (how, model, cache directory) -> what benchmarks.startup_process printed
StartFunction = Callable[[str, str, Path], dict[str, Any]]


def start_in_process(how: str, model: str, cache: Path) -> dict[str, Any]:
    """Start once in a new process whose caches lie in `cache`.

    Raises:
        RuntimeError: the process failed; the message holds the end of what it said.
    """
    environment = {
        **os.environ,
        "DACEML_CACHE": str(cache / "daceml"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }
    line = [sys.executable, "-m", "benchmarks.startup_process", how, model]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(line[2:])} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def cold_encoders(start: StartFunction, depths: Sequence[int]) -> list[dict[str, Any]]:
    """Compile encoders of several depths, each with an empty cache."""
    rows: list[dict[str, Any]] = []
    for layers in depths:
        with tempfile.TemporaryDirectory() as cache:
            seen = start("daceml", f"bert_encoder:{layers}", Path(cache))
        rows.append({"case": "cold encoder", "layers": layers, **seen})
    return rows


def warm_start(start: StartFunction, model: str, repeats: int) -> dict[str, Any]:
    """Fill a cache, then time new processes that find it, each beside torch.export alone in another one."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        cold = start("daceml", model, cache)
        pairs = [(start("daceml", model, cache), start("export", model, cache)) for _ in range(repeats)]
    return {
        "case": "warm start",
        "model": model,
        "cold_s": cold["seconds"],
        "cold_stages_s": cold.get("stages_s", {}),
        "warm_s": median(ours["seconds"] for ours, _ in pairs),
        "warm_stages_s": pairs[-1][0].get("stages_s", {}),
        "export_s": median(export["seconds"] for _, export in pairs),
        "over_export": median(ours["seconds"] / export["seconds"] for ours, export in pairs),
        "repeats": repeats,
    }


def inductor_start(start: StartFunction, model: str) -> dict[str, Any]:
    """torch.compile beside it: the first call with an empty cache, and again with the filled one."""
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (start("inductor", model, Path(folder)) for _ in range(2))
    return {"case": "torch.compile", "model": model, "cold_s": cold["seconds"], "warm_s": warm["seconds"]}


def encoder_bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """The deepest encoder against one layer, in seconds; and against the second depth, in kernels.

    Seconds are those of the first call less those of a later one: computing is not compiling.
    """
    by_layers = {row["layers"]: row for row in rows}
    one, two, *_, deep = sorted(by_layers)
    kernels, kernels_deep = by_layers[two].get("kernels"), by_layers[deep].get("kernels")
    return [
        Bar(
            name=f"cold compile of {deep} layers over {one}",
            figure=by_layers[deep]["compile_seconds"] / by_layers[one]["compile_seconds"],
            limit=ENCODER_LIMIT,
            note=f"{by_layers[deep]['compile_seconds']:.1f} s over {by_layers[one]['compile_seconds']:.1f} s",
        ),
        Bar(
            name=f"kernels of {deep} layers beyond those of {two}",
            figure=None if kernels is None or kernels_deep is None else abs(kernels_deep - kernels),
            limit=0,
            note=f"{kernels_deep} and {kernels}",
        ),
    ]


def warm_bar(row: dict[str, Any]) -> Bar:
    return Bar(
        name=f"warm start of {row['model']} over torch.export alone",
        figure=row["over_export"],
        limit=WARM_LIMIT,
        note=f"{row['warm_s']:.2f} s over {row['export_s']:.2f} s, {row['repeats']} processes each",
    )


def split_starts(start: StartFunction, models: Sequence[str]) -> list[dict[str, Any]]:
    """Cold starts of models, each with an empty cache."""
    rows: list[dict[str, Any]] = []
    for model in models:
        with tempfile.TemporaryDirectory() as cache:
            seen = start("daceml", model, Path(cache))
        stage_s = seen.get("stages_s", {})
        lowering_s = stage_s.get("sdfg", 0.0) + stage_s.get("lower", 0.0)
        each_ms = 1e3 * lowering_s / seen["operators"] if seen.get("operators") else None
        rows.append({"case": "split", "model": model, "lowering_ms": each_ms, **seen})
    return rows


def lowering_bar(row: dict[str, Any]) -> Bar:
    return Bar(
        name=f"lowering an operator of {row['model']}",
        figure=row["lowering_ms"],
        limit=LOWERING_LIMIT_MS,
        unit="ms",
        note=f"average over {row.get('operators')} operators of the ONNX model",
    )


def stages(seconds: dict[str, float]) -> str:
    """Stages by name with their seconds, longest first."""
    return ", ".join(
        f"{name} {value:.2f}" for name, value in sorted(seconds.items(), key=lambda item: -item[1])
    )


def main(arguments: Sequence[str] | None = None, *, start: StartFunction = start_in_process) -> int:
    parser = command.parser("Measure cold compiles and warm starts, each in a new process.")
    parser.add_argument("--split", action="store_true", help="only the stages of cold starts, by operator")
    options = parser.parse_args(arguments)
    if options.split:
        rows = split_starts(start, SPLIT_MODELS)
        for row in rows:
            print(
                f"{row['model']} cold: {row['seconds']:.1f} s;", stages(row.get("stages_s", {})), flush=True
            )
        return command.finish("startup", options, rows, [lowering_bar(row) for row in rows])
    rows = cold_encoders(start, (1, 2, 6) if options.quick else (1, 2, 24))
    for row in rows:
        print(
            f"cold, {row['layers']:>2} layers: {row['seconds']:.1f} s, {row.get('kernels')} kernels;",
            stages(row.get("stages_s", {})),
            flush=True,
        )
    bars = encoder_bars(rows)
    rows.append(warm_start(start, "resnet50", 1 if options.quick else 3))
    bars.append(warm_bar(rows[-1]))
    print(f"resnet50 cold {rows[-1]['cold_s']:.1f} s;", stages(rows[-1]["cold_stages_s"]))
    print(
        f"resnet50 warm {rows[-1]['warm_s']:.2f} s, torch.export {rows[-1]['export_s']:.2f} s;",
        stages(rows[-1]["warm_stages_s"]),
        flush=True,
    )
    if not options.quick:
        rows.append(inductor_start(start, "resnet50"))
        print(f"torch.compile cold {rows[-1]['cold_s']:.1f} s, warm {rows[-1]['warm_s']:.2f} s")
    return command.finish("startup", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
