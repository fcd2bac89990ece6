"""daceml: a data-centric compiler for PyTorch.

    import torch, daceml

    @daceml.dace_module(backward=False)
    class Mish(torch.nn.Module):
        def forward(self, x):
            return x * torch.tanh(torch.nn.functional.softplus(x))

`daceml.compile(module)` does the same to an instance, `daceml.ONNXModel(file)` to an ONNX file, and
`daceml.StandaloneSDFG(sdfg)` makes a function of arrays of any DaCe program. `explain` says what became of a
module and why, `verify` compares it with float64, `profile_call` says where a call spends its time.
`daceml.profile(model)` records steps of a training run for what-if questions, `daceml.OperationTracker` one
step of anything, for predictions of it on other devices. `daceml.predict_step(model, inputs, device="H100")`
says how long a step of a model would take that nobody has run; `daceml.explore(model, inputs)` predicts all
variants of it, measures the most promising ones, and keeps the best. `daceml.export(model, inputs, to=...)`
writes a library that C++ programs run without Python, and that `daceml.load` makes a module of.

Importing daceml loads neither torch nor dace nor onnx: every public name loads what it needs at first use.
Options are environment variables; `daceml.Config` lists them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from daceml.version import __version__ as __version__

if TYPE_CHECKING:
    from torch import nn

    from daceml.compiler.stance import stance
    from daceml.config import Config
    from daceml.deployment.exporting import export
    from daceml.deployment.loading import load
    from daceml.distributed.dist_data_parallel import DistDataParallel
    from daceml.errors import DacemlError
    from daceml.exploration.explore import explore
    from daceml.module.module import DaceModule, dace_module
    from daceml.module.onnx_model import ONNXModel
    from daceml.module.standalone_sdfg import StandaloneSDFG
    from daceml.module.whole_step.whole_step import compile_step
    from daceml.prediction.model_steps.predict_step import predict_step
    from daceml.prediction.recorded_runs.operation_tracker import OperationTracker
    from daceml.profiling.recording.recorder import Recorder, profile
    from daceml.report.explanation.explanation import explain
    from daceml.report.profile import profile_call
    from daceml.verification.verification import verify

__all__ = [
    "Config",
    "DaceModule",
    "DacemlError",
    "DistDataParallel",
    "ONNXModel",
    "OperationTracker",
    "Recorder",
    "StandaloneSDFG",
    "compile",
    "compile_step",
    "dace_module",
    "explain",
    "explore",
    "export",
    "load",
    "predict_step",
    "profile",
    "profile_call",
    "stance",
    "verify",
]

# Public name -> the module that has it, imported at first use.
_HOMES = {
    "Config": "daceml.config",
    "DaceModule": "daceml.module.module",
    "DacemlError": "daceml.errors",
    "DistDataParallel": "daceml.distributed.dist_data_parallel",
    "ONNXModel": "daceml.module.onnx_model",
    "OperationTracker": "daceml.prediction.recorded_runs.operation_tracker",
    "Recorder": "daceml.profiling.recording.recorder",
    "StandaloneSDFG": "daceml.module.standalone_sdfg",
    "compile_step": "daceml.module.whole_step.whole_step",
    "dace_module": "daceml.module.module",
    "explain": "daceml.report.explanation.explanation",
    "explore": "daceml.exploration.explore",
    "export": "daceml.deployment.exporting",
    "load": "daceml.deployment.loading",
    "predict_step": "daceml.prediction.model_steps.predict_step",
    "profile": "daceml.profiling.recording.recorder",
    "profile_call": "daceml.report.profile",
    "stance": "daceml.compiler.stance",
    "verify": "daceml.verification.verification",
}
# Reached without an import of their own: `daceml.config.config()`, `daceml.errors.BuildError`.
_SUBMODULES = ("config", "errors")

M = TypeVar("M", bound="nn.Module")


def compile(module: M, **options: Any) -> M:
    """A compiled view of a module; it shares parameters, buffers and hooks with the module.

    Args:
        module: an instance of nn.Module.
        options: backward (True): whether a backward pass is wanted; without it results are detached.
            dynamic_shapes (None): as in torch.export, {"x": {0: "batch"}}: named sizes are compiled once for
            all. dynamic (False): leave every size open that the module allows to be. auto_optimize (True):
            apply the levels of transformations; "search" measures variations of them and takes one that is
            faster, within search_budget_s seconds (None: DACEML_SEARCH_BUDGET_S, 60). freeze (False):
            parameters and buffers do not change any more, so no call looks whether they have. recompute
            ("cheap") and memory_budget_bytes (None): what a backward pass computes again, "none" or "budget".
            prefer_native (False): derive every gradient from the operators' lowered form, rules or not.
            recipe (None): a `daceml.transformations.Recipe` in the place of the standard one. verify
            (False): name the pass that changes values, if one does. ranges (False): profilers see a range for
            each step. cuda_graphs (False): capture what a call launches on a CUDA device, and replay it.
    Raises:
        ConfigurationError: something that is no module, or an unknown option.
    """
    from torch import nn

    from daceml.errors import ConfigurationError
    from daceml.module.module import compile_module

    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"daceml.compile takes an nn.Module, not a {type(module).__name__}",
            fix="pass an instance; a class goes to daceml.dace_module, an ONNX file to daceml.ONNXModel",
        )
    return compile_module(module, **options)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"daceml.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'daceml' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
