"""A compiled module in torch's autograd: whatever one does with its graph, gradients are those of eager."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.autograd import functional

import daceml
from daceml.errors import GradientError
from tests.support.golden import raises
from tests.support.trained_twins import WithState, compiled_backward, double, same, step, trains_like, twins


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4)).double()


@pytest.fixture
def pair():
    return twins(network())


def both(pair, use):
    """What `use` makes of the compiled and of the eager module is the same."""
    ours, theirs = (use(module) for module in pair)
    same(ours, theirs)
    assert compiled_backward(pair[0])


def gradients(module):
    return [p.grad for p in module.parameters()]


def test_gradients_by_backward_and_by_grad(pair):
    trains_like(*pair, double(3, 4))
    x = double(3, 4)

    def some(module):
        y = module(x)
        return torch.autograd.grad(y.sin().sum(), [module[0].weight, module[2].bias])

    both(pair, some)

    def given(module):
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(module(leaf), leaf, grad_outputs=x.cos())

    both(pair, given)

    def unused(module):
        return torch.autograd.grad(
            module(x).sum(), [module[0].weight, x.clone().requires_grad_()], allow_unused=True
        )

    both(pair, unused)


class TwoHeads(nn.Module):
    """Its results depend on different parameters; the last one has gradients of zero."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x):
        y = self.body(x)
        return y, self.head(y), self.body.weight.floor(), x.sum().long().double()


def test_what_no_used_result_depends_on_has_no_gradient():
    torch.manual_seed(0)
    pair = twins(TwoHeads().double())
    x = double(3, 4)

    def found(module, *used):
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        results = module(leaf)
        sum(results[i].sum() for i in used).backward()
        return [result.requires_grad for result in results], leaf.grad, gradients(module)

    for used in ((0,), (1,), (2,), (0, 1)):
        both(pair, lambda module, used=used: found(module, *used))
    assert found(pair[0], 0)[2][2:] == [None, None]

    class Swallow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y.clone()

        @staticmethod
        def backward(ctx, *_):
            return None

    def swallowed(module):
        module.zero_grad()
        Swallow.apply(module(x)[0]).sum().backward()
        return gradients(module)

    both(pair, swallowed)
    assert swallowed(pair[0]) == [None] * 4


def test_one_module_several_times_in_one_graph(pair):
    x, z = double(3, 4).requires_grad_(), double(3, 4)

    def nested(module):
        module.zero_grad()
        module(module(x).exp()).sum().backward()
        return gradients(module)

    both(pair, nested)

    def live(module):
        module.zero_grad()
        first, second = module(z), module(2 * z)
        (second**2).sum().backward()
        first.sin().sum().backward()  # accumulates
        return gradients(module)

    both(pair, live)


def test_inputs_of_any_layout_and_size():
    torch.manual_seed(0)
    pair = twins(WithState(lambda m, a, b: m.layer(a) * b))
    rows = double(4, 6)
    cases = [
        (double(3, 4).t(), double(3).expand(4, 3)),
        (rows[:, ::2], rows[:, 1::2]),
        (double(0, 3), double(0, 3)),
        (double(1, 3), double(1, 3)),
    ]
    for inputs in cases:

        def use(module, inputs=inputs):
            module.zero_grad()
            leaves = [x.detach().requires_grad_() for x in inputs]
            module(*leaves).sin().sum().backward()
            return [x.grad for x in leaves], gradients(module)

        both(pair, use)

    x = double(2, 3).requires_grad_()
    both(pair, lambda module: torch.autograd.grad(module(x, x).sum(), x))
    both(pair, lambda module: torch.autograd.grad(module(x, x.detach()).sum(), x))


def test_memory_order_of_convolutions():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 2)).double()
    pair = twins(module.to(memory_format=torch.channels_last))
    trains_like(*pair, double(2, 3, 5, 5).to(memory_format=torch.channels_last))
    for ours, theirs in zip(*(gradients(m) for m in pair), strict=True):
        assert ours.stride() == theirs.stride()


def test_retained_graphs_and_second_passes(pair):
    def twice(module):
        module.zero_grad()
        loss = module(double(3, 4) * 0 + 1).pow(2).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
        return gradients(module)

    both(pair, twice)


def test_without_gradients(pair):
    compiled, eager = pair
    x = double(3, 4)
    with torch.no_grad():
        same(compiled(x), eager(x))
    with torch.inference_mode():
        same(compiled(x), eager(x))
    with torch.set_grad_enabled(False):
        same(compiled(x.clone().requires_grad_()), eager(x))
    with torch.set_grad_enabled(True):
        same(compiled(x), eager(x))
    assert compiled(x).requires_grad


