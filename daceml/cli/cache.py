"""`daceml cache`: what is in the cache of compiled things, and removing it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from daceml.cli import options
from daceml.errors import ConfigurationError, EnvironmentProblem

cache = typer.Typer(help="The cache of compiled programs and kernels.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class CacheKind:
    """Entries of one kind."""

    kind: str
    entries: int
    size_bytes: int
    newest: str

    def __str__(self) -> str:
        newest = f", newest {self.newest}" if self.newest else ""
        return f"  {self.kind:<10}{self.entries:>6}{self.size_bytes / 1e6:>10.1f} MB{newest}"


@cache.command("ls")
def list_entries(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """List the contents of the cache."""
    from daceml.config import config
    from daceml.toolchain.cache_contents import CacheContents

    held = CacheContents.of(config().cache_folder)
    kinds = [_kind(kind, entries) for kind, entries in held.entries.items()]
    if as_json:
        rows = [asdict(kind) for kind in kinds]
        document = {"folder": str(held.root), "size_bytes": held.size_bytes, "kinds": rows}
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(str(held.root))
    for kind in kinds:
        typer.echo(str(kind))
    typer.echo(f"  {'total':<10}{sum(kind.entries for kind in kinds):>6}{held.size_bytes / 1e6:>10.1f} MB")


@cache.command("clear")
def clear(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="no confirmation")] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Remove every entry, and nothing else; running processes keep their loaded programs."""
    from daceml.config import config
    from daceml.toolchain.cache_contents import CacheContents

    held = CacheContents.of(config().cache_folder)
    freed_bytes = held.size_bytes
    if held:
        _ask(
            [str(held.root), *(str(_kind(kind, found)) for kind, found in held.entries.items() if found)],
            yes=yes,
        )
        try:
            held.remove()
        except OSError as error:
            raise EnvironmentProblem(
                "the cache cannot be removed",
                where=str(held.root),
                why=str(error),
                fix="check the permissions of the folder",
            ) from error
    if as_json:
        typer.echo(json.dumps({"folder": str(held.root), "freed_bytes": freed_bytes}, indent=2))
        return
    typer.echo(f"removed {freed_bytes / 1e6:.1f} MB in {held.root}" if held else f"no cache in {held.root}")
    if held.root.is_dir() and (others := sum(1 for _ in held.root.iterdir())):
        typer.echo(f"  {others} files or folders in it are not of the cache, or in use: they stay")


def _ask(listed: list[str], *, yes: bool) -> None:
    """Let the user agree to a removal, or end the command.

    Raises:
        ConfigurationError: there is no terminal on which to ask.
    """
    if yes:
        return
    if not _on_terminal():
        raise ConfigurationError(
            "nothing was removed",
            where=listed[0],
            why="there is no terminal on which to ask",
            fix="pass --yes",
        )
    typer.echo("\n".join(listed), err=True)
    typer.confirm("remove these entries?", abort=True, err=True)


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _kind(kind: str, entries: list[Path]) -> CacheKind:
    from daceml.toolchain.cache_contents import folder_bytes

    newest = max((entry.stat().st_mtime for entry in entries), default=0.0)
    return CacheKind(
        kind=kind,
        entries=len(entries),
        size_bytes=sum(map(folder_bytes, entries)),
        newest=time.strftime("%Y-%m-%d %H:%M", time.localtime(newest)) if entries else "",
    )
