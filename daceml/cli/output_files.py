"""Files that a command writes: refused before any work, written aside, then renamed; never half there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from daceml.errors import OutputFileError


def check_targets(targets: Sequence[tuple[str, Path | None]], *, read: Path | None = None) -> None:
    """Refuse what cannot be written, before anything is compiled.

    Args:
        targets: option and path; None where the option was not given.
        read: what the command reads, which none of them may be.
    Raises:
        OutputFileError: a folder that is not there or cannot be written, something that is no file, or one
            file for two things.
    """
    seen: dict[Path, str] = {}
    source = None if read is None else _real(read)
    for option, path in targets:
        if path is None:
            continue
        real = _real(path)
        if not real.parent.is_dir():
            why = f"there is no folder {real.parent}"
            raise _refuse(option, path, why, "make the folder first, or correct the path")
        if real.is_symlink():  # still, after all links were followed
            raise _refuse(option, path, "it is a symbolic link that leads back to itself", "name a file")
        if real.exists() and not real.is_file():
            kind = "a folder" if real.is_dir() else "no regular file"
            raise _refuse(option, path, f"it is {kind}", "name a file")
        if not os.access(real.parent, os.W_OK) or (real.exists() and not os.access(real, os.W_OK)):
            raise _refuse(
                option, path, "it cannot be written", "check the permissions, or name another folder"
            )
        if real == source:
            raise _refuse(option, path, "it is what is read, and would be lost", "name another file")
        if real in seen:
            raise _refuse(option, path, f"{seen[real]} names the same file", "name two files")
        seen[real] = option


@contextmanager
def written_aside(option: str, path: Path) -> Generator[Path]:
    """A path to write to; what lies in its folder afterwards is moved beside `path` once all is there.

    Raises:
        OutputFileError: the disk is full, or a further file (external data) would replace something that is
            no file.
    """
    real = _real(path)
    try:
        aside = Path(tempfile.mkdtemp(prefix=".daceml-", dir=real.parent))
        try:
            yield aside / real.name
            # the file itself last: what it refers to has to be there first
            for made in sorted(aside.iterdir(), key=lambda file: file.name == real.name):
                if (real.parent / made.name).is_dir():
                    raise _refuse(option, path, f"{made.name} is a folder", "name another file")
                os.replace(made, real.parent / made.name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise _refuse(option, path, why, "make room, or name another folder") from error


def _real(path: Path) -> Path:
    """The file that a path leads to; unlike `Path.resolve`, no error where links lead in a circle."""
    return Path(os.path.realpath(os.path.expanduser(path)))


def _refuse(option: str, path: Path, why: str, fix: str) -> OutputFileError:
    return OutputFileError(f"{option} {path} cannot be written", why=why, fix=fix)
