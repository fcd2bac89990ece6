"""The profiler's file, extended by what only the recorder knows, and moved into place as a whole."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from daceml.errors import OutputFileError

HEADER = "daceml"
FORMAT = 1  # of the header's entry

# The profiler's own entries that name the machine or a folder on it.
_PERSONAL = ("host_name", "traceName")

Document = dict[str, Any]


def read_document(path: Path) -> Document:
    """A file that the profiler has just written; names in it may hold bytes that are no text."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return cast("Document", json.loads(text, strict=False))


def extended(
    document: Document, header: Mapping[str, Any], events: Sequence[Mapping[str, Any]], last_step: int
) -> Document:
    """The file with a header's entry, further events, and without what is personal or half a step; pure.

    Args:
        last_step: number of the last complete step, as the profiler counts.
    """
    kept = {key: value for key, value in document.items() if key not in (*_PERSONAL, "traceEvents")}
    own = [event for event in document["traceEvents"] if not _is_step_after(event, last_step)]
    return {**kept, HEADER: {"format": FORMAT, **header}, "traceEvents": [*own, *events]}


def _is_step_after(event: Mapping[str, Any], last_step: int) -> bool:
    stem, _, number = str(event.get("name", "")).partition("#")
    return stem == "ProfilerStep" and number.isdecimal() and int(number) > last_step


def write_document(document: Document, path: Path) -> None:
    """Write aside, then move into place; compressed where the name ends in `.gz`.

    Raises:
        OutputFileError: the folder cannot be made, or the file cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    data = json.dumps(document).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_bytes(gzip.compress(data, 4, mtime=0) if path.suffix == ".gz" else data)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise OutputFileError(
            "the trace cannot be written",
            where=str(path),
            why=str(error.strerror or error),
            fix="name a file in a folder that can be written to",
        ) from error
