"""Explorations of small models on this processor."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import ConfigurationError, ExplorationError
from daceml.exploration.effects import effects
from daceml.exploration.explore import Explored
from daceml.exploration.pass_names import STAGES, frozen_passes, known_passes, pass_named
from daceml.exploration.results import Row
from daceml.exploration.step_database import Library
from daceml.transformations.standard import standard_recipe
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant
from tests.support.golden import golden, raises


class Rows(nn.Module):
    """Loops that may be fused, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(24, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.up(x))
        return torch.softmax(y * torch.sigmoid(y), dim=-1).sum(dim=0)


def inputs() -> torch.Tensor:
    return torch.randn(16, 24, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def explored() -> Explored:
    torch.manual_seed(0)
    return daceml.explore(Rows().eval(), inputs(), budget=90, measurements=2, most=8)


@pytest.fixture(scope="module")
def elsewhere() -> Explored:
    """The standard program, and what it would take on ranks of another device."""
    return daceml.explore(
        _model().eval(), inputs(), budget=90, measurements=0, most=1, devices=["H100"], ranks=[8]
    )


@pytest.mark.slow
def test_all_that_is_lowered_is_predicted_and_little_is_measured(explored: Explored):
    found = explored.exploration
    assert found.model == "Rows" and found.inputs == "x: float32 (16, 24)"
    assert sum(row.outcome not in ("same program", "refused") for row in found.rows) == 8
    assert found.rows[0].variant == Variant()
    assert found.compiled <= 3
    for row in found.rows:
        if row.outcome == "refused":
            assert row.why
            continue
        assert row.predicted_ms is not None and row.low_ms is not None and row.high_ms is not None
        assert 0 < row.low_ms < row.predicted_ms < row.high_ms
        assert row.memory_bytes and row.moved_bytes
    assert found.standard.measured is not None and found.standard.measured.ratio == 1


@pytest.mark.slow
def test_the_winner_was_measured_and_is_no_slower(explored: Explored):
    best = explored.best
    assert best.measured is not None
    assert best.variant == Variant() or best.measured.ratio_high < 1


@pytest.mark.slow
def test_every_variant_computes_the_same(explored: Explored):
    model, x = explored.compiled(Variant()), inputs()
    expected = model(x)
    for row in explored.rows:
        if row.outcome in ("measured", "standard recipe", "same program"):
            with torch.no_grad():
                torch.testing.assert_close(explored.compiled(row.variant)(x), expected, rtol=1e-5, atol=1e-6)


def test_options_are_those_of_compile(elsewhere: Explored):
    options = elsewhere.options(Variant(freeze=True, choices=("loops apart",)))
    assert options["freeze"] is True and options["backward"] is False
    assert "fuse_subgraphs" not in [step.name for step in options["recipe"]]
    assert elsewhere.options(Variant()) == {"backward": False}
    assert elsewhere.options(Variant(unoptimised=True)) == {"backward": False, "auto_optimize": False}


@pytest.mark.usefixtures("elsewhere")
def test_what_was_learned_is_there_the_next_time():
    with Library.of_this_machine() as library:
        times = library.times()
    assert len(times) > 0
    lowered = Subject(_model(), (inputs(),), {}, training=False).lower(Variant())
    assert times.program(lowered.facts, 0.0).measured_share == pytest.approx(1.0)


@pytest.mark.slow
def test_steps_whose_costs_an_older_library_does_not_tell_are_left_out(tmp_path: Path):
    facts = Subject(_model(), (inputs(),), {}, training=False).lower(Variant()).facts
    with Library.of_this_machine(tmp_path) as library:
        library.add(facts, [5.0] * len(facts))
        assert library.database is not None
        entry = next(iter(library.database.entries()))
        less = {name: value for name, value in entry.operation.attributes.items() if name != "loop_starts"}
        older = {**entry.operation.attributes, "costs": 1}  # counted in another way
        library.database.add_all(
            replace(entry, operation=replace(entry.operation, attributes=told, kernel=kernel))
            for told, kernel in ((less, "old"), (older, "older"))
        )
    with Library.of_this_machine(tmp_path) as library:
        assert len(library.times()) == len({fact.key for fact in facts})


def test_a_damaged_library_is_left_alone_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "steps.db").write_bytes(b"no database")
    with Library.of_this_machine(tmp_path) as library:
        assert library.database is None
    (told,) = [record.message for record in caplog.records if str(tmp_path / "steps.db") in record.message]
    assert told == golden()
    assert (tmp_path / "steps.db").read_bytes() == b"no database"


