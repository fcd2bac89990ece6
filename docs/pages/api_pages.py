"""Pages of the public names of a package, made of its `__all__` and the docstrings behind it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ApiPage:
    """Packages whose public names share a page."""

    name: str
    title: str
    text: str
    packages: tuple[str, ...]

    @property
    def page(self) -> str:
        return f"reference/{self.name}.md"


API_PAGES = (
    ApiPage(
        name="daceml",
        title="daceml",
        text="What users of the compiler write. Every name is loaded at its first use.",
        packages=("daceml",),
    ),
    ApiPage(
        name="transformations",
        title="Transformations and gradients",
        text="What your transformations are made of ([tutorial](../tutorials/write_a_transformation.md)), "
        "and the backward pass of any DaCe program.",
        packages=("daceml.transformations", "daceml.autodiff"),
    ),
    ApiPage(
        name="simulation",
        title="Traces and what-if questions",
        text="Reading a trace, its task graph, the replay, and predictions of changes. Imports neither torch "
        "nor dace ([tutorial](../tutorials/what_if.md)).",
        packages=(
            "daceml.profiling.kineto",
            "daceml.simulation",
            "daceml.simulation.whatif.optimization",
            "daceml.simulation.memory",
        ),
    ),
    ApiPage(
        name="devices",
        title="Devices and operations",
        text="What is known of devices, and how long operations take there ([devices](../devices.md), "
        "[database](../op_database.md)).",
        packages=(
            "daceml.devices.catalogue",
            "daceml.devices.roofline",
            "daceml.devices.wave_scaling",
            "daceml.operations.database.records",
            "daceml.operations.database.store",
        ),
    ),
)


def public_names(source: str, package: str) -> dict[str, str]:
    """The public names of a module's source, each with the dotted name of where it is defined.

    Without `__all__` these are the functions and classes that the module itself defines.
    """
    tree, homes, own, listed = ast.parse(source), dict[str, str](), list[str](), None
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                homes |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                listed = list(ast.literal_eval(value))
            case _:
                pass
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            own.append(node.name)
            homes[node.name] = f"{package}.{node.name}"
    return {name: homes.get(name, f"{package}.{name}") for name in (own if listed is None else listed)}


def api_page(page: ApiPage, sources: Mapping[str, str]) -> str:
    """Markdown with a directive of mkdocstrings for every public name of the page's packages."""
    lines = [f"# {page.title}", "", page.text, ""]
    for package in page.packages:
        lines += [f"## {package}" if len(page.packages) > 1 else "## Names", ""]
        summary = ast.get_docstring(ast.parse(sources[package])) or ""
        lines += [summary.split("\n\n")[0], ""]
        for name, home in public_names(sources[package], package).items():
            lines += [f"### {name}", "", f"::: {home}", ""]
    return "\n".join(lines)


def package_source(root: Path, package: str) -> str:
    """The text of a package's `__init__.py`, or of the module."""
    path = root.joinpath(*package.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
