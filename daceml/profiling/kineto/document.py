"""A file of a profiler -> its raw events, many at a time, and what the file says of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from daceml.errors import TraceFileError
from daceml.profiling.kineto.json_text import JsonText
from daceml.profiling.kineto.source import EXPORT_AGAIN, check_count, text_of

EVENTS = "traceEvents"


class Document:
    """A file that is read while its events are used: never more than some of them are in memory.

    Args:
        file: JSON, gzipped or not: an object with `traceEvents`, or a list of events.
        source: name of the file, for messages.

    Attributes:
        header: everything but the events, once these have been read.
        notes: what was wrong and could be mended, likewise.
    Raises:
        TraceFileError: it has too many events, or its gzip stream is damaged or cut.
    """

    def __init__(self, file: BinaryIO, source: str) -> None:
        self.source = source
        self.header: dict[str, Any] = {}
        self.notes: list[str] = []
        check_count(file, source)
        self._text = JsonText(text_of(file, source, self.notes), source)

    def events(self) -> Iterator[list[Any]]:
        """All events, of whatever type, in the file's order.

        Raises:
            TraceFileError: the file is damaged, cut short, too long, or something else.
        """
        text = self._text
        begins = text.next_character()
        if begins == "[":
            text.take("[", "")
            yield from text.items()
        elif begins == "{":
            text.take("{", "")
            yield from self._of_object()
        else:
            raise self._no_trace(repr(text.value())[:40])
        if text.next_character():
            text.take("\0", "Extra data")

    def _of_object(self) -> Iterator[list[Any]]:
        text, found = self._text, False
        if text.next_character() == "}":
            text.take("}", "")
        else:
            while True:
                if text.next_character() != '"':
                    text.take('"', "Expecting property name enclosed in double quotes")
                key = text.value()
                text.take(":", "Expecting ':' delimiter")
                if key != EVENTS:
                    self.header[key] = text.value()
                else:
                    found = True
                    if text.next_character() != "[":
                        raise self._no_list(text.value())
                    text.take("[", "")
                    yield from text.items()
                if text.take(",}", "Expecting ',' delimiter") == "}":
                    break
        if not found:
            raise self._no_trace(", ".join(map(repr, list(self.header)[:5])))

    def _no_list(self, value: Any) -> TraceFileError:
        return TraceFileError(
            f"{EVENTS!r} of a trace is not a list",
            where=self.source,
            why=f"it is {type(value).__name__}: {value!r:.40}",
            fix=EXPORT_AGAIN,
        )

    def _no_trace(self, content: str) -> TraceFileError:
        return TraceFileError(
            "a file of JSON that is not a trace",
            where=self.source,
            why=f"it has no {EVENTS!r}, but {content or 'nothing'}",
            fix="give the file that `prof.export_chrome_trace` or `tensorboard_trace_handler` wrote",
        )
