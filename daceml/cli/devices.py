"""`daceml devices`: known figures of devices, with their sources."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from daceml.cli import options

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...",
        help="name or alias of a device, .toml file, or JSON of `daceml doctor --measure`",
        show_default=False,
    ),
]
Sources = Annotated[bool, typer.Option("--sources", help="every figure of every device, with its source")]


def devices(
    names: Names = None,
    sources: Sources = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List devices with peaks and measured rates; with names, every figure of each with its source."""
    from daceml.devices.catalogue import catalogue, find_devices
    from daceml.report.device_text import device_lines, device_table

    chosen = [one for name in names or () for one in find_devices(name)] or list(catalogue())
    if as_json:
        typer.echo(json.dumps([device.as_dict() for device in chosen], indent=2))
    elif names or sources:
        typer.echo("\n\n".join("\n".join(device_lines(device)) for device in chosen))
    else:
        typer.echo(device_table(chosen))
