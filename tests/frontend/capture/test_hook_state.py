"""Hooks of submodules: those that keep nothing are part of the program, and what they read guards it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.frontend.capture.hook_refusals import hook_refusal
from daceml.frontend.capture.hook_state import traced_hooks

Hook = Callable[..., Any]


def network(hook: Hook, *, before: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    if before:
        module[1].register_forward_pre_hook(hook)
    else:
        module[1].register_forward_hook(hook)
    return module


def same(compiled: nn.Module, module: nn.Module, x: torch.Tensor) -> None:
    x, y = (x.clone().requires_grad_() for _ in range(2))
    found, expected = compiled(x), module(y)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-5, atol=1e-6)


X = torch.linspace(-1, 1, 12).reshape(3, 4)
SCALE, THRESHOLD = torch.tensor(2.0), 0.25


def above_the_threshold(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * (result > THRESHOLD)


class Recorder:
    """An object that keeps results while it is switched on."""

    factor = 2.0

    def __init__(self) -> None:
        self.on = False
        self.results: list[torch.Tensor] = []

    def __call__(self, module: nn.Module, args: Any, result: torch.Tensor) -> None:
        if self.on:
            self.results.append(result.detach())

    def times(self, module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
        return result * self.factor


@pytest.mark.parametrize(
    ("hook", "before"),
    [
        (lambda module, args, result: None, False),
        (lambda module, args, result: result.sin(), False),
        (lambda module, args: (args[0] + 1,), True),
        (lambda module, args, result: result * SCALE, False),
        (functools.partial(lambda factor, module, args, result: result * factor, 3.0), False),
        (above_the_threshold, False),
        (Recorder(), False),
        (Recorder().times, False),
    ],
    ids=["nothing", "a result", "an argument", "a tensor", "partial", "a global", "an object", "a method"],
)
def test_hooks_that_keep_nothing_are_in_the_program(hook: Hook, before: bool):
    module = network(hook, before=before)
    same(daceml.compile(module, fullgraph=True), module, X)


def test_what_hooks_read_guards_the_program(monkeypatch: pytest.MonkeyPatch):
    scale, recorder = torch.tensor(3.0), Recorder()
    for hook, change in [
        (lambda module, args, result: result * scale, lambda: scale.fill_(5.0)),
        (recorder.times, lambda: setattr(recorder, "factor", 7.0)),
        (above_the_threshold, lambda: monkeypatch.setitem(globals(), "THRESHOLD", 0.5)),
    ]:
        module = network(hook)
        compiled = daceml.compile(module, fullgraph=True)
        same(compiled, module, X)
        before = compiled(X)
        change()
        same(compiled, module, X)
        assert not torch.equal(compiled(X), before)


def test_a_recorder_that_is_switched_on_records():
    recorder = Recorder()
    module = network(recorder)
    compiled = daceml.compile(module, backward=False)
    compiled(X)
    assert not recorder.results
    recorder.on = True
    compiled(X)
    compiled(X)
    assert [type(result) for result in recorder.results] == [torch.Tensor] * 2
    torch.testing.assert_close(recorder.results[0], module[:2](X).detach(), rtol=1e-5, atol=1e-6)


def counting() -> Hook:
    calls = 0

    def count(module: nn.Module, args: Any, result: torch.Tensor) -> None:
        nonlocal calls
        calls += 1

    return count


def test_why_a_hook_is_no_part():
    stream = iter([1.0, 2.0])
    for hook, fact in [
        (counting(), "'calls'"),
        (lambda m, a, result: result * next(stream), "list_iterator"),
    ]:
        ((path, found),) = traced_hooks(network(hook))
        reason = hook_refusal(found)
        assert path == "1" and reason is not None and fact in reason


MAPS: dict[str, torch.Tensor] = {}


def keep(result: torch.Tensor) -> None:
    MAPS["result"] = result.detach()


def kept(module: nn.Module, args: Any, result: torch.Tensor) -> None:
    MAPS["result"] = result.detach()


def kept_by_a_helper(module: nn.Module, args: Any, result: torch.Tensor) -> None:
    keep(result)


def timed(module: nn.Module, args: Any, result: torch.Tensor) -> None:
    time.time()


class Keeping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keep(x)
        return x * 2


@pytest.mark.parametrize(
    ("module", "actor"),
    [
        (network(kept), "hook kept of submodule '1'"),
        (network(kept_by_a_helper), "hook kept_by_a_helper of submodule '1'"),
        (nn.Sequential(nn.Linear(4, 4), Keeping()), "forward"),
    ],
)
def test_who_changes_a_global_variable_is_named(
    module: nn.Module, actor: str, caplog: pytest.LogCaptureFixture
):
    daceml.compile(module)(X)
    assert f"{actor} changes the global variable 'MAPS'" in caplog.text


def test_a_hook_that_reads_a_clock_is_named(caplog: pytest.LogCaptureFixture):
    daceml.compile(network(timed))(X)
    assert "hook timed of submodule '1' reads a clock (test_hook_state.py:" in caplog.text
