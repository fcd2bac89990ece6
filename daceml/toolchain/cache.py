"""The cache of compiled things: content-addressed, shared by processes, safe against a kill at any moment.

An entry is a folder `<kind>/<key>`. It is built aside under a lock and renamed into place, so that a folder
either is complete or does not exist; `entry.json` carries the digest of every file, so that a damaged entry
is found and rebuilt. What is in an entry is executed: no other user may be able to write to it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from daceml.errors import EnvironmentProblem
from daceml.toolchain.disk_space import disk_explained
from daceml.toolchain.trusted_paths import OTHERS_WRITE, check_trusted, make_private

log = logging.getLogger(__name__)

BUILDING = "building"
"""Where entries are made; scratch folders in it begin with the number of their process."""
ENTRY_FILE = "entry.json"
TAG_FILE, TAG = "CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of daceml's.\n"
"""By which backups and `daceml cache clear` know a cache (https://bford.info/cachedir)."""

_STALE_AFTER_S = 24 * 3600


class Cache:
    """Entries under one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, kind: str, key: str) -> Path | None:
        """The folder of an entry that is there and undamaged.

        Raises:
            EnvironmentProblem: another user can write to it.
        """
        folder = self.root / kind / key
        return folder if self._is_there(folder) and not _damage(folder) else None

    def holds(self, kind: str, key: str) -> bool:
        """Whether there is an entry, of which nothing is read: it may be damaged."""
        return (self.root / kind / key).is_dir()

    def get(self, kind: str, key: str, build: Callable[[Path], None]) -> Path:
        """The folder of an entry; `build` fills an empty folder where there is none.

        Of several processes that ask for the same entry, one builds and the others wait for it.

        Raises:
            EnvironmentProblem: the cache cannot be written, its disk is full, or others can write to it.
        """
        folder = self.root / kind / key
        found = self.find(kind, key)
        if found is not None:
            return found
        self._check_usable(folder.parent)
        with disk_explained(folder.parent), FileLock(f"{folder}.lock", mode=0o600):
            if self._is_there(folder):
                damage = _damage(folder)
                if not damage:
                    return folder
                log.warning("cache entry %s is damaged (%s); building it again", folder, damage)
                self._discard(folder)
            with self.scratch() as scratch, disk_explained(scratch):
                build(scratch)
                _seal(scratch)
                _move(scratch, folder)
        return folder

    @contextmanager
    def scratch(self) -> Generator[Path]:
        """An empty folder next to the entries; removed at the end, after a kill by later processes."""
        parent = self.root / BUILDING
        make_private(self.root)
        make_private(parent)
        for left in parent.iterdir():
            if _age_s(left) > _STALE_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
        folder = parent / f"{os.getpid()}-{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _is_there(self, folder: Path) -> bool:
        try:
            for place in (folder, folder.parent, self.root):
                check_trusted(place)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _check_usable(self, parent: Path) -> None:
        try:
            for folder in (self.root, parent, self.root / BUILDING):
                make_private(folder)
                check_trusted(folder)
            with disk_explained(self.root):
                for folder in (parent, self.root / BUILDING):
                    with tempfile.TemporaryFile(dir=folder):
                        pass
                if not (self.root / TAG_FILE).exists():
                    (self.root / TAG_FILE).write_text(TAG)
        except OSError as error:
            raise EnvironmentProblem(
                "compiled programs cannot be kept",
                where=str(self.root),
                why=str(error),
                fix="set DACEML_CACHE to a folder that can be written",
            ) from error

    def _discard(self, folder: Path) -> None:
        # a rename first: a process that has loaded the old library keeps its file
        with self.scratch() as grave:
            os.replace(folder, grave)


def digest(*parts: str | bytes) -> str:
    """A key for the parts, in order; no two different lists of parts share it in practice (SHA-256)."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()[:32]


def _age_s(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except FileNotFoundError:  # another build has just been finished
        return 0.0


def _move(scratch: Path, folder: Path) -> None:
    try:
        os.replace(scratch, folder)
    except OSError:
        if _damage(folder):  # else another process was faster, after locks had been removed
            raise


def _seal(folder: Path) -> None:
    for file in folder.iterdir():  # whatever the umask
        file.chmod(file.stat().st_mode & ~OTHERS_WRITE)
    files = {f.name: _file_digest(f) for f in sorted(folder.iterdir())}
    entry = folder / ENTRY_FILE
    entry.write_text(json.dumps({"files": files}, indent=1))
    entry.chmod(0o644)


def _damage(folder: Path) -> str:
    """Why an entry cannot be used; empty if it can.

    Raises:
        EnvironmentProblem: another user can write to a file of it.
    """
    try:
        check_trusted(folder / ENTRY_FILE)
        files: dict[str, str] = json.loads((folder / ENTRY_FILE).read_text())["files"]
    except (OSError, ValueError, KeyError):
        return "entry.json is missing or unreadable"
    for name, expected in files.items():
        try:
            if _file_digest(folder / name) != expected:
                return f"{name} has changed"
        except OSError:
            return f"{name} is missing"
    return ""


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        check_trusted(file, os.fstat(stream.fileno()))
        return hashlib.file_digest(stream, "sha256").hexdigest()
