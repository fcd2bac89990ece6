"""A compiled module is the user's module: state, hooks, copies, pickles; and it notices when that changes."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

from daceml.errors import CallError, ConfigurationError, SignatureError
from daceml.module.module import DaceModule, compile_module, dace_module
from tests.support.computations import Apart
from tests.support.golden import golden, raises


class Net(nn.Module):
    """A linear layer, a batch norm that depends on the mode, and an activation."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.linear = nn.Linear(5, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.linear(x))
        return y * torch.tanh(softplus(y))


@dace_module(backward=False)
class Decorated(Net):
    """A class compiled by its decorator."""


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    net = Net().eval()
    net.norm.running_mean.normal_()
    net.norm.running_var.uniform_(0.5, 2)
    return net


def close(compiled: torch.Tensor, eager: torch.Tensor) -> None:
    torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-6)


def test_values_are_those_of_eager(net: Net):
    compiled = compile_module(net, backward=False)
    for rows in (3, 1, 7):  # other shapes are other variants
        x = torch.randn(rows, 5)
        close(compiled(x), net(x))


def test_the_compiled_module_is_the_users_module(net: Net):
    compiled = compile_module(net, backward=False)
    assert isinstance(compiled, Net)
    assert isinstance(compiled, DaceModule)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters(), strict=True))
    assert compiled.linear is net.linear
    assert type(compiled).__name__ == "Net"


def test_changed_weights_are_seen(net: Net):
    compiled = compile_module(net, backward=False)
    x = torch.randn(3, 5)
    compiled(x)
    with torch.no_grad():
        net.linear.weight.mul_(2)
    close(compiled(x), net(x))
    net.linear.weight.data = torch.randn(6, 5)
    close(compiled(x), net(x))
    net.linear.weight = nn.Parameter(torch.randn(6, 5))
    close(compiled(x), net(x))
    net.load_state_dict(Net().state_dict())
    close(compiled(x), net(x))
    net.linear = nn.Linear(5, 6)
    close(compiled(x), net(x))
    other = {k: torch.randn_like(v) for k, v in net.named_parameters()}
    close(torch.func.functional_call(compiled, other, (x,)), torch.func.functional_call(net, other, (x,)))
    close(compiled(x), net(x))


def test_modes_are_variants(net: Net):
    compiled = compile_module(net, backward=False)
    x = torch.randn(8, 5)
    close(compiled(x), net(x))
    reference = copy.deepcopy(net).train()
    compiled.train()
    assert net.training
    close(compiled(x), reference(x))
    close(net.norm.running_mean, reference.norm.running_mean)
    close(net.norm.running_var, reference.norm.running_var)
    assert net.norm.num_batches_tracked == reference.norm.num_batches_tracked
    net.norm.eval()  # a frozen batch norm inside a training module
    close(compiled(x), net(x))
    compiled.eval()
    close(compiled(x), net(x))


class Scaled(nn.Module):
    """Attributes of every kind that forward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.activation = torch.relu
        self.offset = torch.ones(3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(x * self.scale) + self.offset


def test_changed_attributes_are_seen():
    eager = Scaled()
    compiled = compile_module(eager, backward=False)
    x = torch.randn(4, 3)
    close(compiled(x), eager(x))
    eager.scale = 0.5
    close(compiled(x), eager(x))
    eager.activation = torch.tanh
    close(compiled(x), eager(x))
    eager.offset = torch.full((3,), 7.0)
    close(compiled(x), eager(x))
    eager.offset.mul_(3)
    close(compiled(x), eager(x))


def test_hooks_of_submodules_are_part_of_what_is_compiled():
    eager = nn.Sequential(nn.ReLU(), nn.ReLU())
    compiled = compile_module(eager, backward=False)
    x = torch.ones(2)
    close(compiled(x), eager(x))
    hook = eager[0].register_forward_hook(lambda module, inputs, output: output * 10)
    close(compiled(x), eager(x))
    hook.remove()
    close(compiled(x), eager(x))
    eager[1].forward = torch.neg
    close(compiled(x), eager(x))


class Masked(nn.Module):
    """Uses a buffer that may not be there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = getattr(self, "mask", None)
        return x if mask is None else x * mask


