"""All-reduces in backward programs, with another rank whose part is played: what is sent and what returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.distributed import dist_data_parallel as data_parallel
from daceml.distributed import gradient_exchange as exchange
from daceml.errors import BucketPlanError, ConfigurationError, DistributedSetupError, NotSynchronizedError
from daceml.report.explanation.buckets_text import buckets_text
from tests.support.golden import golden, raises

Other = Callable[[torch.Tensor], None]


class Ended:
    """An all-reduce that ended at once."""

    def wait(self, timeout_s: float) -> None: ...


class PlayedGroup:
    """Rank 0 of two; what rank 1 adds to a bucket is played, at first the same as this rank."""

    rank, size, name = 0, 2, "played"

    def __init__(self) -> None:
        self.other: Other = lambda bucket: bucket.mul_(2)
        self.sent: list[torch.Tensor] = []

    def all_reduce(self, tensor: torch.Tensor) -> Ended:
        self.sent.append(tensor.clone())
        self.other(tensor)
        return Ended()

    def broadcast(self, tensor: torch.Tensor) -> Ended:
        return Ended()

    def tell(self, text: str) -> str:
        return text

    def give_up(self) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"bucket_mb": -1.0},
        {"bucket_mb": 0},
        {"bucket_mb": float("inf")},
        {"first_bucket_mb": float("nan")},
        {"timeout_s": 0},
        {"timeout_s": "30"},
    ],
)
def test_limits_that_are_none_are_refused(options: dict[str, Any]):
    ((name, limit),) = options.items()
    with raises(ConfigurationError, "DistDataParallel", f"{name}={limit!r}"):
        daceml.DistDataParallel(layers(), **options)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedGroup]:
    played = PlayedGroup()
    monkeypatch.setattr(data_parallel, "ranks_of", lambda *_, **__: played)
    monkeypatch.setattr(data_parallel, "require_equal_models", lambda *_: None)
    monkeypatch.setattr(exchange, "await_first_programs", lambda *_: None)
    return played


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(16, 16), nn.Tanh())))


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_a_bucket_is_sent_when_it_is_complete_and_awaited_at_the_end(group: PlayedGroup):
    model = daceml.DistDataParallel(layers(), bucket_mb=0.001, first_bucket_mb=0.0001)
    model(torch.ones(2, 16)).sum().backward()
    steps = model.module.session.latest.backward.program.manifest.steps
    labels = [step.label for step in steps]
    begins = [i for i, label in enumerate(labels) if label.startswith("begin all-reduce")]
    waits = [i for i, label in enumerate(labels) if label.startswith("wait for all-reduce")]
    assert len(begins) == len(waits) == len(model.sent_buckets()) >= 3
    assert [labels[i] for i in begins] == [f"begin all-reduce {n}" for n in range(len(begins))]
    assert any(steps[i].kind in ("kernel", "aten") for i in range(begins[0], begins[-1])), "nothing overlaps"
    assert waits == list(range(len(labels) - len(waits), len(labels)))
    assert sorted(key for b in model.sent_buckets() for key in b.parameters) == sorted(
        name for name, _ in model.module.named_parameters()
    )


def test_buckets_that_are_given_are_those_that_are_sent(group: PlayedGroup):
    buckets = [["4.weight"], ["4.bias", "2.weight", "2.bias"], ["0.bias", "0.weight"]]
    model, alone = daceml.DistDataParallel(layers(), buckets=buckets), layers()
    x = torch.randn(4, 16)
    model(x).sum().backward()
    alone(x).sum().backward()
    assert [list(bucket.parameters) for bucket in model.sent_buckets()] == buckets
    assert [len(sent) for sent in group.sent] == [16 * 16 + 1, 16 + 16 * 16 + 16 + 3, 16 + 16 * 16 + 2]
    for name, gradient in gradients(alone).items():
        torch.testing.assert_close(gradients(model.module)[name], gradient)


def test_buckets_of_another_model_are_refused(group: PlayedGroup):
    with raises(BucketPlanError, "'head.weight'", "0.weight"):
        daceml.DistDataParallel(layers(), buckets=[["head.weight"]])


def test_gradients_are_averages(group: PlayedGroup):
    model, alone = daceml.DistDataParallel(layers()), layers()
    x = torch.randn(4, 16)
    alone(x).sum().backward()

    def other(bucket: torch.Tensor) -> None:  # rank 1 has gradients of zero
        bucket[-6:] += 1

    group.other = other
    model(x).sum().backward()
    for name, gradient in gradients(alone).items():
        torch.testing.assert_close(gradients(model.module)[name], gradient / 2)


def test_no_sync_keeps_gradients_for_the_next_average(group: PlayedGroup):
    model, alone = daceml.DistDataParallel(layers()), layers()
    first, second = torch.randn(4, 16), torch.randn(4, 16)
    with model.no_sync():
        loss = model(first).sum()
    loss.backward()  # it counts where forward was called
    assert not group.sent
    alone(first).sum().backward()
    torch.testing.assert_close(gradients(model.module), gradients(alone))
    group.other = lambda bucket: bucket[-6:].add_(1)
    model(second).sum().backward()
    alone(second).sum().backward()
    for name, gradient in gradients(alone).items():
        torch.testing.assert_close(gradients(model.module)[name], gradient / 2)


class Switched(nn.Module):
    """Uses one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, right: bool = False) -> torch.Tensor:
        return (self.right if right else self.left)(x)


