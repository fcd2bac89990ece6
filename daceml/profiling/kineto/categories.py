"""What the categories of a profiler's events mean, one a row.

Sources: libkineto's `ActivityType.h` of 2021 to 2026 for the newer spellings; traces of PyTorch 1.8 and 1.9
for the older ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from daceml.profiling.trace import EventKind

# In lower case
KINDS: Mapping[str, EventKind] = {
    "cpu_op": EventKind.OPERATOR,
    "operator": EventKind.OPERATOR,
    "hpu_op": EventKind.OPERATOR,
    "user_annotation": EventKind.ANNOTATION,
    "python_function": EventKind.PYTHON,
    "python": EventKind.PYTHON,
    "module": EventKind.PYTHON,
    "cuda_runtime": EventKind.CALL,
    "cuda_driver": EventKind.CALL,
    "runtime": EventKind.CALL,
    "hip_runtime": EventKind.CALL,
    "hip_driver": EventKind.CALL,
    "xpu_runtime": EventKind.CALL,
    "xpu_driver": EventKind.CALL,
    "mtia_runtime": EventKind.CALL,
    "privateuse1_runtime": EventKind.CALL,
    "privateuse1_driver": EventKind.CALL,
    "cuda_sync": EventKind.SYNC,
    "xpu_sync": EventKind.SYNC,
    "kernel": EventKind.KERNEL,
    "gpu_memcpy": EventKind.COPY,
    "memcpy": EventKind.COPY,
    "gpu_memset": EventKind.MEMSET,
    "memset": EventKind.MEMSET,
    "gpu_user_annotation": EventKind.DEVICE_ANNOTATION,
}

# Of the profiler itself, or counters: none of it is work of the run.
SILENT = frozenset(
    {
        "trace",
        "overhead",
        "external_correlation",
        "cpu_instant_event",
        "cuda_event",
        "cuda_profiler_range",
        "mtia_counters",
        "mtia_insight",
        "xpu_scope_profiler",
    }
)

ON_STREAMS = frozenset(
    {EventKind.SYNC, EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET, EventKind.DEVICE_ANNOTATION}
)

# How the profiler's marks of training steps begin
STEP = "ProfilerStep#"

# PyTorch 1.8 and 1.9 call these operators; later ones call them annotations.
ANNOTATIONS_AMONG_OPERATORS = (
    STEP,
    "Optimizer.step#",
    "Optimizer.zero_grad#",
    "enumerate(DataLoader)#",
    "DataParallel.forward",
    "DistributedDataParallel.forward",
)

# Arrows from a call to what it launched, and from an operator to its backward
LAUNCH_FLOWS = frozenset({"ac2g", "async_cpu_to_gpu", "async_gpu", "async", "launch"})
GRADIENT_FLOWS = frozenset({"fwdbwd", "forward_backward"})

EXTERNAL_ID = ("External id", "external id")
# What columns hold already, and numbers that only the profiler itself can use
FORGOTTEN_DETAILS = frozenset(
    {
        *EXTERNAL_ID,
        "correlation",
        "Sequence number",
        "external ts",
        "cbid",
        "cid",
        "Ev Idx",
        "Profiler Event Index",
        "Record function id",
        "Trace name",
        "Trace iteration",
        "finished",
    }
)
