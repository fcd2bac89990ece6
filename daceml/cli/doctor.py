"""`daceml doctor`: whether this machine can compile and run, each line with what to do if not."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.text import Text

from daceml.cli import options
from daceml.cli.checks import CHECKS, Finding, examine

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Check versions, compiler, threads, cache and launcher; exit 1 if something is broken."""
    findings: list[Finding] = []
    console = Console(highlight=False, soft_wrap=True)  # leaves colours out where nobody sees them
    for title, check in CHECKS:
        finding = examine(title, check)
        findings.append(finding)
        if not as_json:
            _show(finding, console)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    raise typer.Exit(1 if any(finding.status == "fail" for finding in findings) else 0)


def _show(finding: Finding, console: Console) -> None:
    status = Text(f"{finding.status:<5}", style=_STYLES[finding.status])
    console.print(status + Text(f"{finding.title + ':':<16} {finding.found}", style=""))
    if finding.fix:
        console.print(Text(f"     fix: {finding.fix}"))
