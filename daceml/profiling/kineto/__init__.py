"""Traces of PyTorch's profiler (Kineto) and other files in Chrome's format, old and new, as a `Trace`."""

from daceml.profiling.kineto.ranks import read_traces
from daceml.profiling.kineto.reader import read_trace, trace_of

__all__ = ["read_trace", "read_traces", "trace_of"]
