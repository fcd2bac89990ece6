"""A recipe that the page exported is run again: the same program, another one, or no model at all."""

from __future__ import annotations

import pytest
import torch

from daceml.cli.replay_recipe import replay_recipe
from daceml.transformations import standard_recipe
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant
from tests.support.guided_models import Chain

CHAIN = "tests.support.guided_models:Chain"


def _hash() -> str:
    variant = Variant(recipe=standard_recipe().to_json())
    return Subject(Chain().eval(), (torch.zeros(4, 6),), {}, training=False).lower(variant).identity


def test_the_same_program_is_told_by_its_hash(capsys: pytest.CaptureFixture[str]):
    known = _hash()
    replay_recipe(CHAIN, standard_recipe(), hash=known, inputs=["4,6"], training=False)
    assert capsys.readouterr().out.split()[-1] == known


@pytest.mark.parametrize(
    ("target", "code", "fact"),
    [(CHAIN, "DML813", "000000000000"), ("torch:float32", "DML501", "torch:float32")],
)
def test_another_program_and_no_model_end_with_1(
    capsys: pytest.CaptureFixture[str], target: str, code: str, fact: str
):
    with pytest.raises(SystemExit) as end:
        replay_recipe(target, standard_recipe(), hash="0" * 64, inputs=["4,6"], training=False)
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert code in said and fact in said
