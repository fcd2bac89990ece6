"""A device in a TOML file: what a user writes, and what is said where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.devices.device_file import device_of, read_device
from daceml.errors import DeviceError
from tests.support.golden import raises

HEAD = 'name = "Mine"\nkind = "gpu"\nvendor = "Acme"\narchitecture = "One"\n'
FIGURE = "multiprocessors = { value = 80, source = 'sheet', verified = true }\n"


def test_a_device_of_ones_own(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(
        HEAD + FIGURE + "compute_capability = 90\naliases = ['My card']\n"
        "[peak_flops_per_s]\nfloat32 = { value = 1e12, source = 'a friend' }\n"
        "[sources]\nsheet = 'the data sheet, page 2'\n"
    )
    mine = read_device(file)
    assert (mine.name, mine.compute_capability, mine.aliases) == ("Mine", 90, ("My card",))
    assert mine.multiprocessors is not None
    assert (mine.multiprocessors.value, mine.multiprocessors.source) == (80, "the data sheet, page 2")
    assert mine.peak_flops_per_s["float32"].source == "a friend"
    assert mine.unverified == ("peak_flops_per_s.float32",), "nobody said that it was verified"


def test_a_file_that_is_not_there():
    with raises(DeviceError, "No such file", "docs/devices.md", exact=False) as caught:
        read_device(Path("nowhere.toml"))
    assert caught.value.where == "nowhere.toml"


def test_a_file_that_is_no_text(tmp_path: Path):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    with raises(DeviceError, "utf-8", "docs/devices.md", exact=False) as caught:
        read_device(tmp_path / "a.toml")
    assert caught.value.where == str(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("text", "why", "fix"),
    [
        (HEAD + "clock = 3", ["'clock'"], "name, aliases"),
        (HEAD + "multiprocesors = 3", ["'multiprocesors'"], "multiprocessors"),
        ('kind = "gpu"', ["name"], 'name = "..."'),
        (HEAD.replace('"gpu"', '"tpu"'), ["kind", "'tpu'"], "gpu, cpu"),
        (HEAD.replace('"Mine"', '""'), ["name", "''"], 'name = "..."'),
        (HEAD + "aliases = 'x'", ["aliases"], 'aliases = ["...", "..."]'),
        (HEAD + "compute_capability = 8.9", ["compute_capability", "8.9"], "90"),
        (HEAD + "compute_capability = true", ["compute_capability", "True"], "90"),
        (HEAD + "multiprocessors = 80", ["multiprocessors", "source"], "multiprocessors = { value = "),
        (HEAD + "l2_bytes = { value = 80 }", ["l2_bytes", "source"], "l2_bytes = { value = "),
        (HEAD + FIGURE.replace("verified", "sure"), ["multiprocessors", "sure"], "multiprocessors = {"),
        (HEAD + FIGURE.replace("80", "'80'"), ["multiprocessors", "'80'"], "multiprocessors = { value = "),
        (HEAD + FIGURE.replace("80", "true"), ["multiprocessors", "True"], "multiprocessors = { value = "),
        (HEAD + FIGURE.replace("true", "1"), ["multiprocessors", "'sheet'", "1"], "multiprocessors = {"),
        (HEAD + "peak_flops_per_s = 3", ["peak_flops_per_s"], "[peak_flops_per_s]"),
        (HEAD + "sources = 'x'", ["sources"], "[sources]"),
        (HEAD + FIGURE.replace("80", "nan"), ["multiprocessors", "nan"], ""),
        (HEAD + FIGURE.replace("80", "-80"), ["multiprocessors", "-80"], ""),
    ],
    ids=[
        "an unknown field", "a misspelt field", "no name", "an unknown kind", "an empty name", "no list",
        "no whole number", "no number", "a bare figure", "no source", "an unknown key", "a text as value",
        "a truth value", "no truth value", "no table", "no sources", "nan", "below zero",
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, why: list[str], fix: str):
    with raises(DeviceError) as caught:
        device_of(text, where="mine.toml")
    assert caught.value.where == "mine.toml"
    assert all(fact in caught.value.why for fact in why)
    assert caught.value.fix and fix in caught.value.fix


def test_what_is_no_toml_is_said_by_the_parser():
    with raises(DeviceError, "Invalid value", exact=False) as caught:
        device_of("name = ", where="mine.toml")
    assert caught.value.where == "mine.toml" and "source = " in caught.value.fix
