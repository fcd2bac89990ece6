"""A full disk, told as one: which disk, which folder, how many bytes."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from daceml.errors import EnvironmentProblem

_LIMITED = errno.EFBIG
_FULL = {errno.ENOSPC, errno.EDQUOT, _LIMITED}
_FIX = (
    "make room (daceml cache clear), or name a folder on another disk: DACEML_CACHE for what is kept, "
    "TMPDIR for temporary files"
)
_SAID = {os.strerror(number): number for number in _FULL} | {"File size limit exceeded": _LIMITED}


@contextmanager
def disk_explained(folder: Path, *, fix: str = _FIX) -> Generator[None]:
    """Say of a write that fails since a disk is full which disk that is.

    Args:
        folder: to which is written.
    Raises:
        EnvironmentProblem: in the place of an OSError of this kind.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise _disk_full(folder, error.errno, fix) from error


def refuse_full_disk(said: str, folder: Path) -> None:
    """Raise where a command failed since a disk was full.

    Args:
        said: by the command, in the language of the C locale.
        folder: where it wrote, besides that of temporary files.
    Raises:
        EnvironmentProblem: the disk is full.
    """
    for text, number in _SAID.items():
        if text in said:
            raise _disk_full(folder, number, _FIX)


def _disk_full(folder: Path, number: int, fix: str) -> EnvironmentProblem:
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    told = f"{os.strerror(number)}; {folder} holds {written} bytes"
    if number == _LIMITED and (most := resource.getrlimit(resource.RLIMIT_FSIZE)[0]) >= 0:
        return EnvironmentProblem(
            "a file is larger than this process may write",
            where=str(folder),
            why=f"{told}; a file may have {most} bytes (ulimit -f)",
            fix="raise the limit: ulimit -f unlimited",
        )
    places = dict.fromkeys(_disk(place) for place in (folder, Path(tempfile.gettempdir())))
    return EnvironmentProblem(
        "the disk is full",
        where=str(folder),
        why="\n".join((told, *places)),
        fix=fix,
    )


def _disk(folder: Path) -> str:
    """The disk that a folder is on, with its room."""
    mount = folder = folder.resolve()
    while not mount.is_mount():
        mount = mount.parent
    room = shutil.disk_usage(folder)
    return f"the disk at {mount} has {room.free} of {room.total} bytes free"
