"""The cache: one builder, whole entries only, damage found and mended."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daceml.errors import EnvironmentProblem
from daceml.toolchain.cache import Cache, digest
from tests.support.golden import golden, raises


def write(folder: Path, between: Callable[[], object] = lambda: None) -> None:
    with (folder.parent.parent / "log").open("a") as log:
        log.write(f"{os.getpid()}\n")
    (folder / "first").write_text("1")
    between()
    (folder / "second").write_text("2")


def write_slowly(folder: Path) -> None:
    write(folder, lambda: time.sleep(0.5))


def ask(root: Path, build: Callable[[Path], None] = write_slowly) -> None:
    assert (Cache(root).get("things", "k", build) / "second").read_text() == "2"


def test_an_entry_is_built_once_and_found_again(tmp_path: Path):
    cache = Cache(tmp_path)
    assert cache.find("things", "k") is None
    folder = cache.get("things", "k", write)
    assert cache.get("things", "k", write) == folder == cache.find("things", "k")
    assert len((tmp_path / "log").read_text().split()) == 1


def test_two_processes_that_ask_at_once_share_one_build(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=ask, args=(tmp_path,)) for _ in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    assert [p.exitcode for p in processes] == [0, 0]
    assert len((tmp_path / "log").read_text().split()) == 1


def test_a_killed_build_leaves_a_cache_that_works(tmp_path: Path):
    process = multiprocessing.get_context("spawn").Process(target=ask, args=(tmp_path,))
    process.start()
    while not list((tmp_path / "building").glob("*/first")):
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert Cache(tmp_path).find("things", "k") is None
    ask(tmp_path)


@pytest.mark.parametrize("damage", ["change", "delete", "no entry.json"])
def test_a_damaged_entry_is_found_and_built_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
):
    cache = Cache(tmp_path)
    folder = cache.get("things", "k", write)
    if damage == "change":
        (folder / "second").write_text("3")
    else:
        (folder / ("second" if damage == "delete" else "entry.json")).unlink()
    assert cache.find("things", "k") is None
    ask(tmp_path, write)
    (warning,) = caplog.messages
    assert warning == golden()
    assert "things/k" in warning


def test_a_failing_build_leaves_nothing(tmp_path: Path):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Cache(tmp_path).get("things", "k", fail)
    assert not list((tmp_path / "building").iterdir())
    assert Cache(tmp_path).find("things", "k") is None


def test_a_digest_depends_on_where_parts_end():
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")


def quick(folder: Path) -> None:
    (folder / "file").write_text("1")


def test_builds_that_end_while_others_start_do_not_disturb_each_other(tmp_path: Path):
    cache = Cache(tmp_path)
    with ThreadPoolExecutor(max_workers=8) as pool:
        folders = list(pool.map(lambda i: cache.get("things", f"k{i}", quick), range(200)))
    assert all((folder / "file").exists() for folder in folders)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with raises(EnvironmentProblem, tmp_path / "file", "DACEML_CACHE"):
        Cache(tmp_path / "file").get("things", "k", quick)


@pytest.mark.parametrize("place", [".", "things", "things/k", "things/k/first", "things/k/entry.json"])
def test_what_others_may_write_is_not_used(tmp_path: Path, place: str):
    root = tmp_path / "cache"
    Cache(root).get("things", "k", write)
    (root / place).chmod(0o777)
    for ask_again in (lambda: Cache(root).find("things", "k"), lambda: Cache(root).get("things", "k", write)):
        with raises(EnvironmentProblem, root / place, "0777", "chmod -R go-w", exact=False):
            ask_again()


def test_a_cache_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = tmp_path / "cache"
    Cache(root).get("things", "k", write)
    if os.geteuid() == 0:
        os.chown(root, 65534, -1)
    else:
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with raises(EnvironmentProblem, root, "its owner is", "0700", "chown -R", exact=False):
        Cache(root).find("things", "k")


def test_a_cache_is_its_users_own_whatever_the_umask(tmp_path: Path):
    before = os.umask(0)
    try:
        folder = Cache(tmp_path / "new" / "cache").get("things", "k", write)
    finally:
        os.umask(before)
    for made in (tmp_path / "new" / "cache", folder.parent, folder):
        assert made.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o022 == 0 for file in folder.iterdir())
    assert Cache(tmp_path / "new" / "cache").find("things", "k") == folder


def test_a_build_whose_lock_was_removed_takes_the_entry_of_another(tmp_path: Path):
    def meanwhile(folder: Path) -> None:
        (folder / "first").write_text("1")
        (tmp_path / "things" / "k").mkdir()
        Cache(tmp_path / "other").get("things", "k", quick)
        for file in (tmp_path / "other" / "things" / "k").iterdir():
            file.rename(tmp_path / "things" / "k" / file.name)

    assert (Cache(tmp_path).get("things", "k", meanwhile) / "file").read_text() == "1"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_with_its_bytes(tmp_path: Path, number: int):
    def fill(folder: Path) -> None:
        (folder / "file").write_bytes(bytes(1000))
        raise OSError(number, os.strerror(number))

    with raises(
        EnvironmentProblem, "the disk is full", os.strerror(number), "1000 bytes", exact=False
    ) as error:
        Cache(tmp_path).get("things", "k", fill)
    assert "bytes free" in error.value.why and str(tmp_path) in error.value.where
    assert (Cache(tmp_path).get("things", "k", quick) / "file").exists()


def test_a_limit_of_file_sizes_is_no_fault_of_the_compiler(tmp_path: Path):
    """In a process of its own, since the limit holds for all that a process writes."""
    program = """
import resource, sys
from pathlib import Path
from daceml.errors import EnvironmentProblem
from daceml.toolchain.cache import Cache
from daceml.toolchain.cxx import precompiled_header
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    precompiled_header(Cache(Path(sys.argv[1])))
except EnvironmentProblem as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert "100000 bytes" in said and "ulimit -f" in said and str(tmp_path) in said
