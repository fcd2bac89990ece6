"""Hooks between the stages, as in the paper's listing B.1."""

from __future__ import annotations

import copy

import dace
import pytest
import torch
from torch import nn
from torch.nn import functional

from daceml import dace_module, explain
from daceml.errors import ConfigurationError
from daceml.module.module import compile_module
from daceml.onnx_ops.expansion import expand_onnx_nodes
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.transformations import Recipe, Rewrite
from tests.support.golden import golden, raises


@dace_module(backward=False, auto_optimize=False)
class Mish(nn.Module):
    """The paper's example: three operators, two arrays between them."""

    def forward(self, x):
        return x * torch.tanh(functional.softplus(x))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(4, 9)


def onnx_nodes(sdfg: dace.SDFG) -> list[str]:
    return sorted(n.op_type for n, _ in sdfg.all_nodes_recursive() if isinstance(n, ONNXNode))


def maps(sdfg: dace.SDFG) -> int:
    return sum(isinstance(n, dace.nodes.MapEntry) for n, _ in sdfg.all_nodes_recursive())


def test_a_recipe_in_hooks(x: torch.Tensor):
    from dace.transformation.dataflow import MapFusionVertical

    mish, seen = Mish(), []

    def expand(module):
        seen.append(("expand", onnx_nodes(module.sdfg)))
        expand_onnx_nodes(module)

    def fuse(module):
        seen.append(("fuse", onnx_nodes(module.sdfg), maps(module.sdfg)))
        module.sdfg.apply_transformations_repeated(MapFusionVertical)

    def sequential(forward, backward):
        seen.append(("sequential", maps(forward), backward.number_of_nodes()))
        for node, _ in forward.all_nodes_recursive():
            if isinstance(node, dace.nodes.MapEntry):
                node.schedule = dace.ScheduleType.Sequential

    mish.append_post_onnx_hook("fuse", fuse)
    mish.prepend_post_onnx_hook("expand", expand)
    mish.append_post_autodiff_hook("sequential", sequential)
    expected = functional.mish(x)
    torch.testing.assert_close(mish(x), expected, rtol=1e-5, atol=1e-6)
    assert seen == [("expand", ["Mul", "Softplus", "Tanh"]), ("fuse", [], 3), ("sequential", 1, 0)]
    assert maps(mish.sdfg) == 1
    mish(x)
    assert len(seen) == 3  # compiled once
    mish.reset_sdfg()
    torch.testing.assert_close(mish(x), expected, rtol=1e-5, atol=1e-6)
    assert len(seen) == 6


def test_without_optimisation_every_operator_is_a_loop(x: torch.Tensor):
    plain, optimised = Mish(), compile_module(copy.deepcopy(Mish().session.eager), backward=False)
    torch.testing.assert_close(plain(x), optimised(x), rtol=1e-5, atol=1e-6)
    assert (maps(plain.sdfg), maps(optimised.sdfg)) == (3, 1)


def test_hooks_change_what_is_computed(x: torch.Tensor):
    module = compile_module(nn.Sequential(nn.ReLU()), backward=False)
    torch.testing.assert_close(module(x), torch.relu(x))

    def negate(compiled):
        (node,) = [n for n in compiled.sdfg.node(0).nodes() if isinstance(n, ONNXNode)]
        assert node.op_type == "Relu"
        expand_onnx_nodes(compiled)
        for tasklet, _ in compiled.sdfg.all_nodes_recursive():
            if isinstance(tasklet, dace.nodes.Tasklet):
                tasklet.code = dace.properties.CodeBlock(tasklet.code.as_string.replace("= ", "= -"))

    module.append_post_onnx_hook("negate", negate)
    torch.testing.assert_close(module(x), -torch.relu(x))
    copied = copy.deepcopy(module)
    torch.testing.assert_close(copied(x), -torch.relu(x))


def test_wrong_hooks_are_refused(x: torch.Tensor):
    module = compile_module(nn.Sequential(nn.ReLU()), backward=False)
    with raises(ConfigurationError, "post_onnx", "function", "str", "append_post_onnx_hook"):
        module.append_post_onnx_hook(lambda m: None, "fuse")
    module.append_post_onnx_hook("break", lambda m: m.sdfg.arrays.pop(m.network.inputs[0]))
    with raises(ConfigurationError, "post_onnx", "'break'"):
        module.prepend_post_onnx_hook("break", lambda m: None)
    with raises(ConfigurationError, "post_onnx", "input"):
        module(x)


def test_a_hook_that_raises_is_named(x: torch.Tensor):
    def stray(module):
        raise KeyError("no such map")

    relu = compile_module(nn.ReLU(), backward=False)
    relu.append_post_onnx_hook("fuse maps", stray)
    with pytest.raises(KeyError, match="no such map") as error:
        relu(x)
    (note,) = error.value.__notes__
    assert "post_onnx" in note and "'fuse maps'" in note and note == golden()
    tanh = compile_module(nn.Tanh(), backward=False)
    tanh.append_post_autodiff_hook("prune", lambda forward, backward: backward.nothing)
    with pytest.raises(AttributeError) as wrong:
        tanh(x)
    (note,) = wrong.value.__notes__
    assert "post_autodiff" in note and "'prune'" in note and note == golden()


def test_hooks_see_the_backward_pass_and_may_change_it():
    linear = torch.nn.Linear(3, 3)
    compiled = compile_module(linear)
    seen = []
    compiled.append_post_autodiff_hook("see", lambda forward, backward: seen.append(backward))
    compiled.append_post_autodiff_hook("drop", lambda forward, backward: seen.append(forward))
    x = torch.ones(2, 3)
    with torch.no_grad():
        compiled(x)
    assert not list(seen[0].states())
    seen.clear()
    compiled(x).sum().backward()
    assert list(seen[0].states()) and seen[0] is not seen[1]
    torch.testing.assert_close(linear.weight.grad, torch.full((3, 3), 2.0))

    def breaks(forward, backward):
        next(iter(backward.states())).add_access("nothing")

    compiled.append_post_autodiff_hook("break", breaks)
    with raises(ConfigurationError, "post_autodiff", "nothing", exact=False) as refusal:  # with dace's reason
        compiled(x)
    assert [refusal.value.what, refusal.value.fix] == [golden(), golden()]


class OneMish(Rewrite):
    """x tanh(softplus(x)) -> Mish(x)"""

    def pattern(self, op, x):
        return op.Mul(x, op.Tanh(op.Softplus(x)))

    def rewrite(self, op, x):
        return op.Mish(x)


class PlainMish(nn.Module):
    def forward(self, x):
        return x * torch.tanh(functional.softplus(x))


@pytest.mark.parametrize("hook", [OneMish(), Recipe(OneMish())])
def test_a_rewrite_or_a_recipe_is_a_hook(hook, x: torch.Tensor):
    module = compile_module(PlainMish())
    module.append_post_onnx_hook("one operator", hook)
    x = x.double().requires_grad_()
    y = module(x)
    torch.testing.assert_close(y, PlainMish()(x), rtol=1e-12, atol=1e-12)
    (found,) = torch.autograd.grad(y.sum(), x)
    (wanted,) = torch.autograd.grad(PlainMish()(x).sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert "OneMish" in str(explain(module, x))


def test_a_recipe_behind_differentiation_sees_both_passes(x: torch.Tensor):
    seen: list[int] = []
    module = compile_module(PlainMish())
    module.append_post_autodiff_hook("count", Recipe(lambda network: seen.append(len(network.outputs))))
    module(x.double().requires_grad_()).sum().backward()
    assert len(seen) == 2
