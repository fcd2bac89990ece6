"""Effects of passes, as text: signs, names, passes that change nothing, and figures that are not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daceml.exploration.effects import Effect, Ratio
from daceml.exploration.results import Row
from daceml.report.effects_text import devices_text, effects_json, effects_text
from daceml.tuning.variant import Variant
from tests.support.golden import golden

HELPS = Ratio(value=0.8, low=0.7, high=0.9)
SAME = Ratio.same()
FUSED = Effect(name="fuse_maps", among=HELPS, alone=HELPS.inverse())
IDLE = Effect(name="use_columns", among=SAME, alone=SAME, changes=False)
BUSY = "other programs used 47% of this machine"


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_step_that_takes_more_time_without_a_pass_is_slower():
    text = effects_text([FUSED], title="Net in eval mode")
    assert text == golden() and text.startswith("Net in eval mode\n")
    assert "fuse_maps 25.0% slower [+11%, +43%] 20.0% faster [-30%, -10%]" in words(text)
    assert "among all: " in text and "alone: " in text


def test_an_addition_is_told_with_it():
    text = effects_text([Effect(name="bf16", among=HELPS, alone=None, addition=True), FUSED])
    assert text == golden()
    assert "bf16 20.0% faster [-30%, -10%]" in words(text) and "with the addition" in text


def test_what_changes_nothing_is_told_apart():
    text = effects_text([FUSED, IDLE])
    alone = effects_text([IDLE])
    assert alone == golden() and "use_columns" in alone and "%" not in alone
    assert text == f"{effects_text([FUSED])}\n{alone}"


def test_a_pass_of_frozen_weights_says_so():
    frozen = Effect(name="transpose_weights", among=HELPS, alone=None, frozen=True)
    text = effects_text([frozen])
    assert text == golden() and "transpose_weights *" in text and "25.0% slower" in text


def test_a_program_that_is_the_same_alone_says_so():
    little = Ratio(value=0.9996, low=0.9992, high=0.99975)
    text = effects_text([Effect(name="fuse_maps", among=little, alone=SAME)])
    assert text == golden() and "fuse_maps 0.0% slower [+0.0%, +0.1%] same program" in words(text)


def test_what_changes_something_by_itself_alone_has_a_row():
    text = effects_text([Effect(name="fuse_maps", among=SAME, alone=HELPS, changes=False)])
    assert text == golden() and "fuse_maps same program 25.0% slower [+11%, +43%]" in words(text)


def test_a_slow_machine_is_told_beside_the_figures():
    slow = Effect(
        name="fuse_maps", among=HELPS, alone=HELPS, disturbance="this machine took 1.6 times as long"
    )
    text = effects_text([slow, slow])
    assert text == golden() and text.count("1.6 times") == 1


def test_a_figure_that_other_programs_disturbed_is_not_given():
    busy = Effect(
        name="fuse_maps", among=None, alone=HELPS, busy=BUSY, disturbance=BUSY, unmeasured=("among",)
    )
    text = effects_text([busy, busy])
    assert text == golden() and text.count("not measured: the machine is busy") == text.count("47%") == 1
    assert "fuse_maps ? (machine is busy) 25.0% slower" in words(text) and "20 s" in text
    (told,) = effects_json([busy], [])["effects"]
    assert told["among"] is None and told["unmeasured"] == ("among",) and told["busy"] == BUSY


def test_what_changes_nothing_among_others_and_was_disturbed_alone_has_a_row():
    busy = Effect(name="fuse_maps", among=SAME, alone=None, changes=False, busy=BUSY, unmeasured=("alone",))
    text = effects_text([busy])
    assert text == golden() and "fuse_maps same program ? (machine is busy)" in words(text)
    assert "the program is the same with and without" not in words(text)


def test_times_of_several_ranks_say_what_a_step_takes():
    row = Row(
        variant=Variant(device="H100", ranks=8), outcome="predicted", predicted_ms=3, low_ms=2, high_ms=4
    )
    text = devices_text([row], train=True)
    assert text == golden() and "a training step, without an optimizer" in words(text)
    assert "+ 8 ranks: each rank has as many samples as the call" in words(text)
    assert "a step of all takes 8 times" in words(text)
    alone = devices_text([replace(row, variant=Variant(device="H100"))], train=False)
    assert "a forward pass" in alone and "each rank" not in alone


def test_an_interval_that_says_nothing_is_unknown():
    wide = Ratio(value=1.2, low=0.04, high=132.0)
    effect = Effect(name="fuse_maps", among=wide, alone=HELPS, measured_among=HELPS)
    text = effects_text([effect])
    assert text == golden() and "fuse_maps unknown 25.0% slower" in words(text) and "factor of 3" in text
    (told,) = effects_json([effect], [])["effects"]
    assert told["among"] is None and told["unknown"] == ["among"] and told["alone"]["value"] == 0.8
    assert told["interaction"] is None and told["disagreements"] == []
    assert Ratio(value=1, low=0.6, high=1.7).known and not Ratio(value=1, low=0.6, high=1.9).known


def test_a_refusal_has_its_reason():
    refused = Effect(name="fuse_maps", among=None, alone=None, why="an operator refuses")
    assert effects_text([refused]).endswith("  fuse_maps: an operator refuses")


def test_an_uncertain_sign_is_told():
    uncertain = Ratio(value=0.9, low=0.7, high=1.2)
    text = effects_text([Effect(name="fuse_maps", among=uncertain, alone=HELPS)])
    assert text == golden() and "unsure [-17%, +43%] 25.0% slower [+11%, +43%]" in words(text)
    assert "may be slower or faster" in text and "unsure" not in effects_text([FUSED])


@pytest.mark.parametrize(
    ("ratio", "cell"),
    [
        (Ratio(value=0.25, low=0.2, high=0.28), "4.0x the time [3.6x, 5.0x]"),
        (Ratio(value=150, low=110, high=300), "99.3% faster [-99.7%, -99.1%]"),
        (Ratio(value=1.02, low=1.01, high=1.03), "2.0% faster [-2.9%, -1.0%]"),
    ],
)
def test_large_and_small_changes_are_readable(ratio: Ratio, cell: str):
    assert f"fuse_maps {cell}" in words(effects_text([Effect(name="fuse_maps", among=ratio, alone=None)]))


def test_a_measurement_apart_from_the_prediction_is_told():
    slower = Ratio(value=1.3, low=1.25, high=1.35)
    effect = Effect(name="fuse_maps", among=HELPS, alone=HELPS, measured_among=slower, measured_alone=HELPS)
    text = effects_text([effect])
    assert text == golden() and text.count("rely on the measurement") == 1
    assert "among all" in text.rpartition("fuse_maps")[2]
    assert effects_json([effect], [])["effects"][0]["disagreements"] == ["among all"]
    assert "rely on" not in effects_text([FUSED])


def test_what_is_apart_by_rounding_or_may_overlap_does_not_disagree():
    near = Ratio(value=0.902, low=0.9008, high=0.904)  # -10 %, as is the end of what was predicted
    wide = Ratio(value=0.95, low=0.88, high=1.05)
    for measured in (near, wide):
        assert not Effect(name="fuse_maps", among=HELPS, alone=None, measured_among=measured).disagreements
