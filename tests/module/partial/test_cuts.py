"""Where a forward is cut: what users are told, what they may ask for, and what stays theirs."""

from __future__ import annotations

import gc
import inspect
import logging
import threading
import warnings
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml
from daceml.config import config
from daceml.errors import CallError, ConfigurationError, ExportError, NotCompiledError, NotSynchronizedError
from daceml.module.module import DaceModule
from daceml.report.explanation.partial_explanation import PartialExplanation
from tests.support.golden import golden, raises


class Inverts(nn.Module):
    """An operator that no program can express, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.second(torch.linalg.inv(torch.tanh(self.first(x)) + 9 * torch.eye(8))) * scale


class Branches(nn.Module):
    """Layers in a list, and a branch on a tensor's value."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()), Inverts()])
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for layer in self.layers:
            if x.abs().sum() > 0:
                x = layer(x)
        self.last = x
        return x


# Dynamo reads the attribute of results, and hides the warning where warnings are no errors
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


def cut(module: nn.Module, **options) -> DaceModule:
    compiled = daceml.compile(module, fullgraph=False, **options)
    assert isinstance(compiled, DaceModule)
    return compiled


def test_fullgraph_asks_for_an_error():
    with raises(ExportError, "linalg_inv", "test_cuts.py"):
        daceml.compile(Inverts(), fullgraph=True)(torch.randn(8, 8))
    with raises(ConfigurationError, "fullgraph", "'yes'"):
        daceml.compile(Inverts(), fullgraph="yes")


def test_gradients_of_control_flow_are_refused_by_name():
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda v: self.first(v), lambda v: self.second(v), (x,))

    with raises(ExportError, "cond", "test_cuts.py"):
        daceml.compile(Chooses(), fullgraph=True)(torch.randn(2, 8))


def test_the_log_says_it_once(caplog: pytest.LogCaptureFixture):
    compiled = cut(Branches())
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            compiled(torch.randn(8, 8))
    (message,) = caplog.messages
    assert message == golden()


