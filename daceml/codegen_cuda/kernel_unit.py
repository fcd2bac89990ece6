"""CUDA code of a kernel: what DaCe's code generator makes of its scope, and a function that launches it."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, replace

import dace
from dace import dtypes, symbolic
from dace.codegen import codegen
from dace.config import set_temporary

from daceml.codegen_cuda.block_size import constants
from daceml.sdfg.outline import Kernel
from daceml.sdfg.scopes import top_maps
from daceml.sdfg.sizes import Size, product, size
from daceml.transformations.hardware.device_kernel import lower_for_device
from daceml.transformations.hardware.gpu_points import BLOCK, POINT, THREADS, Spread

HEADERS = "\n".join(
    f"#include <daceml/{name}.h>" for name in ("device", "collectives", "vectors", "dace_names")
)
_KERNEL = re.compile(r"^__global__ void .*?\b(?P<name>\w+)\((?P<parameters>[^)]*)\) \{$", re.MULTILINE)
_SUFFIX = "_0_0_0"  # DaCe's numbers of SDFG, state and node
_INT = re.compile(r"\bint (?=[a-z]\d* = |s\d\d\b)")
_LAUNCH = re.compile(r"cudaLaunchKernel\(\(void\*\)(\w+), ")
_BOUNDS = re.compile(r"__launch_bounds__\((\d+)\)")
_POINTS = re.compile(rf"for \((?P<type>\w+) {POINT} = [^;]+; {POINT} < (?P<end>[^;]+); {POINT} \+= 1\)")
_BLOCK = re.compile(rf"(?P<type>\w+) {BLOCK} = [^;]*\bblockIdx\.x\)?;\s*(?=\{{)")
# A loop goes a step of all threads beyond its last point: 8,192 on each of at most 512 multiprocessors.
_LONGEST_STEP = 2**22


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """How a kernel is launched.

    Attributes:
        function: by which profilers know it, in the namespace `daceml::kernel`.
        grid: blocks along x, y, z; where they are not numbers, over the kernel's symbols `s00, s01, …`.
        block: threads along x, y, z.
        shared_bytes: of each block, beside what the kernel itself declares.
        goes_round: whether the grid is what a launch has at most: a small device gets fewer blocks, which go
            through several of these.
        points: of a kernel whose blocks may have any number of threads; else None.
    """

    function: str
    grid: tuple[Size, ...]
    block: tuple[Size, ...]
    shared_bytes: int = 0
    goes_round: bool = False
    points: Size | None = None

    def with_threads(self, threads: int) -> KernelLaunch:
        """In blocks of another size, where that may be (`block_size.py`)."""
        if self.points is None:
            return self
        blocks = size(symbolic.int_floor(self.points + threads - 1, threads))
        return replace(self, grid=(blocks, 1, 1), block=(threads, 1, 1))


@dataclass(frozen=True, kw_only=True)
class KernelUnit:
    """Device code of one kernel.

    Attributes:
        text: of a file for nvcc, or for a C++ compiler that emulates a device.
        launch: `extern "C" int LAUNCH(void* stream, PARAMETERS)`: 0, or a code.
        parameters: `a00, a01, ..., s00, ...`, in the order of the function.
        launched: what this function launches.
    """

    text: str
    launch: str
    parameters: tuple[str, ...]
    launched: KernelLaunch


def kernel_unit(kernel: Kernel) -> KernelUnit:
    """Device code of a kernel whose top-level map is one of a device (`device_schedule.py`)."""
    on_device, spread = _on_device(kernel.sdfg)
    source = _device_code(on_device)
    (found,) = _KERNEL.finditer(source)
    body = source[found.start() : _end_of_block(source, found.end() - 1)]
    # what profilers show; two kernels with one label are two functions
    function = f"{found['name'].removesuffix(_SUFFIX)}_{kernel.name.removeprefix('k_')}"
    body = re.sub(rf"\b{found['name']}\b", function, body)
    if _large(kernel.sdfg):  # places are sums and products of these: all of them are as wide
        body = _INT.sub("int64_t ", body)
    sizes = _launch_sizes(source)
    grid, block = _grid_and_block(on_device)
    is_open = spread.points is not None and block[0] == THREADS
    threads = f"{function}_threads" if is_open else str(product(block))
    wanted = sizes[0].removesuffix(", 1, 1")  # all blocks are along x
    if is_open:
        (found_points,) = _POINTS.finditer(body)
        wanted = f"({found_points['end']} + {threads} - 1) / {threads}"
        sizes = (sizes[0], f"{threads}, 1, 1", sizes[2])
    body = _once(_BOUNDS, f"__launch_bounds__({threads}, {function}_blocks)", body)
    body = _spread(body, spread, wanted, threads)
    parameters = [p.strip() for p in found["parameters"].split(",")]
    names = tuple(re.split(r"[\s*]+", p)[-1] for p in parameters)
    taken = [f"int64_t {n}" if n.startswith("s") else p for n, p in zip(names, parameters, strict=True)]
    launch = f"daceml_launch_{kernel.name}"
    arguments = (function, "blocks, 1, 1", *sizes[1:], "stream", *names)
    blocks = f"daceml::blocks_at_once({wanted}, {threads})" if spread.goes_round else wanted
    text = [
        HEADERS,
        "namespace daceml::kernel {",
        constants(function, THREADS if is_open else None),
        body,
        "}  // namespace daceml::kernel",
        f'extern "C" int {launch}(void* stream, {", ".join(taken)}) {{',
        "    using namespace daceml::kernel;",
        f"    const std::int64_t blocks = {blocks};",
        f"    return DACEML_LAUNCH({', '.join(arguments)});",
        "}",
    ]
    launched = KernelLaunch(
        function=function,
        grid=grid,
        block=block,
        shared_bytes=int(sizes[-1]),
        goes_round=spread.goes_round,
        points=spread.points if is_open else None,
    )
    return KernelUnit(text="\n".join(text) + "\n", launch=launch, parameters=names, launched=launched)


def _spread(body: str, spread: Spread, blocks: str, threads: str) -> str:
    """A kernel that is right for any grid, if it may go round.

    Args:
        blocks: that it has at most, as C++.
        threads: of a block, as C++.
    """
    if spread.points is None:
        if not spread.goes_round:
            return body
        # all threads of a block go round together, so they come to the same barriers
        every = rf"for (\g<type> {BLOCK} = blockIdx.x; {BLOCK} < {blocks}; {BLOCK} += gridDim.x) "
        return _once(_BLOCK, every, body)
    first = rf"\g<type> {POINT} = \g<type>(blockIdx.x) * {threads} + \g<type>(threadIdx.x)"
    step = rf"\g<type>(gridDim.x) * {threads}"
    if spread.goes_round:
        return _once(_POINTS, rf"for ({first}; {POINT} < \g<end>; {POINT} += {step})", body)
    return _once(_POINTS, rf"if (const {first}; {POINT} < \g<end>)", body)


def _once(pattern: re.Pattern[str], by: str, text: str) -> str:
    changed, count = pattern.subn(by, text)
    if count != 1:
        raise ValueError(
            f"{count} places in the code of a kernel look like {pattern.pattern}, instead of one"
        )
    return changed


def _on_device(sdfg: dace.SDFG) -> tuple[dace.SDFG, Spread]:
    """A copy whose map goes over blocks and threads."""
    on_device = copy.deepcopy(sdfg)
    spread = lower_for_device(on_device)
    for array in on_device.arrays.values():
        # what is made inside belongs to one thread
        registers, memory = dtypes.StorageType.Register, dtypes.StorageType.GPU_Global
        array.storage = registers if array.transient else memory
    return on_device, spread


def _device_code(on_device: dace.SDFG) -> str:
    # named, since DaCe would run programs to find out
    with set_temporary("compiler", "cuda", "backend", value="cuda"):
        (found,) = [o for o in codegen.generate_code(on_device, validate=True) if o.language == "cu"]
    return found.clean_code


def _grid_and_block(on_device: dace.SDFG) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """Along x, y, z: the last dimension of a map is x."""
    (state,) = on_device.states()
    (entry,) = top_maps(state)
    extents = [size(extent) for extent in reversed(entry.map.range.size())]
    if len(extents) > 3:
        extents = [*extents[:2], product(extents[2:])]
    grid = (*extents, *(1,) * (3 - len(extents)))
    return grid, tuple(size(extent) for extent in entry.map.gpu_block_size)


def _large(sdfg: dace.SDFG) -> bool:
    """Whether places in an array, or a step behind it, may have more than 31 bits; as symbols may."""
    sizes = [array.total_size for array in sdfg.arrays.values()]
    return any(symbolic.issymbolic(size) or int(size) >= 2**31 - _LONGEST_STEP for size in sizes)


def _end_of_block(text: str, start: int) -> int:
    """Behind the brace that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    raise ValueError("a block without an end")


def _launch_sizes(source: str) -> tuple[str, str, str]:
    """Blocks, threads and bytes of dynamic shared memory of the one launch, as C++."""
    (found,) = _LAUNCH.finditer(source)
    grid, threads, _, shared, _ = _arguments(source, found.end())
    return _inside(grid), _inside(threads), shared


def _inside(dim3: str) -> str:
    return dim3.removeprefix("dim3(").removesuffix(")")


def _arguments(text: str, begin: int) -> list[str]:
    """What stands between the commas from a place on, until a parenthesis closes that was open before."""
    depth, found = 0, list[str]()
    for place in range(begin, len(text)):
        letter = text[place]
        if depth == 0 and letter in ",)":
            found.append(text[begin:place].strip())
            begin = place + 1
            if letter == ")":
                return found
        depth += {"(": 1, ")": -1}.get(letter, 0)
    raise ValueError("a call without an end")
