"""The command line that every benchmark has, and the file it writes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import bars, machine

_MOVE_NO_NUMBER = ("json", "check", "journal", "page", "folder")


def parser(description: str) -> argparse.ArgumentParser:
    """A parser that knows --json, --quick and --check."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--json", type=Path, metavar="FILE", help="write machine, rows and bars to FILE")
    result.add_argument(
        "--quick", action="store_true", help="fewer rounds and smaller cases, for a first look"
    )
    result.add_argument("--check", action="store_true", help="print every bar; exit 1 if one is missed")
    return result


def finish(
    name: str, arguments: argparse.Namespace, rows: Sequence[dict[str, Any]], met: Sequence[bars.Bar]
) -> int:
    """Write the file if one was asked for, print the bars if asked to; return the exit code."""
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps(document(name, arguments, rows, met), indent=2) + "\n", encoding="utf-8"
        )
    return bars.report(met) if arguments.check else 0


def document(
    name: str, arguments: argparse.Namespace, rows: Sequence[dict[str, Any]], met: Sequence[bars.Bar]
) -> dict[str, Any]:
    """What benchmarks/results/README.md describes."""
    return {
        "format": 1,
        "benchmark": name,
        "machine": machine.description(),
        "arguments": {
            name: value
            for name, value in sorted(vars(arguments).items())
            if name not in _MOVE_NO_NUMBER and not isinstance(value, Path)  # files of this machine
        },
        "rows": list(rows),
        "bars": [bar.as_json() for bar in met],
    }
