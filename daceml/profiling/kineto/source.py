"""A plain or gzip file -> its text, a part at a time."""

from __future__ import annotations

import codecs
import errno
import gzip
import os
import stat
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from daceml.errors import TraceFileError

EXPORT_AGAIN = "export the trace again, and copy the whole file"
_FEWER_STEPS = "record fewer steps: torch.profiler.schedule(wait=1, warmup=2, active=5, repeat=1)"
_GZIP = b"\x1f\x8b"
# Five times the largest traces that people share
LIMIT_BYTES = 2 << 30
# More than the largest traces that people share have; with arguments, they take 1.3 GB.
LIMIT_EVENTS = 2_500_000
_PHASE = b'"ph"'  # once in each event
_CHUNK_BYTES = 1 << 22


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """A file to read.

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
        file = path.open("rb")
    except OSError as error:
        raise _unreadable_file(path, error) from None
    with file:
        try:
            yield file
        except OSError as error:
            raise _unreadable_file(path, error) from None


def _unreadable(path: Path) -> str:
    """What stands there instead of a file; empty where a file does."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            return "is a symbolic link that leads back to itself"
        return "is a symbolic link to nothing" if os.path.islink(path) else "does not exist"
    return "" if stat.S_ISREG(mode) else "is a folder" if stat.S_ISDIR(mode) else "is not a file"


def _unreadable_file(path: Path, error: OSError) -> TraceFileError:
    return TraceFileError(
        f"{path.name} cannot be read", where=str(path), why=str(error), fix="make the file readable"
    )


def check_count(file: BinaryIO, source: str) -> None:
    """Refuse a file of too many events before any of them is read.

    Raises:
        TraceFileError: it has more than `LIMIT_EVENTS`, or its gzip stream is damaged, cut or too long.
    """
    count, end = 0, b""
    for part in _inflated(file, source):
        found = (end + part).count(_PHASE)
        if not found:
            break  # no event in megabytes: whatever this is, the reader refuses it where it begins
        count += found
        end = part[1 - len(_PHASE) :]
    file.seek(0)
    if count > LIMIT_EVENTS:
        raise too_many(source, f"{count:,}")


def text_of(file: BinaryIO, source: str, notes: list[str]) -> Iterator[str]:
    """The text of a file, in parts of some megabytes.

    Args:
        notes: where it is added that some of it is no UTF-8: names of C++ may hold any byte.
    Raises:
        TraceFileError: the gzip stream is damaged or cut, or the text too long.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    strict, size = True, 0
    for part in _inflated(file, source):
        waiting = len(decoder.getstate()[0])
        try:
            text = decoder.decode(part)
        except UnicodeDecodeError as error:
            if strict:
                at = size - waiting + error.start
                notes.append(
                    f"the file is no UTF-8 from byte {at} on: unreadable characters of names were replaced"
                )
            strict = False
            held = error.object
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            text = decoder.decode(held)
        yield text.removeprefix("\ufeff") if not size else text
        size += len(part)
    end = codecs.getincrementaldecoder("utf-8")(errors="replace")
    end.setstate(decoder.getstate())
    yield end.decode(b"", final=True)


def _inflated(file: BinaryIO, source: str) -> Iterator[bytes]:
    zipped = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    stream = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if zipped else file
    size = 0
    try:
        while part := stream.read(_CHUNK_BYTES):
            size += len(part)
            if size > LIMIT_BYTES:
                raise too_long(source, f"{LIMIT_BYTES >> 30} GiB")
            yield part
    except EOFError:
        compressed = file.seek(0, os.SEEK_END)
        raise cut(source, f"the gzip stream is incomplete after {compressed:,} compressed bytes") from None
    except (OSError, zlib.error) as error:
        if not zipped:
            raise
        why = f"within {_CHUNK_BYTES >> 20} MiB after byte {size:,} of the text: {error}"
        raise TraceFileError("a gzip file that is damaged", where=source, why=why, fix=EXPORT_AGAIN) from None


def cut(source: str, why: str) -> TraceFileError:
    """The refusal of a file of which a part is missing."""
    return TraceFileError("a trace that ends in the middle", where=source, why=why, fix=EXPORT_AGAIN)


def too_many(source: str, count: str) -> TraceFileError:
    """The refusal of a file of more events than fit into memory."""
    return TraceFileError(
        f"a trace of {count} events",
        where=source,
        why=f"more than {LIMIT_EVENTS:,} would take more memory than machines can spare",
        fix=_FEWER_STEPS,
    )


def too_long(source: str, more_than: str) -> TraceFileError:
    """The refusal of a file that would take too much memory."""
    return TraceFileError(
        f"a trace of more than {more_than}",
        where=source,
        why="it would take many times that of memory",
        fix=_FEWER_STEPS,
    )
