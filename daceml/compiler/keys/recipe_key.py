"""What a recipe adds to a program's key: its data, and the sources of all that its passes reach."""

from __future__ import annotations

import logging
import sys
import sysconfig
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from daceml.config import PACKAGE_FOLDER
from daceml.errors import ConfigurationError
from daceml.toolchain.cache import digest

if TYPE_CHECKING:
    from daceml.transformations.recipe import Recipe, Step

log = logging.getLogger(__name__)

_PLAIN = (bool, int, float, str, bytes, type(None))
# whose versions or sources are part of every key
_KNOWN = tuple(
    Path(folder).resolve()
    for folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), PACKAGE_FOLDER)
)
_INSTALLED = tuple(Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib"))


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
    return digest(text, *(f"{step.name} {step.level}" for step in recipe), *sources)


def _module(step: Step) -> str:
    return (step.run if hasattr(step.run, "__qualname__") else type(step.run)).__module__


def _sources(names: Iterable[str]) -> list[str]:
    """The text of each module, of those that it reaches, and its constants."""
    waiting, seen, sources = list(names), set[str](), list[str]()
    while waiting:
        name = waiting.pop(0)
        module = sys.modules.get(name)
        if name in seen or module is None:
            continue
        seen.add(name)
        if _is_within(module, _INSTALLED):
            sources.append(_version(name.partition(".")[0]))
            continue
        if _is_within(module, _KNOWN):
            continue
        file = getattr(module, "__file__", None)
        if file is None:
            raise OSError(f"{name} has no file")
        values = vars(module)
        own = [v for v in values.values() if isinstance(v, type) and v.__module__ == name]
        plain = [_constants(holder) for holder in (module, *own)]
        sources.append(f"{name} {Path(file).read_text(encoding='utf-8')} {plain}")
        waiting += [reached for value in values.values() if (reached := _home(value)) is not None]
    return sources


def _is_within(module: ModuleType, folders: Iterable[Path]) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ != "__main__"  # built into Python, or a namespace
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in folders)


def _version(package: str) -> str:
    """Of an installed package, for all its sources."""
    names = _distributions().get(package)
    if not names:
        raise OSError(f"the version of {package} is not known")
    return ", ".join(f"{name} {metadata.version(name)}" for name in sorted(set(names)))


@lru_cache(maxsize=1)
def _distributions() -> Mapping[str, list[str]]:
    """Package -> the distributions that it came with; looking it up reads the metadata of all."""
    return metadata.packages_distributions()


def _constants(holder: object) -> list[tuple[str, str]]:
    """The plain data of a module or a class, which may have changed since its source was read."""
    values = vars(holder).items()
    return sorted((k, _text(v)) for k, v in values if not k.startswith("__") and _is_plain(v))


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, tuple | list | frozenset | set):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _text(value: Any) -> str:
    """The same for equal sets in any order."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset | set) else repr(value)


def _home(value: Any) -> str | None:
    """The module that something in a module is, or comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    home = getattr(value, "__module__", None)
    return home if isinstance(home, str) else None
