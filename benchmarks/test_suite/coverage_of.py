"""Lines of daceml that tests run, in every process that they start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """Lines that ran, by file.

    Attributes:
        lines: file below the repository -> numbers of lines that ran.
    """

    lines: dict[str, frozenset[int]]

    @property
    def count(self) -> int:
        """Lines of all files."""
        return sum(len(lines) for lines in self.lines.values())

    def __or__(self, other: Coverage) -> Coverage:
        """Lines that ran in either."""
        files = self.lines.keys() | other.lines.keys()
        nothing: frozenset[int] = frozenset()
        return Coverage(
            lines={f: self.lines.get(f, nothing) | other.lines.get(f, nothing) for f in sorted(files)}
        )

    def lost(self, other: Coverage) -> list[str]:
        """Files of which this run has lines, and the other none."""
        return sorted(file for file, lines in self.lines.items() if lines and not other.lines.get(file))


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


def from_report(report: Mapping[str, dict[str, dict[str, list[int]]]]) -> Coverage:
    """Lines of coverage's report in JSON."""
    return Coverage(
        lines={file: frozenset(said["executed_lines"]) for file, said in sorted(report["files"].items())}
    )
