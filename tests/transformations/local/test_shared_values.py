"""Values that two loops share: kept where they fit, computed again where they do not."""

from __future__ import annotations

from pathlib import Path

import torch

from daceml.transformations.local.shared_values import keep_shared_values
from tests.support.nests import run, shares


def test_what_two_loops_compute_is_kept(tmp_path: Path) -> None:
    nest = keep_shared_values(shares(70), limit_bytes=2**12)
    assert len(nest.loops) == len(shares(70).loops) + 1
    exponentials = str([[write.value for write in loop.writes] for loop in nest.loops]).count("'exp'")
    assert exponentials == 1
    ours, expected = run(nest, 70, tmp_path, "kept")
    torch.testing.assert_close(ours, expected)


def test_what_does_not_fit_is_computed_again() -> None:
    nest = shares(70)
    assert keep_shared_values(nest, limit_bytes=70 * 4 - 1) is nest