@pytest.mark.slow
def test_training_is_explored_with_its_backward_pass():
    rows: list[Row] = []
    found = daceml.explore(
        _model().train(), inputs(), budget=90, measurements=1, most=6, observe=rows.append
    ).exploration
    assert found.training and not any(row.variant.freeze for row in found.rows)
    assert rows[0].variant == Variant() and rows[0].measured is not None
    inference = daceml.explore(_model().eval(), inputs(), budget=90, measurements=0, most=1).exploration
    assert (found.standard.moved_bytes or 0) > (inference.standard.moved_bytes or 0)


def test_other_devices_are_predicted(elsewhere: Explored):
    rows = [row for row in elsewhere.rows if not row.variant.here]
    assert {(row.variant.fused, row.variant.ranks) for row in rows} == {
        (False, 1), (False, 8), (True, 1), (True, 8)
    }  # fmt: skip
    assert all(row.outcome == "predicted" and row.measured is None for row in rows)
    assert elsewhere.best.variant.here
    with raises(ExplorationError, "H100"):
        elsewhere.compiled(rows[0].variant)


def test_the_cheapest_is_that_of_a_device_with_a_price():
    """A price goes with its device however that is spelt."""
    from daceml.prediction.prices import Price

    found = daceml.explore(
        _model().eval(), inputs(), budget=90, measurements=0, most=1, objective="cost",
        devices=["h100", "T4"], prices={"H100": Price(usd_per_hour=3.0, date="2026-05-20"),
                                        "T4": Price(usd_per_hour=0.35, date="2026-05-20")},
    )  # fmt: skip
    costs = {row.variant: row.usd_per_million for row in found.rows if row.usd_per_million is not None}
    assert {variant.device for variant in costs} == {"h100", "T4"}
    assert costs[found.best.variant] == min(costs.values())


@pytest.mark.parametrize(
    ("model", "options", "facts"),
    [
        (None, {}, ["NoneType"]),
        (nn.Linear(24, 4), {"objective": "speed"}, ["objective='speed'", "memory"]),
        (nn.Linear(24, 4), {"objective": "cost"}, ['objective="cost"', "prices="]),
        (nn.Linear(24, 4), {"precisions": ["int32"]}, ["'int32'", "bfloat16"]),
        (nn.Linear(24, 4), {"precisions": "bfloat16"}, ["precisions='bfloat16'", "list"]),
        (nn.Linear(24, 4), {"batches": 8}, ["batches=8", "list"]),
        (nn.Linear(24, 4), {"batches": [0]}, ["batches", "of 0"]),
        (nn.Linear(24, 4), {"batches": [8.0]}, ["batches", "of 8.0"]),
        (nn.Linear(24, 4), {"devices": "H100"}, ["devices='H100'", "list"]),
        (nn.Linear(24, 4), {"ranks": [8]}, ["ranks", "devices="]),
        (nn.ReLU(), {"training": True}, ["ReLU", "training"]),
        (nn.Linear(24, 4, device="meta"), {}, ["Linear", "meta"]),
    ],
)
def test_refusals(model: nn.Module, options: dict[str, object], facts: list[str]):
    with raises(ExplorationError, *facts):
        daceml.explore(model, inputs(), budget=5, **options)  # pyright: ignore[reportArgumentType]


def test_a_budget_that_is_none_is_refused():
    with raises(ConfigurationError, "budget 'soon'", "90s"):
        daceml.explore(_model(), inputs(), budget="soon")


# ---- effects

_PASSES = ("fuse_maps", "use_columns")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("fuse_map", "fuse_maps"), ("fuse-maps", "fuse_maps"), ("use_column", "use_columns")],
)
def test_what_is_misspelt_is_not_taken_for_a_pass(typed: str, meant: str):
    with raises(ExplorationError, repr(typed), repr(meant)):
        pass_named(typed, known_passes(training=False))


def test_stages_cannot_be_left_out():
    with raises(ExplorationError, "Lowering"):
        pass_named("Lowering", known_passes(training=False))


@pytest.mark.parametrize(("training", "frozen"), [(False, False), (False, True), (True, False)])
def test_names_are_those_that_records_have(training: bool, frozen: bool):
    model = _model().train(training)
    lowered = Subject(model, (inputs(),), {}, training=training).lower(Variant(freeze=frozen))
    every = [one for made in lowered.making.made for one in made.network.passes]
    records = [one for one in every if one.by]
    assert {one.name for one in every if not one.by} == STAGES - {
        "MemoryPlan"
    }  # which the program's plan makes
    assert all(one.by == one.name for one in records)
    ran = {one.by for one in records}
    situation = "training" if training else "frozen" if frozen else "inference"
    assert ran == {step.name for step in standard_recipe().when(situation)}
    assert ran.isdisjoint(frozen_passes()) != frozen


