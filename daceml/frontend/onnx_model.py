"""`ONNXModel`: an ONNX file or model, compiled and called like a function."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from daceml.config import config
from daceml.errors import BackwardUnavailableError, ConfigurationError
from daceml.frontend.call_inputs import collect_inputs, to_numpy
from daceml.frontend.compile import Stages
from daceml.frontend.guards import input_key
from daceml.frontend.program_key import model_key
from daceml.runtime.cache import Cache
from daceml.runtime.program import StoredProgram

if TYPE_CHECKING:
    import dace
    import numpy as np
    import onnx

    from daceml.frontend.compile import Optimised
    from daceml.runtime.program import Program

    Tensor = torch.Tensor | np.ndarray


class ONNXModel:
    """A compiled ONNX model.

    Compiled at the first call, or loaded from the cache. Called with tensors or numpy arrays, by position in
    the order of the model's inputs or by name; returns a tensor, or a tuple where the model has several
    outputs, of the kind that came in.

    Args:
        model: path of an `.onnx` file, or a model with its data.
        dims: values for named dimensions, e.g. `{"batch": 8}`; the others stay symbolic: compiled once.
    Raises:
        OnnxFileError: the file is missing or malformed.
        UnknownOperatorError, InvalidNodeError, ShapeError, NoImplementationError: at compilation; the message
            names the node.
    """

    def __init__(
        self, model: str | os.PathLike[str] | onnx.ModelProto, *, dims: Mapping[str, int] | None = None
    ) -> None:
        import onnx

        if isinstance(model, str | os.PathLike):
            from daceml.frontend.importer import load_model

            self.name = Path(model).name
            self.model = load_model(Path(model))
        elif isinstance(model, onnx.ModelProto):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.name = model.graph.name or "ONNX model"
            self.model = model
        else:
            raise ConfigurationError(
                f"ONNXModel takes a path or an onnx.ModelProto, not a {type(model).__name__}",
                fix="pass the path of an .onnx file; for an nn.Module use daceml.compile",
            )
        self.dims = dict(dims or {})
        self._stages = Stages()

    def __call__(self, *args: Tensor, **kwargs: Tensor) -> Any:
        """Run the model once.

        Raises:
            CallError: inputs that do not fit, with the name of the input and what was expected.
            BackwardUnavailableError: an input requires a gradient and gradients are enabled.
        """
        tensors, numpy_came_in = self.prepare(args, kwargs)
        outputs = self.program(tensors)
        if numpy_came_in:
            arrays = [to_numpy(tensor) for tensor in outputs]
            return arrays[0] if len(arrays) == 1 else tuple(arrays)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def prepare(
        self, args: tuple[Tensor, ...], kwargs: Mapping[str, Tensor]
    ) -> tuple[list[torch.Tensor], bool]:
        """The tensors that the program is called with, and whether numpy arrays came in."""
        tensors, numpy_came_in = collect_inputs(self.name, self.program.manifest.inputs, args, kwargs)
        input_key(tensors)  # refuses tensor subclasses
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise BackwardUnavailableError(
                f"{self.name} was called with an input that requires a gradient",
                why="ONNX models are compiled for inference: their results are not part of autograd's graph",
                fix="call it under torch.no_grad(), or pass input.detach()",
            )
        return tensors, numpy_came_in

    @cached_property
    def program(self) -> Program:
        """The compiled program."""
        with torch.no_grad():
            with self._stages.stage("key"):
                key = model_key(self.model, self.dims)
            cache = Cache(config().cache_folder)
            folder = cache.get("programs", key, lambda scratch: self._build(cache, scratch))
            with self._stages.stage("bind"):
                return StoredProgram(folder).bind({})

    @property
    def sdfg(self) -> dace.SDFG:
        """The SDFG after all transformations, made at first access."""
        return self._optimised.network.sdfg

    @property
    def stages_s(self) -> dict[str, float]:
        """Seconds that the stages of compiling or loading took in this process."""
        return self._stages.seconds

    @cached_property
    def _optimised(self) -> Optimised:
        from daceml.frontend.compile import optimise

        with self._stages.stage("import"):
            from daceml.frontend.importer import import_model
        with self._stages.stage("sdfg"):
            network = import_model(self.model, name=Path(self.name).stem, dims=self.dims)
        return optimise(network, self._stages)

    def _build(self, cache: Cache, folder: Path) -> None:
        from daceml.frontend.compile import build

        build(self._optimised, cache, folder, self._stages)
