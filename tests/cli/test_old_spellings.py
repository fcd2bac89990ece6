"""Commands without `trace`, and options with another name: they work, with a note."""

from __future__ import annotations

import pytest

from daceml.cli.old_spellings import current_spelling


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("replay run.json", "trace replay run.json"),
        ("profile --ranks 2 train.py 20", "trace profile --ranks 2 train.py 20"),
        ("optimize traces", "trace optimize traces"),
        ("whatif run.pt.trace.json.gz --amp", "trace whatif run.pt.trace.json.gz --amp"),
        ("whatif --amp run.json", "trace whatif --amp run.json"),
        ("predict a.json b.json --to L4", "trace predict a.json b.json --to L4"),
        ("compile net.py:Net --export out --arch 90", "compile net.py:Net --device-kernels out --arch 90"),
        ("compile net.py:Net --export=out", "compile net.py:Net --device-kernels=out"),
        ("whatif net.py:Net -i 8 --on H100 --on L4", "whatif net.py:Net -i 8 --to H100 --to L4"),
        ("whatif net.py:Net -i 8 --on mine.json", "whatif net.py:Net -i 8 --to mine.json"),
        ("explore net.py:Net -i 8 --device=H100", "explore net.py:Net -i 8 --to=H100"),
    ],
)
def test_an_old_spelling_becomes_the_new_one_with_a_note(
    given: str, command: str, capsys: pytest.CaptureFixture[str]
):
    assert current_spelling(given.split()) == command.split()
    note = capsys.readouterr().err
    old, new = (words.split("`")[1] for words in note.split(" is now "))
    assert note == f"`{old}` is now `{new}`\n"
    assert old.removeprefix("daceml ") in given and new.removeprefix("daceml ") in command


@pytest.mark.parametrize(
    "given",
    [
        "",
        "trace replay run.json",
        "whatif net.py:Net -i 8,16 --without fuse_maps",
        "predict net.py:Net -i 2,128:int64=0..999 --to processor.json",
        "predict net.onnx --dim N=8 --to H100",
        "gui run.json.gz",
        "export net.py:Net -o out",
    ],
)
def test_a_current_spelling_stays(given: str, capsys: pytest.CaptureFixture[str]):
    assert current_spelling(given.split()) == given.split()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("silent", ["--json", "--quiet", "-q"])
def test_there_is_no_note_next_to_json_and_quiet(silent: str, capsys: pytest.CaptureFixture[str]):
    assert current_spelling(["replay", "run.json", silent])[0] == "trace"
    assert capsys.readouterr().err == ""
