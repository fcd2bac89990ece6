"""Refuses imports through the links at the repository's root, which would load a package twice."""

from __future__ import annotations


def refuse_bare_name(module_name: str) -> None:
    """Raise unless a linked package is imported as a part of daceml.

    Called with `__name__` by the packages that the root links to. Under its bare name such a package would be
    a second copy, with classes that are not those of `daceml` and a registry of its own.

    Raises:
        ImportError: `module_name` lacks the prefix `daceml.`; the message gives the right import.
    """
    if not module_name.startswith("daceml."):
        raise ImportError(
            f"{module_name!r} is a link into daceml for readers; write `import daceml.{module_name}` instead",
            name=module_name,
        )
