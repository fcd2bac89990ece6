"""Texts that users read, compared with one golden file.

Tests assert what a program relies on: the kind of an error, and the facts in its message (names, shapes,
limits). The sentences live in `tests/golden/messages.txt`, by test. `make messages` writes them anew; the
difference is reviewed as text.

    with raises(CallError, "weight", "(3, 4)"):
        ...
    assert refusal.reason == golden()

Calls are numbered within a test, so a test that compares several texts does so in the same order each time.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "golden" / "messages.txt"
_HEAD = "# Written by `make messages`; each text as the test of that name saw it.\n"
_MARK = "== "
_HOW = "reword freely, then run these tests with --renew-messages, or all: make messages"


class Texts:
    """The golden texts, and those that this process saw.

    Attributes:
        renew: whether texts are taken as they are, to be written.
        seen: name of a text -> the text, of this process.
    """

    def __init__(self, known: dict[str, str], *, renew: bool = False) -> None:
        self.known, self.renew = known, renew
        self.seen: dict[str, str] = {}
        self._test, self._count = "", 0

    def name(self) -> str:
        """The name of the next text of the test that runs."""
        test = running()
        self._count = self._count + 1 if test == self._test else 1
        self._test = test
        return f"{test} {self._count}"

    def matches(self, name: str, text: str) -> bool:
        """Whether a text is the golden one; always, where texts are renewed."""
        self.seen[name] = text
        return self.renew or self.known.get(name) == text


class Golden:
    """Equal to the text that the golden file has; one for each comparison."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, texts: Texts) -> None:
        self._texts, self._name = texts, texts.name()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self._texts.matches(self._name, _everywhere(other))

    def __repr__(self) -> str:
        known = self._texts.known.get(self._name)
        return f"<{'no golden text yet' if known is None else repr(known)}; {_HOW}>"


def running() -> str:
    """The name of the test that runs."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def golden() -> Any:
    """What a text is compared with: `assert refusal.reason == golden()`."""
    return Golden(TEXTS)


@contextmanager
def raises(
    kind: type[BaseException] | tuple[type[BaseException], ...], *facts: object, exact: bool = True
) -> Generator[pytest.ExceptionInfo[Any]]:
    """Expect an error.

    Args:
        kind: of the error.
        facts: names, shapes and limits that its message contains, as it prints them.
        exact: compare the message with the golden one; False where parts of it are others' or this machine's.
    """
    __tracebackhide__ = True
    with pytest.raises(kind) as caught:
        yield caught
    text = _printed(caught.value)
    for fact in facts:
        if str(fact) not in text:
            pytest.fail(f"the message does not name {fact}:\n{text}")
    if exact and text != (expected := Golden(TEXTS)):
        pytest.fail(f"the message is\n{text}\nand not\n{expected!r}")


def _printed(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def _everywhere(text: str) -> str:
    """A text without what differs between machines, runs and releases, such as folders and digests."""
    # an operator's version is that of the onnx that is installed
    text = re.sub(r"\b(ONNX \w+)-\d+\b", r"\1-<version>", text)
    text = re.sub(r"(?<![0-9a-zA-Z])(k_)?[0-9a-f]{20,}(?![0-9a-zA-Z])", r"\1<digest>", text)
    if cache := os.environ.get("DACEML_CACHE"):
        text = text.replace(cache, "<cache>")
    for folder in {str(FILE.parents[2]), os.path.realpath(FILE.parents[2])}:
        text = text.replace(folder, "<repository>")
    temporary = re.escape(tempfile.gettempdir())
    # the number behind a test's folder counts the tests of this run whose folders have one name
    run = rf"{temporary}/pytest-of-[^/\s]+/pytest-\d+/(?:popen-gw\d+/)?"
    text = re.sub(rf"{run}([\w-]*?)\d+(?![\w-])", r"<tmp>/\1", text)
    text = re.sub(run, "<tmp>/", text)
    text = re.sub(rf"{temporary}/[^\s/'\"]+", "<tmp>", text)
    return re.sub(r"\b0x[0-9a-f]{9,}\b", "<address>", text)


def load(file: Path = FILE) -> dict[str, str]:
    """The golden texts by name."""
    if not file.exists():
        return {}
    blocks = file.read_text(encoding="utf-8").split(f"\n{_MARK}")[1:]
    parts = (block.partition("\n") for block in blocks)
    return {name: text.removesuffix("\n")[4:].replace("\n    ", "\n") for name, _, text in parts}


def save(texts: Mapping[str, str], file: Path = FILE) -> None:
    """Write golden texts, by name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    blocks = (
        f"\n{_MARK}{name}\n    " + texts[name].replace("\n", "\n    ") + "\n"
        for name in sorted(texts, key=_order)
    )
    file.write_text(_HEAD + "".join(blocks), encoding="utf-8")


def merged(
    known: Mapping[str, str], seen: Mapping[str, str], ran: set[str], collected: set[str]
) -> dict[str, str]:
    """Golden texts after a run that renews them.

    Args:
        ran: tests that ran: what they did not see again goes.
        collected: all tests of their files: what belongs to other tests of these files goes, too. Empty where
            only some tests of a file were asked for.
    """
    files = {test.partition("::")[0] for test in collected}

    def stays(name: str) -> bool:
        test = name.rpartition(" ")[0]
        return test not in ran and (test in collected or test.partition("::")[0] not in files)

    return {name: text for name, text in known.items() if stays(name)} | dict(seen)


def _order(name: str) -> tuple[str, int]:
    test, _, count = name.rpartition(" ")
    return test, int(count)


TEXTS = Texts(load())


class Renewal:
    """A run of pytest with `--renew-messages`: what its processes saw is written at its end."""

    def __init__(self) -> None:
        TEXTS.renew = True
        self._seen: dict[str, str] = {}
        self._ran: set[str] = set()
        self._collected: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not any("::" in argument for argument in config.args):
            self._collected |= {item.nodeid for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:  # one that fails may not have come to all its texts
            self._ran.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of xdist has ended."""
        told = getattr(node, "workeroutput", {})
        self._seen |= told.get("seen", {})
        self._collected |= set(told.get("collected", ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:  # a worker tells the process that started it
            output["seen"], output["collected"] = TEXTS.seen, sorted(self._collected)
            return
        save(merged(load(), self._seen | TEXTS.seen, self._ran, self._collected))


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--renew-messages", action="store_true", help="take the texts as they are: see make messages"
    )


def configure(config: pytest.Config) -> None:
    if config.getoption("--renew-messages"):
        config.pluginmanager.register(Renewal(), "renewed-messages")