def test_a_weight_that_changes_before_the_backward_pass_is_an_error(pair):
    compiled, _ = pair
    y = compiled(double(3, 4))
    with torch.no_grad():
        compiled[2].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    x = double(3, 4)
    y = compiled(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


class WithSine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 5)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        y = self.linear(self.dropout(x))
        return y, y.sin()


def test_a_result_may_change_if_the_gradients_asked_for_do_not_need_it():
    pair = twins(WithSine().double())

    def use(module):
        torch.manual_seed(1)
        x = double(3, 4).requires_grad_()
        y, _ = module(x.cos())
        y.mul_(2)
        y[:, 0] = 1
        y.pow(2).sum().backward()
        return x.grad, gradients(module)

    both(pair, use)


@pytest.mark.parametrize("kept", [True, False])
def test_a_result_that_changes_is_an_error_if_the_gradients_asked_for_need_it(kept):
    for module in twins(WithSine().double()):
        y, z = module(double(3, 4))
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (y.sum() + z.sum()).backward(retain_graph=kept)


class OfCopies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.linear(x[1:].clone() * self.scale.clone()).sin()


def test_what_forward_has_cloned_may_change_before_the_backward_pass():
    ours, theirs = twins(OfCopies().double())
    x = double(3, 4).requires_grad_()

    def changed(module):
        module.zero_grad()
        module.scale.fill_(2)
        h = x * 2
        y = module(h)
        with torch.no_grad():
            h.add_(1)
            module.scale.add_(1)
        y.sum().backward()
        return gradients(module)

    both((ours, theirs), changed)


def test_second_derivatives(pair):
    x = double(3, 4)

    def penalized(module):
        leaf = x.clone().requires_grad_()
        loss = module(leaf).sum()
        (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
        (loss + slope.pow(2).sum()).backward()
        return [leaf.grad, *gradients(module)]

    def of_weights(module):
        weights = list(module.parameters())
        # the argument is freed after the call
        slopes = torch.autograd.grad(module(x * 2).sin().sum(), weights, create_graph=True)
        return torch.autograd.grad(sum(g.pow(2).sum() for g in slopes), weights, allow_unused=True)

    def third(module):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(module(leaf).sin().sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), leaf, create_graph=True)
        return torch.autograd.grad(second.sum(), leaf)

    for use in (penalized, of_weights, third):
        both(pair, use)


@pytest.mark.parametrize("product", [functional.hvp, functional.vhp, functional.jvp, functional.hessian])
def test_products_with_second_derivatives(pair, product):
    x = double(3, 4)
    more = () if product is functional.hessian else (x.cos() if product is functional.jvp else x,)
    both(pair, lambda module: product(lambda y: module(y).sin().sum(), x, *more))


def test_second_derivatives_draw_what_forward_has_drawn():
    ours, theirs = twins(nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 1)).double())
    x = double(3, 4)

    def penalized(module):
        leaf = x.clone().requires_grad_()
        torch.manual_seed(3)
        (slope,) = torch.autograd.grad(module(leaf).sin().sum(), leaf, create_graph=True)
        slope.pow(2).sum().backward()
        return [leaf.grad, *gradients(module), torch.rand(2)]

    both((ours, theirs), penalized)


def test_second_derivatives_have_no_effect_on_buffers():
    ours, theirs = twins(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh()).double())
    x = double(3, 4)

    def penalized(module):
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(module(leaf).sum(), leaf, create_graph=True)
        slope.pow(2).sum().backward()
        return [leaf.grad, *gradients(module), *module.buffers()]

    both((ours, theirs), penalized)


def test_a_second_derivative_of_what_has_changed_is_refused():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.float64))
            self.register_buffer("scale", torch.ones((), dtype=torch.float64))

        def forward(self, x, *, counting: bool = False):
            if counting:
                self.calls += 1
            return x.sin() * (self.scale + self.calls)

    module = Counting()
    compiled = daceml.compile(module)
    x = double(3, 4).requires_grad_()
    y = compiled(x, counting=True).sum()  # by the number of calls before
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    with raises(GradientError, "create_graph=True"):
        slope.sum().backward()
    y = compiled(x).sum()
    module.scale.mul_(2)
    (slope,) = torch.autograd.grad(y, x, create_graph=True, retain_graph=True)
    with raises(GradientError, "create_graph=True"):
        slope.sum().backward()


