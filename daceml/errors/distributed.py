"""Errors of runs on several ranks, recorded, simulated and real."""

from __future__ import annotations

from daceml.errors.base import DacemlError


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
