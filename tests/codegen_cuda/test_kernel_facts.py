"""What the assembler says of kernels, and how it is kept."""

from __future__ import annotations

from pathlib import Path

from daceml.codegen_cuda.kernel_facts import CompiledFacts, kernel_facts, load_facts, save_facts
from daceml.runtime.records.kernel_facts import KernelFacts

SAID = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4rowsPKf' for 'sm_90'
ptxas info    : Function properties for _Z4rowsPKf
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 24 bytes smem, 376 bytes cmem[0]
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function '_Z3addPf' for 'sm_90'
ptxas info    : Function properties for _Z3addPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, 360 bytes cmem[0]
ptxas info    : Compile time = 1617.338 ms
"""


def test_what_the_assembler_says_of_each_kernel():
    assert kernel_facts(SAID) == {
        "_Z4rowsPKf": KernelFacts(registers=30, shared_bytes=24, stack_bytes=16, spill_bytes=20),
        "_Z3addPf": KernelFacts(registers=12),
    }


def test_facts_lie_beside_their_object(tmp_path: Path):
    rows, other = KernelFacts(registers=30, spill_bytes=20), KernelFacts(registers=12)
    of_both = {"_ZN6daceml6kernel4rowsEPKf": rows, "_ZN6daceml6kernel8rows_twoEPKf": other}
    facts = CompiledFacts(architecture=90, kernels=of_both)
    save_facts(facts, tmp_path / "kernel.o")
    assert load_facts(tmp_path / "kernel.o") == facts
    assert load_facts(tmp_path / "other.o") is None
    assert (facts.of("rows"), facts.of("rows_two"), facts.of("row")) == (rows, other, None)
