"""Bytes of a plain or gzip file -> what the file says of the run, and its raw events."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daceml.errors import TraceFileError
from daceml.profiling.kineto.numerals import number_of

EVENTS = "traceEvents"
_GZIP = b"\x1f\x8b"
# Five times the largest traces that people share; beyond it memory ends before patience does.
LIMIT_BYTES = 2 << 30
_EXPORT_AGAIN = "export the trace again, and copy the whole file"
_CHUNK_BYTES = 1 << 22
# How characters beyond 16 bits begin in JSON that is ASCII, whole or not
_HALVES = ("\\ud", "\\uD")


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file as JSON.

    Attributes:
        header: everything but the events.
        events: as they stand there, of whatever type.
        notes: what was wrong and could be mended.
    """

    source: str
    header: dict[str, Any]
    events: list[Any]
    notes: tuple[str, ...] = ()


def read_bytes(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        TraceFileError: it is not there, no file, or cannot be read.
    """
    what = _unreadable(path)
    if what:
        raise TraceFileError(
            f"{path.name or path} {what}",
            where=str(path),
            why="a trace is one file; `read_traces` takes a folder of one file a rank",
            fix="give the path of a .json or .json.gz file that a profiler wrote",
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise TraceFileError(
            f"{path.name} cannot be read", where=str(path), why=str(error), fix="make the file readable"
        ) from None


def _unreadable(path: Path) -> str:
    """What stands there instead of a file; empty where a file does."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            return "is a symbolic link that leads back to itself"
        return "is a symbolic link to nothing" if os.path.islink(path) else "does not exist"
    return "" if stat.S_ISREG(mode) else "is a folder" if stat.S_ISDIR(mode) else "is no file"


def document_of(data: bytes, source: str) -> Document:
    """Take a file apart.

    Args:
        data: JSON, gzipped or not: an object with `traceEvents`, or a list of events.
        source: name of the file, for messages.
    Raises:
        TraceFileError: damaged, cut short, or something else.
    """
    text, notes = _decoded(_inflated(data, source))
    del data
    content = _parsed(text, source)
    if isinstance(content, list):
        content = {EVENTS: content}
    if not isinstance(content, dict) or EVENTS not in content:
        keys = ", ".join(map(repr, list(content)[:5])) if isinstance(content, dict) else repr(content)[:40]
        raise TraceFileError(
            "a file of JSON that is no trace",
            where=source,
            why=f"it has no {EVENTS!r}, but {keys or 'nothing'}",
            fix="give the file that `prof.export_chrome_trace` or `tensorboard_trace_handler` wrote",
        )
    events = content.pop(EVENTS)
    if not isinstance(events, list):
        raise TraceFileError(
            f"{EVENTS!r} of a trace is no list",
            where=source,
            why=f"it is {type(events).__name__}: {events!r:.40}",
            fix=_EXPORT_AGAIN,
        )
    return Document(source=source, header=content, events=events, notes=notes)


def _inflated(data: bytes, source: str) -> bytes:
    if not data.startswith(_GZIP):
        return data
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while part := stream.read(_CHUNK_BYTES):
                parts.append(part)
                size += len(part)
                if size > LIMIT_BYTES:
                    raise _too_long(source)
    except EOFError:
        raise _cut(source, f"the gzip stream stops after {size} bytes of text") from None
    except (OSError, zlib.error) as error:
        why = f"after {size} bytes of text: {error}"
        raise TraceFileError(
            "a gzip file that is damaged", where=source, why=why, fix=_EXPORT_AGAIN
        ) from None
    return b"".join(parts)


def _decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Names of C++ may hold any byte: what is no UTF-8 becomes a mark, and a note says so."""
    try:
        return data.decode("utf-8-sig"), ()
    except UnicodeDecodeError as error:
        note = (
            f"the file is no UTF-8 from byte {error.start} on: unreadable characters of names were replaced"
        )
        return data.decode("utf-8-sig", errors="replace"), (note,)


def _parsed(text: str, source: str) -> Any:
    if len(text) > LIMIT_BYTES:
        raise _too_long(source)
    try:
        # strict=False: names with line breaks and other control characters, as some profilers write them
        content = json.loads(text, strict=False, parse_float=number_of)
        return _whole(content) if any(half in text for half in _HALVES) else content
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            raise _cut(source, f"{error.msg} at character {error.pos} of {len(text)}") from None
        why = (
            f"{error.msg} at line {error.lineno}, column {error.colno}: {text[error.pos : error.pos + 16]!r}"
        )
        raise TraceFileError(
            "a file that is no JSON, or damaged", where=source, why=why, fix=_EXPORT_AGAIN
        ) from None
    except RecursionError:
        why = "lists within lists, deeper than any profiler writes"
    except ValueError as error:  # an integer of thousands of digits
        why = str(error)
    raise TraceFileError("a file that is no trace, or damaged", where=source, why=why, fix=_EXPORT_AGAIN)


def _whole(value: Any) -> Any:
    """The same without halves of characters, which JSON can spell and no file or terminal takes."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


def _cut(source: str, why: str) -> TraceFileError:
    return TraceFileError("a trace that ends in the middle", where=source, why=why, fix=_EXPORT_AGAIN)


def _too_long(source: str) -> TraceFileError:
    return TraceFileError(
        f"a trace of more than {LIMIT_BYTES >> 30} GiB",
        where=source,
        why="it would take many times that of memory",
        fix="record fewer steps: torch.profiler.schedule(wait=1, warmup=2, active=5)",
    )
