"""The navigation of mkdocs.yml, with generated pages where it has a placeholder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def filled(navigation: Sequence[Any], generated: Mapping[str, Sequence[Any]]) -> list[Any]:
    """The same navigation, in which every entry that `generated` names is replaced by its entries."""
    entries: list[Any] = []
    for entry in navigation:
        if isinstance(entry, str) and entry in generated:
            entries += generated[entry]
        elif isinstance(entry, Mapping):
            entries.append({title: _below(value, generated) for title, value in entry.items()})
        else:
            entries.append(entry)
    return entries


def _below(value: Any, generated: Mapping[str, Sequence[Any]]) -> Any:
    return filled(value, generated) if isinstance(value, list) else value
