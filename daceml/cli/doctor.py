"""`daceml doctor`: whether this machine can compile and run, each line with what to do if not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from daceml.cli import options
from daceml.cli.checks import CHECKS, examine
from daceml.cli.finding import Finding
from daceml.cli.measuring import measured_devices
from daceml.cli.work import working
from daceml.devices.measured import MeasuredDevice
from daceml.report.measured_device import measured_device_lines
from daceml.runtime.progress import publish

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}
_Measure = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="also measure the rates of the CPU and the devices (some seconds each)",
    ),
]


def doctor(measure: _Measure = False, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Check versions, compiler, threads, cache and launcher; exit 1 if something is broken.

    --measure adds the rates of copies, the cost of a call and of a launch, and the occupancy. CUDA devices
    are measured through CuPy. With --json it prints {findings: …, devices: …}.
    """
    findings: list[Finding] = []
    devices: list[MeasuredDevice] = []
    console = Console(highlight=False, soft_wrap=True)  # no colors unless a terminal shows them

    def add(finding: Finding) -> None:
        findings.append(finding)
        if not as_json:
            _show(finding, console)

    for title, check in CHECKS:
        add(examine(title, check))
    for found in _measured() if measure else ():
        if isinstance(found, Finding):
            add(found)
            continue
        devices.append(found)
        if not as_json:
            console.print(Text("\n".join(measured_device_lines(found))))
    if as_json:
        rows = [asdict(finding) for finding in findings]
        measured = {"findings": rows, "devices": [device.as_dict() for device in devices]}
        typer.echo(json.dumps(measured if measure else rows, indent=2))
    raise typer.Exit(1 if any(finding.status == "fail" for finding in findings) else 0)


def _measured() -> list[MeasuredDevice | Finding]:
    with working(quiet=False):
        publish("measuring")
        return list(measured_devices())


def _show(finding: Finding, console: Console) -> None:
    status = Text(f"{finding.status:<5}", style=_STYLES[finding.status])
    console.print(status + Text(f"{finding.title + ':':<16} {finding.found}", style=""))
    if finding.fix:
        console.print(Text(f"     fix: {finding.fix}"))
