"""What a notebook shows of an object: parts that lie below the reports and the page name who makes it."""

from __future__ import annotations

import importlib
from typing import Any


def shown_by(maker: str, value: Any) -> str:
    """The HTML that a function of a part further up makes of a value.

    Args:
        maker: "module:function"; it is imported when a notebook asks, and by nobody else.
    """
    module, _, name = maker.partition(":")
    made: str = getattr(importlib.import_module(module), name)(value)
    return made
