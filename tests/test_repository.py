"""The repository itself: links, imports, docstrings and the targets that people type."""

from __future__ import annotations

import ast
import functools
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKS = ("transformations", "onnx_ops", "autodiff", "codegen_cuda")
# What all tests may import: shared stories, and a device to run on.
SHARED = ("tests.support.", "tests.codegen_cuda.fake_device.")


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter at the repository's root."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", LINKS)
def test_the_root_links_into_daceml(name: str):
    link = ROOT / name
    assert link.is_symlink()
    assert os.readlink(link) == f"daceml/{name}", "relative, so that a copy of the repository keeps working"
    assert (link / "__init__.py").is_file()


@pytest.mark.parametrize("name", LINKS)
def test_a_linked_package_refuses_its_bare_name(name: str):
    done = python(f"import {name}")
    assert done.returncode != 0
    assert (
        f"ImportError: {name!r} is a link into daceml for readers; write `import daceml.{name}` instead"
        in done.stderr
    )


@pytest.mark.parametrize("name", ["daceml.autodiff", "daceml.codegen_cuda", "daceml.transformations"])
def test_a_linked_package_can_be_imported_by_its_full_name(name: str):
    done = python(f"import {name}")
    assert done.returncode == 0, done.stderr


def test_importing_daceml_loads_nothing_but_its_version():
    done = python("import sys; before = set(sys.modules); import daceml; print(*set(sys.modules) - before)")
    assert done.returncode == 0, done.stderr
    foreign = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert foreign == {"daceml"}
    assert len(done.stdout.split()) < 20


def test_every_folder_of_daceml_is_a_package():
    folders = {path.parent for path in (ROOT / "daceml").rglob("*.py")}
    assert (
        sorted(str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists())
        == []
    )


def test_wheels_have_what_modules_read(monkeypatch: pytest.MonkeyPatch):
    told: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", lambda **options: told.update(options))
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    packed = {
        path
        for package, patterns in told["package_data"].items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    read = {
        path
        for path in (ROOT / "daceml").rglob("*")
        if path.is_file() and path.suffix not in (".py", ".md") and "__pycache__" not in path.parts
    }
    assert sorted(str(path.relative_to(ROOT)) for path in read - packed) == []


def test_every_module_has_a_docstring():
    silent = [
        str(path.relative_to(ROOT))
        for folder in ("daceml", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_no_file_is_a_drawer():
    drawers = [
        path for path in (ROOT / "daceml").rglob("*.py") if path.stem in ("utils", "helpers", "common")
    ]
    assert drawers == []


def imported_names(path: Path) -> Iterator[str]:
    """Modules that a file imports, and what it imports from them; in programs that it has as text, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{one.name}" for one in names)
            case ast.Constant(value=str(text)):
                yield from re.findall(r"\bfrom (tests[\w.]*) import\b", text)


@functools.cache
def imports_within_tests() -> list[tuple[str, str]]:
    """Each module of tests with each one that it imports."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return [
        (module, name) for module, path in modules.items() for name in {*imported_names(path)} & {*modules}
    ]


def top_folder(module: str) -> str:
    """Of a module of tests; empty for one beside the folders."""
    return module.split(".")[1] if module.count(".") > 1 else ""


def test_no_module_imports_a_test_module():
    found = [pair for pair in imports_within_tests() if pair[1].rpartition(".")[2].startswith("test_")]
    assert found == [], "what tests share is in a module of its own, beside them or in tests/support"


def test_folders_of_tests_share_what_is_in_support():
    across = [pair for pair in imports_within_tests() if top_folder(pair[0]) != top_folder(pair[1])]
    assert len(across) > 100
    found = [pair for pair in across if not pair[1].startswith(SHARED)]
    assert found == [], "what several folders of tests share is in tests/support, named for its subject"


@pytest.mark.parametrize(
    ("file", "own"), [("constraints.txt", "ruff"), ("device-constraints.txt", "nvidia-cuda-crt")]
)
def test_every_pin_is_exact_and_torchvision_is_none_of_them(file: str, own: str):
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    names = [pin.split("==")[0].lower() for pin in pins]
    assert len(set(names)) == len(names)
    assert {"torch", "dace", "onnx", "onnxruntime", "pytest", own} <= set(names)
    assert "torchvision" not in names


@pytest.mark.parametrize(
    "target",
    [
        "demo",
        "test",
        "lint",
        "bench",
        "venv",
        "cuda",
        "docs",
        "test-benchmarks",
        "device-venv",
        "fake-device",
    ],
)
def test_make_knows_the_target(target: str):
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_ci_runs_what_a_developer_runs():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    assert re.search(r"^exec make (--keep-going )?lint cuda test-all docs$", text, re.MULTILINE)
