"""One line of `daceml doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the report.

    Attributes:
        fix: what to do; empty where all is well.
    """

    title: str
    status: Status
    found: str
    fix: str = ""
