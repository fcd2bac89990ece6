"""The folder of an export: whole or as it was, whether it was there before or not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from daceml.deployment.manifest import FILE
from daceml.errors import DeploymentError
from daceml.toolchain.disk_space import disk_explained


@contextmanager
def filled(folder: Path) -> Generator[Path]:
    """A folder to write to; what lies in it at the end of the block is then in `folder`, the manifest last.

    A folder that is there already stays, since it may be a mount point or where a program works. It is looked
    at before the block, so that nothing is compiled for a place that cannot be written.

    Raises:
        DeploymentError: `folder` is something else or has something in it, or cannot be written.
    """
    with explained(folder):
        there = folder.exists()
        if there and (not folder.is_dir() or any(folder.iterdir())):
            raise _not_empty(folder)
        made = [] if there else [parent for parent in folder.parents if not parent.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".daceml-", dir=folder if there else folder.parent))
    done = False
    try:
        yield aside
        with explained(folder):
            if there:
                _move(aside, folder)
            else:
                aside.chmod(0o755)
                aside.rename(folder)
        done = True
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        for parent in made if not done else ():
            with suppress(OSError):
                parent.rmdir()


@contextmanager
def explained(folder: Path) -> Generator[None]:
    """Say of what the operating system refuses that it is about this export.

    Raises:
        DeploymentError: in the place of an OSError.
        EnvironmentProblem: the disk is full.
    """
    try:
        with disk_explained(folder, fix="make room, or name a folder on another disk"):
            yield
    except OSError as error:
        raise DeploymentError(
            f"the model cannot be written to {folder}",
            why=str(error),
            fix="name a folder that you may write to, on a disk with space",
        ) from error


def _move(aside: Path, folder: Path) -> None:
    """Files into a folder that has nothing else in it; none of them stay if one cannot be moved."""
    if any(path.name != aside.name for path in folder.iterdir()):
        raise _not_empty(folder)
    moved: list[Path] = []
    try:
        for file in sorted(aside.iterdir(), key=lambda file: (file.name == FILE, file.name)):
            file.rename(folder / file.name)
            moved.append(folder / file.name)
    except BaseException:
        for file in moved:
            file.unlink(missing_ok=True)
        raise


def _not_empty(folder: Path) -> DeploymentError:
    what = "is a file" if folder.is_file() else "is not empty"
    return DeploymentError(
        f"{folder} {what}", why="nothing is overwritten", fix="name another folder, or remove it"
    )