def test_the_first_buffer_of_a_module_is_noticed():
    eager = nn.Sequential(Masked(), nn.Tanh())
    compiled = compile_module(eager, backward=False)
    x = torch.randn(3)
    close(compiled(x), eager(x))
    eager[0].register_buffer("mask", torch.tensor([0.0, 1.0, 2.0]))
    close(compiled(x), eager(x))


def test_a_submodule_named_like_a_hook_is_noticed():
    inner = nn.Sequential()
    number = inner.register_forward_hook(lambda module, inputs, output: output).id + 1
    inner.add_module(str(number), nn.ReLU())
    eager = nn.Sequential(inner)
    assert inner.register_forward_hook(lambda module, inputs, output: output + 1).id == number
    compiled = compile_module(eager, backward=False)
    x = torch.randn(5)
    close(compiled(x), eager(x))
    setattr(inner, str(number), nn.Tanh())
    close(compiled(x), eager(x))


def test_an_equal_attribute_needs_no_new_variant(caplog: pytest.LogCaptureFixture):
    eager = Scaled()
    compiled = compile_module(eager, backward=False)
    x = torch.randn(4, 3)
    with caplog.at_level("INFO", logger="daceml.module.session"):
        compiled(x)
        eager.scale = float("2.0")
        compiled(x)
        eager.calls += 1  # forward does not read it
        compiled(x)
        assert len(caplog.records) == 1
        eager.scale = 3.0
        compiled(x)
    message = caplog.records[-1].getMessage()
    assert "Scaled" in message and "scale" in message and message == golden()


def test_an_input_that_is_returned_is_the_callers_own_tensor():
    class Keeps(nn.Module):
        def forward(self, x):
            return x + 1, x

    x = torch.randn(6, 4).t()
    _, kept = compile_module(Keeps(), backward=False)(x)
    assert kept is x


def test_hooks_run(net: Net):
    compiled = compile_module(net, backward=False)
    x = torch.randn(3, 5)
    expected = net(x) * 2 + 1
    calls: list[str] = []
    compiled.register_forward_hook(lambda module, inputs, output: output * 2)
    compiled.register_forward_hook(lambda module, inputs, output: calls.append("called"))
    compiled.register_forward_hook(lambda module, inputs, output: output + 1)
    close(compiled(x), expected)
    close(compiled(x), expected)
    assert len(calls) == 2


def test_a_decorated_class_compiles_its_instances():
    module = Decorated().eval()
    x = torch.randn(4, 5)
    plain = Net().eval()
    plain.load_state_dict(module.state_dict())
    close(module(x), plain(x))
    assert issubclass(Decorated, Net)
    assert Decorated.__doc__ == "A class compiled by its decorator."


@pytest.mark.parametrize(
    "make", [lambda: Decorated().eval(), lambda: compile_module(Net().eval(), backward=False)]
)
def test_copies_and_pickles_are_compiled_and_independent(make):
    module = make()
    x = torch.randn(4, 5)
    expected = module(x)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert isinstance(twin, DaceModule)
        close(twin(x), expected)
        with torch.no_grad():
            twin.linear.weight.zero_()
        close(module(x), expected)
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)


def test_arguments_and_results_keep_their_structure():
    class Structured(nn.Module):
        def forward(self, pair, *, scale: float, options=None):
            a, b = pair["a"], pair["b"]
            return {"sum": a + b * scale, "rest": [a, None, 3]}

    eager, compiled = Structured(), compile_module(Structured(), backward=False)
    pair = {"a": torch.randn(2, 3), "b": torch.randn(3)}
    for scale in (2.0, 3.0):
        expected, got = eager(pair, scale=scale), compiled(pair, scale=scale)
        close(got["sum"], expected["sum"])
        assert got["rest"][0] is pair["a"]
        assert got["rest"][1:] == [None, 3]


