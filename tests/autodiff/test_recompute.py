"""What the backward pass finds in memory, what it computes again, and budgets that are kept or refused."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from dace.data import View
from torch import nn

import daceml
from daceml.autodiff.checkpointing.recompute import plan_recomputation
from daceml.autodiff.engine import add_gradients
from daceml.errors import ConfigurationError, MemoryBudgetError
from daceml.frontend.onnx_export.export import to_onnx
from daceml.frontend.onnx_import.importer import import_model
from daceml.runtime.records.gradients import StorageRecord
from tests.support.golden import golden, raises


class Masked(nn.Module):
    """A mask that costs a comparison: to read it costs as much as what it is made of."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x * 2 + 1 > y, x * y, x * 3) * (x * 2 + 1)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.second(self.norm(self.first(x)).relu()) + x).relu()


def results(
    module: nn.Module, call: nn.Module, *inputs: torch.Tensor, seed: int = 3
) -> dict[str, torch.Tensor]:
    """Output, gradients and buffers of one step."""
    given = [x.clone().requires_grad_() for x in inputs]
    torch.manual_seed(seed)
    y = call(*given)
    (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)).sum().backward()
    found = {"y": y.detach()} | {f"input{i}": x.grad for i, x in enumerate(given) if x.grad is not None}
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        found[name] = parameter.grad
        parameter.grad = None
    return found | {name: buffer.clone() for name, buffer in module.named_buffers()}


def compare(module: nn.Module, *inputs: torch.Tensor, **options: Any) -> tuple[StorageRecord, ...]:
    """A step of the compiled module equals eager's; what it stores."""
    state = copy.deepcopy(module.state_dict())
    reference = results(module, module, *inputs)
    module.load_state_dict(state)
    compiled = daceml.compile(module, **options)
    ours = results(module, compiled, *inputs)
    module.load_state_dict(state)
    for name, tensor in reference.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-9, atol=1e-10, msg=name)
    return daceml.explain(compiled, *(x.clone().requires_grad_() for x in inputs)).storage


def test_cheap_recomputes_what_is_made_of_inputs_by_a_comparison_or_a_sum() -> None:
    x, y = torch.randn(2, 7, 33, dtype=torch.float64)
    everything = compare(Masked(), x, y, recompute="none")
    cheap = compare(Masked(), x, y, recompute="cheap")
    assert everything
    assert all(record.stored for record in everything)
    assert any(not record.stored for record in cheap)
    assert sum(r.bytes for r in cheap if r.stored) < sum(r.bytes for r in everything)
    assert all(record.reason for record in cheap)


@pytest.mark.slow
def test_budget_recomputes_whole_layers_and_keeps_results() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(*(Residual() for _ in range(5))).double().train()
    x = torch.randn(2, 4, 16, 16, dtype=torch.float64)
    # the least is of this machine's kernels
    with raises(MemoryBudgetError, "memory_budget_bytes is 1000", exact=False) as refused:
        compare(module, x, recompute="budget", memory_budget_bytes=1000)
    assert refused.value.what == golden()
    (least,) = map(int, re.findall(r"(\d+) bytes", refused.value.fix))
    storage = compare(module, x, recompute="budget", memory_budget_bytes=least)
    assert any(not record.stored and "Conv" in record.reason for record in storage)


class Normalized(nn.Module):
    """Two thirds of what eager stores are results of batch norms and relus."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()) for _ in range(3)),
            nn.Flatten(),
            nn.LayerNorm(3 * 18 * 18),
            nn.Linear(3 * 18 * 18, 5),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_results_of_normalizations_run_again_from_their_statistics() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 18, 18, dtype=torch.float64)
    everything = compare(Normalized().double(), x, recompute="none")
    cheap = compare(Normalized().double(), x, recompute="cheap")
    again = [r.reason for r in cheap if not r.stored]
    for operator in ("Relu", "BatchNormalizationSaving"):
        assert any(operator in reason for reason in again)
    kept = [sum(r.bytes for r in storage if r.stored) for storage in (everything, cheap)]
    assert kept[1] < 0.8 * kept[0]


def test_a_bias_may_change_before_the_backward_pass() -> None:
    """Eager does not read it there; what runs again reads a copy."""
    torch.manual_seed(0)
    theirs, x = Normalized().double(), torch.randn(2, 3, 18, 18, dtype=torch.float64)
    ours = copy.deepcopy(theirs)
    for module, run in ((theirs, theirs), (ours, daceml.compile(ours))):
        loss = run(x).square().sum()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if name.endswith(".1.bias"):  # of batch norms; eager reads that of a layer norm
                    parameter.add_(1)
        loss.backward()
    for (name, p), q in zip(theirs.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-9, atol=1e-9, msg=name)


class Flattened(nn.Module):
    """What runs again is read under another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(24, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.sigmoid(self.second(torch.relu(self.first(x)).flatten(1))))


def test_a_view_of_what_runs_again_waits_for_it() -> None:
    network = import_model(to_onnx(torch.export.export(Flattened(), (torch.randn(4, 3, 6),))), name="network")
    add_gradients(network, network.outputs, [*network.inputs, *network.weights])
    decisions = plan_recomputation(network, "budget", limit_bytes=0)
    assert any("relu" in d.array and not d.stored for d in decisions)
    state, arrays = network.state, network.sdfg.arrays
    views = [n for n in state.data_nodes() if isinstance(arrays[n.data], View)]
    assert any("again" in view.data for view in views)
    assert all(state.in_degree(view) == 1 for view in views)
    assert len({view.data for view in views}) == len(views)


