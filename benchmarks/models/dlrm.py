"""DLRM, the recommendation model: embedding bags, two MLPs, and dot products between all features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from benchmarks.models import shapes
from benchmarks.models.spec import Inputs, ModelSpec, he_normal, with_weights

TABLES = 26
ROWS = 100_000
DENSE = 13
# A bag has up to so many indices.
LARGEST_BAG = 7


class DLRM(nn.Module):
    """Click probability from dense and sparse features.

    dense: [N, 13] float, indices: for each table [its lookups] int64, offsets: for each table [N] int64,
    where its bags start -> [N, 1]
    """

    first: torch.Tensor
    second: torch.Tensor

    def __init__(
        self,
        *,
        tables: int = TABLES,
        rows: int = ROWS,
        bottom: Sequence[int] = (DENSE, 512, 256, 64),
        top: Sequence[int] = (512, 256, 1),
    ) -> None:
        super().__init__()
        width = bottom[-1]
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = mlp(bottom, last=nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = mlp((width + pairs, *top), last=nn.Sigmoid())
        above = torch.triu_indices(tables + 1, tables + 1, offset=1)
        self.register_buffer("first", above[0], persistent=False)
        self.register_buffer("second", above[1], persistent=False)

    def forward(
        self, dense: torch.Tensor, indices: list[torch.Tensor], offsets: list[torch.Tensor]
    ) -> torch.Tensor:
        x = self.bottom(dense)
        bags = [
            table(index, offset) for table, index, offset in zip(self.tables, indices, offsets, strict=True)
        ]
        vectors = torch.stack([x, *bags], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        interactions = products[:, self.first, self.second]
        return self.top(torch.cat([x, interactions], dim=1))


def mlp(widths: Sequence[int], *, last: nn.Module) -> nn.Sequential:
    """Linear layers with rectifiers between them, and `last` after the last."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


def fill(module: nn.Module) -> None:
    """Weights of one layer; the rows of tables so small that products of bags keep the sigmoid open."""
    he_normal(module)
    if isinstance(module, nn.EmbeddingBag):
        nn.init.normal_(module.weight, 0.0, 0.1)


def click_inputs(
    *, tables: int = TABLES, rows: int = ROWS, dense: int = DENSE, batch: int = shapes.DLRM_BATCH
) -> Inputs:
    """Dense features, and for each table bags of different sizes.

    The first bag is empty unless it is the only one, as others are by chance; the last is not, because an
    array without elements has a program of its own.
    """
    usual = batch

    def inputs(generator: torch.Generator, dtype: torch.dtype, batch: int | None = None) -> tuple[Any, ...]:
        count = usual if batch is None else batch
        # sizes of bags are sizes of inputs: the same on every device
        on_host, device = generator.device.type == "cpu", generator.device
        drawing = generator if on_host else torch.Generator().manual_seed(generator.initial_seed())
        features = torch.randn((count, dense), generator=drawing, dtype=torch.float32).to(device, dtype)
        indices: list[torch.Tensor] = []
        offsets: list[torch.Tensor] = []
        for _ in range(tables):
            sizes = torch.randint(LARGEST_BAG + 1, (count,), generator=drawing)
            sizes[0] = 0
            sizes[-1] = sizes[-1].clamp(min=1)
            ends = sizes.cumsum(0)
            indices.append(torch.randint(rows, (int(ends[-1]),), generator=drawing).to(device))
            offsets.append((ends - sizes).to(device))
        return features, indices, offsets

    return inputs


def symbolic_lookups(inputs: tuple[Any, ...]) -> Any:
    """The batch is open, and with it, for each table on its own, the number of lookups."""
    batch = torch.export.Dim("batch")
    _, indices, offsets = inputs
    lookups = [{0: torch.export.Dim(f"lookups{table}")} for table in range(len(indices))]
    return {0: batch}, lookups, [{0: batch} for _ in offsets]


DLRM_SPEC = ModelSpec(
    name="dlrm",
    build=with_weights(DLRM, fill),
    inputs=click_inputs(),
    # three layers below and above, of a product, a sum and an activation; stack, products, gather
    depth=3 * 3 + 3 + 3 * 3,
    source="Naumov et al., Deep Learning Recommendation Model (2019), section 2; tables and dense features"
    " of the Criteo data set",
    dynamic_shapes=symbolic_lookups,
)
