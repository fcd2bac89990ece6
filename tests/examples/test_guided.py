"""The guided optimisations, on small inputs: every step keeps values and gradients, and says what it is."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

import daceml
from daceml.text_tables import WIDTH
from daceml.transformations import Recipe
from examples import guided, guided_bert, guided_efficientnet
from examples.encoder_layer import EncoderLayer
from examples.mbconv import MBConv


@pytest.mark.slow
def test_depthwise_convolutions_become_loops():
    torch.manual_seed(0)
    (first, *_, last) = guided_efficientnet.STEPS
    block, x = MBConv(channels=4, expansion=2), torch.randn(2, 4, 6, 6)
    rows = guided.measure(block, x, [guided_efficientnet.STEPS[1], last])
    assert [row.step for row in rows] == [last], "what the recipe has already is not measured"
    assert rows[0].error < 1e-4 and rows[0].cells()[0] == last.name
    whole = first.recipe.without("use_columns") + Recipe(last.recipe[last.recipe.place("depthwise_as_loops")])
    compiled = daceml.compile(block.eval(), recipe=whole, backward=False, verify=True)
    torch.testing.assert_close(compiled(x), block(x), rtol=1e-4, atol=1e-5)
    found = daceml.explain(compiled, x)
    assert found.applied["depthwise_as_loops"] == 1


@pytest.mark.slow
def test_relayouts_become_part_of_a_product():
    torch.manual_seed(0)
    layer, x = EncoderLayer(width=8, heads=2, inner=16), torch.randn(2, 3, 8)
    last = guided_bert.STEPS[-1]
    compiled = daceml.compile(layer, recipe=last.recipe, backward=False, verify=True)
    torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)
    applied = daceml.explain(compiled, x).applied
    assert applied["RelayoutIntoProduct"] == 1
    (row,) = guided.measure(layer, x, [last])
    assert row.error < 1e-4


@pytest.mark.parametrize("example", [guided_bert, guided_efficientnet])
def test_the_steps_are_printed(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    steps = [step for step in example.STEPS if step.recipe is not None]
    rows = [
        guided.Row(
            step=step, bytes=(4_000_000, 6_000_000), kernels=(3, 5), steps=(4, 9), inference_ms=1.0,
            training_ms=float(10 - number), error=1e-7,
        )
        for number, step in enumerate(steps)
    ]  # fmt: skip
    monkeypatch.setattr(example, "measure", lambda *_: rows)
    assert example.main() == 0
    text = capsys.readouterr().out
    assert "3+1  5+4" in text and "4.00  6.00" in text
    assert all(f"{step.name}: " in text for step in example.STEPS)
    assert "part of the automatic recipe" in text
    assert text.rstrip().endswith(steps[-1].name)
    assert all(len(line) <= WIDTH for line in text.splitlines())
    monkeypatch.setattr(example, "measure", lambda *_: [replace(rows[0], error=1.0)])
    assert example.main() == 1
