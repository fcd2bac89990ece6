"""The first step: what the machine is, what it lacks, and whether the launcher can be built."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.gpu.first_run.rows import add_row
from benchmarks.gpu.first_run.step_arguments import parse

# of a kit
MANIFEST, ARCHIVE = "manifest.json", "cache.tar.gz"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments, "Say what the machine is, and build what every program needs.")
    common = {"step": options.step, "commit": options.commit, "emulated": options.emulated}
    add_row(options.results, {**common, **_identity(options)})
    built: dict[str, Any] = {"case": "launcher", "kind": "launcher", "outside": []}
    try:
        _build_launcher()
    except Exception as error:
        built["failure"] = f"{type(error).__name__}: {error}"
    add_row(options.results, {**common, **built})
    return 0


def _identity(options: argparse.Namespace) -> dict[str, Any]:
    """What the machine is, and what differs from the one that a kit was made for."""
    row: dict[str, Any] = {"case": "identity", "kind": "identity", "outside": []}
    row["machine"] = machine.description()
    try:
        from benchmarks.gpu import environment

        row["device"] = environment.description()
        if row["device"]["gpu"] is None and not options.emulated:
            row["outside"].append("torch sees no CUDA device")
        if options.kit is not None:
            manifest = json.loads((options.kit / MANIFEST).read_text(encoding="utf-8"))
            row["kit_differs"] = differences(manifest["versions"], versions())
    except Exception as error:
        row["failure"] = f"{type(error).__name__}: {error}"
    return row


def versions() -> dict[str, str | None]:
    """Everything that has to be the same where a program of a kit is to be found."""
    from benchmarks.gpu.environment import nvcc_release
    from daceml.compiler.keys.program_key import LIBRARIES, package_digest

    installed = {name: machine.installed_version(name) for name in LIBRARIES}
    return {**installed, "nvcc": nvcc_release(), "sources of daceml": package_digest()[:12]}


def differences(made: Mapping[str, str | None], here: Mapping[str, str | None]) -> list[str]:
    """Versions of a kit that the machine does not have: its programs are not found then."""
    return [f"{name} {made.get(name)}, here {now}" for name, now in here.items() if now != made.get(name)]


def _build_launcher() -> None:
    from daceml.config import config
    from daceml.runtime import launcher
    from daceml.toolchain.cache import Cache

    launcher.make_ready(Cache(config().cache_folder))
    launcher.native()


if __name__ == "__main__":
    sys.exit(main())
