"""Why something could not be measured, in a line."""

from __future__ import annotations


def reason_of(error: BaseException) -> str:
    """Type, first line, and the line that tells why: a compiler's error, else the `why` of a DacemlError."""
    first, *rest = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [
        "no message"
    ]
    telling = [line for line in rest if "error:" in line] + [line for line in rest if line.startswith("why:")]
    return " ".join((f"{type(error).__name__}: {first}", *telling[:1]))[:400]
