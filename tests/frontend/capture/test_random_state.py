"""torch's random state in forward: what sets or reads it runs at every call, and so do other generators."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.support.eager_twin import Function, unlike_eager

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

    compiled = daceml.compile(Function(seeded), fullgraph=False)
    for _ in range(3):  # the first call compiles
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(ZEROS), seeded(ZEROS))


def without_a_generator(x):
    none = {"generator": None}
    return (
        torch.rand(2, 3, **none) + x,
        torch.randn(3, 2, dtype=torch.float64, **none),
        torch.rand_like(x, **none),
        torch.randn_like(x, **none),
        torch.randint(7, (3,), **none),
        torch.randint(2, 7, (3,), **none),
        torch.randint_like(x, 9, **none),
        torch.randint_like(x, 2, 9, **none),
        torch.randperm(5, **none),
        torch.bernoulli(x.abs() / 4, **none),
        torch.normal(x, 2.0, **none),
        torch.multinomial(x.abs() + 1, 2, **none),
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_generators_that_are_none_draw_as_no_generator_does(dynamic):
    x = torch.arange(3.0)
    assert unlike_eager(without_a_generator, x, random=True, dynamic=dynamic) == []


def test_generators_that_are_none_through_dynamo():
    x = torch.arange(3.0)
    torch.manual_seed(2)
    eager = without_a_generator(x)
    compiled = torch.compile(without_a_generator, backend="daceml")
    for _ in range(2):
        torch.manual_seed(2)
        assert all(torch.equal(*pair) for pair in zip(compiled(x), eager, strict=True))


@pytest.mark.parametrize(
    "function", [lambda x: x.clone().geometric_(0.3), lambda x: x.clone().cauchy_(), lambda x: x.cauchy_()]
)
def test_distributions_that_no_program_draws_are_eagers(function):
    assert unlike_eager(function, torch.ones(5), one_program=False, random=True) == []


def one_number(x):
    torch.rand([])
    return functional.dropout(x, 0.5, True)


def a_mask(x):
    functional.dropout(x, 0.5, True)
    return functional.dropout(x, 0.5, True)


def a_mask_of_draws(x):
    functional.dropout(torch.rand(4) * x, 0.3, True)
    return x + torch.rand(4)


def in_place(x):
    x.clone().normal_()
    return x + torch.rand(4)


def without_gradients(x):
    with torch.no_grad():
        torch.bernoulli(x.sigmoid()) * 2
    with torch.no_grad():
        torch.rand(3)
        noise = torch.rand(4)
    return x * 3 + noise


def attention(x):
    q = x.reshape(1, 1, 2, 2)
    functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    return x + torch.rand(4)


def many(x):
    torch.randperm(7)
    torch.randint(0, 5, (3,))
    torch.multinomial(x.sigmoid(), 2)
    x.clone().exponential_()
    torch.normal(x, x.exp())
    functional.rrelu(x, training=True)
    functional.dropout2d(x.reshape(1, 4, 1, 1))
    return x + torch.rand(4)


def of_decomposed_operators(x):
    torch.rand([])
    functional.dropout(x, 0.4, True)
    return functional.huber_loss(torch.special.entr(x.sigmoid()), x) + torch.rand(4)


def nothing_else(x):
    torch.rand(3)
    return x


UNUSED = [
    one_number, a_mask, a_mask_of_draws, in_place, without_gradients, attention, many,
    of_decomposed_operators, nothing_else,
]  # fmt: skip


@pytest.mark.parametrize("function", UNUSED)
@pytest.mark.parametrize("gradients", [False, True])
def test_a_program_makes_draws_that_nothing_uses(function, gradients):
    x = torch.linspace(-1.0, 1.0, 4)
    assert unlike_eager(function, x, gradients=gradients, random=True) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_unused_draws_of_symbolic_sizes(gradients):
    def function(x):
        torch.rand(x.shape[0])
        torch.randn_like(x)
        return x + torch.rand(x.shape[0])

    x = torch.linspace(-1.0, 1.0, 4)
    assert unlike_eager(function, x, gradients=gradients, random=True, dynamic=True) == []


@pytest.mark.parametrize("function", [one_number, without_gradients])
def test_unused_draws_through_dynamo(function):
    torch.compiler.reset()
    compiled = torch.compile(Function(function), backend="daceml", fullgraph=True)
    results = []
    for call in (function, compiled, compiled):
        x = torch.linspace(-1.0, 1.0, 4).requires_grad_()
        torch.manual_seed(1)
        y = call(x)
        results.append((y, torch.get_rng_state(), *torch.autograd.grad(y.sum(), x)))
    for ours in results[1:]:
        torch.testing.assert_close(ours, results[0])


def changed_and_read(x):
    noise = torch.empty(4)
    noise[:2].uniform_()
    noise[2:].normal_()
    return x + noise.roll(1)


def of_operators_that_draw_nothing(x):
    functional.dropout(x, 0.5, False)
    functional.dropout(x, 0.0, True)
    functional.dropout(x, 1.0, True)
    functional.rrelu(x, training=False)
    q = x.reshape(1, 1, 2, 2)
    functional.scaled_dot_product_attention(q, q, q, dropout_p=0.0)
    return x + torch.rand(4)


@pytest.mark.parametrize("function", [changed_and_read, of_operators_that_draw_nothing])
@pytest.mark.parametrize("gradients", [False, True])
def test_no_draws_are_added(function, gradients):
    x = torch.linspace(-1.0, 1.0, 4)
    assert unlike_eager(function, x, gradients=gradients, random=True) == []
