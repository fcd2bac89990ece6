"""The cache of compiled things: content-addressed, shared by processes, safe against a kill at any moment.

An entry is a folder `<kind>/<key>`. It is built aside under a lock and renamed into place, so that a folder
either is complete or does not exist; `entry.json` carries the digest of every file, so that a damaged entry
is found and rebuilt.
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
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from daceml.errors import EnvironmentProblem

log = logging.getLogger(__name__)

_STALE_AFTER_S = 24 * 3600


class Cache:
    """Entries under one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, kind: str, key: str) -> Path | None:
        """The folder of an entry that is there and undamaged."""
        folder = self.root / kind / key
        return folder if folder.is_dir() and not _damage(folder) else None

    def holds(self, kind: str, key: str) -> bool:
        """Whether there is an entry, of which nothing is read: it may be damaged."""
        return (self.root / kind / key).is_dir()

    def get(self, kind: str, key: str, build: Callable[[Path], None]) -> Path:
        """The folder of an entry; `build` fills an empty folder where there is none.

        Of several processes that ask for the same entry, one builds and the others wait for it.
        """
        folder = self.root / kind / key
        found = self.find(kind, key)
        if found is not None:
            return found
        self._check_usable(folder.parent)
        with FileLock(f"{folder}.lock"):
            if folder.is_dir():
                damage = _damage(folder)
                if not damage:
                    return folder
                log.warning("cache entry %s is damaged (%s); building it again", folder, damage)
                self._discard(folder)
            scratch = self._scratch()
            try:
                build(scratch)
                _seal(scratch)
                os.replace(scratch, folder)
            except BaseException:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
        return folder

    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(f.stat().st_size for f in self.root.rglob("*") if f.is_file())

    def clear(self) -> None:
        """Remove every entry."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _check_usable(self, parent: Path) -> None:
        try:
            for folder in (parent, self.root / "building"):
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
        except OSError as error:
            raise EnvironmentProblem(
                "compiled programs cannot be kept",
                where=str(self.root),
                why=str(error),
                fix="set DACEML_CACHE to a folder that can be written",
            ) from error

    def _scratch(self) -> Path:
        parent = self.root / "building"
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.iterdir():
            if _age_s(left) > _STALE_AFTER_S:  # a killed process left it
                shutil.rmtree(left, ignore_errors=True)
        folder = parent / f"{os.getpid()}-{uuid.uuid4().hex}"
        folder.mkdir()
        return folder

    def _discard(self, folder: Path) -> None:
        # a rename first: a process that has loaded the old library keeps its file
        grave = self.root / "building" / f"damaged-{uuid.uuid4().hex}"
        grave.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder, grave)
        shutil.rmtree(grave, ignore_errors=True)


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


def _seal(folder: Path) -> None:
    files = {f.name: _file_digest(f) for f in sorted(folder.iterdir())}
    (folder / "entry.json").write_text(json.dumps({"files": files}, indent=1))


def _damage(folder: Path) -> str:
    """Why an entry cannot be used; empty if it can."""
    try:
        files: dict[str, str] = json.loads((folder / "entry.json").read_text())["files"]
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
        return hashlib.file_digest(stream, "sha256").hexdigest()
