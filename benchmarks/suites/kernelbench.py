"""The programs of KernelBench (github.com/ScalingIntelligence/KernelBench), smaller: they are made for a GPU.

A program's sizes are numbers at the top of its file. Those above 16 are divided by the largest power of two
for which PyTorch still runs the program.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.suites.case import Arguments, Case

NAME = "KernelBench"
_LEVELS = (1, 2, 3)
_DIVISORS = (64, 32, 16, 8, 4, 2, 1)
_SMALL = 16
_SMALL_BATCH = 2


def cases(folder: Path) -> list[Case]:
    """The programs of levels 1 to 3."""
    return [
        _case(f"{level}/{file.stem}", file)
        for level in _LEVELS
        for file in sorted((folder / f"KernelBench/level{level}").glob("[0-9]*.py"), key=_number)
    ]


def _number(file: Path) -> int:
    return int(file.stem.split("_")[0])


def _case(name: str, file: Path) -> Case:
    known: list[dict[str, Any]] = []

    def names() -> dict[str, Any]:
        if not known:
            known.append(_smallest(file))
        return known[0]

    return Case(
        suite=NAME,
        name=name,
        make=lambda: _module(names()),
        calls=lambda: [Arguments.of(_inputs(names()))],
    )


def _module(names: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    return names["Model"](*names["get_init_inputs"]())


def _inputs(names: dict[str, Any]) -> list[Any]:
    torch.manual_seed(1)
    return names["get_inputs"]()


def _smallest(file: Path) -> dict[str, Any]:
    """What the file defines, with the smallest sizes that run."""
    text = file.read_text(encoding="utf-8")
    problem: Exception | None = None
    for divisor in _DIVISORS:
        tree = _Divided(lambda name, size, by=divisor: _divided(name, size, by)).visit(ast.parse(text))
        names: dict[str, Any] = {"__name__": f"kernelbench_{file.stem}"}
        try:
            exec(compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True), names)
            with torch.no_grad():
                _module(names)(*_inputs(names))
        except Exception as error:  # sizes that do not fit together
            problem = error
        else:
            return names
    assert problem is not None
    raise problem


def _divided(name: str, size: int, divisor: int) -> int:
    least = _SMALL_BATCH if "batch" in name.lower() else _SMALL
    return size if size <= least else max(size // divisor, least)


class _Divided(ast.NodeTransformer):
    """Replaces whole numbers that are assigned at the top of a module."""

    def __init__(self, smaller: Callable[[str, int], int]) -> None:
        self._smaller = smaller

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        name = ast.unparse(node.targets[0])
        for inner in ast.walk(node.value):
            if isinstance(inner, ast.Constant) and type(inner.value) is int:
                inner.value = self._smaller(name, inner.value)
        return node
