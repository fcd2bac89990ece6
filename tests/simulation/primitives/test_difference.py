"""What an edit changed, for people to read."""

from __future__ import annotations

from daceml.simulation.primitives.difference import difference
from daceml.simulation.primitives.insert import insert_kernel
from daceml.simulation.primitives.move import move
from daceml.simulation.primitives.remove import remove
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from tests.support.golden import golden
from tests.support.task_stories import graph_of

GRAPH = graph_of(
    "l1 cpu 2",
    "gemm gpu0 10 after l1",
    "l2 cpu 2 gap 1",
    "relu gpu0 4 after l2",
    "l3 cpu 2 gap 1",
    "gemm gpu0 20 after l3",
    "copy gpu1 6",
)


def test_every_kind_of_change_is_counted_and_told_with_its_time():
    graph = scale(GRAPH, select(GRAPH, name="gemm"), 0.5)
    graph = insert_kernel(graph, "cast", after=1, launch_after=0, duration_us=3)
    graph = remove(graph, select(graph, name="relu"))
    graph = move(graph, select(graph, name="copy"), 1)
    text = str(difference(GRAPH, graph))
    assert text == golden()
    rows = [line.split(":")[0].strip() for line in text.splitlines() if line.startswith(" ")]
    assert rows == ["1 x relu (gpu0)", "1 x l2 (cpu)", "1 x cast (gpu0)", "1 x launch of cast (cpu)",
                    "2 x gemm (gpu0)", "1 x copy (gpu0)"]  # fmt: skip
    assert "2.0 -> 0.0 us, gaps -1.0 us" in text and "30.0 -> 15.0 us" in text


def test_of_a_graph_and_itself_there_is_none():
    assert not difference(GRAPH, GRAPH) and str(difference(GRAPH, GRAPH)) == golden()


def test_of_many_names_a_text_shows_the_largest_changes():
    graph = graph_of(*(f"k{number} gpu0 {number + 1}" for number in range(30)))
    text = str(difference(graph, scale(graph, select(graph), 0.0))).splitlines()
    assert text[1] == "  1 x k29 (gpu0): 30.0 -> 0.0 us" and text[-1] == golden() and "10" in text[-1]
