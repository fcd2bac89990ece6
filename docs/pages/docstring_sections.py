"""Sections of docstrings, as the reader of docstrings wants them: each after an empty line.

Ours follow each other without one. `SpacedSections` is an extension of griffe, which mkdocs.yml names.
"""

from __future__ import annotations

import re
from typing import Any

try:
    from griffe import Extension
except ImportError:  # where the site is not built
    Extension = object

_SECTION = re.compile(r"(?<!\n)\n(?=(?:Args|Attributes|Returns|Yields|Raises):\n)")


def spaced(docstring: str) -> str:
    """The same docstring with an empty line in front of every section."""
    return _SECTION.sub("\n\n", docstring)


class SpacedSections(Extension):
    """Spaces every docstring before it is read."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for each object of the sources."""
        if obj.docstring:
            obj.docstring.value = spaced(obj.docstring.value)
