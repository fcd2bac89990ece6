"""watch_weights: every change of a weight is seen at the next call, however it was made."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.runtime import launcher
from daceml.runtime import weight_preparation as preparation
from daceml.runtime.preparation_renewal import Renewals
from daceml.transformations.standard import standard_recipe
from tests.support.golden import golden, raises


@pytest.fixture(autouse=True)
def long_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With short ones, weights of products are not watched."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


class Net(nn.Module):
    """Everything of which something is prepared: convolutions, a depthwise one, norms, a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 33, 3, padding=1)
        self.norm = nn.BatchNorm2d(33)
        self.deep = nn.Conv2d(33, 33, 3, groups=33, bias=False)
        self.second = nn.Conv2d(33, 17, 1)
        self.last = nn.Linear(17, 1030)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.relu6(self.norm(self.first(x)))
        y = torch.relu(self.second(nn.functional.hardtanh(self.deep(y))))
        y = nn.functional.avg_pool2d(y, 3)
        return self.last(y.permute(0, 2, 3, 1).reshape(-1, 17))


def network() -> Net:
    torch.manual_seed(0)
    net = Net().eval()
    nn.init.uniform_(net.norm.running_var, 0.5, 2)
    return net


def assert_follows(compiled: nn.Module, net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = compiled(x)
        torch.testing.assert_close(y, net(x), rtol=1e-4, atol=1e-5)
    return y


def test_no_recipe_leaves_the_check_out():
    recipe = standard_recipe().without("watch_weights")
    net, x = network(), torch.randn(2, 3, 12, 12)
    compiled = daceml.compile(net, backward=False, recipe=recipe)
    assert_follows(compiled, net, x)
    net.first.weight.data += 1
    assert_follows(compiled, net, x)


def _through_numpy(net: Net) -> None:
    net.deep.weight.detach().numpy()[7, 0, 1, 1] += 1


def _one_element(net: Net) -> None:
    net.last.weight.data[1029, 16] += 3


def _signs(net: Net) -> None:
    net.first.weight.data.neg_()


def _another_storage(net: Net) -> None:
    net.second.weight.data = net.second.weight.data.roll(1, 0).clone()


CHANGES: dict[str, Callable[[Net], object]] = {
    "numpy": _through_numpy,
    "one element": _one_element,
    "signs": _signs,
    "storage": _another_storage,
    "scale": lambda net: net.norm.weight.data.mul_(-2),
    "shift": lambda net: net.norm.bias.data.add_(1),
    "mean": lambda net: net.norm.running_mean.sub_(0.5),
    "variance": lambda net: net.norm.running_var.mul_(3),
    "bias": lambda net: net.second.bias.data.add_(1),
    "loaded": lambda net: net.load_state_dict({k: 1.5 * v for k, v in net.state_dict().items()}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_at_the_next_call(name: str):
    net, x = network(), torch.randn(3, 3, 37, 35)
    follower = daceml.compile(net, backward=False)
    before = assert_follows(follower, net, x)
    made = {record.function for record in follower.session.latest.program.manifest.prepared}
    assert made == {
        "convolution",
        "depthwise",
        "pointwise",
        "product",
        "folded_weight",
        "folded_bias",
        "limit",
        "fingerprint",
    }
    with torch.no_grad():
        CHANGES[name](net)
    after = assert_follows(follower, net, x)
    assert not torch.equal(before, after), "the change matters"


def test_changes_at_every_call_are_left_to_a_program_that_prepares_nothing(
    caplog: pytest.LogCaptureFixture,
):
    net, x = network(), torch.randn(2, 3, 37, 35)
    compiled = daceml.compile(net, backward=False)
    assert_follows(compiled, net, x)
    with caplog.at_level(logging.INFO, logger="daceml.runtime.program"):
        for _ in range(20):
            with torch.no_grad():
                net.first.weight.add_(0.01)
            assert_follows(compiled, net, x)
        told = [record.message for record in caplog.records]
        for _ in range(30):
            assert_follows(compiled, net, x)
        caplog.clear()
        with torch.no_grad():
            net.first.weight.add_(0.01)
        assert_follows(compiled, net, x)
        (renewed,) = [record.message for record in caplog.records]
    assert renewed == golden()
    assert "weights" in renewed
    assert 2 <= told.count(renewed) <= 5


def test_training_between_evaluations():
    net, x = network(), torch.randn(2, 3, 37, 35)
    compiled = daceml.compile(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        assert_follows(compiled, net, x)
        compiled.train()
        compiled(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        compiled.eval()
    assert_follows(compiled, net, x)


def test_threads_that_meet_a_change_together():
    net, x = network(), torch.randn(2, 3, 37, 35)
    compiled = daceml.compile(net, backward=False)
    assert_follows(compiled, net, x)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            with torch.no_grad():
                net.first.weight.mul_(-1)
                expected = net(x)

            def call(_: int) -> torch.Tensor:
                with torch.no_grad():
                    return compiled(x)

            for y in pool.map(call, range(8)):
                torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)


def test_a_write_while_arrays_are_prepared_is_seen_at_the_next_call(monkeypatch: pytest.MonkeyPatch):
    net, x = network(), torch.randn(2, 3, 37, 35)
    compiled = daceml.compile(net, backward=False)
    assert_follows(compiled, net, x)
    original = preparation._FUNCTIONS["folded_weight"]

    def written_meanwhile(sources: Any, record: Any) -> torch.Tensor:
        found = original(sources, record)
        monkeypatch.setitem(preparation._FUNCTIONS, "folded_weight", original)
        net.first.weight.data.mul_(2)
        return found

    net.first.weight.data.neg_()
    monkeypatch.setitem(preparation._FUNCTIONS, "folded_weight", written_meanwhile)
    with torch.no_grad():
        compiled(x)
    for _ in range(3):
        assert_follows(compiled, net, x)


def test_no_more_is_kept_than_the_option_says(monkeypatch: pytest.MonkeyPatch):
    from daceml.config import config

    monkeypatch.setenv("DACEML_PREPARED_BYTES", str(17 * 33 * 4))
    config.cache_clear()
    try:
        net, x = network(), torch.randn(2, 3, 37, 35)
        compiled = daceml.compile(net, backward=False)
        assert_follows(compiled, net, x)
        record = next(p for p in compiled.session.latest.network.passes if p.name == "pack_weights")
    finally:
        monkeypatch.undo()
        config.cache_clear()
    assert sum(record.applied.values()) < 4
    assert any("DACEML_PREPARED_BYTES" in refusal.reason for refusal in record.refused)


def test_a_program_that_is_replaced_is_forgotten():
    net, x = network(), torch.randn(2, 3, 37, 35)
    compiled = daceml.compile(net, backward=False)
    assert_follows(compiled, net, x)
    program = compiled.session.latest.program
    first = program.number
    with torch.no_grad():
        net.first.weight.neg_()
    assert_follows(compiled, net, x)
    assert program.number != first
    with raises(RuntimeError, f"program {first} ", exact=False):
        torch.ops.daceml.call([x], first)
    gone = weakref.ref(program)
    last = program.number
    del compiled, program
    gc.collect()
    assert gone() is None
    with raises(RuntimeError, f"program {last} ", exact=False):
        torch.ops.daceml.call([x], last)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 8191, 8192, 8193, 100_003])
def test_every_element_counts(count: int):
    torch.manual_seed(0)
    tensors = [torch.randn(7), torch.randn(count), torch.randn(3)]
    before = launcher.fingerprint(tensors)
    assert before == launcher.fingerprint([t.clone() for t in tensors])
    for place in {0, count // 2, count - 1} if count else ():
        kept = tensors[1][place].item()
        tensors[1][place] = -kept
        assert launcher.fingerprint(tensors) != before
        tensors[1][place] = kept
    tensors[1].neg_()
    assert count == 0 or launcher.fingerprint(tensors) != before
    tensors[1].neg_()
    assert launcher.fingerprint(tensors) == before
    assert launcher.fingerprint(tensors[::-1]) != before


def test_threads_do_not_change_it():
    tensors = [torch.randn(300_001), torch.randn(5)]
    threads = torch.get_num_threads()
    try:
        numbers = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            numbers.append(launcher.fingerprint(tensors))
    finally:
        torch.set_num_threads(threads)
    assert len(set(numbers)) == 1


def test_patience_doubles_and_is_forgotten():
    renewals = Renewals()
    assert renewals.due()
    follows = [renewals.due() for _ in range(20)]
    assert [i for i, due in enumerate(follows) if due] == [0, 2, 6, 14]
    renewals.calls = 100
    assert renewals.due()
    assert renewals.due()
