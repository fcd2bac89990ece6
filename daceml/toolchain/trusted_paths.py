"""Whose files are executed: those that this user or root alone can write, as ssh asks of its keys."""

from __future__ import annotations

import errno
import os
import pwd
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from daceml.errors import EnvironmentProblem

_ROOT = 0
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
"""The bits of a mode that let other users write."""


def make_private(folder: Path) -> None:
    """Make a folder that only this user may enter, where there is none yet."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


def check_trusted(path: Path, found: os.stat_result | None = None, *, sticky: bool = False) -> None:
    """Refuse a file or folder that another user could have written.

    Args:
        found: what the system says of the path, where the caller knows it.
        sticky: a folder in which everyone may write, but none may replace the files of others, will do.
    Raises:
        EnvironmentProblem: another user owns it, or others may write to it.
        FileNotFoundError: it is not there.
    """
    found = found or path.stat()
    mode, this_user = stat.S_IMODE(found.st_mode), os.geteuid()
    state = f"its owner is {_name(found.st_uid)}, its mode {mode:04o}"
    if found.st_uid not in (_ROOT, this_user):
        raise EnvironmentProblem(
            f"{path} belongs to another user",
            where=str(path),
            why=f"{state}; code in it would run as {_name(this_user)}",
            fix="name a folder of your own (DACEML_CACHE, or TMPDIR for temporary files); if you trust its "
            f"files: chown -R {_name(this_user)} {path}",
        )
    if mode & OTHERS_WRITE and not (sticky and mode & stat.S_ISVTX):
        raise EnvironmentProblem(
            f"other users may write to {path}",
            where=str(path),
            why=f"{state}; code in it would run as {_name(this_user)}",
            fix="remove it where you do not trust those users; else: chmod -R go-w " + str(path),
        )


@contextmanager
def private_folder(prefix: str = "daceml-") -> Generator[Path]:
    """A temporary folder that only this user may enter, in one where no other user can replace it.

    Raises:
        EnvironmentProblem: the folder for temporary files lets others do so.
    """
    check_trusted(Path(tempfile.gettempdir()), sticky=True)
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a container may know its users by number alone
        return str(user)
