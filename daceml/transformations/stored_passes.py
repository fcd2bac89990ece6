"""Passes by the text that a stored recipe has for them: found without running what the text names.

A recipe may come from anywhere, so a text alone imports nothing of others: it finds the passes of
`daceml.transformations`, those that this process has stored itself, the rewrites and functions with a level
in modules that are loaded, and those in modules that the caller names.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any

from daceml.errors import ConfigurationError
from daceml.transformations.rewriting.rewrite import Rewrite

_OWN = "daceml.transformations."
_stored: dict[str, Any] = {}


def pass_path(made: Any) -> str:
    """The text for a function, or for the class of a rewrite."""
    return f"{made.__module__}:{made.__qualname__}"


def remember_pass(made: Any) -> None:
    """Let this process find a pass by its text."""
    _stored[pass_path(made)] = made


def find_pass(path: str, modules: Collection[str]) -> Any:
    """The function, or the class of a rewrite, that a text names.

    Args:
        modules: names of further modules, which are imported.
    Raises:
        ConfigurationError: there is no such pass, or none that a recipe may name.
    """
    if path in _stored:
        return _stored[path]
    module, _, name = path.partition(":")
    named = module in modules or module.startswith(_OWN)
    try:
        source = importlib.import_module(module) if named else sys.modules.get(module)
    except ImportError as error:
        raise _no_pass(path, str(error), module) from error
    if source is None:
        raise _no_pass(path, f"{module} is not loaded, and a recipe imports no modules by itself", module)
    found = _inside(source, name)
    if found is None:
        raise _no_pass(path, f"{module} defines no function or rewrite {name}", module)
    if not (named or _is_marked(found)):
        raise _no_pass(path, f"{name} is a function that says no level, and may be anything", module)
    return found


def _inside(source: ModuleType, name: str) -> Any:
    """What a module itself defines, not what it imports."""
    found: Any = source
    for part in name.split("."):
        found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
    is_pass = inspect.isfunction(found) or (inspect.isclass(found) and issubclass(found, Rewrite))
    return found if is_pass and pass_path(found) == f"{source.__name__}:{name}" else None


def _is_marked(found: Any) -> bool:
    return inspect.isclass(found) or hasattr(found, "level") or hasattr(found, "by_place")


def _no_pass(path: str, why: str, module: str) -> ConfigurationError:
    return ConfigurationError(
        f"there is no pass {path}",
        why=why,
        fix=f"if you trust the recipe: Recipe.from_json(text, modules=[{module!r}]); else leave the step out",
    )
