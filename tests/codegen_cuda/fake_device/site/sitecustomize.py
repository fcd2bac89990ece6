"""Runs at the start of every Python with the fake device: stand-ins are installed when torch is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _AfterTorch:
    """Finds torch as it would be found, and lets what stands in for its kernels in behind it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_install(module: ModuleType) -> None:
            run(module)
            from tests.codegen_cuda.fake_device.install import install

            install()

        spec.loader.exec_module = run_and_install  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _AfterTorch())
