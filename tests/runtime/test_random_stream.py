"""torch's generator in vectors: the numbers of eager PyTorch, and the state that it leaves."""

from __future__ import annotations

import ctypes
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import daceml
from daceml.runtime import random_stream
from daceml.runtime.launcher import native
from tests.support.sampling import sampled

# a block of the generator has 624 words, and a draw takes two
COUNTS = [0, 1, 2, 311, 312, 313, 623, 624, 2048, 5000, 16 * 312, 16 * 312 + 1, 70_001]


def drawn(state: torch.Tensor, count: int, probability: float, dtype: torch.dtype) -> torch.Tensor:
    """What the library draws; advances the state."""
    out = torch.empty(count, dtype=dtype)
    failed = native().daceml_bernoulli_from(
        state.data_ptr(), out.data_ptr(), out.element_size(), count, probability
    )
    assert not failed
    return out


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("words_before", [0, 1, 2, 623, 624, 625])
def test_numbers_and_state_are_torchs(count: int, words_before: int, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(count)
    torch.empty(words_before, dtype=torch.float32).uniform_(generator=generator)
    state = generator.get_state()
    ours = drawn(state, count, 0.3, dtype)
    assert torch.equal(ours, torch.empty(count, dtype=dtype).bernoulli_(0.3, generator=generator))
    assert torch.equal(state, generator.get_state())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**63 - 1),
    counts=st.lists(st.integers(0, 3000), max_size=4),
    probability=st.floats(0, 1),
)
def test_one_after_another(seed: int, counts: list[int], probability: float):
    generator = torch.Generator().manual_seed(seed)
    state = generator.get_state()
    for count in counts:
        ours = drawn(state, count, probability, torch.bool)
        expected = torch.empty(count, dtype=torch.bool).bernoulli_(probability, generator=generator)
        assert torch.equal(ours, expected)
    assert torch.equal(state, generator.get_state())


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_threads_draw_the_same(threads: int):
    before = torch.get_num_threads()
    generator = torch.Generator().manual_seed(threads)
    state = generator.get_state()
    try:
        torch.set_num_threads(threads)
        ours = drawn(state, 200_003, 0.9, torch.bool)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(ours, torch.empty(200_003, dtype=torch.bool).bernoulli_(0.9, generator=generator))
    assert torch.equal(state, generator.get_state())


def test_other_elements_are_refused():
    state = torch.Generator().get_state()
    out = torch.empty(4, dtype=torch.float16)
    assert native().daceml_bernoulli_from(state.data_ptr(), out.data_ptr(), 2, 4, 0.5)


def test_what_was_kept_for_normal_numbers_stays():
    """An odd number of normal draws leaves one over in the state."""
    torch.manual_seed(1)
    torch.randn(3)
    state = torch.get_rng_state()
    drawn(state, 5000, 0.5, torch.bool)
    torch.empty(5000, dtype=torch.bool).bernoulli_(0.5)
    assert torch.equal(state, torch.get_rng_state())


def test_a_state_that_changed_meanwhile_is_drawn_from_again():
    torch.manual_seed(5)
    stale = torch.get_rng_state()
    torch.rand(7)
    present = torch.get_rng_state()
    wanted = torch.zeros_like(stale)
    assert random_stream.exchanged(stale.data_ptr(), wanted.data_ptr()) == 1
    known = random_stream.KNOWN_BYTES
    assert torch.equal(stale[:known], present[:known]), "the caller gets what is there now"
    assert torch.equal(torch.get_rng_state(), present), "and nothing is replaced"


def test_a_torch_that_draws_otherwise_draws_itself():
    class Other:
        """Draws the other way round."""

        def daceml_bernoulli_from(
            self, state: int, out: int, size: int, count: int, probability: float
        ) -> int:
            ctypes.memset(out, 1, count * size)
            return 0

    assert random_stream.draws_alike(native())
    assert not random_stream.draws_alike(Other())  # pyright: ignore[reportArgumentType]


SIZES = [[37, 100], [1, 2047], [2048], [3, 5, 700]]


@pytest.mark.parametrize("size", sampled(SIZES, *SIZES[:2]))
def test_a_modules_masks_are_eagers(size: list[int]):
    module = torch.nn.Dropout(0.3)
    compiled = daceml.compile(module)
    x = torch.randn(size)
    for seed in range(3):
        torch.manual_seed(seed)
        expected, after = module(x), torch.rand(3)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected)
        assert torch.equal(torch.rand(3), after), "and the generator goes on from the same place"


def test_two_threads_draw_different_numbers():
    """Each draw belongs to one call, also where two are in flight."""
    compiled = daceml.compile(torch.nn.Dropout(0.5))
    x = torch.ones(300_000)
    compiled(x)
    masks: list[torch.Tensor] = []

    def call() -> None:
        masks.extend(compiled(x) != 0 for _ in range(4))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alike = [(a == b).float().mean().item() for i, a in enumerate(masks) for b in masks[:i]]
    assert len(masks) == 8 and max(alike) < 0.51, "independent masks agree in half of the elements"
