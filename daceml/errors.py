"""Every refusal daceml makes: a code, and what, where, why and how to mend it."""

from __future__ import annotations

from typing import ClassVar


class DacemlError(Exception):
    """A refusal with a code, and what, where, why and fix.

    Args:
        what: one sentence that says what cannot be done.
        where: the user's line, the node or the file; empty where there is none.
        why: the facts that led to the refusal; several lines where several were tried.
        fix: what the user can do about it.
    """

    code: ClassVar[str] = "DML000"

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        self.what, self.where, self.why, self.fix = what, where, why, fix
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.what}"]
        for label, text in (("where", self.where), ("why", self.why), ("fix", self.fix)):
            if text:
                lines.append(f"  {label + ':':<7}" + text.replace("\n", "\n         "))
        return "\n".join(lines)


class ConfigurationError(DacemlError):
    """An option or environment variable that daceml does not know or cannot take."""

    code = "DML001"


class EnvironmentProblem(DacemlError):
    """Something on this machine is missing or of the wrong version."""

    code = "DML002"


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


class StaleWeightError(ExecutionError):
    """A weight that is no longer of the type, size or layout that a program was compiled for."""

    code = "DML404"


class UnsupportedProgramError(DacemlError):
    """An SDFG that a later stage cannot take."""

    code = "DML403"


class PassError(DacemlError):
    """A pass that leaves a network which nothing can be made of, or which gives other values."""

    code = "DML405"


class ModelReferenceError(DacemlError):
    """A MODEL argument on the command line that names nothing usable."""

    code = "DML501"


class OutputFileError(DacemlError):
    """A file that the command line was asked to write, and cannot."""

    code = "DML502"


class TraceFileError(DacemlError):
    """A file that is no profiler's trace, or is damaged."""

    code = "DML601"


class TraceContentError(DacemlError):
    """A trace that lacks what a question needs: no device work, launches that were not recorded."""

    code = "DML602"


class RecordingError(DacemlError):
    """A run that cannot be recorded: too few steps, or something else is recording already."""

    code = "DML603"


class TaskGraphError(DacemlError):
    """A task graph that means nothing: an index out of range, a duration below zero."""

    code = "DML611"


class CyclicGraphError(TaskGraphError):
    """Tasks that wait for each other."""

    code = "DML612"


class WhatIfError(DacemlError):
    """An optimisation that cannot be applied to this graph: nothing it would change, or a figure it needs."""

    code = "DML613"


class DatabaseFileError(DacemlError):
    """A file that is no operation database, or one that a newer daceml wrote."""

    code = "DML621"


class DatabaseDamageError(DatabaseFileError):
    """An operation database that is not as it was written."""

    code = "DML622"


class DatabaseAccessError(DacemlError):
    """An operation database that cannot be written or read now: locked, full, closed, of another process."""

    code = "DML623"


class EntryError(DacemlError):
    """A row that an operation database cannot keep: a duration below zero, an attribute of an odd type."""

    code = "DML624"


class MeasurementFileError(DacemlError):
    """A table, log or export of measurements that cannot be read as what it was said to be."""

    code = "DML625"


class MeasurementError(DacemlError):
    """An operation whose time cannot be measured: its shapes follow from data, or noise hides it."""

    code = "DML631"


class SamplingPlanError(DacemlError):
    """A sampling plan that is damaged, or names operators, sizes or attributes that there are not."""

    code = "DML632"


class DeviceError(DacemlError):
    """A device that nobody knows, or a record of one that is wrong or says too little for a question."""

    code = "DML641"


class ScalingError(DeviceError):
    """A kernel whose time on another device does not follow from its time on this one."""


class EstimationError(DacemlError):
    """An operation whose time does not follow from what was measured."""

    code = "DML642"


class PredictionError(DacemlError):
    """A run or model cannot be predicted for another device."""

    code = "DML651"


class OriginDeviceError(PredictionError):
    """It is not known on which device a run was recorded."""

    code = "DML652"


class PriceError(PredictionError):
    """A price that says too little, or of a device that nobody asked about."""

    code = "DML653"


class TrackingError(PredictionError):
    """No step was tracked, or more is being tracked than one thing."""

    code = "DML654"


class CaptureError(DacemlError):
    """A model whose operations do not follow from its shapes, or an optimizer that nobody knows."""

    code = "DML655"


class StepPredictionError(DacemlError):
    """A question about a step that has no answer: another number of devices, a price without a date."""

    code = "DML656"


class OnnxShapesError(DacemlError):
    """An ONNX file whose shapes are not known, so that neither is what its nodes do."""

    code = "DML657"


class StrategyError(DacemlError):
    """A training step or a strategy for it that cannot be."""

    code = "DML661"


class RecordedStepError(DacemlError):
    """A recorded run of which no training step with sums of gradients can be made."""

    code = "DML662"


class BucketPlanError(DacemlError):
    """Buckets of gradients, from a file or a list, that do not fit the model."""

    code = "DML663"


class LaunchError(DacemlError):
    """A script that could not be recorded: its launcher is missing, it failed, or it wrote no traces."""

    code = "DML664"


class AllocatorError(DacemlError):
    """A block that an allocator cannot have taken or given back."""

    code = "DML684"


class DeviceMemoryError(DacemlError):
    """More memory is needed at once than a device has."""

    code = "DML685"


class AllocationError(DacemlError):
    """What is said of a run's blocks of memory does not make sense, or too little is said."""

    code = "DML686"


class ParallelPlanError(DacemlError):
    """Degrees of parallelism, batches or layers that do not fit together."""

    code = "DML681"


class ExpansionError(DacemlError):
    """A collective that cannot be made of sends and receives on the links that were given."""

    code = "DML682"


class SymmetryError(DacemlError):
    """A graph whose equal ranks cannot be told from its tasks."""

    code = "DML683"


class DistributedSetupError(DacemlError):
    """There are no ranks to train with: no process group, no launcher, or nothing to talk through."""

    code = "DML675"


class RanksDifferError(DacemlError):
    """The ranks of a run have models or gradients that cannot be averaged; says which rank, and in what."""

    code = "DML676"


class RankFailedError(DacemlError):
    """A rank has ended, or does not come to what the others wait for; says which."""

    code = "DML677"


class NotSynchronizedError(DacemlError):
    """A backward pass would run whose gradients nobody averages."""

    code = "DML678"


class CommunicationError(DacemlError):
    """A rank whose trace does not say who it is, or with whom it communicated."""

    code = "DML671"


class MatchingError(DacemlError):
    """Ranks of one run that disagree about what they communicated."""

    code = "DML672"


class AlignmentError(DacemlError):
    """Clocks that no communication relates, or a question about clocks that has no answer."""

    code = "DML673"


class GlobalGraphError(DacemlError):
    """Ranks that cannot be joined into one task graph."""

    code = "DML674"
