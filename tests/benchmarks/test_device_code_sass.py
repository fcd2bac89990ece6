"""Machine code as `cuobjdump -sass` prints it: what counts, where addresses come from, what breaks a promise.

The files under `sass/` are what nvcc 13.0 makes of `TOTAL` for three architectures, read by cuobjdump 13.5;
encodings and the filling at the end are left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.device_code.addresses import Access, accesses_of
from benchmarks.device_code.disassembler import Disassembler, find_disassembler
from benchmarks.device_code.sass import Instruction, counts_of, functions_of
from benchmarks.device_code.vector_promises import VectorPromise, broken, promises_of
from daceml.codegen_cuda.kernel_facts import mangled
from daceml.codegen_cuda.toolchain import CudaToolchain, find_nvcc
from daceml.toolchain.cxx import include_folder
from tests.support.golden import raises
from tests.support.sampling import sampled

ARCHITECTURES = (80, 90, 100)
TOTAL = """#include <daceml/device.h>
#include <daceml/vectors.h>
#include <daceml/dace_names.h>
namespace daceml::kernel {
__global__ void __launch_bounds__(256) total(
    const float* __restrict__ a00, const dace::bfloat16* __restrict__ a01, float* __restrict__ a02) {
    for (int p = blockIdx.x * 256 + threadIdx.x; p < 4096; p += gridDim.x * 256) {
        float v[4], w[4];
        dace::bfloat16 h[4];
        load_vector<4>(a00 + 4 * p, v, 4);
        load_vector<4>(a01 + 4 * p, h, 4);
        for (int i = 0; i < 4; ++i) w[i] = v[i] * 3 + float(h[i]);
        store_vector<4>(w, a02 + 4 * p, 4);
    }
}
}
"""
PARAMETERS = ("a00", "a01", "a02")
PROMISES = (
    VectorPromise(array="a00", is_store=False, bytes=16),
    VectorPromise(array="a01", is_store=False, bytes=8),
    VectorPromise(array="a02", is_store=True, bytes=16),
)


def golden(architecture: int) -> list[Instruction]:
    text = (Path(__file__).parent / "sass" / f"total_sm_{architecture}.txt").read_text()
    ((name, found),) = functions_of(text).items()
    assert name.startswith(mangled("total"))
    return found


def needed() -> Disassembler:
    found = find_disassembler()
    if find_nvcc() is None:
        pytest.skip("no CUDA compiler on this machine")
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_accesses_count_by_width(architecture: int):
    counts = counts_of(golden(architecture))
    accesses = {name: count for name, count in counts.items() if name.startswith("global")}
    # a vector of each array, and what stands next to it for other addresses
    assert accesses == {
        "global_loads_128": 1, "global_loads_64": 1, "global_loads_32": 4, "global_loads_16": 4,
        "global_stores_128": 1, "global_stores_32": 4,
    }  # fmt: skip
    assert counts["instructions"] == len(golden(architecture))


def test_other_operations_are_counted():
    lines = (
        "SHFL.BFLY PT, R3, R2, 0x10, 0x1f", "BAR.SYNC.DEFER_BLOCKING 0x0", "MUFU.EX2 R3, R3",
        "STL.64 [R1+0x8], R4", "@!P0 LDL R4, [R1]", "LDS.128 R4, [UR4]", "@P3 CALL.REL.NOINC 0x740",
        "FADD R4, R4, R13",
    )  # fmt: skip
    text = "\t\tFunction : f\n" + "".join(f"        /*{n:04x}*/   {line} ;\n" for n, line in enumerate(lines))
    assert counts_of(functions_of(text)["f"]) == {
        "barriers": 1, "calls": 1, "instructions": 8, "local_loads_32": 1, "local_stores_64": 1,
        "shared_loads_128": 1, "shuffles": 1, "special_functions": 1,
    }  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_address_comes_from_its_parameter(architecture: int):
    found = {
        (PARAMETERS[place], access.is_store, access.bits)
        for access in accesses_of(golden(architecture), architecture)
        for place in access.parameters
    }
    assert found == {
        ("a00", False, 128), ("a00", False, 32), ("a01", False, 64), ("a01", False, 16),
        ("a02", True, 128), ("a02", True, 32),
    }  # fmt: skip


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_vector_that_is_no_more_is_named(architecture: int):
    code = golden(architecture)
    assert broken(PROMISES, accesses_of(code, architecture), PARAMETERS) == ()
    without = [one for one in code if not (one.opcode == "LDG" and one.bits == 64)]
    missing = broken(PROMISES, accesses_of(without, architecture), PARAMETERS)
    # the 128-bit load next to it is another array's
    assert list(map(str, missing)) == ["64-bit loads of a01"]
    without = [one for one in code if not (one.opcode == "STG" and one.bits == 128)]
    missing = broken(PROMISES, accesses_of(without, architecture), PARAMETERS)
    assert list(map(str, missing)) == ["128-bit stores to a02"]


def test_an_address_that_cannot_be_followed_accuses_nobody():
    seen = [Access(is_store=False, bits=128, parameters=frozenset())]
    assert broken(PROMISES, seen, PARAMETERS) == PROMISES[2:]


def test_a_pointer_that_is_replaced_is_forgotten():
    lines = ("LDC.64 R2, c[0x0][0x210]", "LDG.E R2, desc[UR4][R2.64]", "LDG.E R4, desc[UR4][R2.64]")
    text = "\t\tFunction : f\n" + "".join(f"        /*{n:04x}*/   {line} ;\n" for n, line in enumerate(lines))
    assert [access.parameters for access in accesses_of(functions_of(text)["f"], 90)] == [{0}, frozenset()]


def test_two_pointers_loaded_at_once_are_two():
    lines = (
        "LDCU.128 UR8, c[0x0][0x380]",
        "STG.E.128 desc[UR4][UR10], R4",
        "MOV R2, UR8",
        "LDG.E R4, [R2.64]",
    )
    text = "\t\tFunction : f\n" + "".join(f"        /*{n:04x}*/   {line} ;\n" for n, line in enumerate(lines))
    assert [access.parameters for access in accesses_of(functions_of(text)["f"], 100)] == [{1}, {0}]


def test_promises_are_those_of_the_text():
    text = """
        const dace::bfloat16* _in = &a00[b0];
        dace::bfloat16* _out = a00_vector;

        ///////////////////
        load_vector<8>(_in, _out, Min(8, (100 - b0)));
        ///////////////////
        double* _in = &a01_vector[0];
        double* _out = a01 + ((12544 * i0) + (4 * t));

        ///////////////////
        store_vector<4>(_in, _out, 4);
        const bool* _in = &a02[b0];
        bool* _out = a02_vector;
        load_vector<4>(_in, _out, 4);
    """
    # of 32 bytes, two accesses make one vector
    assert list(map(str, promises_of(text))) == [
        "128-bit loads of a00",
        "128-bit stores to a01",
        "32-bit loads of a02",
    ]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("load_vector<4>(a00, v, 4);", ["1 call", "0"]),
        ("const unknown* _in = a00; unknown* _out = v; load_vector<4>(_in, _out, 4);", ["vector of unknown"]),
    ],
)
def test_a_form_that_is_not_known_is_no_empty_promise(text: str, facts: list[str]):
    with raises(ValueError, *facts):
        promises_of(text)


@pytest.mark.parametrize("architecture", sampled(ARCHITECTURES, 90))
@pytest.mark.parametrize("scalar", sampled([False, True], True))
def test_vectors_in_what_nvcc_makes_today(tmp_path: Path, architecture: int, scalar: bool):
    """The same kernel, and with one vector replaced by scalars by hand."""
    disassembler = needed()
    tools = CudaToolchain(nvcc=str(find_nvcc()), release=(13, 0), architecture=architecture)
    one_by_one = "for (int i = 0; i < 4; ++i) v[i] = a00[4 * p + i];"
    text = TOTAL.replace("load_vector<4>(a00 + 4 * p, v, 4);", one_by_one) if scalar else TOTAL
    tools.compile(text, tmp_path, includes=(include_folder(),))
    functions = disassembler.functions(tmp_path / "kernel.o")
    assert not isinstance(functions, str), functions
    ((name, code),) = functions.items()
    assert name.startswith(mangled("total"))
    missing = broken(PROMISES, accesses_of(code, architecture), PARAMETERS)
    assert list(map(str, missing)) == (["128-bit loads of a00"] if scalar else [])
