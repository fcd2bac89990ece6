"""Random numbers are drawn in the order of memory: the elements that eager drops are dropped."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from tests.support.exported_models import Lambda


def drops_the_same(module: nn.Module, *args: torch.Tensor) -> None:
    """Two calls after the same seed have their zeros at the same places."""
    compiled = daceml.compile(module.train(), backward=False)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = module(*args)
        torch.manual_seed(1)
        found = compiled(*args)
    assert 0 < (expected == 0).sum() < expected.numel()
    assert torch.equal(found == 0, expected == 0)


class Attends(nn.Module):
    """Dropout of attention to a batch of padded sequences: its result is a transposed tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None = None) -> torch.Tensor:
        y, _ = self.attention(x, x, x, need_weights=False, key_padding_mask=padding)
        return self.dropout(y)


PADDING = torch.arange(5) >= torch.tensor([[5], [3], [4]])


@pytest.mark.parametrize(
    "padding", [pytest.param(None, marks=pytest.mark.slow), PADDING], ids=["whole", "padded"]
)
def test_attention_of_batches(padding: torch.Tensor | None):
    drops_the_same(Attends(), torch.randn(3, 5, 8), *([] if padding is None else [padding]))


def test_transformer_layer_with_padding():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    layer.dropout1.p = 0.5
    # only what the dropout keeps differs from the input then
    layer.linear2.weight.data.zero_()
    layer.linear2.bias.data.zero_()

    def change(x: torch.Tensor) -> torch.Tensor:
        return layer(x, src_key_padding_mask=PADDING) - x

    module = Lambda(change)
    module.layer = layer
    drops_the_same(module, torch.randn(3, 5, 8))


def test_the_mask_of_a_dropout_lies_as_its_tensor():
    def both(x: torch.Tensor) -> torch.Tensor:
        y, mask = torch.native_dropout(x.transpose(0, 2), 0.5, True)
        return torch.stack([y, mask.to(y.dtype)])

    drops_the_same(Lambda(both), torch.rand(3, 4, 5) + 1)