def test_inputs_of_any_layout(net: Net):
    compiled = compile_module(net, backward=False)
    x = torch.randn(5, 8).t()[::2]
    assert not x.is_contiguous()
    close(compiled(x), net(x))


def test_threads_share_a_module(net: Net):
    """Also while variants are being compiled; only eager calls must wait, since torch.export swaps
    parameters."""
    compiled = compile_module(net, backward=False)
    inputs = {rows: torch.randn(rows, 5) for rows in (3, 4)}
    with torch.no_grad():
        expected = {rows: net(x) for rows, x in inputs.items()}
    wrong: list[int] = []

    def work(rows: int) -> None:
        x, y = inputs[rows], expected[rows]
        wrong.extend(rows for _ in range(20) if not torch.allclose(compiled(x), y, atol=1e-5))

    threads = [threading.Thread(target=work, args=(3 + i % 2,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_modules_may_be_compiled_by_several_threads():
    modules = [compile_module(nn.Linear(3 + i, 2), backward=False) for i in range(3)]
    results: dict[int, torch.Tensor] = {}

    def work(i: int) -> None:
        with torch.no_grad():
            results[i] = modules[i](torch.ones(2, 3 + i))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, module in enumerate(modules):
        close(results[i], torch.nn.functional.linear(torch.ones(2, 3 + i), module.weight, module.bias))


def test_gradients_are_there_unless_they_are_unwanted(net: Net):
    compiled, detached = compile_module(net), compile_module(net, backward=False)
    x = torch.randn(3, 5)
    assert compiled(x).requires_grad and not detached(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad
    net.requires_grad_(False)
    assert not compiled(x).requires_grad
    x.requires_grad_()
    assert compiled(x).requires_grad and not detached(x).requires_grad


def test_what_would_go_wrong_silently_is_refused(net: Net):
    compiled = compile_module(net, backward=False)

    class Tagged(torch.Tensor):
        pass

    with raises(CallError, "Tagged", "x"):
        compiled(torch.randn(3, 5).as_subclass(Tagged))
    with raises(CallError, "leaf 0", "set"):
        compiled({1, 2})


def test_a_call_that_forward_cannot_take_is_named(net: Net):
    compiled = compile_module(net, backward=False)
    for args, reason in [((), "'x'"), ((1, 2), "too many positional arguments")]:  # reasons of Python's own
        with raises(SignatureError, "Net", reason, "Net(x: 'torch.Tensor')", exact=False) as refusal:
            compiled(*args)
        assert [refusal.value.what, refusal.value.fix] == [golden(), golden()]


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def test_corners_of_reductions_are_torchs():
    cases = {
        "any of nothing": (lambda x: (x > 0).any(), torch.zeros(0, 4)),
        "any of empty rows": (lambda x: (x > 0).any(1), torch.zeros(4, 0)),
        "any of rows": (lambda x: (x > 0).any(1, keepdim=True), torch.tensor([[0.0, 1.0], [0.0, -1.0]])),
        "all of empty rows": (lambda x: (x > 0).all(1), torch.zeros(4, 0)),
        "softmax of a number": (lambda x: x.softmax(0), torch.tensor(1.0)),
        "sum of empty rows": (lambda x: x.sum(1), torch.zeros(3, 0)),
        "mean of empty columns": (lambda x: x.mean(0), torch.zeros(0, 2)),
    }
    module = Apart(**{name: function for name, (function, _) in cases.items()})
    got = compile_module(module, backward=False)(*(x for _, x in cases.values()))
    for name, (function, x) in cases.items():
        torch.testing.assert_close(
            got[name], function(x), equal_nan=True, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_unknown_options_and_wrong_things_are_named():
    with raises(ConfigurationError, "'backwards'", "dace_module") as refusal:
        dace_module(Net(), backwards=True)
    assert "'backward'" in refusal.value.fix
    with raises(ConfigurationError, "dace_module", "nn.Module", "int"):
        dace_module(3)
