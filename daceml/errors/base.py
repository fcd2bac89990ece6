"""What all errors have in common."""

from __future__ import annotations

from typing import ClassVar


def first_line(error: BaseException) -> str:
    """What an error says first; its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


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
        return "\n".join(lines)
