"""The first step: what the machine is, what it lacks, and whether the launcher can be built."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import machine
from benchmarks.gpu.first_run.rows import add_row
from benchmarks.gpu.first_run.step_arguments import parse

MANIFEST = "manifest.json"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments, "Say what the machine is, and build what every program needs.")
    row: dict[str, Any] = {"step": options.step, "case": "identity", "kind": "identity", "outside": []}
    row |= {"commit": options.commit, "emulated": options.emulated, "machine": machine.description()}
    if options.kit is not None:
        row["kit_differs"] = differences(json.loads((options.kit / MANIFEST).read_text(encoding="utf-8")))
    try:
        from benchmarks.gpu import environment

        row["device"] = environment.description()
        if row["device"]["gpu"] is None and not options.emulated:
            row["outside"].append("torch sees no CUDA device")
        _build_launcher()
    except Exception as error:
        row["failure"] = f"{type(error).__name__}: {error}"
    add_row(options.results, row)
    return 0


def differences(manifest: dict[str, Any]) -> list[str]:
    """Packages of which a kit was made with another version: its programs are not found then."""
    made: dict[str, str | None] = manifest["versions"]
    here = {name: machine.installed_version(name) for name in made if name not in ("python", "nvcc")}
    return [f"{name} {made[name]}, here {version}" for name, version in here.items() if version != made[name]]


def _build_launcher() -> None:
    from daceml.config import config
    from daceml.runtime import launcher
    from daceml.runtime.cache import Cache

    launcher.make_ready(Cache(config().cache_folder))
    launcher.native()


if __name__ == "__main__":
    sys.exit(main())
