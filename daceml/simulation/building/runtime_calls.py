"""What each call of the CUDA and HIP runtimes does to the thread that makes it."""

from __future__ import annotations

import re

# A call that only returns when the device has done something.
STREAM_SYNCHRONIZE = re.compile(r"^(cuda|hip|cu)StreamSynchronize")
EVENT_SYNCHRONIZE = re.compile(r"^(cuda|hip|cu)EventSynchronize")
# A call that waits for everything; freeing memory does, too.
DEVICE_SYNCHRONIZE = re.compile(
    r"^(cuda|hip)(DeviceSynchronize|Free(Host)?|ThreadSynchronize)$|^cu(CtxSynchronize|MemFree)"
)
STREAM_WAIT = re.compile(r"^(cuda|hip|cu)StreamWaitEvent")
EVENT_RECORD = re.compile(r"^(cuda|hip|cu)EventRecord")
GRAPH_LAUNCH = re.compile(r"^(cuda|hip|cu)GraphLaunch")
# A copy that only returns when it is done, whatever its operands are.
BLOCKING_COPY = re.compile(
    r"^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|ToArray|FromArray|Peer|WithStream)?$|^cuMemcpy(DtoH|HtoD)(_v2)?$"
)
# Calls that a thread makes to ask, and that change nothing.
QUERY = re.compile(
    r"^(cuda|hip|cu)(EventQuery|StreamQuery|PeekAtLastError|GetLastError|StreamIsCapturing|PointerGetAttribute"
    r"|StreamGet|DeviceGet|Device[A-Z]\w*Range|Occupancy|Func|GetDevice|Driver|Ctx(Get|Set|Push|Pop))"
)
# A copy from or to memory that the operating system may move, which the driver stages.
PAGEABLE = re.compile(r"Pageable|pageable")
# A kernel, or an annotation, of collective communication.
COLLECTIVE = re.compile(r"^(nccl|rccl)|ncclDevKernel|ncclKernel|oneccl|AllReduce_|all_?reduce", re.IGNORECASE)


def is_device_synchronize(name: str) -> bool:
    """Whether a call waits for all streams."""
    return DEVICE_SYNCHRONIZE.match(name) is not None
