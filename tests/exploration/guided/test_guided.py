"""A guided optimisation: moves, their effects, the way back, other sizes; nothing is left half-done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import daceml
from daceml.errors import ConfigurationError, ExplorationError, MoveError
from daceml.exploration.guided.guided import Guided, Measured
from daceml.gui.model_view import model_view
from daceml.transformations import Recipe, Step
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from daceml.transformations.local.map_fusion import fuse_maps
from daceml.transformations.local.subgraph_fusion import fuse_subgraphs
from daceml.tuning.model_call import Subject
from daceml.tuning.step_times import ProgramTime
from daceml.tuning.variant import Variant
from tests.support.golden import golden, raises
from tests.support.guided_models import Chain, Words, refuse, refuse_large


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 6)


def started(x: torch.Tensor, **options: object) -> Guided:
    return Guided(Chain().eval(), (x,), start="nothing", **options)  # pyright: ignore[reportArgumentType]


def test_a_pass_is_applied_everywhere_taken_back_and_applied_again(x: torch.Tensor):
    guided = started(x)
    loops = len(guided.program().graph.nodes)
    effect = guided.effect("fuse_maps")
    assert effect.changes and effect.steps == -2 and effect.moved_bytes < 0 and len(effect.places) == 2
    guided.apply("fuse_maps")
    fused = guided.program()
    assert len(fused.graph.nodes) == loops - 2
    assert guided.effect("fuse_maps") == effect  # what it has brought is what it would bring
    guided.undo()
    assert len(guided.program().graph.nodes) == loops
    guided.redo()
    assert guided.program().lowered.identity == fused.lowered.identity
    guided.leave_out("fuse_maps")
    assert [choice.title for choice in guided.history] == [
        "start",
        "fuse_maps everywhere",
        "without fuse_maps",
    ]


def test_a_pass_is_applied_at_one_place_and_then_at_another(x: torch.Tensor):
    guided = started(x)
    loops = len(guided.program().graph.nodes)
    first, second = guided.effect("fuse_maps").places
    guided.apply("fuse_maps", first)
    assert len(guided.program().graph.nodes) == loops - 1
    guided.apply("fuse_maps", second)
    assert len(guided.program().graph.nodes) == loops - 2
    assert guided.chosen["fuse_maps"] == (first, second)
    compiled = daceml.compile(guided.module, backward=False, recipe=guided.recipe)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), guided.module(x))


def test_a_move_behind_an_undone_one_takes_its_place(x: torch.Tensor):
    guided = started(x)
    guided.apply("fuse_maps")
    guided.undo()
    guided.apply("schedule_maps")
    assert [choice.title for choice in guided.history] == ["start", "schedule_maps everywhere"]
    with raises(MoveError, "redo"):
        guided.redo()


def test_sizes_change_and_the_choice_stays(x: torch.Tensor):
    guided = started(x)
    guided.apply("fuse_maps")
    moved = guided.program().lowered.moved_bytes
    guided.resize({"x": [40, 6]})
    assert guided.program().lowered.moved_bytes > 4 * moved
    assert "fuse_maps" in guided.chosen and guided.inputs[0][1].shape == (40, 6)
    for shapes, fact in (
        ({"y": [4, 6]}, "'y'"),
        ({"x": [4, -6]}, "[4, -6]"),
        ({"x": [1] * 2000}, "2000 dimensions"),
        ({"x": [10**5000, 6]}, "sizes from 0 to"),
        ({"x": [2**62, 0, 2**62]}, "GB are available"),
    ):
        with raises(MoveError, fact, exact="available" not in fact):  # how much is another on each machine
            guided.resize(shapes)
    with raises(MoveError, "[1048576, 1048576]", "4398.0 GB", exact=False):  # and how much this machine has
        guided.resize({"x": [2**20, 2**20]})
    with raises(MoveError, "x: float32 (4, 7)", exact=False) as refused:  # and what torch says of a product
        guided.resize({"x": [4, 7]})
    assert refused.value.what == golden()
    assert guided.inputs[0][1].shape == (40, 6)


def test_integers_are_drawn_from_the_range_of_the_start_whatever_the_sizes_were_between():
    torch.manual_seed(0)
    guided = Guided(Words().eval(), (torch.arange(50).reshape(5, 10),), start="nothing")
    guided.resize({"words": [1, 1]})  # one word, which has no range
    guided.resize({"words": [40, 50]})
    ((_, words),) = guided.inputs
    assert words.shape == (40, 50) and int(words.min()) == 0 and int(words.max()) == 49


def test_what_cannot_be_done_is_refused_and_changes_nothing(x: torch.Tensor):
    guided = started(x, offered=Recipe(refuse))
    why = guided.effect("refuse").why
    assert "operators are too many" in why
    moves = (
        (lambda: guided.apply("refuse"), ("refuse everywhere", "operators are too many")),
        (lambda: guided.apply("fuse_map"), ("'fuse_map'", "fuse_maps")),
        (lambda: guided.leave_out("fuse_maps"), ("fuse_maps",)),
        (lambda: guided.apply("eliminate_copies", "mul"), ("eliminate_copies",)),
        (lambda: guided.apply("fuse_maps", "linear"), ("fuse_maps", "linear")),
        (guided.undo, ("undo",)),
    )
    for move, facts in moves:
        with raises(MoveError, *facts):
            move()
        assert len(guided.history) == 1 and guided.place == 0


def test_a_place_that_a_pass_refuses_is_told_with_its_reason(x: torch.Tensor):
    guided = started(x)
    array, reason, size_bytes, _ = guided.effect("fuse_maps").refused[0]
    assert reason and size_bytes > 0
    with raises(MoveError, "fuse_maps", array, reason):
        guided.apply("fuse_maps", array)


def test_steps_are_measured_and_learned(x: torch.Tensor):
    guided = Guided(Chain().eval(), (x,))
    assert guided.measured() is None
    predicted = guided.program().time
    seen = guided.measure()
    assert seen.call_us > 0 and len(seen.steps_us) == len(guided.program().graph.nodes)
    assert guided.measured() == seen
    assert guided.program().time.measured_share > 0.9  # every step is known now
    assert seen.predicted == predicted and seen.predicted != guided.program().time


def test_a_prediction_that_a_measurement_does_not_confirm_is_told():
    predicted = ProgramTime(us=10.0, low_us=8.0, high_us=12.0, measured_share=0.0)
    inside = Measured(call_us=50.0, steps_us=(4.0, 5.0), predicted=predicted)
    assert inside.as_predicted and not replace(inside, steps_us=(4.0, 9.0)).as_predicted


def test_training_has_two_halves_and_what_is_saved_between_them(x: torch.Tensor):
    guided = Guided(Chain(), (x,), training=True)
    graph = guided.program().graph
    halves = [node.half for node in graph.nodes]
    assert halves == sorted(halves, reverse=True) and set(halves) == {"forward", "backward"}
    first = halves.index("backward")
    assert any(edge.source < first <= edge.target for edge in graph.edges)
    assert {node.path for node in graph.nodes if "Gemm" in node.operators} == {"head"}


def test_a_compiled_module_is_guided_and_one_on_another_device_is_refused(x: torch.Tensor):
    compiled = daceml.compile(Chain().eval(), backward=False)
    plain = Guided(Chain().eval(), (x,))
    assert Guided(compiled, (x,)).program().lowered.identity == plain.program().lowered.identity
    with raises(ExplorationError, "Chain", "meta"):
        Guided(Chain().to("meta"), (x.to("meta"),))


def test_a_recipe_is_started_from_as_it_is(x: torch.Tensor):
    recipe = Recipe(fuse_subgraphs, fuse_maps, Step(schedule_maps, only=("training",)))
    guided = Guided(Chain().eval(), (x,), recipe=recipe)
    names = [step.name for step in guided.recipe]
    assert names == ["fuse_subgraphs", "fuse_maps"]  # in its order; the third is for training
    assert guided.program().lowered.identity == identity_of(recipe, x)
    assert "schedule_maps" in guided.catalogue.steps  # offered, as all standard passes
    with raises(ConfigurationError, "fuse_maps"):
        Guided(Chain().eval(), (x,), recipe=Recipe(fuse_maps, fuse_maps))
    with raises(ConfigurationError, "fuse_maps"):
        Guided(Chain().eval(), (x,), offered=Recipe(fuse_maps))


def identity_of(recipe: Recipe, x: torch.Tensor) -> str:
    subject = Subject(Chain().eval(), (x,), {}, training=False)
    return subject.lower(Variant(recipe=recipe.to_json())).identity


def test_the_way_back_is_not_gone_where_it_leads_nowhere(x: torch.Tensor):
    guided = started(x, offered=Recipe(refuse_large))
    guided.apply("refuse_large")
    guided.leave_out("refuse_large")
    guided.resize({"x": [200, 6]})
    with raises(MoveError, "undo", "200 rows are too many"):
        guided.undo()
    assert guided.history[guided.place].title == "without refuse_large"
    assert guided.program().lowered.moved_bytes > 0
    with raises(MoveError, "start", "200 rows are too many"):
        started_with(refuse_large, x).first_program()
    view = model_view(started_with(refuse_large, x), title="Chain")
    assert view["start"] is None and "200 rows are too many" in view["no_start"]


def test_a_start_that_cannot_be_made_is_tried_once(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch):
    guided = started_with(refuse_large, x)
    tried: list[str] = []
    lower = Subject.lower
    monkeypatch.setattr(
        Subject, "lower", lambda self, variant: (tried.append(variant.title), lower(self, variant))[1]
    )
    views = [model_view(guided, title="Chain") for _ in range(3)]
    assert len(tried) == 1
    (why,) = {view["no_start"] for view in views}
    assert why == golden()
    assert "200 rows are too many" in why
    assert guided.effect("refuse_large").why == "200 rows are too many" and len(tried) == 1
    guided.resize({"x": [4, 6]})
    assert model_view(guided, title="Chain")["start"] is not None  # other sizes are another question


def started_with(refusing: Callable[..., None], x: torch.Tensor) -> Guided:
    """One whose start cannot be made for the sizes that it has now."""
    guided = Guided(Chain().eval(), (x,), recipe=Recipe(refusing))
    guided.leave_out(refusing.__name__)
    guided.resize({"x": [200, 6]})
    return guided
