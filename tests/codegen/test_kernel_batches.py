"""Kernels that wait for a compiler are compiled as one text; each keeps its own entry and its own error."""

from __future__ import annotations

import ctypes
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from daceml.codegen import kernel_batches
from daceml.codegen.kernel_batches import KernelBatches, kernel_object
from daceml.config import config
from daceml.errors import BuildError, EnvironmentProblem
from daceml.toolchain.cache import Cache
from daceml.toolchain.cxx import Toolchain
from tests.support.golden import raises


def source(name: str, value: str) -> str:
    return (
        f"namespace daceml::kernel {{\nstatic float twice_{name}(float x) {{ return 2 * x; }}\n"
        f"DACE_EXPORTED void __program_{name}(void*, float* a00) {{ *a00 = twice_{name}({value}); }}\n}}\n"
    )


def loop(name: str) -> str:
    """A loop as DaCe writes it: in a function of its own, which is long enough to be called."""
    total = " + ".join(["0.0", *(f"a00[i + {8 * k}]" for k in range(6))])
    return (
        "namespace daceml::kernel {\n"
        f"void __program_{name}_internal(void*, double* __restrict__ a00, double* __restrict__ a01) {{\n"
        f"  for (int i = 0; i < 8; i += 1) a01[i] = {total};\n}}\n"
        f"DACE_EXPORTED void __program_{name}(void* s, double* a00, double* a01) {{\n"
        f"  __program_{name}_internal(s, a00, a01);\n}}\n}}\n"
    )


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """An empty cache, but for the header."""
    shared = Cache(config().cache_folder)
    kernel_batches.precompiled_header(shared)
    (tmp_path / "headers").symlink_to(shared.root / "headers")
    return Cache(tmp_path)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of kernels in each text that a compiler is given."""
    seen: list[int] = []
    several, one = Toolchain.compile_kernels, Toolchain.compile_kernel

    def count_several(self, given, folder, header):
        seen.append(len(given))
        return several(self, given, folder, header)

    def count_one(self, given, folder, header):
        seen.append(1)
        return one(self, given, folder, header)

    monkeypatch.setattr(Toolchain, "compile_kernels", count_several)
    monkeypatch.setattr(Toolchain, "compile_kernel", count_one)
    return seen


def compiled(sources: list[str], cache: Cache, jobs: int = 1) -> list[Future[Path]]:
    with ThreadPoolExecutor(jobs) as pool:
        batches = KernelBatches(cache, pool, jobs)
        made = [batches.add(one) for one in sources]
        batches.flush()
    return made


def value_of(made: Path, name: str, folder: Path) -> float:
    library = folder / f"{name}.so"
    kernel_batches.toolchain()._call(["g++", "-shared", str(made), "-o", str(library)], folder, "linker")
    result = ctypes.c_float()
    ctypes.CDLL(str(library))[f"__program_{name}"](None, ctypes.byref(result))
    return result.value


def test_each_kernel_of_a_text_has_an_object_of_its_own(cache: Cache, texts: list[int], tmp_path: Path):
    found = compiled([source(name, value) for name, value in zip("abc", "123", strict=True)], cache)
    assert texts == [3]
    assert [value_of(one.result(), name, tmp_path) for name, one in zip("abc", found, strict=True)] == [
        2,
        4,
        6,
    ]
    assert b"__program_b" not in found[0].result().read_bytes()


def test_kernels_of_equal_code_can_be_linked_together(cache: Cache, texts: list[int], tmp_path: Path):
    found = compiled([loop("a"), loop("b"), loop("c")], cache)
    assert texts == [3]
    objects = [str(one.result()) for one in found]
    library = str(tmp_path / "all.so")
    kernel_batches.toolchain()._call(["g++", "-shared", *objects, "-o", library], tmp_path, "linker")
    together, given = ctypes.CDLL(library), (ctypes.c_double * 48)(*range(48))
    for name in "abc":
        sums = (ctypes.c_double * 8)()
        together[f"__program_{name}"](None, given, sums)
        assert list(sums) == [6.0 * i + 120 for i in range(8)]


def test_what_the_cache_has_is_not_compiled_again(cache: Cache, texts: list[int]):
    kernel_object(source("a", "1"), cache)
    compiled([source("a", "1"), source("b", "2")], cache)
    compiled([source("a", "1"), source("b", "2")], cache)
    assert texts == [1, 1]


def test_one_text_is_shared_by_the_compilers_of_the_pool(cache: Cache, texts: list[int]):
    compiled([source(f"k{i}", str(i)) for i in range(3)], cache, jobs=3)
    assert texts == [1, 1, 1]


def test_a_text_is_not_longer_than_a_compiler_likes(
    cache: Cache, texts: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kernel_batches, "_MOST_BYTES", 2 * len(source("a", "1")))
    compiled([source(name, "1") for name in "abc"], cache)
    assert texts == [2, 1]


def test_a_kernel_that_is_refused_does_not_take_the_others_along(cache: Cache):
    good, bad, other = compiled([source("a", "1"), source("b", "no number"), source("c", "3")], cache)
    assert good.result().exists() and other.result().exists()
    with pytest.raises(BuildError) as refusal:
        bad.result()
    assert "no number" in refusal.value.why


def test_without_a_linker_every_kernel_is_compiled_alone(
    cache: Cache, texts: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kernel_batches.shutil, "which", lambda name: None)
    compiled([source("a", "1"), source("b", "2")], cache)
    assert texts == [1, 1]


def test_nobody_waits_for_what_is_given_up(cache: Cache):
    with ThreadPoolExecutor(1) as pool:
        batches = KernelBatches(cache, pool, 1)
        made = batches.add(source("a", "1"))
        batches.close()
        batches.flush()
    assert made.cancelled()


def test_a_folder_that_cannot_be_written_is_an_error_and_no_endless_wait(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
):
    def full(self: Toolchain, *given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Toolchain, "compile_kernels", full)
    monkeypatch.setattr(Toolchain, "compile_kernel", full)
    for made in compiled([source("a", "1"), source("b", "2")], cache):
        with raises(EnvironmentProblem, "No space left", exact=False):  # the folder's name
            made.result(timeout=60)
