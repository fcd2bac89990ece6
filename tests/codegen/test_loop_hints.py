"""Where a kernel says that its iterations are independent, and where it says nothing."""

from __future__ import annotations

from daceml.codegen.kernel_source import kernel_source
from daceml.codegen.loop_hints import with_bools_as_bytes, with_independent_iterations
from daceml.codegen.planning.plan import make_plan
from daceml.onnx_ops.external import external_call
from tests.support.operator_programs import lowered

HINT = "#pragma GCC ivdep"
NEST = """\
    #pragma omp parallel for collapse(2)
    for (int i0 = 0; i0 < 8; i0 += 1) {
        for (int i1 = 0; i1 < 9; i1 += 1) {
            for (int i2 = 0; i2 < 7; i2 += 1) {
                for (int k0 = 0; k0 < 5; k0 += 1) {
"""


def test_the_innermost_loop_of_the_map_gets_the_hint_and_no_loop_within():
    lines = with_independent_iterations(NEST, 3).splitlines()
    assert lines[3].strip() == HINT
    assert lines[4].strip().startswith("for (int i2")
    assert sum(HINT in line for line in lines) == 1


def test_loops_that_openmp_takes_for_one_stay_together():
    assert with_independent_iterations(NEST, 2) == NEST
    alone = NEST.replace(" collapse(2)", "")
    assert with_independent_iterations(alone, 1) == alone
    assert HINT in with_independent_iterations(alone, 2)


def test_a_loop_on_one_thread_needs_no_hint():
    source = NEST.replace("    #pragma omp parallel for collapse(2)\n", "")
    assert with_independent_iterations(source, 3) == source


def test_a_product_of_matrices_has_it_outside_its_sum():
    text = "g (float[64, 40] A, float[40, 50] B) => (float[m, n] Y) { Y = MatMul (A, B) }"
    _, network = lowered(text, ("native",))
    (kernel,) = make_plan(network.network, external_call).kernels
    lines = [line.strip() for line in kernel_source(kernel).splitlines()]
    (place,) = [i for i, line in enumerate(lines) if line == HINT]
    assert lines[place + 1].startswith("for (int i1 = 0; i1 < 50")


def test_bools_are_read_as_bytes():
    source = "    bool _a1 = a01[((4 * i0) + v0)];\n    bool _out0;\n    float _a2 = a02[i0];\n"
    expected = source.replace(
        "bool _a1 = a01[((4 * i0) + v0)]", "std::uint8_t _a1 = byte_of(a01[((4 * i0) + v0)])"
    )
    assert with_bools_as_bytes(source) == expected
