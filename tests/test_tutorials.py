"""The tutorials, each as its reader goes through it: files, Python, commands, and what is said to come out.

In a page, a block of Python whose first line is `# name.py` is a file of that name, and other Python
runs in one session. Lines of a block `sh` are commands. A block `text` is what the block above it
prints: all words of every line, while numbers may be others, but for those that follow from a program
alone, and `…` stands for anything.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from daceml.cli.whatif import BUSY
from tests.support.command_line import told

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
PAGES = sorted(FOLDER.glob("*.md"))
MEASURED = ("device_and_cluster", "guide_an_optimisation", "what_if")
MODULES = ("block", "streams", "net")  # that pages write and import
_BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?")
_RECORDINGS = 3  # again, of a run that a busy machine spoiled
_STATIC = ("steps ", "MB unique ", "kernels ", "passes ")  # lines of figures that no machine changes


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.alone] * (page.stem in MEASURED)) for page in PAGES],
)
def test_a_tutorial_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    reader = Reader(folder=tmp_path, capsys=capsys)
    for language, text in blocks(page.read_text(encoding="utf-8")):
        if language == "text":
            assert missing(text, reader.printed) == []
        else:
            reader.follow(language, text)
    for name in MODULES:
        sys.modules.pop(name, None)


def test_all_five_are_there():
    assert len(PAGES) == 5
    for page in PAGES:
        assert {"python", "text"} <= {language for language, _ in blocks(page.read_text(encoding="utf-8"))}


def test_figures_that_another_page_quotes_are_those_of_the_tutorial():
    quotes, quoted = FOLDER.parent / "concepts" / "honesty.md", FOLDER / "what_if.md"
    row = re.search(r"larger batch +[\d.]+ +[\d.]+ \.\. [\d.]+ +[\d.]+", quotes.read_text(encoding="utf-8"))
    assert row and " ".join(row[0].split()) in " ".join(quoted.read_text(encoding="utf-8").split())


def test_words_are_compared_and_numbers_are_not():
    assert missing("step  12.5 ms\n──────\n", "step 7 ms\n") == []
    assert missing("best: …, 3 of 4\n", "a\nbest: anything at all, 1 of 2\n") == []
    assert missing("12 met\n", "12 missed\n") == ["12 met"]
    assert missing("MB unique  1.5\n", "MB unique 1.6\n") == ["MB unique  1.5"]


@dataclass(kw_only=True)
class Reader:
    """Who goes through a page: a folder, a session of Python, and what was printed last."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    session: dict[str, Any] = field(default_factory=dict[str, Any])
    printed: str = ""
    recording: str = ""

    def follow(self, language: str, text: str) -> None:
        file = re.match(r"# (\w+\.py)\n", text)
        if language == "sh":
            self.printed = "".join(self._command(line) for line in text.replace("\\\n", " ").splitlines())
        elif file:
            (self.folder / file[1]).write_text(text, encoding="utf-8")
        else:
            exec(compile(text, "tutorial.py", "exec"), self.session)
            self.printed = self.capsys.readouterr().out

    def _command(self, line: str) -> str:
        words = shlex.split(line, comments=True)
        if words[0] == "python":
            run = [sys.executable, *words[1:]]
            return subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout
        assert words[0] == "daceml"
        if words[1:3] == ["trace", "profile"]:
            self.recording = line
        code, out, err = told(self.capsys, *words[1:])
        for _ in range(_RECORDINGS):
            if "DML614" not in err:
                break
            # as the error advises: other tests used the processors meanwhile
            shutil.rmtree(self.folder / "traces")
            self._command(self.recording)
            code, out, err = told(self.capsys, *words[1:])
        for _ in range(_RECORDINGS):
            if code != BUSY:
                break
            code, out, err = told(self.capsys, *words[1:])
        if code == BUSY:
            pytest.skip("other programs keep this machine busy, so the command gives no figures")
        assert code == 0, err
        return out


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of each block, in order."""
    return ((found[1], found[2]) for found in _BLOCK.finditer(page))


def missing(shown: str, printed: str) -> list[str]:
    """The lines of `shown` that were not printed."""
    words, figures = _words(printed), _words(printed, numbers=True)
    found = {
        line: re.search(_pattern(line, numbers=exact), figures if exact else words)
        for line in shown.splitlines()
        for exact in (line.lstrip().startswith(_STATIC),)
    }
    return [line for line, match in found.items() if not match]


def _pattern(line: str, *, numbers: bool) -> str:
    return ".*".join(re.escape(_words(part, numbers=numbers)) for part in line.split("…"))


def _words(text: str, *, numbers: bool = False) -> str:
    """All in one line without rules, since what is wide is wrapped; `numbers` are kept, or #."""
    plain = " ".join(re.sub("─+", " ", text).split())
    return plain if numbers else _NUMBER.sub("#", plain)
