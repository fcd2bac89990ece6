"""DaCe programs of tests: compiled without optimization, into a folder of their own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from dace.config import set_temporary


@contextmanager
def quick_programs(folder: Path) -> Generator[None]:
    """Within the block, DaCe compiles programs quickly: they are small, and run in no time."""
    with (
        set_temporary("compiler", "cpu", "args", value="-std=c++20 -fPIC -O0 -w"),
        set_temporary(
            "compiler", "build_type", value="Quick"
        ),  # to each type that CMake knows, it adds flags: -O3
        set_temporary("default_build_folder", value=str(folder)),
    ):
        yield