class Drawn(nn.Module):
    """Much that can be made of what was drawn, so that little has to be stored."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drawn = nn.functional.dropout(self.first(x), 0.5)
        return self.second(drawn.tanh() * drawn.sigmoid() * drawn.sin())


def test_draws_never_run_again() -> None:
    """Even where nothing should be stored, what was drawn is; what is made of it runs again."""
    network = import_model(to_onnx(torch.export.export(Drawn(), (torch.randn(4, 8),))), name="network")
    add_gradients(network, network.outputs, [*network.inputs, *network.weights])
    decisions = {d.array: d for d in plan_recomputation(network, "budget", limit_bytes=0)}
    drawn = [d for name, d in decisions.items() if "dropout" in name]
    assert drawn
    assert all(d.stored and "random" in d.reason for d in drawn)
    assert "\n".join(sorted({d.reason for d in drawn})) == golden()
    again = {name for name, d in decisions.items() if not d.stored}
    assert {"tanh_", "sigmoid_", "sin_"} <= again


def test_explain_says_what_is_stored() -> None:
    compiled = daceml.compile(nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3)))
    text = str(daceml.explain(compiled, torch.randn(2, 5)))
    (line,) = [line for line in text.splitlines() if "backward pass" in line and "stored" in line]
    assert line == golden()
    assert "2 arrays" in line and "0 arrays" in line
    with torch.no_grad():
        assert "backward pass" not in str(daceml.explain(compiled, torch.randn(2, 5)))


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"recompute": "some"}, ["'some'", "'none'", "'cheap'", "'budget'"]),
        ({"recompute": "chep"}, ["'chep'", "'cheap'"]),
        ({"recompute": "budget"}, ["recompute", "memory_budget_bytes"]),
        ({"memory_budget_bytes": 5}, ["recompute", "memory_budget_bytes"]),
        ({"recompute": "budget", "memory_budget_bytes": -1}, ["memory_budget_bytes", "-1"]),
        ({"recompute": "budget", "memory_budget_bytes": True}, ["memory_budget_bytes", "True"]),
    ],
)
def test_options_are_checked(options: dict[str, Any], facts: list[str]) -> None:
    with raises(ConfigurationError, *facts):
        daceml.compile(nn.Linear(2, 2), **options)


def test_an_empty_batch_costs_nothing_to_store():
    x = torch.randn(0, 3, requires_grad=True)
    daceml.compile(nn.RMSNorm(3))(x).sum().backward()
    assert x.grad is not None and x.grad.shape == (0, 3)


class Gate(nn.Module):
    """Eager saves x and the sigmoid, and has no need of the bias afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(4, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x + self.bias) * x


def test_what_eager_has_no_need_of_may_change_before_the_backward_pass():
    module = Gate()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    found: list[torch.Tensor] = []
    for call in (module, daceml.compile(module)):
        loss = call(x).sum()
        with torch.no_grad():
            module.bias.add_(1)
        found += torch.autograd.grad(loss, x)
        with torch.no_grad():
            module.bias.sub_(1)
    torch.testing.assert_close(found[1], found[0])


def test_an_input_that_forward_changes_is_not_read_again():
    class Counts(nn.Module):
        def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            gated = torch.sigmoid(x + c) * x
            c.add_(1)
            return gated

    x, c = torch.randn(4, requires_grad=True), torch.randn(4)
    expected = torch.autograd.grad(Counts()(x, c.clone()).sum(), x)[0]
    given = c.clone()
    torch.testing.assert_close(torch.autograd.grad(daceml.compile(Counts())(x, given).sum(), x)[0], expected)
    torch.testing.assert_close(given, c + 1)


def test_a_view_of_an_input_is_not_stored_beside_it():
    """The backward pass reads the input in another shape, which is no array of its own."""
    module = nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 3))
    x = torch.randn(2, 5, 4, requires_grad=True)
    compiled = daceml.compile(module)
    compiled(x).sum().backward()
    assert not [row for row in daceml.explain(compiled, x).storage if row.stored]
    (variant,) = compiled.session.variants
    assert len(variant.program.manifest.outputs) == 1


def test_a_buffer_that_is_not_row_major_is_kept_for_the_backward_pass():
    """What is kept of the caller's memory lies in row-major order, whatever the order of that memory is."""

    class Scaled(nn.Module):
        scale: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.linspace(1, 2, 48).reshape(8, 6).t())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x * self.scale)

    module = Scaled()
    x = torch.linspace(-1, 1, 48).reshape(6, 8).requires_grad_()
    (expected,) = torch.autograd.grad(module(x).sum(), x)
    (gradient,) = torch.autograd.grad(daceml.compile(module, fullgraph=True)(x).sum(), x)
    torch.testing.assert_close(gradient, expected)


class Recurrence(nn.Module):
    """A decaying maximum, as RWKV has it: every step reads the one before four times."""

    def forward(self, x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
        a, p, found = torch.zeros_like(x[0]), torch.full_like(x[0], -9.0), []
        for step in x:
            q = torch.maximum(p + decay, step)
            a = torch.exp(p + decay - q) * a + torch.exp(step - q) * step
            p = q
            found.append(a * p)
        return torch.stack(found)


def test_copies_of_a_recurrence_grow_with_its_length() -> None:
    compare(Recurrence(), torch.randn(4, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64))
    nodes: list[int] = []
    for length in (8, 16):
        exported = torch.export.export(Recurrence(), (torch.randn(length, 3), torch.randn(3)))
        network = import_model(to_onnx(exported), name="network")
        add_gradients(network, network.outputs, network.inputs)
        decisions = plan_recomputation(network, "cheap")
        assert any(not decision.stored for decision in decisions)
        nodes.append(network.state.number_of_nodes())
    assert nodes[1] < 2.5 * nodes[0]
