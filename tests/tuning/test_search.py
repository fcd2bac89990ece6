"""`auto_optimize="search"` from a call to its result, with measurements that a test makes up."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from typer.testing import CliRunner

import daceml
from daceml.cli.main import app
from daceml.config import Config
from daceml.errors import ConfigurationError
from daceml.report.explanation.search_text import HEADERS, headline, search_text
from daceml.runtime.timing.comparison import Comparison
from daceml.text_tables import WIDTH
from daceml.tuning import (
    decision_store as store,
)
from daceml.tuning import (
    greedy_search as greedy,
)
from daceml.tuning import (
    module_search as module_task,
)
from daceml.tuning import (
    step_search as step_task,
)
from daceml.tuning import (
    variant_recipes as variation,
)
from daceml.tuning.recipe_changes import CHOICES
from tests.support.golden import golden, raises
from tests.support.sampling import sampled

LOOPS = "products in loops"
FEW = (LOOPS, "small nests", "sums of columns apart", "plain weights")


class Measuring:
    """Programs with generated products take half of the time, all others the same."""

    def __init__(self) -> None:
        self.runs: list[Mapping[str, Any]] = []

    def __call__(self, runs: Mapping[str, Any], **_: Any) -> Comparison:
        self.runs.append(runs)
        for run in runs.values():
            for _ in range(2):
                run()
            run.reset()
        times = {name: 0.5 + _calls_of_torch(run) for name, run in runs.items()}
        return Comparison(rounds=(times,) * 8)


def _calls_of_torch(run: Any) -> int:
    return sum(step.kind == "aten" for step in run.program.manifest.steps)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of decisions that no other test has filled, with the compiled kernels of the run's cache."""
    monkeypatch.setattr(store, "fingerprint", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Measuring:
    measuring = Measuring()
    few = tuple(choice for choice in CHOICES if choice.name in FEW)
    monkeypatch.setattr(variation, "CHOICES", few)
    for module in (module_task, step_task):
        monkeypatch.setattr(module, "decide", partial(greedy.decide, margin=1e9, measure=measuring))
    return measuring


def layers(kind: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).to(kind)


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def searched(module: nn.Module, **options: Any) -> Any:
    return daceml.compile(module, auto_optimize="search", search_budget_s=600, **options)


def decision_of(compiled: Any, *args: torch.Tensor) -> Any:
    return compiled.session.variant(args, {})[0].decision


def test_the_faster_variation_is_chosen_and_gives_the_same(measured: Measuring):
    module = layers().eval()
    compiled, x = searched(module, backward=False), rows(4, 6)
    torch.testing.assert_close(compiled(x), module(x).detach(), rtol=1e-12, atol=1e-12)
    decision = decision_of(compiled, x)
    assert LOOPS in decision.choices and decision.complete
    assert daceml.explain(compiled, x).counts["aten"] == 0
    assert daceml.explain(daceml.compile(module, backward=False), x).counts["aten"] > 0
    assert compiled.network.sdfg is not None  # made again, of the same recipe


def test_nothing_of_the_measuring_is_left(measured: Measuring):
    module, x = layers(), rows(4, 6).requires_grad_()
    calls: list[str] = []
    module[0].weight.register_hook(lambda gradient: calls.append("hook"))
    expected, before = copy.deepcopy(module), torch.get_rng_state()
    compiled = searched(module)
    result = compiled(x)
    assert len(measured.runs) > 1 and calls == []
    assert torch.equal(torch.get_rng_state(), before)
    assert x.grad is None and all(p.grad is None for p in module.parameters())
    want = expected(x.detach())  # batch norm's statistics have moved once, not with every run
    torch.testing.assert_close(module.state_dict(), expected.state_dict(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(result, want, rtol=1e-12, atol=1e-12)
    assert int(module[1].num_batches_tracked) == 1


def test_a_training_step_is_measured_forward_and_backward(measured: Measuring):
    ours, theirs, x = layers(), layers(), rows(4, 6)
    compiled = searched(ours)
    for _ in range(3):
        compiled(x).square().sum().backward()
        theirs(x).square().sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-9)
    assert measured.runs[0]["standard"].backward is not None
    assert decision_of(compiled, x).choices


def test_draws_stay_eagers_under_the_same_seed(measured: Measuring):
    module = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5)).double()
    compiled, x = searched(module), rows(4, 6)
    torch.manual_seed(3)
    ours = compiled(x)
    torch.manual_seed(3)
    torch.testing.assert_close(ours, module(x), rtol=1e-12, atol=1e-12)


