"""Links of a file that moves: from its place in the repository to its place in the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

# Files outside of docs/ that are pages as well: path in the repository -> page.
REPOSITORY_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/results/README.md": "results/format.md",
}
_PICTURE = re.compile(r'(?P<before>!\[[^\[\]]*\]\(|(?:src|srcset)=")(?P<target>[^()\s":]+)')
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<target>[^()\s]+)\)")
_FENCE = re.compile(r"^( {0,3}```.*?^ {0,3}```[ ]*$)", re.MULTILINE | re.DOTALL)


def mended(text: str, source: str, *, pages: Mapping[str, str] = REPOSITORY_PAGES) -> str:
    """The markdown of `source`, a path in the repository, with links that hold where its page is.

    A link to a file that is no page, such as a program, leaves its text: a site has no sources to point to.
    """
    parts = _FENCE.split(text)  # odd parts are code, where brackets are no links
    parts[::2] = [
        _PICTURE.sub(
            lambda found: found["before"] + _mended_picture(found["target"], source, pages),
            _LINK.sub(lambda link: _mended_link(link["text"], link["target"], source, pages), part),
        )
        for part in parts[::2]
    ]
    return "".join(parts)


def page_of(source: str, pages: Mapping[str, str] = REPOSITORY_PAGES) -> str | None:
    """The page that a file of the repository becomes, or None."""
    if source in pages:
        return pages[source]
    return source.removeprefix("docs/") if source.startswith("docs/") and source.endswith(".md") else None


def _mended_picture(target: str, source: str, pages: Mapping[str, str]) -> str:
    """Where a picture under docs/ is in the site, as seen from the page of `source`."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    here = posixpath.dirname(page_of(source, pages) or source)
    return posixpath.relpath(path.removeprefix("docs/"), here or ".") if path.startswith("docs/") else target


def _mended_link(text: str, target: str, source: str, pages: Mapping[str, str]) -> str:
    path, _, anchor = target.partition("#")
    if not path or "://" in path:
        return f"[{text}]({target})"
    page = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)), pages)
    if page is None:
        return text
    here = posixpath.dirname(page_of(source, pages) or source)
    return f"[{text}]({posixpath.relpath(page, here or '.')}{'#' + anchor if anchor else ''})"
