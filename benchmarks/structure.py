"""Check the architecture against the code: import cycles, upward imports, folder sizes, late imports.

    python -m benchmarks.structure --check

The layers are the import contracts of pyproject.toml. Imports under `if TYPE_CHECKING:` do not count.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import daceml
from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.machine import ROOT

PACKAGE = ROOT / "daceml"
LARGEST_FOLDER = 25
# Tables of like things: one operator, command, question, pass or translation a file.
TABLES = frozenset(
    {
        "daceml/cli",
        "daceml/frontend/onnx_export/translations",
        "daceml/onnx_ops/native",
        "daceml/sdfg",
        "daceml/simulation/whatif",
        "daceml/transformations/coarse",
    }
)
# Where a call begins, besides public names and commands: compiling on demand, and torch's entry point.
DOORS = ("daceml.module.compile", "daceml.module.dynamo")
# What a module that such a beginning loads must leave to functions.
HEAVY = frozenset({"dace", "onnx", "onnx_ir", "onnxruntime", "onnxscript"})


@dataclass(frozen=True, kw_only=True)
class Module:
    """A file of daceml and what it imports.

    Attributes:
        at_top: modules imported when it is loaded; of daceml those that exist, of others the top-level name.
        late: modules of daceml imported by its functions.
    """

    name: str
    at_top: frozenset[str]
    late: frozenset[str]

    @property
    def imported(self) -> frozenset[str]:
        return self.at_top | self.late


@cache
def modules() -> Mapping[str, Module]:
    """Every module by name."""
    paths = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: _read(name, path, paths) for name, path in paths.items()}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _read(name: str, path: Path, known: Mapping[str, Path]) -> Module:
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for node, late in _imports(ast.parse(path.read_text(encoding="utf-8")), late=False):
        for target in _targets(node, known):
            found[late].add(target)
    late = {target for target in found[True] if target in known}
    return Module(name=name, at_top=frozenset(found[False] - {name}), late=frozenset(late - {name}))


def _imports(node: ast.AST, *, late: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Import statements, and whether a function has them."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, late
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, late=late)


def _targets(node: ast.Import | ast.ImportFrom, known: Mapping[str, Path]) -> Iterator[str]:
    for alias in node.names:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
        whole = f"{module}.{alias.name}" if isinstance(node, ast.ImportFrom) else module
        if whole in known or module in known:
            yield whole if whole in known else module
        else:
            yield module.partition(".")[0]


def cycles() -> list[list[str]]:
    """Groups of modules each of which imports, directly or not, every other one of its group."""
    import networkx as nx

    graph: Any = nx.DiGraph()
    known = modules()
    graph.add_edges_from((m.name, other) for m in known.values() for other in m.imported if other in known)
    return sorted(sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1)


def upward() -> list[str]:
    """Imports of a layer above or next to the module's own, by any contract of pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    found: set[str] = set()
    for contract in contracts:
        if contract["type"] != "layers":
            continue
        for container in contract.get("containers", [""]):
            found.update(_upward(contract["layers"], f"{container}." if container else ""))
    return sorted(found)


def _upward(layers: Sequence[str], prefix: str) -> Iterator[str]:
    level = {prefix + part.strip(" ()"): depth for depth, row in enumerate(layers) for part in row.split("|")}

    def place(module: str) -> tuple[str, int] | None:
        return next(((p, d) for p, d in level.items() if module == p or module.startswith(f"{p}.")), None)

    for module in modules().values():
        here = place(module.name)
        for other in module.imported:
            there = place(other)
            if here and there and here[0] != there[0] and there[1] <= here[1]:
                yield f"{module.name} -> {other}"


def folders() -> dict[str, int]:
    """Number of modules in each folder, `__init__.py` not counted."""
    found: dict[str, int] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__init__.py":
            folder = path.parent.relative_to(ROOT).as_posix()
            found[folder] = found.get(folder, 0) + 1
    return found


def light() -> frozenset[str]:
    """Modules that load with a public name, a command or a call from the cache."""
    known = modules()
    public: Mapping[str, str] = vars(daceml)["_HOMES"]
    todo = [*public.values(), *DOORS, *(name for name in known if name.startswith("daceml.cli."))]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found and name in known:
            found.add(name)
            todo += [*known[name].at_top, name.rpartition(".")[0]]
    return frozenset(found)


def late_imports() -> list[str]:
    """Imports in functions of modules that could import at their top."""
    allowed = light()
    return sorted(
        f"{module.name} -> {other}"
        for module in modules().values()
        if module.name not in allowed
        for other in module.late
    )


def heavy_imports() -> list[str]:
    """What makes a public name, a command or a call from the cache load DaCe or ONNX."""
    known = modules()
    return sorted(f"{name} -> {other}" for name in light() for other in known[name].at_top & HEAVY)


def _bar(name: str, found: Sequence[Any], limit: int = 0) -> Bar:
    return Bar(name=name, figure=len(found), limit=limit, note="; ".join(map(str, found[:5])))


def main(arguments: Sequence[str] | None = None) -> int:
    options = command.parser(__doc__ or "").parse_args(arguments)
    sizes = folders()
    large = [
        f"{folder}: {n}" for folder, n in sorted(sizes.items()) if n > LARGEST_FOLDER and folder not in TABLES
    ]
    bars = [
        _bar("cycles of modules", cycles()),
        _bar("imports of a layer above or next to one's own", upward()),
        _bar(f"folders of more than {LARGEST_FOLDER} modules, six tables apart", large),
        _bar("imports in functions that could stand at the top", late_imports()),
        _bar("DaCe or ONNX loaded by a public name, a command or a call from the cache", heavy_imports()),
    ]
    rows = [{"folder": folder, "modules": n} for folder, n in sorted(sizes.items())]
    return command.finish("structure", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