def test_a_pass_of_frozen_weights_is_told_where_they_are_frozen():
    (found,) = effects(_model().eval(), inputs(), passes=["transpose_weights"], limit_s=0.5)
    assert found.name == "transpose_weights" and found.frozen and not found.why
    assert "transpose_weights" not in known_passes(training=False)
    with raises(ExplorationError, "'transpose_weights'", "frozen", "without --train"):
        effects(_model(), inputs(), passes=["transpose_weights"], training=True)
    with raises(ExplorationError, "'lift_mish'", "training", "--train"):
        effects(_model().eval(), inputs(), passes=["lift_mish"])


def test_what_the_recipe_has_is_not_added():
    with raises(ExplorationError, "fuse_maps", "--without fuse_maps"):
        effects(_model().eval(), inputs(), additions=["fuse_maps"])


@pytest.mark.slow
def test_an_effect_is_told_among_others_and_alone():
    fused, idle = effects(
        _model().eval(), inputs(), passes=["fuse_maps", "use_columns"], measure=True, limit_s=2
    )
    assert fused.name == "fuse_maps" and fused.changes and not fused.why
    for ratio in (fused.among, fused.alone, fused.measured_among, fused.measured_alone):
        assert ratio is not None and 0 < ratio.low <= ratio.value <= ratio.high
    assert fused.interaction is not None and math.isfinite(fused.interaction)
    assert not idle.changes and idle.among is not None and idle.among.value == 1


def _model() -> Rows:
    torch.manual_seed(0)
    return Rows()


@pytest.mark.slow
def test_ranks_share_the_samples():
    question_of = {"devices": ["H100"], "ranks": [8, 1, 8]}
    found = daceml.explore(
        _large(), torch.randn(4096, 1024), budget=90, measurements=0, most=1, **question_of
    )  # pyright: ignore
    there = {row.variant.ranks: row for row in found.rows if row.variant.fused and not row.variant.graphed}
    assert there.keys() == {1, 8}
    one, many = there[1].predicted_ms, there[8].predicted_ms
    assert one is not None and many is not None and many == pytest.approx(one / 8, rel=0.3)


def test_prices_of_other_devices_alone_are_refused():
    from daceml.prediction.prices import Price

    price = Price(usd_per_hour=3.0, date="2026-05-20")
    with raises(ExplorationError, "H100", "prices="):
        daceml.explore(
            _model().eval(), inputs(), budget=90, objective="cost", devices=["T4"], prices={"H100": price}
        )


def test_a_step_that_does_not_fit_is_refused():
    found = daceml.explore(
        _large(), torch.randn(4, 1024), budget=90, measurements=0, most=1, devices=["T4"], batches=[10**8]
    )
    rows = [row for row in found.rows if row.variant.device and row.variant.samples]
    assert rows and all(row.outcome == "refused" and "GB" in row.why for row in rows)
    assert "\n".join(sorted({row.why for row in rows})) == golden()


def test_a_search_that_was_cut_short_says_so(elsewhere: Explored):
    assert not elsewhere.exploration.complete  # of many variants one was lowered
    assert elsewhere.exploration.ended == golden()
    assert "most=1" in elsewhere.exploration.ended


def test_a_measurement_that_would_exceed_the_budget_is_not_begun():
    found = daceml.explore(_model().eval(), inputs(), budget=0.001).exploration
    assert found.compiled == found.predicted == 1
    assert not found.complete and found.ended == golden()
    assert "budget" in found.ended


@pytest.mark.slow
def test_another_precision_on_a_device_casts_nothing():
    found = daceml.explore(
        _large(), torch.randn(4096, 1024), budget=90, measurements=0, most=1, devices=["H100"],
        precisions=["bfloat16"],
    )  # fmt: skip
    there = {
        row.variant.precision: row
        for row in found.rows
        if row.variant.device and not (row.variant.fused or row.variant.graphed)
    }
    whole, half = there[""], there["bfloat16"]
    assert half.kernels == whole.kernels
    assert half.predicted_ms is not None and whole.predicted_ms is not None
    assert half.predicted_ms < whole.predicted_ms


def _large() -> nn.Module:
    return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).eval()