def test_a_later_process_measures_nothing(measured: Measuring, monkeypatch: pytest.MonkeyPatch):
    x = rows(4, 6)
    first = searched(layers().eval(), backward=False)
    first(x)
    for module in (module_task, step_task):
        monkeypatch.setattr(module, "decide", lambda *_, **__: pytest.fail("searched again"))
    again = searched(layers().eval(), backward=False)
    torch.testing.assert_close(again(x), first(x))
    assert decision_of(again, x) == decision_of(first, x)
    stages = again.session.latest.stages_s
    assert "onnx" not in stages and "kernels" not in stages
    assert again.session.latest.program.stored.folder == first.session.latest.program.stored.folder


def test_two_threads_search_once(measured: Measuring):
    compiled, x = searched(layers().eval(), backward=False), rows(4, 6)
    found: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: found.append(compiled(x))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(found[0], found[1])
    assert len({id(runs["standard"]) for runs in measured.runs}) == 1


def test_frozen_weights_are_searched_too(measured: Measuring):
    module, x = layers(torch.float32).eval(), rows(4, 6).float()
    compiled = searched(module, freeze=True, backward=False)
    torch.testing.assert_close(compiled(x), module(x).detach(), rtol=1e-5, atol=1e-5)
    assert any("plain weights" in trial.name for trial in decision_of(compiled, x).trials)


def test_symbolic_sizes_are_measured_at_those_of_the_call(measured: Measuring):
    module = layers().eval()
    compiled = searched(module, backward=False, dynamic_shapes=({0: "n"},))
    for count in (4, 9):
        x = rows(count, 6)
        torch.testing.assert_close(compiled(x), module(x).detach(), rtol=1e-12, atol=1e-12)
    assert len(compiled.session.variants) == 1
    assert decision_of(compiled, rows(4, 6)).sizes == "[(4, 6)]"


STEPS = [partial(torch.optim.AdamW, lr=0.01), partial(torch.optim.SGD, lr=0.1, momentum=0.9)]


@pytest.mark.parametrize("make", sampled(STEPS, STEPS[0]))
def test_a_whole_step_is_searched(measured: Measuring, make: Callable[..., torch.optim.Optimizer]):
    ours, theirs, x, y = layers(), layers(), rows(4, 6), rows(4, 3)
    mine, reference = make(ours.parameters()), make(theirs.parameters())
    step = daceml.compile_step(ours, functional.mse_loss, mine, auto_optimize="search", search_budget_s=600)
    for _ in range(3):
        loss = step(x, y)
        reference.zero_grad()
        want = functional.mse_loss(theirs(x), y)
        want.backward()
        reference.step()
        torch.testing.assert_close(loss, want.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-8, atol=1e-8)
    assert step.decision is not None and LOOPS in step.decision.choices


def test_a_whole_step_without_transformations():
    ours, theirs, x, y = layers(), layers(), rows(4, 6), rows(4, 3)
    step = daceml.compile_step(
        ours, functional.mse_loss, torch.optim.SGD(ours.parameters(), lr=0.1), auto_optimize=False
    )
    step(x, y)
    functional.mse_loss(theirs(x), y).backward()
    torch.optim.SGD(theirs.parameters(), lr=0.1).step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-9, atol=1e-9)
    assert step.decision is None


def test_torch_compile_takes_it(measured: Measuring):
    module, x = layers().eval(), rows(4, 6)
    compiled = torch.compile(module, backend="daceml", options={"auto_optimize": "search"})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-12, atol=1e-12)
    assert measured.runs
    torch.compiler.reset()


def test_explain_has_a_section(measured: Measuring):
    compiled, x = searched(layers().eval(), backward=False), rows(4, 6)
    said = daceml.explain(compiled, x)
    text = str(said)
    assert search_text(said.search) in text and all(header in text for header in HEADERS)
    assert "chosen" in text and "identical program" in text and LOOPS in text
    assert max(map(len, text.splitlines())) <= WIDTH
    assert said.to_json()["search"]["choices"] == decision_of(compiled, x).choices
    assert LOOPS in said._repr_html_()
    assert daceml.explain(daceml.compile(layers().eval(), backward=False), x).search is None


