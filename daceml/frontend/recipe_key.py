"""What a recipe adds to a program's key: its data, and the sources of all that its passes reach."""

from __future__ import annotations

import logging
import sys
import sysconfig
import uuid
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from daceml.errors import ConfigurationError
from daceml.runtime.cache import digest

if TYPE_CHECKING:
    from daceml.transformations.recipe import Recipe, Step

log = logging.getLogger(__name__)

_PLAIN = (bool, int, float, str, bytes, type(None))
# whose versions or sources are part of every key
_KNOWN = tuple(
    Path(folder).resolve()
    for folder in (
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        Path(__file__).parents[1],
    )
)


def recipe_key(recipe: Recipe | None) -> str:
    """Hash of a recipe: passes, options, and the files of the user's modules that they reach.

    Returns:
        a hash that no other call gives where the recipe cannot be stored; the log says why.
    """
    if recipe is None:
        return ""
    try:
        text = recipe.to_json()
        sources = _sources(_module(step) for step in recipe)
    except (ConfigurationError, OSError, TypeError) as error:
        why = error.why if isinstance(error, ConfigurationError) else str(error)
        log.info("not looked up in the cache: a recipe cannot be stored (%s)", why)
        return uuid.uuid4().hex
    return digest(text, *sources)


def _module(step: Step) -> str:
    return (step.run if hasattr(step.run, "__qualname__") else type(step.run)).__module__


def _sources(names: Iterable[str]) -> list[str]:
    """The text of each module, of those that it reaches, and its constants."""
    waiting, seen, sources = list(names), set[str](), list[str]()
    while waiting:
        name = waiting.pop(0)
        module = sys.modules.get(name)
        if name in seen or module is None or _is_known(module):
            continue
        seen.add(name)
        file = getattr(module, "__file__", None)
        if file is None:
            raise OSError(f"{name} has no file")
        values = vars(module)
        plain = sorted((key, repr(value)) for key, value in values.items() if _is_plain(key, value))
        sources.append(f"{name} {Path(file).read_text(encoding='utf-8')} {plain}")
        waiting += [reached for value in values.values() if (reached := _home(value)) is not None]
    return sources


def _is_known(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ != "__main__"  # built into Python, or a namespace
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in _KNOWN)


def _is_plain(name: str, value: object) -> bool:
    if name.startswith("__"):
        return False
    if isinstance(value, tuple | list | frozenset):
        return all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)


def _home(value: Any) -> str | None:
    """The module that something in a module is, or comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    home = getattr(value, "__module__", None)
    return home if isinstance(home, str) else None