def test_torch_logs_nothing_of_its_own_where_a_graph_breaks(caplog: pytest.LogCaptureFixture):
    class Grouped(nn.Module):
        """Its operator has a rule for tracing that refuses float32, which its kernel takes."""

        def forward(self, x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
            return nn.functional.grouped_mm(x, w, offs=ends)

    x, w = torch.ones(12, 8), torch.ones(3, 8, 16)
    compiled = daceml.compile(Grouped(), fullgraph=False)
    with caplog.at_level(logging.WARNING):
        result = compiled(x, w, torch.tensor([4, 8, 12], dtype=torch.int32))
    assert torch.equal(result, torch.full((12, 16), 8.0))
    assert {record.name.partition(".")[0] for record in caplog.records} == {"daceml"}


def test_where_no_program_runs_log_and_explain_say_so(caplog: pytest.LogCaptureFixture):
    compiled, x = cut(nn.ReLU()), torch.eye(3).to_sparse()
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            compiled(x)
    (message,) = caplog.messages
    assert "a sparse_coo tensor" in message and message.endswith("it runs eagerly")
    said = daceml.explain(compiled, x)
    assert isinstance(said, PartialExplanation)
    assert (said.programs, said.compiled_flops, said.compiled_time) == ((), 0.0, 0.0)


def test_explain_names_each_region_its_reason_and_its_share():
    module = Branches()
    module.register_buffer("seen", torch.zeros(1))
    compiled = cut(module)
    before = torch.get_rng_state()
    said = daceml.explain(compiled, torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(said, PartialExplanation)
    names = [region.name for region in said.regions]
    assert names == ["Branches", "Branches.layers.0", "Branches.layers.1", "Branches.layers.1, graph 1.0",
                     "linalg_inv", "Branches.layers.1, graph 1.2"]  # fmt: skip
    assert [bool(region.cuts) for region in said.regions] == [True, False, True, False, True, False]
    assert said.compiled_flops == 1.0
    assert 0 < said.compiled_time < 1
    text = str(said)
    assert (
        "Branches runs eagerly" in text and "test_cuts.py" in text and "linalg_inv" in text and "fix:" in text
    )
    assert said.to_json()["regions"][4]["cuts"][0]["where"].startswith("test_cuts.py")


def test_explain_of_sizes_that_depend_on_data():
    class Filtered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            y = torch.tanh(self.first(x))
            return self.second(y[y.sum(1) > 0])

    said = daceml.explain(cut(Filtered()), torch.randn(16, 8))
    assert isinstance(said, PartialExplanation)
    assert said.compiled_flops == 1.0
    assert "100.0% of FLOPs" in str(said)
    assert all(type(region.flops) is int for region in said.regions)


class Chooses(nn.Module):
    """A layer, and a branch on a tensor's value."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.layer(x))
        return -x if x.sum() > 0 else x


@pytest.mark.parametrize(("width", "together"), [(8, True), (1024, False)])
def test_parts_that_are_cut_are_left_together_if_they_are_small(width: int, together: bool):
    module = nn.Sequential(*(Chooses(width) for _ in range(3)))
    compiled, x = cut(module, backward=False), torch.randn(32, width)
    for _ in range(3):  # one way of cutting a call
        torch.testing.assert_close(compiled(x), module(x).detach(), rtol=1e-4, atol=1e-5)
    said = daceml.explain(compiled, x)
    assert isinstance(said, PartialExplanation)
    within = [region.name for region in said.regions if region.name.endswith((".0", ".1", ".2"))]
    assert bool(within) is not together


def test_what_forward_assigns_is_the_modules():
    module = Branches()
    compiled = cut(module)
    x = torch.randn(8, 8)
    for count in (1, 2, 3):
        result = compiled(x)
        assert module.calls == compiled.calls == count
        assert module.last is result
    assert module.layers[0][0] is compiled.layers[0][0]
    assert isinstance(module.layers[0], nn.Sequential) and not isinstance(module.layers[0], DaceModule)
    assert set(module.state_dict()) == set(compiled.state_dict())


def test_threads_call_a_cut_module_at_once():
    module = Branches()
    compiled = cut(module.eval())
    x = torch.randn(8, 8)
    wanted = module(x)
    module.calls = 0
    results: list[torch.Tensor] = []

    def call() -> None:
        results.extend(compiled(x) for _ in range(3))

    threads = [threading.Thread(target=call) for _ in range(4)]  # the first calls compile, and choose
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 12
    for result in results:
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)
    assert "forward" not in module.layers[0].__dict__
    assert not torch._dynamo.config.suppress_errors


def test_new_sizes_states_and_replaced_parts():
    module = Branches()
    compiled = cut(module)
    for size in (8, 8):
        x = torch.randn(size, 8)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    module.layers[0] = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid())
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    module.layers.append(nn.Sequential(nn.Linear(8, 8), nn.GELU()))
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    module.double()
    x = x.double()
    torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize(("dynamic", "attempts"), [(True, 1), (False, 2)])
def test_a_model_that_is_cut_is_not_traced_again_for_every_size(dynamic, attempts, caplog):
    caplog.set_level(logging.INFO, "daceml.module.session")
    module = Branches()
    compiled = cut(module, dynamic=dynamic)
    for size in (2, 2, 3, 5, 1, 4, 2):
        x = torch.randn(size, 8, 8)
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    started = [r.getMessage() for r in caplog.records if r.getMessage().startswith("compiling Branches: ")]
    assert len(started) == attempts
    module.layers[0].append(nn.GELU())  # another module may be one program
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    assert caplog.text.count("compiling Branches: ") > attempts


def test_what_forward_itself_changes_is_no_reason_to_trace_it_again(caplog):
    class Records(Branches):
        def __init__(self) -> None:
            super().__init__()
            self.history, self.kept, self.totals = [], {}, SimpleNamespace(calls=0)
            self.layers[0].seen = torch.zeros(())
            self.scale = 1.0

        def forward(self, x):
            self.history.append(x.shape)
            self.kept[len(self.history)] = x
            self.totals.calls += 1
            self.layers[0].seen = self.layers[0].seen + 1
            return super().forward(x) * self.scale

    caplog.set_level(logging.INFO, "daceml.module.session")
    module = Records()
    compiled = cut(module)
    x = torch.randn(3, 8, 8)
    for _ in range(4):
        compiled(x)
    assert len(module.history) == module.totals.calls == module.layers[0].seen == 4
    assert caplog.text.count("compiling Records: ") == 1
    module.scale = 3.0
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    assert caplog.text.count("compiling Records: ") == 2


def test_state_that_moves_in_buffers_and_classes_is_no_reason_to_trace_again(caplog):
    class Averages(Branches):
        runs = 0

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("average", torch.zeros(()))

        def forward(self, x):
            type(self).runs += 1
            y = super().forward(x)
            self.average = self.average * 0.9 + y.detach().mean()
            return y

    caplog.set_level(logging.INFO, "daceml.module.session")
    module = Averages()
    compiled = cut(module)
    for size in (2, 3, 2, 3, 2, 3):
        compiled(torch.randn(size, 8, 8))
    assert caplog.text.count("compiling Averages: ") == 2


def test_attempts_to_trace_a_cut_model_come_to_an_end(caplog):
    class Scaled(Branches):
        scale = 1.0
        scales = 0  # another attribute, whose name begins like the first

        def forward(self, x):
            return super().forward(x) * self.scale

    caplog.set_level(logging.INFO, "daceml.module.session")
    module = Scaled()
    compiled = cut(module)
    x = torch.randn(2, 8, 8)
    limit = config().recompile_limit
    for number in range(limit + 3):
        module.scale = 1.0 + number
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
    assert caplog.text.count("compiling Scaled: ") == limit


def test_a_cut_model_is_freed():
    module = Branches()
    compiled = cut(module)
    gone = weakref.ref(module)
    compiled(torch.randn(2, 8, 8))
    compiled(torch.randn(2, 8, 8))
    del module, compiled
    gc.collect()
    assert gone() is None


def test_results_are_detached_without_a_backward_pass():
    compiled = cut(Inverts(), backward=False)
    assert not compiled(torch.randn(8, 8)).requires_grad
    with torch.inference_mode():
        compiled(torch.randn(8, 8))


def test_hooks_of_submodules_run_between_programs():
    first = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    module = nn.Sequential(first, nn.Sequential(nn.Linear(8, 8), nn.GELU()))
    seen: list[torch.Tensor] = []
    parts: list[nn.Module] = []

    def hook(part: nn.Module, args: object, result: torch.Tensor) -> None:
        seen.append(result)
        parts.append(part)

    module[1].register_forward_hook(hook)
    compiled = cut(module)
    x = torch.randn(3, 8)
    for count in (1, 2):
        result = compiled(x)
        assert len(seen) == count and seen[-1] is result
        assert parts[-1] is module[1]
    torch.testing.assert_close(result, module(x))


def test_errors_of_forward_are_eagers_own():
    class Refuses(nn.Module):
        def forward(self, x):
            if x.sum() > 1e6:
                raise LookupError("too much")
            return x @ torch.ones(3, 2)

    compiled = cut(Refuses())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        compiled(torch.ones(2, 4))
    assert "daceml" not in str(caught.value)
    with pytest.raises(LookupError, match="too much"):
        compiled(torch.full((2, 3), 1e9))
    assert compiled(torch.ones(2, 3)).shape == (2, 2)


def test_a_compiled_module_looks_like_the_original():
    class Documented(nn.Module):
        """A layer."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            """Scale a layer."""
            return self.linear(x) * scale

    module = Documented()
    compiled = daceml.compile(module)
    assert inspect.signature(compiled.forward) == inspect.signature(module.forward)
    assert compiled.forward.__doc__ == "Scale a layer."
    assert compiled.forward.__annotations__ == module.forward.__annotations__
    decorated = daceml.dace_module(Documented)
    assert list(inspect.signature(decorated().forward).parameters) == ["x", "scale"]
    assert not hasattr(compiled, "sdfg") and not hasattr(compiled, "onnx_model")
    assert dict(inspect.getmembers(compiled)).keys() >= {"linear", "forward", "session"}
    with raises(NotCompiledError, "Documented"):
        _ = compiled.sdfg
    x = torch.randn(3, 8)
    compiled(x)
    assert hasattr(compiled, "sdfg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(compiled, (x,))
    torch.testing.assert_close(traced(x), module(x))


def test_results_in_inference_mode_are_tensors_of_it():
    class Returns(nn.Module):
        def forward(self, x):
            y = x * 2
            return y, y[0], x, {"sum": x.sum()}

    module = Returns()
    compiled = daceml.compile(module)
    x = torch.randn(3, 8)
    with torch.inference_mode():
        ours, theirs = compiled(x), module(x)
    kinds = [[t.is_inference() for t in pytree.tree_leaves(results)] for results in (ours, theirs)]
    assert kinds[0] == kinds[1] == [True, True, False, True]
    assert ours[2] is x and ours[1].data_ptr() == ours[0].data_ptr()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(compiled(x)[0], x * 2)


def test_what_needs_one_program_says_so():
    compiled = cut(Inverts())
    with raises(CallError, "Inverts", "linalg_inv"):
        compiled.session.variant((torch.randn(8, 8),), {})
    with raises(CallError, "Inverts"):
        _ = compiled.onnx_model


def test_gradients_over_ranks_are_not_left_out():
    compiled = cut(Inverts())

    class Ranks:
        averaging = exchange = None

    compiled.session.data_parallel = Ranks()  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(NotSynchronizedError):
        compiled(torch.randn(8, 8))


def test_arguments_that_no_program_can_have():
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x, more):
            more["seen"].append(self.linear(x))
            return self.linear(x) + more["extra"].to_dense()

    module = Takes()
    compiled = cut(module)
    for count in (1, 2):
        seen: list[torch.Tensor] = []
        x = torch.randn(4, 8)
        extra = torch.eye(4, 8).to_sparse()
        result = compiled(x, {"seen": seen, "extra": extra})
        torch.testing.assert_close(result, module(x, {"seen": [], "extra": extra}))
        assert len(seen) == 1, count
