"""The page in a browser: the paper's two guided sessions by clicks, a run's timeline, variants, reports."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from daceml.exploration.guided.guided import Guided
from daceml.gui.page import report_page
from daceml.gui.pages import ModelPage, TracePage, VariantsPage
from daceml.gui.server import PageServer, Shown, Told
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from examples import guided_bert, guided_efficientnet
from examples.encoder_layer import EncoderLayer
from examples.mbconv import MBConv
from tests.gui.browser import Tab, browsing, needs_browser
from tests.support.explorations import explored
from tests.support.guided_models import Chain
from tests.support.recorded_step import run

pytestmark = needs_browser
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def opened(shown: Shown) -> Iterator[Tab]:
    """A page that is served and looked at."""
    with PageServer(shown) as server, browsing() as tab:
        tab.page.goto(server.url)
        tab.wait("body[data-ready]")
        yield tab
    if isinstance(shown, ModelPage):
        shown.close()


def did(tab: Tab, title: str) -> str:
    """Wait until the last move is done; the program's hash."""
    tab.wait("#history li.now", has_text=title)
    return str(tab.page.locator("#hash").get_attribute("title"))


def click(tab: Tab, selector: str) -> None:
    tab.page.locator(selector).first.click(timeout=60_000)


def test_apply_undo_export_and_replay(tmp_path: Path):
    torch.manual_seed(0)
    guided = Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing")
    page = ModelPage(guided, title="Chain", target="tests.support.guided_models:Chain")
    with opened(page) as tab:
        before = did(tab, "start")
        steps = tab.text("#steps b")
        tab.wait("[data-move=fuse_maps] .worth", has_text="-2 steps")
        tab.page.locator("[data-move=fuse_maps] summary").hover()
        tab.wait(".box.marked")  # what it would change is highlighted
        click(tab, "[data-apply=fuse_maps]")
        fused = did(tab, "fuse_maps everywhere")
        assert fused != before and int(tab.text("#steps b")) == int(steps) - 2
        click(tab, "#undo")
        assert did(tab, "start") == before and tab.text("#steps b") == steps
        click(tab, "#redo")
        assert did(tab, "fuse_maps everywhere") == fused
        click(tab, "#undo")
        did(tab, "start")
        # one place only, from the array's own list
        # a vertical line has no width that the driver could click at
        tab.page.locator("path.edge[data-arrays=mul]").dispatch_event("click")
        tab.wait("#selection h2", has_text="mul")
        click(tab, "#selection [data-apply=fuse_maps][data-place=mul]")
        at_one = did(tab, "fuse_maps at mul")
        assert at_one not in (before, fused)
        with tab.page.expect_download() as download:
            click(tab, "#export")
        download.value.save_as(tmp_path / "recipe.py")
        tab.keep("chain")
    script = (tmp_path / "recipe.py").read_text()
    assert 'Step(fuse_maps, places=("mul",))' in script.replace("'", '"') and at_one in script
    replayed = subprocess.run(
        [sys.executable, str(tmp_path / "recipe.py")], cwd=ROOT, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "DACEML_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert replayed.stdout.split()[-1:] == [at_one], replayed.stderr


def test_the_token_leaves_the_address_and_a_reload_keeps_the_page():
    with opened(VariantsPage(explored())) as tab:
        assert "token" not in tab.page.url
        tab.page.reload()
        tab.wait("body[data-ready]")
        assert "token" not in tab.page.url
        assert [fault for fault in tab.faults if "403" not in fault] == []
        tab.faults.clear()  # the address without a token is refused before the tab goes on


def test_sizes_refusals_and_measurement():
    guided = Guided(Chain().eval(), (torch.randn(4, 6),))
    with opened(ModelPage(guided, title="Chain", ahead=False)) as tab:
        moved = tab.text("#moved b")
        tab.page.locator("[data-input=x]").fill("64 x 6")
        tab.page.locator("[data-input=x]").press("Enter")
        tab.wait("[data-input=x][value='64 x 6']")
        assert tab.text("#moved b") != moved
        tab.page.locator("[data-input=x]").fill("64 x 7")
        tab.page.locator("[data-input=x]").press("Enter")
        tab.wait(".message", has_text="[DML812] ")
        click(tab, "#measure")
        tab.wait("#measured b", has_text="s")
        click(tab, "g[data-box]")
        tab.wait("#selection td", has_text="measured")


def moved_twice() -> Guided:
    guided = Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing")
    guided.apply("fuse_maps")
    guided.apply("schedule_maps")
    return guided


def slowly(act: Callable[[Told], Told], seconds: float) -> Callable[[Told], Told]:
    def acted(told: Told) -> Told:
        time.sleep(seconds)
        return act(told)

    return acted


def test_a_double_click_undoes_once():
    for seconds in (0.0, 1.0):
        guided = moved_twice()
        page = ModelPage(guided, title="Chain", ahead=False)
        page.actions = {**page.actions, "undo": slowly(page.actions["undo"], seconds)}
        with opened(page) as tab:
            tab.page.locator("#undo").dblclick(delay=60)
            did(tab, "fuse_maps everywhere")
            tab.wait("#undo:not([disabled])")
            tab.page.wait_for_timeout(1500 * seconds + 100)
            assert guided.place == 1
            click(tab, "#undo")  # what is held back is given back
            did(tab, "start")


def test_a_refused_move_of_a_tab_left_behind_shows_where_the_other_tab_is():
    guided = moved_twice()
    with opened(ModelPage(guided, title="Chain", ahead=False)) as tab:
        guided.undo()
        guided.undo()  # in another tab
        click(tab, "#undo")
        tab.wait(".message", has_text="undo")
        refused = tab.text(".message")
        did(tab, "start")
        tab.page.wait_for_timeout(500)
        assert tab.text(".message") == refused  # looking again does not wipe it away


def test_a_page_whose_server_is_away_asks_again_until_it_is_back():
    guided = moved_twice()
    with opened(ModelPage(guided, title="Chain", ahead=False)) as tab:
        away = "**/view.json*"
        tab.page.route(away, lambda route: route.abort())
        tab.page.route("**/undo", lambda route: route.abort())
        click(tab, "#undo")
        tab.wait(".message", has_text="server")
        guided.undo()
        tab.page.wait_for_timeout(1500)  # it has asked in vain
        tab.page.unroute(away)
        did(tab, "fuse_maps everywhere")
        tab.page.locator(".message").wait_for(state="hidden")
        assert all("Failed to load resource" in fault for fault in tab.faults)
        tab.faults.clear()


def test_a_fault_of_the_page_is_not_taken_for_the_end_of_the_server():
    page = ModelPage(moved_twice(), title="Chain", ahead=False)
    with opened(page) as tab:
        page.actions = {**page.actions, "undo": lambda _: {"kind": "model"}}  # nothing that can be shown
        click(tab, "#undo")
        tab.wait(".message")
        assert "server" not in tab.text(".message") and "undefined" in tab.text(".message")


def test_the_guided_session_of_bert():
    """From the recipe without three of its fusions, one click after the other, as in the case study."""
    torch.manual_seed(0)
    guided = Guided(
        EncoderLayer(width=64, inner=256),
        (torch.randn(2, 32, 64),),
        training=True,
        offered=guided_bert.PASSES,
    )
    with opened(ModelPage(guided, title="EncoderLayer", ahead=False)) as tab:
        hashes = [did(tab, "start")]
        for name in ("fuse_contractions", "fuse_subgraphs", "lift_layer_normalization"):
            click(tab, f"[data-leave={name}]")
            hashes.append(did(tab, f"without {name}"))
        moved = [guided.program().lowered.moved_bytes]
        for name in (
            "fuse_subgraphs",
            "lift_layer_normalization",
            "fuse_contractions",
            "RelayoutIntoProduct",
        ):
            click(tab, f"[data-apply={name}]")
            hashes.append(did(tab, f"{name} everywhere"))
            moved.append(guided.program().lowered.moved_bytes)
        tab.keep("bert")
    assert moved[1] < moved[0] and moved[2] < moved[1]  # softmax, then normalization
    # with all three back it is the automatic recipe; the last one is no part of it
    assert hashes[-2] == hashes[0] and hashes[-1] != hashes[0]


def test_the_guided_session_of_efficientnet():
    torch.manual_seed(0)
    guided = Guided(
        MBConv(channels=8), (torch.randn(2, 8, 28, 28),), training=True, offered=guided_efficientnet.PASSES
    )
    with opened(ModelPage(guided, title="MBConv", ahead=False)) as tab:
        start = did(tab, "start")
        click(tab, "[data-apply=depthwise_as_loops]")
        loops = did(tab, "depthwise_as_loops everywhere")
        assert loops != start
        click(tab, "[data-leave=fuse_subgraphs]")
        did(tab, "without fuse_subgraphs")
        assert "+" in tab.text("#moved small")  # more bytes than at the start
        click(tab, "#undo")
        assert did(tab, "depthwise_as_loops everywhere") == loops
        click(tab, "#fold")
        assert tab.page.locator("g.box.group").count() == 2
        tab.keep("efficientnet")
        click(tab, "g.box.group[data-box=forward]")
        tab.wait("g.box:not(.group)")


def test_a_run_with_a_question():
    page = TracePage(run(), ask=lambda words: [AutomaticMixedPrecision()] if words == ["--amp"] else [])
    with opened(page) as tab:
        assert int(tab.page.locator("#lanes").get_attribute("data-drawn") or 0) >= 5
        rows = int(tab.page.locator("#lanes").get_attribute("data-rows") or 0)
        tab.page.locator("#question").fill("--amp")
        click(tab, "#ask")
        tab.wait("#answers td", has_text="mixed")
        assert int(tab.page.locator("#lanes").get_attribute("data-rows") or 0) > rows
        tab.page.locator("#lanes").hover(position={"x": 700, "y": 60})
        tab.keep("timeline")
        tab.page.locator("#question").fill("")
        click(tab, "#ask")
        tab.wait(".message", has_text="[DML")


def test_variants_as_points():
    with opened(VariantsPage(explored())) as tab:
        assert tab.page.locator("[data-point]").count() == 2  # the refused one has no time
        click(tab, "[data-point='0']")
        tab.wait("#details h2", has_text="standard recipe")
        click(tab, "[data-row='2']")
        tab.wait("#details td", has_text="a pass refuses")
        tab.keep("variants")


def test_a_report_is_the_same_page_without_a_server(tmp_path: Path):
    guided = Guided(Chain().eval(), (torch.randn(4, 6),))
    page = ModelPage(guided, title="Chain", ahead=False)
    for name in guided.catalogue.steps:
        guided.effect(name)
    (tmp_path / "report.html").write_text(report_page(page.view()))
    with browsing() as tab:
        tab.page.goto((tmp_path / "report.html").as_uri())
        tab.wait("body[data-ready=model]")
        assert tab.page.locator("[data-apply]").count() == 0 and tab.page.locator("#undo").count() == 0
        assert tab.text("#steps b") == str(len(guided.program().graph.nodes))
        assert tab.hosts == set()
        assert sum(url.startswith("file:") for url in tab.requests) == 1  # the report alone


def large_view(count: int) -> dict[str, Any]:
    """A network of residual blocks."""
    guided = Guided(Chain().eval(), (torch.randn(4, 6),))
    view = ModelPage(guided, title="Large", ahead=False).view()
    (node, *_), nodes, edges = view["nodes"], [], []
    for place in range(count):
        path = f"layers.{place // 80}.{place % 80 // 8}"
        nodes.append({**node, "path": path, "arrays": [f"a{place}"], "predicted_us": 1 + place % 7})
        if place:
            edges.append([place - 1, place, f"a{place - 1}", 4096, "float32[1024]"])
        if place > 8 and place % 8 == 0:
            edges.append([place - 8, place, f"a{place - 8}", 4096, "float32[1024]"])
    return {**view, "nodes": nodes, "edges": edges}


def test_long_lists_say_what_is_left_out_and_show_it():
    guided = Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing")
    guided.effect("fuse_maps")
    ((key, effect),) = guided._sizes.effects.items()
    places = tuple(f"place_{i}" for i in range(100))
    refused = tuple((f"array_{i}", "too small", 8 * i, "") for i in range(1000))
    guided._sizes.effects[key] = replace(effect, places=places, refused=refused)
    with opened(ModelPage(guided, title="Chain", ahead=False)) as tab:
        click(tab, "[data-move=fuse_maps] summary b")
        rows = tab.page.locator("[data-move=fuse_maps] .places tbody tr")
        assert rows.count() == 60
        click(tab, "[data-move=fuse_maps] button:has-text('and 40 more')")
        assert rows.count() == 100 and tab.page.locator("[data-place=place_99]").count() == 1
        rows = tab.page.locator("[data-move=fuse_maps] .refusals tbody tr")
        assert rows.count() == 60
        click(tab, "[data-move=fuse_maps] button:has-text('and 940 more')")
        tab.wait("[data-move=fuse_maps] .refusals td", has_text="array_1 ")
        assert rows.count() == 1000 and tab.page.locator(".more").count() == 0


def test_a_line_of_several_arrays_offers_all_of_them():
    guided = Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing")
    guided.effect("fuse_maps")
    page = ModelPage(guided, title="Chain", ahead=False)
    view = page.view()
    (_, _, first, *of_first), (_, _, second, *of_second), *rest = view["edges"]
    both = {**view, "edges": [[0, 1, first, *of_first], [0, 1, second, *of_second], *rest]}
    page.view = lambda known="": both
    with opened(page) as tab:
        tab.page.locator(f"path.edge[data-arrays='{first} {second}']").dispatch_event("click")
        tab.wait("#selection h2", has_text="2 arrays")
        for array in (first, second):
            assert tab.page.locator(f"#selection [data-apply=fuse_maps][data-place={array}]").count() == 1


def test_eight_thousand_steps_stay_usable(tmp_path: Path):
    (tmp_path / "large.html").write_text(report_page(large_view(8_000)))
    with browsing() as tab:
        began = time.monotonic()
        tab.page.goto((tmp_path / "large.html").as_uri())
        tab.wait("body[data-ready=model]")
        graph = tab.page.locator("svg.graph")
        assert 50 <= int(graph.get_attribute("data-boxes") or 0) <= 300  # folded
        click(tab, "#unfold")
        assert graph.get_attribute("data-boxes") == "8000"
        tab.page.locator("button", has_text="+").first.click()
        for _ in range(5):
            tab.page.mouse.wheel(0, 400)
        tab.keep("large")
        click(tab, "#fold")
        assert graph.get_attribute("data-boxes") == "1"
        assert time.monotonic() - began < 60  # minutes, if a click looked at pairs of steps
        assert tab.hosts == set()
