"""What the pages show: plain data, which a browser and a report are given alike."""

from __future__ import annotations

import json
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
import torch

import daceml
from daceml.errors import PageError
from daceml.exploration.guided.guided import Guided
from daceml.gui.model_view import model_view
from daceml.gui.pages import ModelPage, TracePage
from daceml.gui.timeline_view import timeline_view
from daceml.gui.variants_view import variants_view
from daceml.simulation import predict, simulate
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from tests.support.explorations import explored
from tests.support.golden import golden, raises
from tests.support.guided_models import Chain
from tests.support.recorded_step import run


def test_a_model_is_steps_arrays_amounts_and_moves():
    guided = Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing")
    guided.effect("fuse_maps")
    view = json.loads(json.dumps(model_view(guided, title="Chain")))
    assert view["totals"]["steps"] == len(view["nodes"]) == len(guided.program().graph.nodes)
    assert view["totals"]["moved_bytes"] == sum(node["bytes"] for node in view["nodes"])
    assert all(source < target and size > 0 for source, target, _, size, _ in view["edges"])
    moves = {move["pass"]: move for move in view["moves"]}
    assert moves["fuse_maps"]["effect"]["steps"] == -2 and moves["fuse_maps"]["applied"] == "no"
    assert moves["schedule_maps"]["effect"] is None  # nobody has asked
    assert "RECIPE = Recipe(" in view["script"] and view["hash"] in view["script"]


def test_a_graph_that_is_known_is_left_out_until_it_is_another():
    page = ModelPage(Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing"), title="C", ahead=False)
    whole = page.view()
    same = page.view(whole["graph"])
    assert same == {key: value for key, value in whole.items() if key not in ("nodes", "edges")}
    moved = page.actions["apply"]({"pass": "fuse_maps"})
    assert moved["nodes"] and moved["graph"] != whole["graph"] and page.view(whole["graph"])["nodes"]
    assert page.actions["undo"]({})["graph"] == whole["graph"]
    measured = page.actions["measure"]({})  # has times of its own
    assert measured["graph"] != whole["graph"] and "nodes" in page.view(whole["graph"])


def test_refusals_are_cut_until_somebody_asks_for_all_and_in_a_report_they_all_stand():
    guided = Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing")
    guided.effect("fuse_maps")
    ((key, effect),) = guided._sizes.effects.items()
    many = tuple((f"array_{i}", "too small", 8 * i, "") for i in range(1000))
    guided._sizes.effects[key] = replace(effect, refused=many)
    page = ModelPage(guided, title="Chain", ahead=False)

    def refused(view: dict[str, Any]) -> list[Any]:
        (found,) = (move["effect"] for move in view["moves"] if move["pass"] == "fuse_maps")
        assert found["refusals"] == 1000
        return found["refused"]

    assert 60 < len(refused(page.view())) < 1000 and refused(page.view())[0][0] == "array_999"
    assert len(refused(page.actions["effect"]({"pass": "fuse_maps"}))) == 1000
    assert len(refused(page.view())) == 1000
    assert len(refused(ModelPage(guided, title="Chain", ahead=False).report())) == 1000


def test_a_run_is_lanes_as_measured_as_replayed_and_as_predicted():
    graph = run()
    replayed = simulate(graph)
    view = timeline_view(replayed, [predict(graph, [AutomaticMixedPrecision()])])
    assert [one["title"] for one in view["runs"]][:2] == ["measured", "replayed"] and len(view["runs"]) == 3
    measured, again, faster = ({lane["name"]: lane["tasks"] for lane in one["lanes"]} for one in view["runs"])
    assert [task[:2] for tasks in measured.values() for task in tasks] == [[0, 5000], [10, 90000]]
    (kernel,) = (task for name, tasks in again.items() if "gpu" in name for task in tasks)
    assert view["names"][kernel[2]] == "volta_sgemm<128>" and kernel[3] == 1 and kernel[1] == 90000
    assert max(task[1] for tasks in faster.values() for task in tasks) < 90000
    assert view["runs"][1]["path"] and view["answers"][0]["speedup"] > 1


def test_what_nobody_recorded_was_not_measured():
    view = timeline_view(simulate(run()), recorded=False)
    assert [one["title"] for one in view["runs"]] == ["simulated"]
    assert view["error"] == golden()
    assert "simulated" in view["error"]


def test_requests_that_lack_something_are_refused():
    page = ModelPage(Guided(Chain().eval(), (torch.randn(4, 6),)), title="Chain", ahead=False)
    for action, told, lacking in (
        ("apply", {}, '{"pass": '),
        ("apply", {"pass": 3}, '{"pass": '),
        ("sizes", {"shapes": 3}, '{"shapes": '),
        ("leave_out", {}, '{"pass": '),
    ):
        with raises(PageError, lacking):
            page.actions[action](told)


class ClosedMeanwhile(Event):
    """An event that is set, as the page is closed, just before somebody clears it."""

    def __init__(self, page: ModelPage, at: int) -> None:
        super().__init__()
        self.page, self.left = page, at

    def clear(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.page._closed = True
            self.set()
        super().clear()


@pytest.fixture(scope="module")
def examined() -> Guided:
    """A model of which the effects of all passes are known."""
    guided = Guided(Chain().eval(), (torch.randn(4, 6),))
    for name in guided.catalogue.steps:
        guided.effect(name)
    return guided


@pytest.mark.parametrize("at", [1, 2])
def test_a_page_that_is_closed_between_two_looks_ends(at: int, examined: Guided):
    page = ModelPage(examined, title="Chain")
    page._changed = ClosedMeanwhile(page, at)
    page.view()
    page._changed.set()  # there may be something new
    page._worker.join(20)
    assert not page._worker.is_alive()
    page.close()


def test_questions_are_answered_one_after_the_other():
    page = TracePage(run(), ask=lambda words: [AutomaticMixedPrecision()] if words == ["--amp"] else [])
    assert len(page.actions["ask"]({"question": "--amp"})["answers"]) == 1
    assert len(page.actions["ask"]({"question": "--amp"})["answers"]) == 2
    assert page.actions["forget"]({})["answers"] == []


def test_an_exploration_is_rows():
    view = json.loads(json.dumps(variants_view(explored())))
    assert [row["outcome"] for row in view["rows"]] == ["standard recipe", "predicted", "refused"]
    assert view["rows"][0]["measured_ms"] == 2.0 and round(view["rows"][0]["error"], 3) == 0.1
    assert not view["rows"][0]["disagrees"] and not view["rows"][1]["disagrees"]
    assert view["winner"] == 1 and view["rows"][1]["promises"] == [golden()]
    assert "weights" in view["rows"][1]["promises"][0]


def test_notebooks_show_modules_runs_and_variants():
    module = daceml.compile(Chain().eval(), backward=False)
    assert module._repr_html_() == golden()  # pyright: ignore[reportCallIssue]
    with torch.no_grad():
        module(torch.randn(4, 6))
    text = module._repr_html_()  # pyright: ignore[reportCallIssue]
    assert "Chain, inference: x [4, 6]" in text and "<table>" in text
    replayed = simulate(run())
    for shown in (replayed, predict(run(), [AutomaticMixedPrecision()]), explored()):
        assert shown._repr_html_().startswith("<iframe sandbox=")
