"""`ONNXModel`: an ONNX file or model, compiled and called like a function."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from daceml.compiler.keys.program_key import model_key
from daceml.compiler.stages.stage_timer import Stages
from daceml.config import config
from daceml.errors import BackwardUnavailableError, BeyondNetworksError, ConfigurationError
from daceml.module.arrays.array_streams import stream_of
from daceml.module.arrays.call_inputs import collect_inputs
from daceml.module.onnxruntime_model import OutsideModel
from daceml.runtime.program import Program
from daceml.runtime.stored_program import StoredProgram
from daceml.toolchain.cache import Cache

if TYPE_CHECKING:
    import dace
    import onnx
    from dace.frontend.python.common import SDFGClosure

    from daceml.compiler.stages.lowered_network import Optimised
    from daceml.frontend.onnx_import.model_file import ModelSource
    from daceml.module.arrays.array_kinds import Convert
    from daceml.module.programs.onnx_program import OnnxProgram


class ONNXModel:
    """A compiled ONNX model.

    Compiled at the first call, or loaded from the cache. Called with tensors, numpy arrays or other arrays
    with `__dlpack__` (CuPy, JAX), by position in the order of the model's inputs or by name; an input of rank
    0 may be a number. Contiguous arrays are read where they are, without a copy, and results are arrays of
    the kind that came in, which share the program's memory: tensors if one input is a tensor, else arrays of
    the first input's library that is not numpy, else numpy arrays. CuPy arrays run on CuPy's current stream,
    all others on torch's. Returns one result, or a tuple where the model has several outputs. A model that no
    network can hold (strings, control flow, sizes that depend on data) runs in ONNX Runtime as a whole, and
    the log says so.

    Args:
        model: path of an `.onnx` file, whose data may lie in files beside it, or a model with its data. A
            model that was passed in memory must not be changed afterwards.
        dims: values for named dimensions, e.g. `{"batch": 8}`; the others stay symbolic: compiled once.
        ranges: profilers see a range for each step, as in `daceml.compile`.
    Raises:
        OnnxFileError: the file is missing or malformed.
        UnknownOperatorError, InvalidNodeError, ShapeError, NoImplementationError: at compilation; the message
            names the node.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | onnx.ModelProto,
        *,
        dims: Mapping[str, int] | None = None,
        ranges: bool = False,
    ) -> None:
        import onnx

        from daceml.frontend.onnx_import.model_file import ModelSource, checked, read_model

        self.file: Path | None = None
        if isinstance(model, str | os.PathLike):
            self.file = Path(model)
            self._source: ModelSource | None = read_model(self.file)
        elif isinstance(model, onnx.ModelProto):  # pyright: ignore[reportUnnecessaryIsInstance]
            self._source = checked(ModelSource(model=model, name=_graph_name(model)))
        else:
            raise ConfigurationError(
                f"ONNXModel takes a path or an onnx.ModelProto, not a {type(model).__name__}",
                fix="pass the path of an .onnx file; for an nn.Module use daceml.compile",
            )
        if not isinstance(ranges, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                "option 'ranges' of ONNXModel must be True or False", why=f"it is {ranges!r}",
                fix="write ranges=True or ranges=False",
            )  # fmt: skip
        self.name = self._source.name
        self.dims, self.ranges = _checked_dims(dims or {}), ranges
        self._stages = Stages()
        self._program: Program | None = None
        self._outside: OutsideModel | None = None
        self._optimised: Optimised | None = None
        self._in_programs: OnnxProgram | None = None
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model once.

        Raises:
            CallError: inputs that do not fit, with the name of the input and what was expected.
            BackwardUnavailableError: an input requires a gradient and gradients are enabled.
        """
        if self._outside is not None:
            return self._outside(args, kwargs)
        with stream_of((*args, *kwargs.values())):
            try:
                tensors, convert = self.prepare(args, kwargs)
            except BeyondNetworksError as reason:
                if config().fallback == "none":
                    raise
                self._outside = OutsideModel(self._read(), reason)
                return self._outside(args, kwargs)
            outputs: list[Any] = self.program(tensors)
            if convert is not None:
                outputs = [convert(tensor) for tensor in outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def prepare(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[torch.Tensor], Convert | None]:
        """The tensors that the program is called with, and what makes results the kind of what came in."""
        tensors, convert = collect_inputs(self.name, self.program.manifest.inputs, args, kwargs)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise BackwardUnavailableError(
                f"{self.name} was called with an input that requires a gradient",
                why="ONNX models are compiled for inference: their results are not part of autograd's graph",
                fix="call it under torch.no_grad(), or pass input.detach(); train the nn.Module",
            )
        return tensors, convert

    @property
    def model(self) -> onnx.ModelProto:
        """The model with all its data. Once compiled, it is read again from its file."""
        return self._read().complete()

    @property
    def program(self) -> Program:
        """The compiled program."""
        if self._program is None:
            with self._lock:
                if self._program is None:
                    self._program = self._load()
                    if self.file is not None:
                        self._source = None  # the program has the data now
        return self._program

    @property
    def sdfg(self) -> dace.SDFG:
        """The SDFG after all transformations, made at first access."""
        return self._optimise().network.sdfg

    @property
    def stages_s(self) -> dict[str, float]:
        """Seconds that the stages of compiling or loading took in this process."""
        return self._stages.seconds

    def __sdfg__(self, *args: Any, **kwargs: Any) -> dace.SDFG:
        """The SDFG of a call in a DaCe program; DaCe's frontend asks for it. See `OnnxProgram.sdfg`."""
        return self.in_programs.sdfg(args, kwargs)

    def __sdfg_signature__(self) -> tuple[list[str], list[str]]:
        """Names of the arguments in DaCe programs; none is a constant."""
        return self.in_programs.signature()

    def __sdfg_closure__(self, reevaluate: dict[str, str] | None = None) -> dict[str, Any]:
        """The model's weights as arrays of DaCe programs."""
        return dict(self.in_programs.closure())

    def closure_resolver(
        self, constant_args: Any, given_args: Any, parent_closure: SDFGClosure | None = None
    ) -> SDFGClosure:
        """What a DaCe program that calls the model takes from outside."""
        return self.in_programs.resolver(parent_closure)

    @property
    def in_programs(self) -> OnnxProgram:
        """The model as DaCe programs call it."""
        if self._in_programs is None:
            from daceml.frontend.onnx_import.importer import import_source
            from daceml.module.programs.onnx_program import OnnxProgram

            with self._lock:
                source = self._read()
                network = import_source(source, name=Path(self.name).stem, dims=self.dims)
                weights = source.weights(network.weights.values())
                self._in_programs = OnnxProgram(Path(self.name).stem, network, weights)
        return self._in_programs

    def _read(self) -> ModelSource:
        from daceml.frontend.onnx_import.model_file import read_model

        if self._source is not None:
            return self._source
        assert self.file is not None, "a model that was passed in memory is kept"
        return read_model(self.file)

    def _load(self) -> Program:
        source = self._read()
        with torch.no_grad():
            with self._stages.stage("key"):
                key = model_key(source.model, self.dims, source.weight_names(), ranges=self.ranges)
            cache = Cache(config().cache_folder)
            folder = cache.get("programs", key, lambda scratch: self._build(cache, scratch))
            with self._stages.stage("bind"):
                stored = StoredProgram(folder)
                return Program(stored, source.weights(stored.manifest.weights))

    def _optimise(self) -> Optimised:
        from daceml.compiler.stages.lowered_network import optimise

        with self._lock:
            if self._optimised is None:
                with self._stages.stage("import"):
                    from daceml.frontend.onnx_import.importer import import_source
                with self._stages.stage("sdfg"):
                    network = import_source(self._read(), name=Path(self.name).stem, dims=self.dims)
                self._optimised = optimise(network, self._stages)
            return self._optimised

    def _build(self, cache: Cache, folder: Path) -> None:
        from daceml.compiler.stages.program_folder import build

        build(self._optimise(), cache, folder, self._stages, ranges=self.ranges)


def _graph_name(model: onnx.ModelProto) -> str:
    try:
        return model.graph.name or "ONNX model"
    except UnicodeDecodeError:  # the check that follows says so
        return "ONNX model"


def _checked_dims(dims: Mapping[str, int]) -> dict[str, int]:
    for name, size in dims.items():
        if not isinstance(name, str) or isinstance(size, bool) or not isinstance(size, int) or size < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"dims cannot be {name!r}: {size!r}",
                why="it gives named dimensions a size, a whole number that is not negative",
                fix='pass for example dims={"batch": 8}',
            )
    return dict(dims)
