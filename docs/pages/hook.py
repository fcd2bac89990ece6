"""What mkdocs calls while it builds the site: adds generated pages, and mends links of files that move.

Reads the repository and writes nothing into it. mkdocs is imported where it is used: what is asked of the
other functions needs none.
"""

from __future__ import annotations

import posixpath
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.pages.api_pages import API_PAGES, api_page, package_source
from docs.pages.error_pages import error_codes, error_index, error_page, sentences, sources_of
from docs.pages.links import REPOSITORY_PAGES, mended
from docs.pages.navigation import filled
from docs.pages.result_pages import read_results, result_pages, results_index

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]


@cache
def generated() -> dict[str, str]:
    """All pages that are no file of docs/: page -> markdown."""
    errors, results = error_codes(), read_results(ROOT / "benchmarks" / "results")
    names = [cls.__name__ for error in errors for cls in (error.cls, *error.kinds)]
    said = sentences(sources_of(ROOT / "daceml"), names)
    pages = {
        page: mended((ROOT / source).read_text(encoding="utf-8"), source)
        for source, page in REPOSITORY_PAGES.items()
    }
    pages |= {error.page: error_page(error, said) for error in errors}
    pages["errors/index.md"] = error_index(errors)
    for page in API_PAGES:
        pages[page.page] = api_page(page, {name: package_source(ROOT, name) for name in page.packages})
    pages |= {page: text for page, (_, text) in result_pages(results).items()}
    pages["results/index.md"] = results_index(results)
    return pages


def navigation_parts() -> dict[str, list[Any]]:
    """What the placeholders of mkdocs.yml stand for."""
    results = result_pages(read_results(ROOT / "benchmarks" / "results"))
    return {
        "errors/*": [{error.code: error.page} for error in error_codes()],
        "reference/*": [{page.title: page.page} for page in API_PAGES],
        "results/*": [{title: page} for page, (title, _) in results.items()],
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put generated pages into the navigation."""
    config.nav = filled(config.nav or [], navigation_parts())
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add generated pages to those of docs/."""
    from mkdocs.structure.files import File

    for page, text in generated().items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mend links of docs/ that lead out of it."""
    path = page.file.src_uri
    return markdown if path in generated() else mended(markdown, posixpath.join("docs", path))
