"""torch's random state in forward: what sets or reads it runs at every call, and so do other generators."""

from __future__ import annotations

import pytest
import torch

from tests.support.eager_twin import unlike_eager

ZEROS = torch.zeros(2)


def seeded(x):
    torch.manual_seed(5)
    return torch.randn(2) + x


def forked(x):
    with torch.random.fork_rng(devices=[]):
        y = torch.randn(2) + x
    return y, torch.randn(2)


def set_and_read(x):
    state = torch.get_rng_state()
    first = torch.rand(2) + x
    torch.set_rng_state(state)
    return first, torch.rand(2)


def of_a_generator(x):
    generator = torch.Generator().manual_seed(4)
    return torch.empty(2).normal_(generator=generator) + x, torch.rand(2)


def bernoulli_of_a_generator(x):
    return torch.bernoulli(x + 0.5, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("function", [seeded, forked, set_and_read, of_a_generator, bernoulli_of_a_generator])
def test_the_state_is_eagers(function):
    assert unlike_eager(function, ZEROS, one_program=False, random=True) == []


def test_a_trace_leaves_the_state_alone():
    import daceml
    from tests.support.eager_twin import Function

    compiled = daceml.compile(Function(seeded), fullgraph=False)
    for _ in range(3):  # the first call compiles
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(ZEROS), seeded(ZEROS))


@pytest.mark.parametrize(
    "function", [lambda x: x.clone().geometric_(0.3), lambda x: x.clone().cauchy_(), lambda x: x.cauchy_()]
)
def test_distributions_that_no_program_draws_are_eagers(function):
    assert unlike_eager(function, torch.ones(5), one_program=False, random=True) == []