def test_what_only_the_other_rank_uses_gets_its_average_and_what_nobody_uses_none(group: PlayedGroup):
    model = daceml.DistDataParallel(Switched(), find_unused_parameters=True)
    model(torch.ones(2, 3)).sum().backward()
    assert model.module.right.weight.grad is None
    assert any("right.weight" in bucket.parameters for bucket in model.sent_buckets())
    model.zero_grad()

    def other(bucket: torch.Tensor) -> None:  # rank 1 has ones for everything
        bucket[:-4] += 0.5
        bucket[-4:] += 1

    group.other = other
    model(torch.ones(2, 3)).sum().backward()
    assert torch.equal(model.module.right.weight.grad, torch.full((3, 3), 0.5))
    assert torch.equal(model.module.left.bias.grad, torch.full((3,), 1.5))  # (2 + 1) / 2


def test_a_gradient_outside_the_buckets_is_refused(group: PlayedGroup):
    model = daceml.DistDataParallel(Switched())
    model(torch.ones(2, 3)).sum().backward()
    with raises(NotSynchronizedError, "right.weight", "find_unused_parameters=True"):
        model(torch.ones(2, 3), right=True)


def test_what_would_run_without_all_reduces_is_refused(group: PlayedGroup):
    model = daceml.DistDataParallel(nn.Linear(3, 3))
    x = torch.ones(2, 3)
    with daceml.stance("force_eager"):
        with raises(NotSynchronizedError, "Linear", "eager", "torch.no_grad()"):
            model(x)
        with torch.no_grad():
            model(x)
    outer: Any = daceml.compile(nn.Sequential(nn.Tanh(), model))
    with raises(NotSynchronizedError, "Linear"):
        outer(x)
    step = daceml.compile_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), 0.1))
    with raises(NotSynchronizedError, "Linear"):
        step(x, x)


@pytest.mark.parametrize(
    ("name", "value"), [("backward", False), ("auto_optimize", "search"), ("cuda_graphs", True)]
)
def test_options_without_averages_are_refused(group: PlayedGroup, name: str, value: Any):
    with raises(ConfigurationError, "DistDataParallel", f"{name}={value!r}"):
        daceml.DistDataParallel(nn.Linear(3, 3), **{name: value})


def test_without_ranks_it_says_how_to_start_some(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    variables = "RANK", "WORLD_SIZE", "MASTER_ADDR", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"
    with raises(DistributedSetupError, "DistDataParallel", *variables) as refusal:
        daceml.DistDataParallel(nn.Linear(3, 3))
    for way in ("torchrun --nproc-per-node 2", "mpirun -n 2", "torch.distributed.init_process_group"):
        assert way in refusal.value.fix


def test_explain_shows_the_buckets_and_why_they_were_closed(group: PlayedGroup):
    model = daceml.DistDataParallel(layers(), first_bucket_mb=0.0001)
    said = daceml.explain(model, torch.ones(2, 16))
    first, last = said.buckets
    assert "105 bytes" in first.closed and [first.closed, last.closed] == [golden(), golden()]
    section = buckets_text(said.buckets, said.ranks)
    assert "2 ranks through played" in section and "in 2 buckets" in section and section == golden()
    assert section in str(said) and "collective" in str(said) and "begin all-reduce 0" in str(said)


@daceml.dace_module(backward=True)
class Decorated(nn.Module):
    """Compiled by its class."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 3), 2.0))
        self.shift = nn.Parameter(torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.shift


def test_a_decorated_module_called_twice_in_one_loss(group: PlayedGroup):
    model = daceml.DistDataParallel(Decorated())
    group.other = lambda bucket: bucket[-2:].add_(1)  # rank 1 has gradients of zero
    x = torch.randn(2, 3)
    (model(x) + 2 * model(3 * x)).sum().backward()
    expected = (7 * x.sum(0)).unsqueeze(1).expand(3, 3)  # x, and 2 * 3 * x
    torch.testing.assert_close(model.module.weight.grad, expected / 2)
    # the gradient of `shift` is the cotangent itself, which stays what it was
    assert torch.equal(model.module.shift.grad, torch.full((2, 3), 1.5))
    assert len(group.sent) == 2


def test_an_operand_keeps_the_gradient_of_its_rank(group: PlayedGroup):
    model = daceml.DistDataParallel(Decorated())
    group.other = lambda bucket: bucket[-2:].add_(1)
    x = torch.ones(2, 3, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((2, 3), 6.0))
    assert torch.equal(model.module.shift.grad, torch.full((2, 3), 0.5))
