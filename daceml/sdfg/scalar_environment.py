"""What DaCe's own code generator needs to know about tasklets of daceml."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from dace.library import environment
from dace.sdfg import nodes

from daceml.config import PACKAGE_FOLDER


@environment
class ScalarFunctions:
    """Tells DaCe where the functions are that tasklets call by plain names."""

    cmake_minimum_version = None
    cmake_packages: ClassVar[list[str]] = []
    cmake_variables: ClassVar[dict[str, str]] = {}
    cmake_includes: ClassVar[list[str]] = [str(PACKAGE_FOLDER / "toolchain" / "include")]
    cmake_libraries: ClassVar[list[str]] = []
    cmake_compile_flags: ClassVar[list[str]] = []
    cmake_link_flags: ClassVar[list[str]] = []
    cmake_files: ClassVar[list[str]] = []
    headers: ClassVar[list[str]] = ["daceml/scalar_math.h"]
    state_fields: ClassVar[list[str]] = []
    init_code = ""
    finalize_code = ""
    dependencies: ClassVar[list[str]] = []


def declare_scalar_functions(found: Iterable[nodes.Node]) -> None:
    """Let the tasklets among nodes find the functions that they call. Mutates them."""
    for node in found:
        if isinstance(node, nodes.Tasklet):
            node.environments = {ScalarFunctions.full_class_path()}  # pyright: ignore[reportAttributeAccessIssue]
