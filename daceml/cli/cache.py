"""`daceml cache`: what is in the cache of compiled things, and removing it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from daceml.cli import options

cache = typer.Typer(help="The cache of compiled programs and kernels.", no_args_is_help=True)

_KINDS = ("programs", "kernels", "headers", "launchers", "decisions", "machines")


@dataclass(frozen=True, kw_only=True)
class CacheKind:
    """Entries of one kind."""

    kind: str
    entries: int
    size_bytes: int
    newest: str


@cache.command("ls")
def list_entries(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Say what the cache holds."""
    from daceml.config import config

    folder = config().cache_folder
    kinds = [_kind(folder, kind) for kind in _KINDS]
    total_bytes = sum(kind.size_bytes for kind in kinds)
    if as_json:
        rows = [asdict(kind) for kind in kinds]
        document = {"folder": str(folder), "size_bytes": total_bytes, "kinds": rows}
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(str(folder))
    for kind in kinds:
        newest = f", newest {kind.newest}" if kind.newest else ""
        typer.echo(f"  {kind.kind:<10}{kind.entries:>6}{kind.size_bytes / 1e6:>10.1f} MB{newest}")
    typer.echo(f"  {'total':<10}{sum(kind.entries for kind in kinds):>6}{total_bytes / 1e6:>10.1f} MB")


@cache.command("clear")
def clear(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Remove every entry; running processes keep what they have loaded."""
    from daceml.config import config
    from daceml.toolchain.cache import Cache

    entries = Cache(config().cache_folder)
    freed_bytes = entries.size_bytes() if entries.root.is_dir() else 0
    entries.clear()
    if as_json:
        typer.echo(json.dumps({"folder": str(entries.root), "freed_bytes": freed_bytes}, indent=2))
    else:
        typer.echo(f"removed {freed_bytes / 1e6:.1f} MB in {entries.root}")


def _kind(folder: Path, kind: str) -> CacheKind:
    entries = [entry for entry in _folders(folder / kind) if (entry / "entry.json").is_file()]
    newest = max((entry.stat().st_mtime for entry in entries), default=0.0)
    return CacheKind(
        kind=kind,
        entries=len(entries),
        size_bytes=sum(file.stat().st_size for entry in entries for file in entry.iterdir()),
        newest=time.strftime("%Y-%m-%d %H:%M", time.localtime(newest)) if entries else "",
    )


def _folders(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