def test_a_second_derivative_of_a_function_with_its_own_gradient_is_refused():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
            return gradient * 3

    class Module(nn.Module):
        def forward(self, x):
            return Doubled.apply(x.sin())

    compiled = daceml.compile(Module())
    x = double(3, 4).requires_grad_()
    (slope,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    with raises(GradientError, "create_graph=True", "force_eager"):
        slope.pow(2).sum().backward()


def test_gradients_that_could_be_differentiated_are_used_like_others(pair):
    x = double(3, 4)
    functional.jacobian(pair[0], x, create_graph=True)

    def train(module):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            module(x).pow(2).sum().backward(create_graph=True)
            nn.utils.clip_grad_norm_(module.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return [p.detach() for p in module.parameters()]

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using backward.. with create_graph=True")
        both(pair, train)


def test_a_batch_of_gradients(pair):
    x, cotangents = double(3, 4), double(5, 3, 4)

    def batch(module):
        return torch.autograd.grad(
            module(x), list(module.parameters()), cotangents, is_grads_batched=True, retain_graph=True
        )

    both(pair, batch)
    both(pair, lambda module: functional.jacobian(module, x, vectorize=True))


def test_a_batch_of_gradients_of_random_numbers_is_refused():
    compiled = daceml.compile(nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5)).double())
    y = compiled(double(3, 4))
    with raises(GradientError, "is_grads_batched=True", "force_eager"):
        torch.autograd.grad(y, list(compiled.parameters()), double(2, 3, 5), is_grads_batched=True)


def test_arguments_are_freed_with_the_graph(pair):
    compiled, _ = pair
    losses, references = [], []
    for _ in range(3):  # the first call compiles
        x = double(3, 4)
        references.append(weakref.ref(x))
        losses.append(compiled(x).sum())
        losses[-1].backward()
        del x
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_hooks_of_tensors_and_of_the_module(pair):
    x = double(3, 4)

    def hooked(module):
        module.zero_grad()
        seen = []
        leaf = x.clone().requires_grad_()
        handles = [
            leaf.register_hook(lambda g: g * 2),
            module[0].weight.register_hook(lambda g: g + 1),
            module[2].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone())),
            module.register_full_backward_pre_hook(lambda m, out: (out[0] * 3,)),
            module.register_full_backward_hook(lambda m, given, out: (given[0] + out[0].sum(),)),
        ]
        y = module(leaf)
        y.register_hook(lambda g: g.sin())
        y.retain_grad()
        y.pow(2).sum().backward()
        for handle in handles:
            handle.remove()
        return leaf.grad, y.grad, gradients(module), seen

    both(pair, hooked)


def test_anomaly_mode_and_hooks_of_saved_tensors(pair):
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor.clone()

    def use(module):
        with (
            torch.autograd.detect_anomaly(check_nan=True),
            torch.autograd.graph.save_on_cpu(),
        ):
            y = module(double(3, 4) * 0 + 1)
        y.sum().backward()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            module(double(3, 4) * 0 + 2).sum().backward()
        return gradients(module)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that anomaly mode is slow
        both(pair, use)
        assert packed
        compiled, _ = pair
        with torch.autograd.detect_anomaly():
            y = compiled(double(3, 4) * torch.inf)
            with pytest.raises(RuntimeError, match="returned nan values"):
                y.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_around_a_module(pair, reentrant: bool):
    from torch.utils.checkpoint import checkpoint

    def use(module):
        module.zero_grad()
        x = (double(3, 4) * 0 + 1).requires_grad_()
        y = checkpoint(module, x, use_reentrant=reentrant)
        checkpoint(module, y, use_reentrant=reentrant).sin().sum().backward()
        return x.grad, gradients(module)

    both(pair, use)


def test_threads_have_graphs_of_their_own(pair):
    compiled, eager = pair
    inputs = [double(3, 4) * i for i in range(4)]
    found: dict[int, list[torch.Tensor | None]] = {}

    def work(i: int) -> None:
        for _ in range(20):
            leaf = inputs[i].clone().requires_grad_()
            found[i] = [*torch.autograd.grad(compiled(leaf).pow(2).sum(), [leaf, *compiled.parameters()])]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, x in enumerate(inputs):
        leaf = x.clone().requires_grad_()
        same(found[i], [*torch.autograd.grad(eager(leaf).pow(2).sum(), [leaf, *eager.parameters()])])


def test_a_module_is_traced_while_another_thread_uses_gradients_of_its_own():
    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    problems: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.is_set():
                x = double(3).requires_grad_()
                y = Sign.apply(x)
                y.register_hook(lambda g: g)
                with torch.inference_mode():
                    x.clone()
                y.sum().backward()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        compiled, eager = twins(nn.Sequential(nn.Linear(4, 2), nn.Sigmoid()).double())
        same(step(compiled, [double(2, 4) * 0 + 1]), step(eager, [double(2, 4) * 0 + 1]))
    finally:
        stop.set()
        thread.join()
    assert not problems
