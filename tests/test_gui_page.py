"""docs/page.md and the README's way to the page: their commands run, and the page answers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import torch

import daceml
from tests.support.command_line import told

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "page.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODEL, USE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_from_the_demo_to_the_page_in_three_commands():
    """The README's first block; `make demo` itself is run in tests/examples/test_demo.py."""
    (block,) = re.findall(r"```\n(make demo.*?)```", README, re.DOTALL)
    commands = [line.split("#")[0].strip() for line in block.splitlines()]
    to_the_page = commands[: 1 + next(i for i, line in enumerate(commands) if "daceml gui" in line)]
    assert to_the_page[0] == "make demo" and len(to_the_page) <= 3
    words = shlex.split(to_the_page[-1])
    assert words[0] == ".venv/bin/daceml"
    command = [sys.executable, "-m", "daceml.cli.main", *words[1:], "--no-browser"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        try:
            assert run.stdout is not None
            url = run.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert "<main" in answer.read().decode()
            view = urllib.request.Request(url.replace("/?", "/view.json?"))
            with urllib.request.urlopen(view, timeout=60) as answer:
                assert json.loads(answer.read())["title"] == "MBConv"
        finally:
            run.terminate()  # where tests run in the background, interrupts are ignored
        try:
            assert run.wait(60) == 0
        finally:
            run.kill()


@pytest.mark.slow
def test_the_page_as_a_file_and_its_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "net.py").write_text(MODEL)
    command = next(line for line in PAGE.splitlines() if line.endswith("-o block.html"))
    code, _, err = told(capsys, *shlex.split(command)[1:], "--quiet")
    assert code == 0, err
    page = (tmp_path / "block.html").read_text()
    found = re.search(r'<script type="application/json" id="view">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    view = json.loads(found[1])
    assert view["title"] == "Block" and all(move["effect"] is not None for move in view["moves"])

    (tmp_path / "block_recipe.py").write_text(view["script"])
    variables: dict[str, object] = {"daceml": daceml}
    exec(MODEL, variables)
    exec(USE, variables)
    x, fast = torch.randn(64, 256), variables["fast"]
    assert isinstance(fast, daceml.DaceModule)
    torch.testing.assert_close(fast(x), fast.session.eager(x), rtol=1e-4, atol=1e-5)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "block_recipe.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.stdout.split()[-1:] == [view["hash"]], run.stderr
    sys.modules.pop("block_recipe", None)
    sys.modules.pop("net", None)
