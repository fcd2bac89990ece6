"""JSON that arrives in parts: its values one after the other, of which only some are in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from daceml.errors import TraceFileError
from daceml.profiling.kineto.numerals import number_of
from daceml.profiling.kineto.source import EXPORT_AGAIN, cut, too_long

# strict=False: names with line breaks and other control characters, as some profilers write them
_DECODER = json.JSONDecoder(strict=False, parse_float=number_of)
_SPACE = re.compile(r"[ \t\n\r]*")
_BETWEEN = re.compile(r"\}[ \t\n\r]*,[ \t\n\r]*(?=\{)")
_CANDIDATES = 50  # ends of objects that are tried as the end of an event
# Of one value: an event is a thousand characters, and nothing else of a trace is much longer.
LIMIT_CHARACTERS = 1 << 26
_ESCAPE = 16  # a word or an escaped character that is cut is shorter
# How characters beyond 16 bits begin in JSON that is ASCII, whole or not
_HALVES = ("\\ud", "\\uD")


class JsonText:
    """A place in a text, and what follows it.

    Args:
        parts: of the text.
        source: name of the file, for messages.
    """

    def __init__(self, parts: Iterator[str], source: str) -> None:
        self._parts = parts
        self._source = source
        self._buffer = ""
        self._at = 0
        self._before = 0  # characters before the buffer
        self._lines = 0  # line breaks before it
        self._line_begin = 0  # character at which the line begins in which the buffer does
        self._singly_until = 0  # before this character, something is damaged

    def next_character(self) -> str:
        """The character after white space, which stays where it is; empty at the end."""
        while True:
            found = _SPACE.match(self._buffer, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def take(self, characters: str, what: str) -> str:
        """Pass one of some characters.

        Raises:
            TraceFileError: another one stands there, or the text ends; `what` says what was expected.
        """
        character = self.next_character()
        if not character or character not in characters:
            raise self._refusal(what, self._at)
        self._at += 1
        return character

    def value(self) -> Any:
        """Pass a value.

        Raises:
            TraceFileError: it is damaged, cut or too long.
        """
        self.next_character()
        while True:
            value, end = self._scanned()
            # A number at the end of a part may go on in the next one.
            if end == len(self._buffer) and self._more():
                continue
            if end >= 0:
                self._at, begin = end, self._at
                return _whole(value) if self._has_halves(begin, end) else value
            if len(self._buffer) - self._at > LIMIT_CHARACTERS:
                raise too_long(self._source, f"{LIMIT_CHARACTERS >> 20} MiB in one value")

    def _scanned(self) -> tuple[Any, int]:
        """The value that begins here and where it ends; -1 where more of the text has been read for it."""
        try:
            return _DECODER.raw_decode(self._buffer, self._at)
        except json.JSONDecodeError as error:
            unfinished = error.msg.startswith("Unterminated string")
            if (unfinished or error.pos >= len(self._buffer.rstrip()) - _ESCAPE) and self._more():
                return None, -1
            raise self._refusal(error.msg, error.pos, unfinished=unfinished) from None
        except RecursionError:
            why = "lists within lists, deeper than any profiler writes"
        except ValueError as error:  # an integer of thousands of digits
            why = str(error)
        raise TraceFileError(
            "a file that is not a trace, or damaged", where=self._source, why=why, fix=EXPORT_AGAIN
        )

    def items(self) -> Iterator[list[Any]]:
        """Pass a list whose bracket has been passed: its items, many at a time.

        Raises:
            TraceFileError: it is damaged or cut, or one of its items is too long.
        """
        if self.next_character() == "]":
            self._at += 1
            return
        while True:
            items = self._objects()
            if items is None:
                items = [self.value()]
            yield items
            if self.take(",]", "Expecting ',' delimiter") == "]":
                return

    def _objects(self) -> list[Any] | None:
        """The objects from here to the last one that ends in the buffer; None where that is not known."""
        if self._before + self._at < self._singly_until:
            return None
        end = len(self._buffer)
        for _ in range(_CANDIDATES):
            end = self._buffer.rfind("}", self._at, end)
            if end < 0:
                return None
            if _BETWEEN.match(self._buffer, end):
                break
        else:
            return None
        text = self._buffer[self._at : end + 1]
        try:
            # Brackets close only around whole items: text that ends within one is no list.
            items = _DECODER.decode(f"[{text}]")
        except (RecursionError, ValueError):
            self._singly_until = self._before + len(self._buffer)
            return None
        items = _whole(items) if self._has_halves(self._at, end) else items
        self._at = end + 1
        return items

    def _more(self) -> bool:
        """Read on: as much again as is waiting, so that a long value is not scanned too often."""
        waiting = len(self._buffer) - self._at
        parts: list[str] = []
        size = 0
        for part in self._parts:
            parts.append(part)
            size += len(part)
            if part and size >= waiting:
                break
        if not size:
            return False
        self._lines += self._buffer.count("\n", 0, self._at)
        line_end = self._buffer.rfind("\n", 0, self._at)
        self._line_begin = self._before + line_end + 1 if line_end >= 0 else self._line_begin
        self._before += self._at
        self._buffer = "".join((self._buffer[self._at :], *parts))
        self._at = 0
        return True

    def _has_halves(self, begin: int, end: int) -> bool:
        return any(self._buffer.find(half, begin, end) >= 0 for half in _HALVES)

    def _refusal(self, what: str, at: int, *, unfinished: bool = False) -> TraceFileError:
        what = what.removesuffix(" at").removesuffix(" starting")  # as json words some of its messages
        place = self._before + at
        if unfinished or at >= len(self._buffer.rstrip()):
            return cut(self._source, f"{what} at character {place} of {self._before + len(self._buffer)}")
        line_end = self._buffer.rfind("\n", 0, at)
        begin = self._before + line_end + 1 if line_end >= 0 else self._line_begin
        line = self._lines + self._buffer.count("\n", 0, at) + 1
        why = f"{what} at line {line}, column {place - begin + 1}: {self._buffer[at : at + 16]!r}"
        return TraceFileError(
            "a file that is no JSON, or damaged", where=self._source, why=why, fix=EXPORT_AGAIN
        )


def _whole(value: Any) -> Any:
    """The same without halves of characters, which JSON can spell and no file or terminal takes."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value
