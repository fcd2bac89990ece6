"""The order of steps and all-reduces: a story of three gradients."""

from __future__ import annotations

from daceml.codegen.planning.all_reduce_overlap import apart, early_steps, overlapping
from daceml.codegen.planning.steps import Copy, Step
from daceml.sdfg.all_reduce import BeginAllReduce, WaitAllReduce


def computes(name: str, reads: str = "", writes: str = "") -> Step:
    action = Copy(source=name, target=name)
    return Step(action=action, reads=tuple(reads.split()), writes=tuple(writes.split()), label=name)


def all_reduce(bucket: int, gradients: str) -> list[Step]:
    names = tuple(gradients.split())
    averaged = tuple(f"{name}_averaged" for name in names)
    halves = (
        BeginAllReduce(bucket=bucket, gradients=names, ticket=f"t{bucket}"),
        WaitAllReduce(bucket=bucket, ticket=f"t{bucket}", averaged=averaged),
    )
    return [
        Step(action=half, reads=half.reads, writes=half.writes, label=f"{word} {bucket}")
        for word, half in zip(("begin", "wait"), halves, strict=True)
    ]


def order(computing: list[Step], exchanging: list[Step], views: dict[str, str] | None = None) -> list[str]:
    ordered = overlapping(computing, exchanging, root=lambda array: (views or {}).get(array, array))
    return [step.label for step in ordered]


LAYERS = [
    computes("third", "y", "g3"),
    computes("second", "y", "g2"),
    computes("first", "y", "g1"),
    computes("input", "y", "dx"),
]


def test_each_begins_behind_its_last_gradient_and_all_are_awaited_at_the_end():
    steps = [*all_reduce(1, "g1"), *all_reduce(0, "g3 g2")]
    assert order(LAYERS, steps) == [
        "third", "second", "begin 0", "first", "begin 1", "input", "wait 0", "wait 1",
    ]  # fmt: skip


def test_they_begin_in_one_order_on_all_ranks_whatever_is_ready_first():
    steps = [*all_reduce(0, "g1"), *all_reduce(1, "g3")]
    assert order(LAYERS, steps) == [
        "third",
        "second",
        "first",
        "begin 0",
        "begin 1",
        "input",
        "wait 0",
        "wait 1",
    ]


def test_a_bucket_without_gradients_here_begins_at_once():
    assert order(LAYERS[:1], all_reduce(0, "")) == ["begin 0", "third", "wait 0"]


def test_a_view_is_complete_when_its_memory_is():
    assert order(LAYERS[:2], all_reduce(0, "flat"), {"flat": "g2"}) == [
        "third",
        "second",
        "begin 0",
        "wait 0",
    ]


def early(steps: list[Step], sent: set[str], kept: set[str]) -> list[str]:
    return [step.label for step in early_steps(steps, sent, kept, root=str)]


def test_a_gradient_goes_ahead_with_what_it_alone_needs():
    steps = [
        computes("loss", "", "dy"),
        computes("dx", "dy w", "dx"),
        computes("recomputed", "x", "activation"),
        computes("dw", "dy activation", "g"),
    ]
    assert early(steps, {"g"}, {"dx"}) == ["loss", "recomputed", "dw", "dx"]


def test_what_others_need_too_stays_where_it_is():
    steps = [
        computes("dy", "", "dy"),
        computes("dx", "dy w", "dx"),
        computes("recomputed", "x", "activation"),
        computes("dw", "dy activation", "g"),
        computes("other", "activation", "kept"),
    ]
    assert early(steps, {"g"}, {"dx", "kept"}) == ["dy", "dx", "recomputed", "dw", "other"]


def test_nothing_goes_past_what_writes_into_its_operand():
    steps = [computes("dy", "", "dy"), computes("dw", "dy", "g"), computes("in place", "dy", "dy")]
    assert early(steps, {"g"}, {"dy"}) == ["dy", "dw", "in place"]


def test_without_all_reduces_nothing_moves():
    computing, exchanging = apart(LAYERS)
    assert overlapping(computing, exchanging, root=str) == LAYERS
    assert apart([*LAYERS, *all_reduce(0, "g1")])[0] == LAYERS
