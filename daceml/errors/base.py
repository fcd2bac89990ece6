"""What all errors have in common."""

from __future__ import annotations

import re
from typing import ClassVar


def first_line(error: BaseException) -> str:
    """What an error says first; its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def printable(text: str) -> str:
    """A text without control characters, which a terminal would obey: they are written as Python does."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


# all but line breaks and tabs; those that turn the direction of writing, too
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class DacemlError(Exception):
    """A refusal with a code, and what, where, why and fix.

    Args:
        what: one sentence that says what cannot be done.
        where: the user's line, the node or the file; empty where there is none.
        why: the facts that led to the refusal; several lines where several were tried.
        fix: what the user can do about it.
    """

    code: ClassVar[str] = "DML000"

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        self.what, self.where, self.why, self.fix = what, where, why, fix
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.what}"]
        for label, text in (("where", self.where), ("why", self.why), ("fix", self.fix)):
            if text:
                lines.append(f"  {label + ':':<7}" + text.replace("\n", "\n         "))
        return printable("\n".join(lines))
