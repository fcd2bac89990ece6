"""Where NVIDIA's disassembler is found, and what is said where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.device_code import disassembler
from benchmarks.device_code.disassembler import TOOLS, Disassembler, find_disassembler, main
from tests.support.golden import golden


def tools_in(folder: Path, text: str = "exit 0") -> Path:
    """Both tools, as programs that do what they are told."""
    folder.mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        (folder / tool).write_text(f"#!/bin/sh\n{text}\n")
        (folder / tool).chmod(0o755)
    return folder


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nvcc, and with nothing else."""
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(disassembler, "find_nvcc", lambda: str(nvcc))
    monkeypatch.setattr(disassembler, "toolkit_folder", lambda nvcc: Path(nvcc).parent.parent)
    monkeypatch.setattr(disassembler, "wheel_folders", lambda major: ())
    monkeypatch.setattr(disassembler, "find_spec", lambda name: None)
    return tmp_path


def test_without_tools_the_sentence_says_where_it_was_looked(
    nowhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    said = str(find_disassembler())
    assert said == golden()
    assert all(fact in said for fact in ("cuobjdump", "nvdisasm", "PATH", "pip install 'daceml[cuda-sass]'"))
    assert (main(), capsys.readouterr().out) == (1, said + "\n")
    monkeypatch.setattr(disassembler, "find_nvcc", lambda: None)
    assert main() == 0  # nothing is compiled, so there is nothing to read


def test_one_tool_is_not_enough(nowhere: Path):
    (tools_in(nowhere / "toolkit" / "bin") / "nvdisasm").unlink()
    assert str(find_disassembler()).startswith("there is no nvdisasm on PATH")


def test_the_order_is_path_toolkit_wheels_triton(nowhere: Path, monkeypatch: pytest.MonkeyPatch):
    class Spec:
        submodule_search_locations = (str(nowhere / "triton"),)

    monkeypatch.setattr(disassembler, "find_spec", lambda name: Spec)
    monkeypatch.setattr(disassembler, "wheel_folders", lambda major: (nowhere / f"cu{major}",))
    for place in ("triton/backends/nvidia/bin", "cu13/bin", "toolkit/bin", "on-path"):
        folder = tools_in(nowhere / place)
        if place == "on-path":
            monkeypatch.setenv("PATH", str(folder))
        found = Disassembler(cuobjdump=folder / "cuobjdump", nvdisasm=folder / "nvdisasm")
        assert find_disassembler() == found


def test_an_object_that_cannot_be_read_is_a_sentence(tmp_path: Path):
    folder = tools_in(tmp_path, "echo 'cuobjdump fatal: unknown architecture' >&2; exit 255")
    found = Disassembler(cuobjdump=folder / "cuobjdump", nvdisasm=folder / "nvdisasm")
    refused = str(found.functions(tmp_path / "kernel.o"))
    assert refused == golden()
    assert f"{folder}/cuobjdump " in refused and "cuobjdump fatal: unknown architecture" in refused
    silent = tools_in(tmp_path / "silent")
    found = Disassembler(cuobjdump=silent / "cuobjdump", nvdisasm=silent / "nvdisasm")
    refused = str(found.functions(tmp_path / "kernel.o"))
    assert refused == golden()
    assert f"{silent}/cuobjdump " in refused


def test_cuobjdump_finds_the_nvdisasm_that_was_found(tmp_path: Path):
    """It looks for it on PATH, where none may be."""
    text = r"printf '\t\tFunction : f\n        /*0000*/  EXIT ;\n'"
    first = tools_in(tmp_path / "a", f"command -v nvdisasm >/dev/null && {text}")
    other = tools_in(tmp_path / "b")
    (first / "nvdisasm").unlink()
    found = Disassembler(cuobjdump=first / "cuobjdump", nvdisasm=other / "nvdisasm").functions(tmp_path)
    assert not isinstance(found, str) and [one.opcode for one in found["f"]] == ["EXIT"]
