"""Errors of what turns a module into a program, and of the program."""

from __future__ import annotations

from typing import ClassVar

from daceml.errors.base import DacemlError


class NoImplementationError(DacemlError):
    """No implementation of an operator can run here; `why` has one line for each that refused."""

    code = "DML101"


class UnknownOperatorError(DacemlError):
    """An operator, domain or opset version that no ONNX schema describes."""

    code = "DML102"


class InvalidNodeError(DacemlError):
    """A node that breaks its operator's schema: attribute, arity or element type."""

    code = "DML103"


class ExportError(DacemlError):
    """torch.export, or the translation of its graph to ONNX, could not take the module."""

    code = "DML201"


# What torch refuses while it traces, eager PyTorch mostly refuses as well: whoever catches its error
# catches ours.


class ExportRuntimeError(ExportError, RuntimeError):
    """An `ExportError` in the place of a RuntimeError of torch's."""


class ExportTypeError(ExportError, TypeError):
    """An `ExportError` in the place of a TypeError of torch's."""


class ExportValueError(ExportError, ValueError):
    """An `ExportError` in the place of a ValueError of torch's."""


class ExportIndexError(ExportError, IndexError):
    """An `ExportError` in the place of an IndexError of torch's."""


class ExportKeyError(ExportError, KeyError):
    """An `ExportError` in the place of a KeyError of torch's."""


class ExportAttributeError(ExportError, AttributeError):
    """An `ExportError` in the place of an AttributeError of torch's."""


class OnnxFileError(DacemlError):
    """A file that is no valid ONNX model."""

    code = "DML202"


class CallError(DacemlError):
    """A call whose inputs do not fit the compiled module."""

    code = "DML203"


class NotCompiledError(CallError, AttributeError):
    """What a compiled module has only after its first call: to Python an attribute that is not there yet."""


class SharedMemoryError(CallError):
    """Inputs that share memory, of a program that changes one of them."""


class InferenceTensorError(CallError, RuntimeError):
    """A write to a tensor of inference mode outside that mode: what torch calls a RuntimeError."""


class SignatureError(CallError, TypeError):
    """Arguments that `forward` does not take: what Python itself calls a TypeError."""


class ShapeError(DacemlError):
    """A tensor whose shape or element type cannot be inferred or represented."""

    code = "DML204"


class BeyondNetworksError(DacemlError):
    """Something that no network can hold, while ONNX Runtime may run the whole model."""


class UnheldValueError(BeyondNetworksError, ShapeError):
    """A string, a sequence, an optional, or a tensor whose shape nobody knows before the model runs."""


class ControlFlowError(BeyondNetworksError, InvalidNodeError):
    """An operator with a body."""


class RecompileError(DacemlError):
    """A call that would compile, under the stance that forbids it."""

    code = "DML205"


class BackwardUnavailableError(DacemlError):
    """Gradients were asked for of a model that is compiled for inference only."""

    code = "DML301"


class GradientError(DacemlError):
    """A computation that cannot be differentiated, or not as it was asked for."""

    code = "DML302"


class MemoryBudgetError(GradientError):
    """A training step that does not fit into `memory_budget_bytes`."""

    code = "DML303"


class BuildError(DacemlError):
    """The C++ compiler or linker refused generated code."""

    code = "DML401"


class ExecutionError(DacemlError):
    """A compiled program reported a failure at run time."""

    code = "DML402"


class OutOfMemoryError(ExecutionError, MemoryError, RuntimeError):
    """A call for which there is not enough memory: a MemoryError of Python, and the RuntimeError of torch."""

    code = "DML406"


class PositionError(ExecutionError, IndexError, RuntimeError):
    """An index past the ends of a dimension: in torch an IndexError, or for some operators a RuntimeError."""

    code = "DML407"
    reason: ClassVar[str] = "an index is outside"
    """How the reason of a program starts."""
    advice: ClassVar[str] = "pass indices that the dimension has"


class StaleWeightError(ExecutionError):
    """A weight that is no longer of the type, size or layout that a program was compiled for."""

    code = "DML404"


class MistracedOperatorError(ExecutionError):
    """An operator of torch gave another shape or type than its own rule for tracing says."""

    reason: ClassVar[str] = "an operator of torch gave another shape or type than it said while it was traced"
    """The reason of a program."""
    advice: ClassVar[str] = "leave the operator eager with torch.compiler.disable, and report it to PyTorch"


class UnsupportedProgramError(DacemlError):
    """An SDFG that a later stage cannot take."""

    code = "DML403"


class PassError(DacemlError):
    """A pass that leaves a network which nothing can be made of, or which gives other values."""

    code = "DML405"
