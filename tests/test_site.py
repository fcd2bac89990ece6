"""The documentation site: what docs/pages makes of README, errors, docstrings and results, and the build."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from daceml import errors
from docs.pages import hook
from docs.pages.api_pages import API_PAGES, ApiPage, api_page, package_source, public_names
from docs.pages.docstring_sections import spaced
from docs.pages.error_pages import error_codes, error_index, error_page, sentences
from docs.pages.links import mended
from docs.pages.navigation import filled
from docs.pages.result_pages import ResultFile, result_file, result_pages, results_index
from tests.support.golden import golden

ROOT = Path(__file__).resolve().parent.parent
MACHINE = {"cpu": "a processor", "cores": 2, "python": "3.11", "date": "2026-11-24T10:00:00", "commit": "abc"}


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        ("README.md", "[recipes](docs/recipes.md#search)", "[recipes](recipes.md#search)"),
        ("README.md", "[this](ARCHITECTURE.md)", "[this](architecture.md)"),
        ("README.md", "[programs](benchmarks/)", "programs"),
        ("docs/gpu.md", "[rows](../benchmarks/results/README.md)", "[rows](results/format.md)"),
        ("docs/concepts/sdfg.md", "[all](../../ARCHITECTURE.md)", "[all](../architecture.md)"),
        ("docs/options.md", "[below](#ranges)", "[below](#ranges)"),
        ("README.md", "[DaCe](https://github.com/spcl/dace)", "[DaCe](https://github.com/spcl/dace)"),
        ("README.md", "```\n[a](b.md)\n```\n", "```\n[a](b.md)\n```\n"),
        ("README.md", "![page](docs/figures/page.png)", "![page](figures/page.png)"),
        ("README.md", '<img src="docs/figures/a.svg">', '<img src="figures/a.svg">'),
        ("docs/concepts/sdfg.md", "![page](../figures/page.png)", "![page](../figures/page.png)"),
    ],
)
def test_links_of_a_file_that_moves_still_hold(source: str, before: str, after: str):
    assert mended(before, source) == after


def test_placeholders_of_the_navigation_are_filled_at_any_depth():
    navigation = [{"Start": ["index.md"]}, {"Reference": ["a.md", {"Errors": ["errors/*"]}]}]
    assert filled(navigation, {"errors/*": ["x.md", "y.md"]}) == [
        {"Start": ["index.md"]},
        {"Reference": ["a.md", {"Errors": ["x.md", "y.md"]}]},
    ]


def test_every_code_has_a_page_and_every_kind_is_on_one():
    pages = {error.code: error_page(error, []) for error in error_codes()}
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type)]
    for cls in {*classes} - {errors.DacemlError, errors.BeyondNetworksError}:
        assert f"`{cls.__name__}`" in pages[cls.code] or f": {cls.__name__}\n" in pages[cls.code]
    index = error_index(error_codes())
    assert all(f"[{code}]({code}.md)" in index for code in pages)


def test_a_page_of_an_error_has_the_sentences_of_the_sources():
    source = 'raise CallError(f"{count} inputs are too few", fix="pass " + more)\nlog(other(f"no {error}"))\n'
    (said,) = sentences({"here": source}, ["CallError"])
    assert (said.what, said.fix, said.module) == ("… inputs are too few", "pass …", "here")
    (call,) = [error for error in error_codes() if error.code == "DML203"]
    page = error_page(call, [said])
    assert "[DML203] … inputs are too few\n  fix:   pass …\n" in page
    assert "- `SignatureError`:" in page


def test_public_names_are_found_where_they_are_defined():
    own = "def near(): ...\ndef hidden(): ...\ndef _own(): ...\n"
    source = '__all__ = ["far", "near"]\nfrom a.b import far\n' + own
    assert public_names(source, "p") == {"far": "a.b.far", "near": "p.near"}
    assert list(public_names(own, "p")) == ["near", "hidden"]


def test_sections_of_a_docstring_are_told_apart():
    assert (
        spaced("Does.\n\nArgs:\n    x: a\nReturns:\n    b") == "Does.\n\nArgs:\n    x: a\n\nReturns:\n    b"
    )


def test_all_public_names_of_daceml_are_in_the_reference():
    source = package_source(ROOT, "daceml")
    page = ApiPage(name="x", title="x", text="", packages=("daceml",))
    text = api_page(page, {"daceml": source})
    assert "::: daceml.compile\n" in text and "::: daceml.report.explanation.explanation.explain\n" in text
    assert all(api_page(page, _sources(page)) for page in API_PAGES)


def test_a_page_of_results_shows_what_was_missed_and_what_was_not_measured():
    bars = [
        {"name": "a|b", "figure": 2.0, "limit": 1, "unit": "ms", "note": "", "met": False},
        {"name": "c", "figure": None, "limit": 0, "unit": "", "note": "no device", "met": False},
        {"name": "d", "figure": 0, "limit": 0, "unit": "", "note": "", "met": True},
    ]
    result = result_file("one-2026", {"benchmark": "one", "machine": MACHINE, "bars": bars})
    ((page, (title, text)),) = result_pages([result]).items()
    assert (page, title) == ("results/one.md", "One")
    assert "| a\\|b | 2 ms | 1 ms | **missed** |" in text
    assert "| c | not measured | 0 | **missed** | no device |" in text
    assert "| d | 0 | 0 | met |" in text
    assert "a processor, 2 cores" in text and "2026-11-24, at commit `abc`" in text


def test_results_of_a_gpu_stand_apart_and_emulated_ones_do_not():
    emulated = {
        "benchmark": "gpu",
        "machine": MACHINE,
        "device": {"gpu": None},
        "arguments": {"emulated": True},
    }
    real = {"benchmark": "gpu", "machine": MACHINE, "device": {"gpu": "Card 1"}, "bars": []}
    results = [result_file("emulated", emulated), result_file("Card 1/times", real)]
    on_gpus, on_processors = _split(results)
    assert "Card 1 (a processor, 2 cores)" in on_gpus and "emulated" not in on_gpus
    assert "a processor, 2 cores, devices emulated" in on_processors and "Card 1" not in on_processors
    assert "results/gpu-card-1.md" in result_pages(results)
    assert _split(results[:1])[0] == golden()


def test_no_generated_page_is_committed():
    assert [page for page in hook.generated() if (ROOT / "docs" / page).exists()] == []


def test_the_site_is_built_without_a_warning_and_asks_nobody(tmp_path: Path):
    if not all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings")):
        pytest.skip("mkdocs is not installed here: make docs installs it and builds the site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 100
    asked = re.compile(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>")
    assert [found for page in pages for found in asked.findall(page.read_text(encoding="utf-8"))] == []


def _sources(page: ApiPage) -> dict[str, str]:
    return {package: package_source(ROOT, package) for package in page.packages}


def _split(results: list[ResultFile]) -> tuple[str, str]:
    on_gpus, _, on_processors = results_index(results).split("## On GPUs")[1].partition("## On processors")
    return on_gpus, on_processors
