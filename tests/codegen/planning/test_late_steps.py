"""Steps move to their first readers where that leaves less alive, and stay where it does not."""

from __future__ import annotations

from dataclasses import dataclass

from daceml.codegen.planning.late_steps import late_steps

BYTES = {"x": 0, "a": 8, "b": 8, "c": 8, "small": 1, "large": 9}


@dataclass(frozen=True)
class Step:
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def names(*steps: Step, fixed: str = "", draws: str = "") -> list[str]:
    moved = late_steps(
        steps,
        root=lambda array: array,
        temporary_bytes=lambda array: BYTES.get(array, 0),
        fixed=lambda step: step.writes[0] == fixed,
        draws=lambda step: step.writes[0] in draws,
    )
    return [step.writes[0] for step in moved]


def test_a_chain_moves_to_its_reader() -> None:
    a, b, other = Step(("x",), ("a",)), Step(("a",), ("b",)), Step(("x",), ("c",))
    assert names(a, b, other, Step(("b", "c"), ("y",))) == ["c", "a", "b", "y"]
    assert names(a, b, Step(("x",), ("z",)), Step(("b",), ("y",))) == ["z", "a", "b", "y"]


def test_a_step_that_frees_more_than_it_makes_stays() -> None:
    large, small = Step(("x",), ("large",)), Step(("large",), ("small",))
    assert names(large, small, Step(("x",), ("z",)), Step(("small",), ("y",))) == ["large", "small", "z", "y"]


def test_fixed_steps_stay() -> None:
    a = Step(("x",), ("a",))
    assert names(a, Step(("x",), ("z",)), Step(("a",), ("y",)), fixed="a") == ["a", "z", "y"]


def test_draws_move_and_stay_in_order() -> None:
    a, b, c = Step((), ("a",)), Step((), ("b",)), Step((), ("c",))
    use = [Step((name,), (f"y{name}",)) for name in "abc"]
    assert names(a, b, c, *use, draws="abc") == ["a", "ya", "b", "yb", "c", "yc"]
    later_first = (a, b, c, use[2], use[0], use[1])
    assert names(*later_first, draws="abc") == ["a", "b", "c", "yc", "ya", "yb"]
