"""Files that others name: read where they are plain files. A pipe or a device would make the reader wait."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_plain(path: Path) -> BufferedReader:
    """A file to read from.

    Raises:
        OSError: it cannot be opened, or is no plain file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    return os.fdopen(handle, "rb")


def read_plain(path: Path, *, most_bytes: int | None = None) -> bytes:
    """The bytes of a file.

    Args:
        most_bytes: that it may have.
    Raises:
        OSError: as `open_plain`, or it is larger.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most_bytes is not None and size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {size} bytes, and may have {most_bytes}", str(path))
        return file.read()
