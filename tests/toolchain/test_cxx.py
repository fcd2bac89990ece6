"""What is made once for every program of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daceml.compiler import warm_up
from daceml.errors import BuildError
from daceml.runtime.launcher import make_ready
from daceml.toolchain import cxx as toolchains
from daceml.toolchain.cache import Cache
from daceml.toolchain.cache_contents import CacheContents
from daceml.toolchain.cxx import Toolchain, precompiled_header, toolchain


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is built, in order; nothing is compiled."""
    seen: list[str] = []

    def header(self: Toolchain, folder: Path) -> None:
        seen.append("header")
        (folder / "header").write_text("made")

    def launcher(self: Toolchain, *arguments: object) -> None:
        seen.append("launcher")

    monkeypatch.setattr(Toolchain, "compile_header", header)
    monkeypatch.setattr(Toolchain, "declare_torch", lambda self, folder: None)
    monkeypatch.setattr(Toolchain, "build_launcher", launcher)
    monkeypatch.setattr(toolchains, "_checked_headers", {})
    return seen


def test_a_header_is_read_through_once_by_a_process(
    tmp_path: Path, built: list[str], monkeypatch: pytest.MonkeyPatch
):
    cache = Cache(tmp_path)
    folder = precompiled_header(cache)
    monkeypatch.setattr(Cache, "get", lambda *_: pytest.fail("it was looked through again"))
    assert precompiled_header(Cache(tmp_path)) == folder
    assert built == ["header"]


def test_a_header_that_was_removed_is_made_again(tmp_path: Path, built: list[str]):
    cache = Cache(tmp_path)
    precompiled_header(cache)
    CacheContents.of(tmp_path).remove()
    assert (precompiled_header(cache) / "header").read_text() == "made"
    assert built == ["header", "header"]


def test_only_what_a_cache_lacks_is_made_ready(tmp_path: Path, built: list[str]):
    cache = Cache(tmp_path)
    precompiled_header(cache)
    make_ready(cache)
    make_ready(cache)
    assert built == ["header", "launcher"]


def test_a_compiler_that_fails_ahead_of_time_is_reported_where_it_is_needed(
    tmp_path: Path, built: list[str], monkeypatch: pytest.MonkeyPatch
):
    def refuse(self: Toolchain, folder: Path) -> None:
        built.append("refused")
        raise BuildError("the C++ compiler failed with status 1", where="here", why="no", fix="none")

    monkeypatch.setattr(Toolchain, "compile_header", refuse)
    cache = Cache(tmp_path)
    for _ in range(3):
        thread = warm_up.warm(cache)
        if thread is not None:
            thread.join()
    assert built == ["refused"]
    with pytest.raises(BuildError, match="status 1"):
        precompiled_header(cache)


_NO_STRINGS = "#ifdef _GLIBCXX_STRING\n#error it has strings\n#endif\n"


def compiled_header(folder: Path) -> str:
    """What the header of kernels says, which compiles and has complex numbers."""
    toolchain().compile_header(folder)
    kernel = 'extern "C" float f(float* x) { return std::abs(std::complex<float>(x[0], x[1])); }'
    toolchain().compile_kernel(kernel, folder, folder)
    return (folder / "daceml_kernel.h").read_text()


def test_the_header_of_kernels_has_complex_numbers_without_strings(tmp_path: Path):
    assert "DACEML_LEAN_COMPLEX" in compiled_header(tmp_path)
    toolchain().compile_kernel(_NO_STRINGS, tmp_path, tmp_path)


def test_a_library_whose_complex_numbers_need_streams_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = toolchains.run_compiler

    def refusing(command: list[str], folder: Path, **named: Any) -> str:
        if "c++-header" in command and "DACEML_LEAN_COMPLEX" in (folder / "daceml_kernel.h").read_text():
            raise BuildError("the C++ compiler failed with status 1", where="here", why="no", fix="none")
        return run(command, folder, **named)

    monkeypatch.setattr(toolchains, "run_compiler", refusing)
    assert "DACEML_LEAN_COMPLEX" not in compiled_header(tmp_path)
    with pytest.raises(BuildError, match="has strings"):
        toolchain().compile_kernel(_NO_STRINGS, tmp_path, tmp_path)
