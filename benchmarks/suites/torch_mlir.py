"""The end-to-end cases of torch-mlir, and how many of them its own configurations pass.

They lie below `projects/pt1` of github.com/llvm/torch-mlir. Its compiler is not needed: where a case imports
a part of it, an empty module stands in.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from packaging import version
from torch import nn

from benchmarks.strangers.torchvision_operators import declare_torchvision
from benchmarks.suites.case import Arguments, Case

NAME = "torch-mlir"
_PACKAGE = "torch_mlir_e2e_test"
# Cases that a configuration is known to fail or to die of, and those that it passes.
_KNOWN = re.compile(r"(\w+?)_(XFAIL|CRASHING|PASS)_SET")


class _Recorder:
    """Stands for a module: notes the arguments of every call, and answers like the module."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.calls: list[Arguments] = []

    def forward(self, *arguments: Any) -> Any:
        self.calls.append(Arguments.of(arguments))
        return self._module(*arguments)

    __call__ = forward


def cases(folder: Path) -> list[Case]:
    """Every case of the suite that this environment can import."""
    utilities, registry = _imported(folder)

    def case(test: Any) -> Case:
        def make() -> nn.Module:
            torch.manual_seed(0)
            return test.program_factory()

        def calls() -> list[Arguments]:
            recorder = _Recorder(make())
            test.program_invoker(recorder, utilities())
            return recorder.calls

        return Case(suite=NAME, name=test.unique_name, make=make, calls=calls)

    return [case(test) for test in registry]


def published(folder: Path) -> dict[str, float]:
    """The share of the cases that each configuration of torch-mlir passes, by its own lists."""
    _, registry = _imported(folder)
    names = {test.unique_name for test in registry}
    with _path(folder / "projects/pt1/e2e_testing"), _stand_ins():
        lists = vars(importlib.import_module("xfail_sets"))
    failing: dict[str, set[str]] = {}
    passing: dict[str, set[str]] = {}
    for name, value in lists.items():
        if (match := _KNOWN.fullmatch(name)) is not None and isinstance(value, set):
            into = passing if match[2] == "PASS" else failing
            into.setdefault(match[1], set()).update(value & names)  # pyright: ignore[reportUnknownArgumentType]
    shares = {name: 1 - len(some) / len(names) for name, some in failing.items() if name not in passing}
    return shares | {
        name: len(some - failing.get(name, set())) / len(names) for name, some in passing.items()
    }


@functools.cache
def _imported(folder: Path) -> tuple[Callable[[], Any], list[Any]]:
    """The class that makes inputs, and the cases."""
    declare_torchvision()
    with _path(folder / "projects/pt1/python"), _stand_ins():
        tests = folder / "projects/pt1/python" / _PACKAGE / "test_suite"
        for file in sorted(tests.glob("[a-z]*.py")):
            try:
                importlib.import_module(f"{_PACKAGE}.test_suite.{file.stem}")
            except ImportError as error:  # some need torchvision
                print(f"left out: {file.name}, as {error}", file=sys.stderr)
        framework = importlib.import_module(f"{_PACKAGE}.framework")
        registry = importlib.import_module(f"{_PACKAGE}.registry")
    return framework.TestUtils, registry.GLOBAL_TEST_REGISTRY


@contextmanager
def _path(folder: Path) -> Generator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextmanager
def _stand_ins() -> Generator[None]:
    """Modules that the cases import and do not need."""
    compiler, numbers, example = (
        ModuleType(f"torch_mlir{part}") for part in ("", "._version", "._torch_mlir_custom_op_example")
    )
    numbers.version = version  # pyright: ignore[reportAttributeAccessIssue]
    numbers.torch_version_for_comparison = lambda: version.parse(torch.__version__)  # pyright: ignore[reportAttributeAccessIssue]
    given = {
        module.__name__: module
        for module in (compiler, numbers, example)
        if module.__name__ not in sys.modules
    }
    if "multiprocess" not in sys.modules:
        given["multiprocess"] = multiprocessing
    sys.modules.update(given)
    try:
        yield
    finally:
        for name in given:
            del sys.modules[name]
