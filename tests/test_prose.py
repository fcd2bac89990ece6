"""The documentation and the help texts use the field's terms: no retired word is in them."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from daceml.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/results/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_NO_PROSE = re.compile(
    r"^(?P<fence>[ >]*```).*?^(?P=fence)[^\n]*$|`+[^`]+`+|\]\([^)]*\)|<[^>]+>|^> .*?$",
    re.MULTILINE | re.DOTALL,
)
_LONGEST_HELP = 80  # characters


class RetiredWord(NamedTuple):
    pattern: re.Pattern[str]
    use: str
    allow: tuple[str, ...]


class HelpText(NamedTuple):
    """A help text of the command line, with the file that it is in."""

    file: str
    name: str
    text: str
    of_option: bool


def retired_words() -> list[RetiredWord]:
    table = tomllib.loads((ROOT / "tests/support/retired_words.toml").read_text(encoding="utf-8"))
    return [
        RetiredWord(re.compile(row["pattern"], re.IGNORECASE), row["use"], tuple(row.get("allow", ())))
        for row in table["word"]
    ]


WORDS = retired_words()


def prose(page: str) -> str:
    """A page with spaces instead of code, link targets and HTML; every word keeps its position."""
    return _NO_PROSE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), page)


def findings(text: str) -> list[str]:
    """Line, word and the word to use, for every retired word."""
    joined = text.replace("\n", " ")
    found = list[tuple[int, str]]()
    for word in WORDS:
        allowed = [
            range(*right.span())
            for phrase in word.allow
            for right in re.finditer(r"\s+".join(map(re.escape, phrase.split())), joined, re.IGNORECASE)
        ]
        for match in word.pattern.finditer(joined):
            if not any(match.start() in span for span in allowed):
                line = text.count("\n", 0, match.start()) + 1
                found.append((line, f"{line}: '{match[0]}': use {word.use}"))
    return [sentence for _, sentence in sorted(found)]


def help_texts(command: Any, name: str = "daceml") -> Iterator[HelpText]:
    """Of a command, its options and its subcommands."""
    file = _source(command.callback) if command.callback else "daceml/cli/main.py"
    yield HelpText(file, name, command.help or "", of_option=False)
    yield HelpText(file, name, command.epilog or "", of_option=False)
    for option in command.params:
        if text := getattr(option, "help", None):
            yield HelpText(file, f"{name} {option.opts[0]}", text, of_option=True)
    for word, inner in getattr(command, "commands", {}).items():
        yield from help_texts(inner, f"{name} {word}")


def _source(callback: Callable[..., object]) -> str:
    return str(Path(inspect.getfile(inspect.unwrap(callback))).relative_to(ROOT))


HELP = list(help_texts(get_command(app)))


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_page_has_no_retired_word(page: Path):
    name = page.relative_to(ROOT)
    found = findings(prose(page.read_text(encoding="utf-8")))
    assert [f"{name}:{one}" for one in found] == []


def test_help_texts_have_no_retired_word():
    assert len(HELP) > 100
    assert [f"{one.file}: {one.name}: {found}" for one in HELP for found in findings(one.text)] == []


def test_the_help_of_an_option_is_a_phrase_on_one_line():
    wrong = [
        one for one in HELP if one.of_option and (one.text.endswith(".") or len(one.text) > _LONGEST_HELP)
    ]
    assert [f"{one.file}: {one.name}: {one.text}" for one in wrong] == []


def test_words_are_found_with_their_line_across_line_breaks():
    page = "A pass.\nIt is in\nfront of `nobody`, [this](beside.md).\n\n```\nsomebody\n```\nThe run's lanes\n"
    assert findings(prose(page)) == ["2: 'in front of': use before", "8: 'run's lanes': use tracks"]


def test_a_word_in_its_other_sense_is_no_finding():
    assert (
        findings("Latencies are hidden\nbehind transfers; vector lanes; otherwise raised, of course.") == []
    )
    assert findings("of a course of kernels, as modelled") == ["1: 'modelled': use the spelling with one l"]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.use)
def test_the_table_has_no_row_that_finds_the_word_to_use(word: RetiredWord):
    assert word.pattern.search(word.use) is None


def test_messages_name_the_component_or_user():
    """Texts of errors and reports, by their golden file; names of tests are left out."""
    texts = (ROOT / "tests" / "golden" / "messages.txt").read_text(encoding="utf-8")
    found = [
        line
        for line in texts.splitlines()
        if not line.startswith("== ") and re.search(r"\b(nobody|whoever|somebody|someone|beside)\b", line)
    ]
    assert found == []
