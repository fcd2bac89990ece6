"""What passes are worth, as text: signs, names, and passes that change nothing."""

from __future__ import annotations

from daceml.exploration.effects import Effect, Ratio
from daceml.report.effects_text import effects_json, effects_text
from tests.support.golden import golden

HELPS = Ratio(value=0.8, low=0.7, high=0.9)
SAME = Ratio.same()
FUSED = Effect(name="fuse_maps", among=HELPS, alone=HELPS.inverse())
IDLE = Effect(name="use_columns", among=SAME, alone=SAME, changes=False)


def test_a_step_that_takes_less_with_a_pass_has_a_minus():
    text = effects_text([FUSED])
    assert text == golden()
    assert "fuse_maps -20.0% [-30%, -10%] +25.0% [+11%, +43%]" in " ".join(text.split())


def test_what_changes_nothing_is_told_apart():
    text = effects_text([FUSED, IDLE])
    alone = effects_text([IDLE])
    assert alone == golden() and "use_columns" in alone and "%" not in alone
    assert text == f"{effects_text([FUSED])}\n{alone}"


def test_a_pass_of_frozen_weights_says_so():
    frozen = Effect(name="transpose_weights", among=HELPS, alone=None, frozen=True)
    text = effects_text([frozen])
    assert text == golden() and "transpose_weights" in text and "-20.0%" in text


def test_a_program_that_is_the_same_alone_says_so_and_nothing_is_less_than_zero():
    little = Ratio(value=0.9996, low=0.996, high=1.02)
    text = effects_text([Effect(name="fuse_maps", among=little, alone=SAME)])
    assert text == golden() and "fuse_maps +0.0% [+0%, +2%]" in " ".join(text.split())


def test_what_changes_something_by_itself_alone_has_a_row():
    text = effects_text([Effect(name="fuse_maps", among=SAME, alone=HELPS, changes=False)])
    assert text == golden() and text.rstrip().endswith("-20.0% [-30%, -10%]")


def test_a_busy_machine_is_told_beside_the_figures():
    said = "other programs used 47% of this machine"
    busy = Effect(name="fuse_maps", among=HELPS, alone=HELPS, disturbance=said)
    text = effects_text([busy, busy])
    assert text == golden() and text.count("47%") == 1


def test_a_refusal_has_its_reason():
    refused = Effect(name="fuse_maps", among=None, alone=None, why="an operator refuses")
    assert effects_text([refused]).endswith("  fuse_maps: an operator refuses")


def test_an_uncertain_sign_is_told():
    unsure = Ratio(value=0.9, low=0.7, high=1.2)
    text = effects_text([Effect(name="fuse_maps", among=unsure, alone=HELPS)])
    assert text == golden() and "-10.0% [-30%, +20%] ? -20.0% [-30%, -10%]" in " ".join(text.split())
    assert "may help or hurt" in text and "?" not in effects_text([FUSED])


def test_a_measurement_outside_the_predicted_interval_is_told():
    slower = Ratio(value=1.3, low=1.25, high=1.35)
    effect = Effect(name="fuse_maps", among=HELPS, alone=HELPS, measured_among=slower, measured_alone=HELPS)
    text = effects_text([effect])
    assert (
        text == golden()
        and text.count("outside the interval") == 1
        and "among all" in text.rpartition("fuse_maps")[2]
    )
    assert effects_json([effect], [])["effects"][0]["disagreements"] == ["among all"]
    assert "outside" not in effects_text([FUSED])
