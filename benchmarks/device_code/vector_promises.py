"""Vectors that the text of a kernel promises: arrays it loads or stores with `load_vector`, `store_vector`.

Next to each vector, the text has an access for each element: for addresses that are no multiple of the
vector, and for the remainder of a row (`daceml/vectors.h`). So a scalar access in the machine code breaks no
promise. A promise is broken where no access to the array is as wide as its vector. Vectors of one array in
several loops are one promise: the compiler may merge loops, and it copies those that it unrolls. It may
narrow a load of which nothing uses a part; generated kernels use all elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.device_code.addresses import Access
from daceml.sdfg.element_codes import TORCH_CODES
from daceml.transformations.hardware.gpu_vectors import BYTES

_CALL = re.compile(
    r"(?:const )?(?P<type>[\w:]+(?: \w+)*)\s*\* _in = &?(?P<source>\w+)[^;]*;\s*"
    r"[\w:]+(?: \w+)*\s*\* _out = &?(?P<target>\w+)[^;]*;[\s/]*"
    r"(?P<what>load|store)_vector<(?P<count>\d+)>\(_in, _out, "
)
_ANY_CALL = re.compile(r"\b(?:load|store)_vector<")
_BYTES_OF: dict[str, int] = {one.ctype: one.bytes for one in TORCH_CODES}


@dataclass(frozen=True, kw_only=True, order=True)
class VectorPromise:
    """An array that a kernel accesses in vectors.

    Attributes:
        array: the kernel's name of it, `a00`.
        bytes: of the widest access, at most 16.
    """

    array: str
    is_store: bool
    bytes: int

    def __str__(self) -> str:
        return f"{8 * self.bytes}-bit {'stores to' if self.is_store else 'loads of'} {self.array}"


def promises_of(text: str) -> tuple[VectorPromise, ...]:
    """What a kernel's text promises, each array once for loads and once for stores.

    Raises:
        ValueError: a vector is written in a form, or of a type, that is not known here.
    """
    widest: dict[tuple[str, bool], int] = {}
    found = list(_CALL.finditer(text))
    if len(found) != len(_ANY_CALL.findall(text)):
        raise ValueError(
            f"{len(_ANY_CALL.findall(text))} calls for vectors, of which {len(found)} are understood"
        )
    for call in found:
        if call["type"] not in _BYTES_OF:
            raise ValueError(f"a vector of {call['type']}, whose size is not known")
        is_store = call["what"] == "store"
        of = (call["target"] if is_store else call["source"], is_store)
        # doubles among float32 have vectors twice as long, which are two accesses but for the newest devices
        length = min(int(call["count"]) * _BYTES_OF[call["type"]], BYTES)
        widest[of] = max(widest.get(of, 0), length)
    return tuple(sorted(VectorPromise(array=a, is_store=s, bytes=b) for (a, s), b in widest.items()))


def broken(
    promises: Iterable[VectorPromise], accesses: Iterable[Access], parameters: Sequence[str]
) -> tuple[VectorPromise, ...]:
    """Promises that no access of the machine code keeps.

    An access whose array is not seen may be any array's, so it keeps every promise of its width.

    Args:
        parameters: the kernel's, in their order.
    """
    kept: dict[tuple[str, bool], int] = {}
    for access in accesses:
        names = [parameters[place] for place in access.parameters if place < len(parameters)]
        for name in names or parameters:
            of = (name, access.is_store)
            kept[of] = max(kept.get(of, 0), access.bits // 8)
    return tuple(one for one in promises if kept.get((one.array, one.is_store), 0) < one.bytes)
