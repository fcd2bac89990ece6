"""Walks over scalar expressions end for an expression of any depth: none of them recurses."""

import sys

import dace
import sympy

from daceml.autodiff.scalar_derivatives import derivative
from daceml.sdfg.scalar import Scalar, apply, literal, read
from daceml.sdfg.scalar_rewrite import nodes_of, replace_parts, substitute
from daceml.sdfg.tasklet_code import print_tasklet
from daceml.transformations.local.simplification import simplified

DEEP = 3 * sys.getrecursionlimit()


def chain(length: int) -> tuple[Scalar, Scalar]:
    """sin(sin(… x[i0])), and x[i0]."""
    start = value = read("x", dace.float32, (sympy.Symbol("i0"),), (8,))
    for _ in range(length):
        value = apply("sin", value)
    return value, start


def test_the_operands_of_a_node_are_listed_before_it_and_every_node_once():
    value, start = chain(DEEP)
    nodes = nodes_of(apply("add", value, value))
    assert nodes[0] is start and nodes[-2] is value and len(nodes) == DEEP + 2


def test_operands_that_are_not_entered_stay_out_of_the_list():
    value, _ = chain(3)
    assert [n.op for n in nodes_of(value, enter=lambda n: n is value)] == ["sin", "sin"]


def test_parts_and_symbols_of_a_deep_expression_are_replaced():
    value, start = chain(DEEP)
    assert nodes_of(replace_parts(value, {id(start): literal(1.0, dace.float32)}))[0].op == "literal"
    assert nodes_of(substitute(value, {"i0": 3}))[0].data == ("x", (3,))


def test_what_stands_for_a_part_is_not_looked_into():
    value, _ = chain(2)
    assert replace_parts(value, {id(value.args[0]): value}).args[0] is value


def test_a_deep_expression_is_printed_simplified_and_differentiated():
    value, start = chain(DEEP)
    code = print_tasklet(value).code
    assert code.startswith("_t0 = sin(sin(") and code.count("sin(") == DEEP
    assert simplified(value) == (value, ())
    (found,) = derivative(value, literal(1.0, dace.float32), lambda leaf: leaf is start)
    assert found.leaf is start
    assert print_tasklet(found.cotangent).code.count("cos(") == DEEP
