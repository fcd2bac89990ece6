"""One text for one operation: equal things have one, different things have two."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.errors import EntryError
from daceml.operations.database.canonical import (
    digest,
    environment_of,
    environment_text,
    family_text,
    operation_of,
    operation_text,
)
from daceml.operations.database.records import Environment, Operand, Operation
from daceml.operations.database.validation import check_operation
from tests.operations.database.entries import EVERYTHING, matmul
from tests.support.golden import raises

INTEGERS = st.integers(-(2**63) + 1, 2**63 - 1)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=8)
SCALARS = [st.booleans(), INTEGERS, st.floats(allow_nan=False), TEXTS]
ATTRIBUTES = st.one_of(*SCALARS, *(st.lists(kind, max_size=3).map(tuple) for kind in SCALARS[1:]))
OPERANDS = st.builds(
    lambda sizes, dtype, named: Operand(
        shape=tuple(size for size, _ in sizes),
        dtype=dtype,
        layout="contiguous" if named else tuple(stride for _, stride in sizes),
    ),
    st.lists(st.tuples(st.integers(0, 2**63 - 1), INTEGERS), max_size=4),
    TEXTS,
    st.booleans(),
)
OPERATIONS = st.builds(
    Operation,
    operator=TEXTS,
    operands=st.lists(OPERANDS, max_size=3).map(tuple),
    attributes=st.dictionaries(TEXTS, ATTRIBUTES, max_size=4),
    direction=st.sampled_from(["forward", "backward"]),
    kernel=st.one_of(st.just(""), TEXTS),
)


@given(OPERATIONS)
def test_an_operation_comes_back_from_its_text(operation: Operation):
    check_operation(operation)
    text = operation_text(operation)
    assert text.isascii() and "\n" not in text
    back = operation_of(json.loads(text))
    assert back == operation
    assert repr(back.attributes) == repr(dict(sorted(operation.attributes.items())))
    assert operation_text(back) == text


@given(OPERATIONS, OPERATIONS)
def test_two_operations_have_one_text_only_if_they_are_equal(one: Operation, other: Operation):
    if one != other:
        assert operation_text(one) != operation_text(other)


def test_the_order_of_attributes_does_not_matter_and_their_types_do():
    equal = [{"a": True, "b": False}, {"b": False, "a": True}]
    others = [{"a": 1, "b": 0}, {"a": 1.0, "b": 0.0}]
    assert len({operation_text(matmul(**attributes)) for attributes in equal}) == 1
    assert len({operation_text(matmul(**attributes)) for attributes in equal + others}) == 3


def test_the_text_is_the_key_and_must_not_change():
    """Files are shared: a change of this text makes every row of theirs unknown."""
    assert operation_text(matmul(transposed=True)) == (
        '{"attributes":{"transposed":true},"direction":"forward","kernel":"","operands":['
        '{"dtype":"float32","layout":"contiguous","shape":[8,4]},'
        '{"dtype":"float32","layout":"contiguous","shape":[4,2]}],"operator":"aten::mm"}'
    )
    assert environment_text(Environment(device="A100", software={"torch": "2.13.0"})) == (
        '{"device":"A100","fingerprint":"","software":{"torch":"2.13.0"}}'
    )
    assert digest("a", "b").hex() == "0c84cf75ee142f818515ab54bd107d86"


def test_operations_of_one_family_differ_in_sizes_only():
    family = family_text(matmul())
    assert family_text(matmul(m=99, k=1, n=0)) == family
    others = [
        matmul(dtype="float16"),
        matmul(transposed=True),
        replace(matmul(), direction="backward"),
        replace(matmul(), operator="aten::addmm"),
        replace(matmul(), operands=matmul().operands[:1]),
        replace(matmul(), operands=tuple(replace(o, layout=(1, 8)) for o in matmul().operands)),
    ]
    assert family not in {family_text(other) for other in others}
    strided = [
        replace(matmul(), operands=(Operand(shape=(n, 4), dtype="int8", layout=(4 * n, 9)),)) for n in (2, 3)
    ]
    assert family_text(strided[0]) == family_text(strided[1])


def test_the_launch_of_a_kernel_is_no_part_of_its_family():
    kernels = [f"f source=ab grid={n},1,1 block=32,1,1 shared=0" for n in (1, 2)]
    one, two = (family_text(replace(matmul(), operator="kernel", kernel=kernel)) for kernel in kernels)
    assert one == two
    assert one != family_text(
        replace(matmul(), operator="kernel", kernel="f source=cd grid=1,1,1 block=32,1,1")
    )


def test_an_environment_comes_back_from_its_text():
    assert environment_of(json.loads(environment_text(EVERYTHING.environment))) == EVERYTHING.environment


@pytest.mark.parametrize(
    "record",
    [None, [], {}, {"operator": "x"}, {**json.loads(operation_text(matmul())), "more": 1}],
)
def test_what_is_no_operation_is_refused(record: object):
    with raises(EntryError, "operation"):
        operation_of(record)
    with raises(EntryError, "environment"):
        environment_of(record)


@pytest.mark.parametrize(
    ("value", "fact"), [({"float": "1e3"}, "'1e3'"), ({"float": 1}, "1"), ({"eval": "1"}, "['eval']")]
)
def test_a_number_without_a_word_in_json_is_one_of_three(value: object, fact: str):
    record = json.loads(operation_text(matmul())) | {"attributes": {"a": value}}
    with raises(EntryError, "attribute", fact):
        operation_of(record)
