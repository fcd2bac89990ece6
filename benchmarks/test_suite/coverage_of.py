"""Statements of daceml that tests run, in every process that they start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Children of tests are measured too: coverage starts in every Python process that inherits the environment.
_SETTINGS = """[run]
source_pkgs = daceml
parallel = true
patch =
    subprocess
    _exit
data_file = {data}
"""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What a run reached of the package.

    Attributes:
        statements: in all files.
        reached: statements that ran.
        untouched: files with statements of which none ran.
    """

    statements: int
    reached: int
    untouched: tuple[str, ...]


def settings(folder: Path) -> Path:
    """Write coverage's settings into a folder, where its data will lie, too."""
    file = folder / "coveragerc"
    file.write_text(_SETTINGS.format(data=folder / "data"), encoding="utf-8")
    return file


def collected(folder: Path, repository: Path, environment: Mapping[str, str]) -> Coverage:
    """The data of all processes of a run."""
    command = [sys.executable, "-m", "coverage"]
    rc = f"--rcfile={folder / 'coveragerc'}"
    subprocess.run([*command, "combine", rc, "--quiet"], cwd=repository, env=dict(environment), check=True)
    report = folder / "lines.json"
    subprocess.run(
        [*command, "json", rc, "--quiet", "-o", str(report)],
        cwd=repository,
        env=dict(environment),
        check=True,
    )
    return from_report(json.loads(report.read_text(encoding="utf-8")))


def from_report(report: Mapping[str, Any]) -> Coverage:
    """The sum of coverage's report in JSON."""
    files = {file: told["summary"] for file, told in sorted(report["files"].items())}
    return Coverage(
        statements=sum(summary["num_statements"] for summary in files.values()),
        reached=sum(summary["covered_lines"] for summary in files.values()),
        untouched=tuple(f for f, s in files.items() if s["num_statements"] and not s["covered_lines"]),
    )
