"""A device in a TOML file: what a user writes, and what is said where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.devices.device_file import device_of, read_device
from daceml.errors import DeviceError

HEAD = 'name = "Mine"\nkind = "gpu"\nvendor = "Acme"\narchitecture = "One"\n'
FIGURE = "multiprocessors = { value = 80, source = 'sheet', verified = true }\n"


def refusal(text: str) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        device_of(text, where="mine.toml")
    assert caught.value.where == "mine.toml"
    assert caught.value.why and caught.value.fix
    return caught.value


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
    with pytest.raises(DeviceError, match="cannot be read") as caught:
        read_device(Path("nowhere.toml"))
    assert caught.value.where == "nowhere.toml" and "docs/devices.md" in caught.value.fix


def test_a_file_that_is_no_text(tmp_path: Path):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DeviceError, match="cannot be read"):
        read_device(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("text", "why", "fix"),
    [
        ("name = ", "Invalid value (at end of document)", "mend the line"),
        (HEAD + "clock = 3", "there is no field 'clock'", "known are name, aliases"),
        (HEAD + "multiprocesors = 3", "there is no field 'multiprocesors'", "did you mean multiprocessors?"),
        ('kind = "gpu"', "name is missing", 'add a line: name = "..."'),
        (HEAD.replace('"gpu"', '"tpu"'), "kind is 'tpu'", "say one of gpu, cpu"),
        (HEAD.replace('"Mine"', '""'), "name is ''", "give a text"),
        (HEAD + "aliases = 'x'", "aliases is no list of texts", "write: aliases"),
        (HEAD + "compute_capability = 9.0", "compute_capability is 9.0", "write 90"),
        (HEAD + "compute_capability = true", "compute_capability is True", "write 90"),
        (HEAD + "multiprocessors = 80", "multiprocessors has no source", "write multiprocessors = {"),
        (HEAD + "l2_bytes = { value = 80 }", "l2_bytes lacks, or does not know, source", "write l2_bytes"),
        (HEAD + FIGURE.replace("verified", "sure"), "multiprocessors lacks, or does not know, sure", "write"),
        (HEAD + FIGURE.replace("80", "'80'"), "the value of multiprocessors is '80'", "write"),
        (HEAD + FIGURE.replace("80", "true"), "the value of multiprocessors is True", "write"),
        (HEAD + FIGURE.replace("true", "1"), "source and verified of multiprocessors are 'sheet' and 1", ""),
        (HEAD + "peak_flops_per_s = 3", "peak_flops_per_s is no table", "[peak_flops_per_s] holds"),
        (HEAD + "sources = 'x'", "sources is no table of texts", "[sources] holds"),
        (HEAD + FIGURE.replace("80", "nan"), "multiprocessors is nan", "above zero"),
        (HEAD + FIGURE.replace("80", "-80"), "multiprocessors is -80", "above zero"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, why: str, fix: str):
    found = refusal(text)
    assert found.why.startswith(why) and fix in found.fix


def test_the_whole_error():
    assert str(refusal(HEAD + "multiprocessors = 80")) == (
        "[DML641] this file describes no device\n"
        "  where: mine.toml\n"
        "  why:   multiprocessors has no source\n"
        '  fix:   write multiprocessors = { value = 80, source = "whose figure it is", verified = true }'
    )
