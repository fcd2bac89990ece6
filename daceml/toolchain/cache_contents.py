"""What belongs to a cache: counted, and removed without anything else that lies in its folder."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from daceml.toolchain.cache import BUILDING, ENTRY_FILE, TAG_FILE

KINDS = ("programs", "kernels", "headers", "launchers", "decisions", "machines", "speeds", "emulation")
_KEY = re.compile(r"[0-9a-f]{32}")
_SCRATCH = re.compile(r"(\d+)-[0-9a-f]{32}|(damaged|verify)-\w+")
_FILES = (TAG_FILE, "steps.db", "steps.db-wal", "steps.db-shm", "steps.db-journal")


@dataclass(frozen=True, kw_only=True)
class CacheContents:
    """What a folder holds of a cache.

    Attributes:
        root: the folder.
        entries: kind -> folders of its entries.
        scratch: folders of entries that are made, or that a killed process has left.
        locks: files by which processes wait for each other.
        files: further ones: the tag, and the database of measured steps.
    """

    root: Path
    entries: dict[str, list[Path]]
    scratch: list[Path]
    locks: list[Path]
    files: list[Path]

    @classmethod
    def of(cls, root: Path) -> CacheContents:
        """What is known by its name or by its `entry.json`; links are not followed."""
        entries = {kind: [one for one in _inside(root / kind) if _is_entry(one)] for kind in KINDS}
        making = [one for one in _inside(root / BUILDING) if one.is_dir()]
        return cls(
            root=root,
            entries=entries,
            scratch=[one for one in making if _SCRATCH.fullmatch(one.name)],
            locks=[one for kind in KINDS for one in _inside(root / kind) if _is_lock(one)],
            files=[file for name in _FILES if (file := root / name).is_file()],
        )  # fmt: skip

    def __bool__(self) -> bool:
        return any((*self.entries.values(), self.scratch, self.locks, self.files))

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        folders = [*(entry for entries in self.entries.values() for entry in entries), *self.scratch]
        return sum(map(folder_bytes, folders)) + sum(file.stat().st_size for file in self.files)

    def remove(self) -> None:
        """Remove all of it, except what a process makes just now; other files in the folder stay.

        Raises:
            OSError: something cannot be removed.
        """
        for entry in (*(one for entries in self.entries.values() for one in entries), *self.scratch):
            if not _in_use(entry):
                shutil.rmtree(entry)
        for lock in self.locks:
            try:
                with FileLock(lock, timeout=0):
                    lock.unlink(missing_ok=True)
            except Timeout:
                continue
        for file in self.files:
            file.unlink(missing_ok=True)
        for folder in (*(self.root / kind for kind in (*KINDS, BUILDING)), self.root):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def folder_bytes(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*"))


def _inside(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if not one.is_symlink()] if folder.is_dir() else []


def _is_entry(folder: Path) -> bool:
    return folder.is_dir() and bool(_KEY.fullmatch(folder.name) or (folder / ENTRY_FILE).is_file())


def _is_lock(file: Path) -> bool:
    named = _KEY.fullmatch(file.stem) or _is_entry(file.with_suffix(""))
    return file.suffix == ".lock" and bool(named) and file.stat().st_size == 0


def _in_use(scratch: Path) -> bool:
    """Whether the process that made a scratch folder lives."""
    named = _SCRATCH.fullmatch(scratch.name)
    if named is None or named[1] is None:
        return False
    try:
        os.kill(int(named[1]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