def test_a_budget_of_nothing_keeps_the_standard_recipe(folder: Path):
    compiled, x = (
        daceml.compile(layers().eval(), backward=False, auto_optimize="search", search_budget_s=0),
        rows(4, 6),
    )
    decision = decision_of(compiled, x)
    assert decision.choices == () and not decision.complete
    assert headline(decision) in " ".join(str(daceml.explain(compiled, x)).split())
    here = replace(decision, trials=decision.trials[:2], machine="this machine", spent_s=0.0)
    assert headline(here) == golden()
    plain = daceml.compile(layers().eval(), backward=False)
    plain(x)
    assert compiled.session.latest.program.stored.folder == plain.session.latest.program.stored.folder


def test_verify_looks_at_what_was_chosen(measured: Measuring):
    module, x = layers().eval(), rows(4, 6)
    compiled = searched(module, backward=False, verify=True)
    torch.testing.assert_close(compiled(x), module(x).detach(), rtol=1e-12, atol=1e-12)
    assert decision_of(compiled, x).choices


@pytest.mark.slow
def test_a_real_search_ends_in_its_budget_and_is_right(folder: Path):
    module, x = layers().eval(), rows(4, 6)
    compiled = daceml.compile(module, backward=False, auto_optimize="search", search_budget_s=3)
    torch.testing.assert_close(compiled(x), module(x).detach(), rtol=1e-12, atol=1e-12)
    assert decision_of(compiled, x).trials[0].outcome == "standard recipe"


def test_copies_and_pickles_keep_it(measured: Measuring):
    compiled = searched(layers().eval(), backward=False)
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert other.session.options["auto_optimize"] == "search"
        assert other.session.options["search_budget_s"] == 600


def test_recipe_is_another_word_for_true():
    assert daceml.compile(nn.ReLU(), auto_optimize="recipe").session.options["auto_optimize"] is True


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"auto_optimize": "fast"}, ["'auto_optimize'", "'recipe'", "'search'", "is 'fast'"]),
        ({"auto_optimize": 1}, ["'auto_optimize'", "is 1"]),
        ({"auto_optimize": None}, ["'auto_optimize'", "is None"]),
        ({"search_budget_s": 5}, ["search_budget_s", 'auto_optimize="search"']),
        ({"auto_optimize": "search", "search_budget_s": -1}, ["'search_budget_s'", "is -1"]),
        ({"auto_optimize": "search", "search_budget_s": "5"}, ["'search_budget_s'", "is '5'"]),
        ({"auto_optimize": "search", "search_budget_s": float("nan")}, ["'search_budget_s'", "is nan"]),
    ],
    ids=["way", "number", "none", "budget alone", "negative", "text", "nan"],
)
def test_other_values_are_refused(options: dict[str, Any], facts: list[str]):
    with raises(ConfigurationError, *facts) as error:
        daceml.compile(nn.ReLU(), **options)
    assert error.value.why and error.value.fix


def test_a_recipe_and_a_search_exclude_each_other():
    from daceml.transformations import Recipe

    with raises(ConfigurationError, "recipe", 'auto_optimize="search"'):
        daceml.compile(nn.ReLU(), recipe=Recipe(), auto_optimize="search")


def test_hooks_and_a_search_exclude_each_other():
    compiled = daceml.compile(nn.ReLU(), backward=False, auto_optimize="search")
    compiled.append_post_onnx_hook("mine", lambda module: None)
    with raises(ConfigurationError, "hooks", 'auto_optimize="search"'):
        compiled(torch.ones(2))


def test_the_command_line_searches_too(measured: Measuring, tmp_path: Path):
    file = tmp_path / "model.py"
    file.write_text(
        "from torch import nn\nmodel = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))\n"
    )
    done = CliRunner().invoke(app, ["explain", f"{file}:model", "-i", "4,6", "--search", "-q"])
    assert done.exit_code == 0, done.output
    assert "search: " in done.stdout and LOOPS in done.stdout
    done = CliRunner().invoke(app, ["compile", f"{file}:model", "-i", "4,6", "--search", "-q"])
    assert done.exit_code == 0, done.output


def test_the_budget_of_the_environment_is_an_option():
    assert Config.from_env({"DACEML_SEARCH_BUDGET_S": "7"}).search_budget_s == 7
    assert Config().search_budget_s == 60
