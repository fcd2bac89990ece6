"""`StandaloneSDFG`: a DaCe program, called with arrays of any library."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from daceml.errors import ConfigurationError
from daceml.module.arrays.array_kinds import results_like
from daceml.module.arrays.array_streams import stream_of

if TYPE_CHECKING:
    import dace

    from daceml.module.arrays.sdfg_arguments import Bound


class StandaloneSDFG:
    """A DaCe program as a function of arrays: one of the user's, with a backward pass or without.

    Called with tensors, numpy arrays or other arrays with `__dlpack__`, by position in the order of `names`
    or by name, as `ONNXModel` is. Arrays that the program writes to are written in place, in the caller's
    memory; those of the program's strides are read where they are, others are copied first. Sizes follow
    from shapes. Arrays of `outputs` may be left out: they are made, of zeros, and returned, in the kind that
    came in. A program on a device runs on CuPy's current stream where CuPy's arrays came in, else on torch's.

    Threads may share it; their calls run one after the other, since a DaCe program keeps its own arrays.

    Args:
        sdfg: compiled at the first call, as it is then.
        outputs: arrays that calls may leave out, beside those that the program returns, such as
            `("y", "gradient_x")`.
    Attributes:
        names: of arguments, in the order in which they are passed.
        outputs: what a call returns, where it leaves all of them out.
    Raises:
        ConfigurationError: a program with an argument that is neither an array nor a number, or no such
            output.
    """

    def __init__(self, sdfg: dace.SDFG, *, outputs: Sequence[str] = ()) -> None:
        import dace

        from daceml.module.arrays.sdfg_arguments import Signature

        if not isinstance(sdfg, dace.SDFG):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"StandaloneSDFG takes an SDFG, not a {type(sdfg).__name__}",
                fix="pass program.to_sdfg(); a file goes through dace.SDFG.from_file",
            )
        self.sdfg = sdfg
        self._signature = Signature(sdfg, outputs)
        self.names, self.outputs = self._signature.names, self._signature.outputs
        self._compiled: dace.codegen.CompiledSDFG | None = None
        self._handle: Any = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<StandaloneSDFG {self._signature}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program once.

        Returns:
            what was left out of `outputs`: one array, a tuple of several, None where nothing was.
        Raises:
            CallError: arguments that do not fit, with the name of the argument and what was expected.
            BackwardUnavailableError: an argument requires a gradient and gradients are enabled.
        """
        with stream_of((*args, *kwargs.values())):
            values, bound = self._signature.bind(args, kwargs)
            with self._lock:
                self._run(bound)
            if bound.written:
                torch.autograd.graph.increment_version(bound.written)
            convert: Callable[[torch.Tensor], Any] = results_like(values.values()) or _itself
            results = [convert(tensor) for tensor in bound.made.values()]
        return results[0] if len(results) == 1 else tuple(results) or None

    def _run(self, bound: Bound) -> None:
        if self._compiled is None:
            self._compiled = self.sdfg.compile()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that results are passed, and numbers are Python's
                self._handle = self._compiled.initialize(**bound.arguments)
        set_streams = self._compiled.get_exported_function("__dace_gpu_set_all_streams")
        if set_streams is not None:
            import ctypes

            set_streams(self._handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        in_c = self._signature.in_c(bound.arguments)
        names = zip(bound.arguments, in_c, strict=True)
        symbols = [value for name, value in names if name in self._signature.symbols]
        self._compiled.fast_call(in_c, symbols, do_gpu_check=True)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
