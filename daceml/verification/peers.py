"""Three ways to run the same network: compiled, eager PyTorch, and eager PyTorch in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from daceml.errors import CallError, ConfigurationError
from daceml.frontend.capture.module_attributes import held_values
from daceml.module.compiled_variant import EagerVariant
from daceml.module.module import DaceModule, compile_module, eager_module
from daceml.module.onnx_model import ONNXModel
from daceml.module.partial.cut import Cut
from daceml.verification.accuracy import Accuracy, compare
from daceml.verification.default_type import default_type

if TYPE_CHECKING:
    from daceml.verification.divergence import Diagnosis

# What one run leaves behind: every tensor that was returned, and every buffer afterwards.
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Call:
        """The same call with other tensors."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, change, (self.args, dict(self.kwargs)))
        return Call(args=args, kwargs=kwargs)

    def copied(self) -> Call:
        """The same call with tensors of its own."""
        return self.mapped(lambda tensor: tensor.detach().clone())

    def drawn(self, seed: int) -> Call:
        """Other values for another seed: floats of the same mean and deviation, others shuffled."""
        if seed == 0:
            return self
        generator = torch.Generator().manual_seed(seed)

        def draw(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_floating_point() and tensor.numel() > 1:
                noise = torch.randn(tensor.shape, generator=generator).double()
                return (noise * tensor.double().std() + tensor.double().mean()).to(tensor.dtype)
            flat = tensor.reshape(-1)
            return flat[torch.randperm(flat.numel(), generator=generator)].reshape(tensor.shape)

        return self.mapped(draw)


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Each peer takes a call and returns named tensors, buffers included.

    Attributes:
        name: of the network.
        state: buffers before a call, named as the results name them.
        depth: steps of the compiled program; of several, eager PyTorch's operators.
        cut: why the module is not one program; "" where it is one.
        diagnose: looks at the intermediate values of one call; takes whether a result is outside its limit.
    """

    name: str
    compiled: Callable[[Call], Tensors]
    eager: Callable[[Call], Tensors]
    reference: Callable[[Call], Tensors]
    state: Tensors
    depth: int
    diagnose: Callable[[Call, bool], Diagnosis]
    cut: str = ""

    def run(self, call: Call, seed: int) -> Accuracy:
        """Compare all three for one set of inputs: outputs, and buffers and inputs that a call changes."""
        ours, eager = (peer(call.copied()) for peer in (self.compiled, self.eager))
        reference = self.reference(call.copied().mapped(_as_float64))
        before = self.state | _arguments(call)
        names = [
            n
            for n in eager
            if n not in before or not (torch.equal(ours[n], before[n]) and torch.equal(eager[n], before[n]))
        ]
        # a result that is missing is an empty one, which no limit lets pass
        ours, eager, reference = (
            {f"seed{seed}.{n}": run.get(n, torch.empty(0)) for n in names} for run in (ours, eager, reference)
        )
        return compare(ours, eager, reference, depth=self.depth)


def onnx_model_peers(model: ONNXModel) -> Peers:
    """An ONNX model beside ONNX Runtime, and beside ONNX's reference evaluator in float64."""
    from daceml.verification.onnx_reference import onnx_peers

    eager, reference = onnx_peers(model.model)

    def diagnose(call: Call, outputs_fail: bool) -> Diagnosis:
        from daceml.verification.onnx_values import diagnose_onnx

        return diagnose_onnx(model, _ordered(model, call), outputs_fail=outputs_fail)

    return Peers(
        name=model.name,
        compiled=lambda call: returned(model(*call.args, **call.kwargs)),
        eager=lambda call: returned(eager(_ordered(model, call))),
        reference=lambda call: returned(reference(_ordered(model, call))),
        state={},
        depth=max(len(model.program.manifest.steps), 1),
        diagnose=diagnose,
    )


def _ordered(model: ONNXModel, call: Call) -> list[torch.Tensor]:
    """The inputs in the order of the model, whatever way they were passed."""
    names = [record.name for record in model.program.manifest.inputs]
    return [*call.args, *(call.kwargs[name] for name in names[len(call.args) :])]


def module_peers(module: nn.Module, call: Call, *, gradients: bool = False) -> Peers:
    """A module beside eager PyTorch, and beside eager PyTorch in float64; copies of the module run.

    Args:
        call: compiled for it, so that the depth is known.
        gradients: each peer returns the gradients of inputs and parameters, too.
    Raises:
        ConfigurationError: something that is no module, or one that was compiled without gradients.
    """
    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"verify takes an nn.Module or an ONNXModel, not a {type(module).__name__}",
            fix="pass an instance of a module",
        )
    original = eager_module(module)
    options: dict[str, Any] = dict(module.session.options) if isinstance(module, DaceModule) else {}
    if gradients and not options.get("backward", True):
        raise ConfigurationError(
            f"{type(original).__name__} was compiled without gradients",
            why="backward=False was given, and gradients were to be compared",
            fix="compile it with backward=True, or verify its results alone",
        )
    compiled = compile_module(copy.deepcopy(original), **{**options, "backward": gradients})
    assert isinstance(compiled, DaceModule)
    run = _run_with_gradients if gradients else _run
    hooks = module.session.hooks.copy() if isinstance(module, DaceModule) else None
    if hooks:
        compiled.session.hooks = hooks
    state = copy.deepcopy(_buffers(compiled))

    def restored() -> DaceModule:
        for key, buffer in _buffers(compiled).items():
            buffer.copy_(state[key])
        return compiled

    def reference(wide: Call) -> Tensors:
        return _in_float64(original, wide, run)

    def diagnose(call: Call, outputs_fail: bool) -> Diagnosis:
        from daceml.verification.graph_values import diagnose_module

        if hooks:
            raise ConfigurationError(
                "intermediate values are not compared",
                why="hooks change the network, so that eager PyTorch has other ones",
                fix="verify without hooks to see whether they make the difference",
            )
        module = restored()
        variant, tensors = module.session.variant(call.args, dict(call.kwargs))
        known = dict(module.named_parameters(remove_duplicate=False))
        known |= dict(module.named_buffers(remove_duplicate=False))
        expected = reference(call.copied().mapped(_as_float64))
        outputs = {name: x for name, x in expected.items() if name.startswith("output")}
        return diagnose_module(variant, tensors, known, outputs, outputs_fail=outputs_fail)

    needed = _requiring(call) if gradients else call
    cut = _cut(compiled, needed, gradients=gradients)
    if cut is None:
        depth = _depth(compiled, needed, gradients=gradients)
    else:
        with _Operators() as operators:
            run(copy.deepcopy(original), call.copied())
        depth = operators.count
    return Peers(
        name=type(original).__name__,
        compiled=lambda call: run(restored(), call),
        eager=lambda call: run(copy.deepcopy(original), call),
        reference=reference,
        state=state,
        depth=depth,
        diagnose=diagnose,
        cut="" if cut is None else str(cut),
    )


def _cut(compiled: DaceModule, call: Call, *, gradients: bool) -> Cut | None:
    """Where the module is several programs; None where it is one, or none at all."""
    with torch.set_grad_enabled(gradients):
        found = compiled.session.any_variant(call.args, dict(call.kwargs))
    if isinstance(found, EagerVariant) and found.partial is not None and found.fills is None:
        return found.cut
    return None


class _Operators(TorchDispatchMode):
    """Counts operators of eager PyTorch."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def _depth(compiled: DaceModule, call: Call, *, gradients: bool) -> int:
    """Steps of the compiled program, and of the one behind it."""
    with torch.set_grad_enabled(gradients):
        variant, _ = compiled.session.variant(call.args, dict(call.kwargs))
    behind = variant.backward.program.manifest.steps if gradients and variant.backward is not None else ()
    return max(len(variant.program.manifest.steps) + len(behind), 1)


def _in_float64(module: nn.Module, call: Call, run: Callable[[nn.Module, Call], Tensors]) -> Tensors:
    try:
        with default_type(torch.float64):
            return run(_widened(copy.deepcopy(module)), call)
    except (RuntimeError, TypeError) as error:
        raise CallError(
            f"{type(module).__name__} cannot run in float64, which it would be compared with",
            why=str(error).splitlines()[0],
            fix="create tensors inside forward in the type of an input, for example torch.zeros_like(x)",
        ) from error


def _widened(module: nn.Module) -> nn.Module:
    """The module in float64, with the tensors that it holds besides parameters and buffers. Mutates it."""
    module.double()
    for _, value in held_values(module):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value.data = value.data.double()
    return module


def _run(module: nn.Module, call: Call) -> Tensors:
    """What the module returns, and its buffers and inputs afterwards."""
    torch.manual_seed(0)
    return returned(module(*call.args, **call.kwargs)) | _buffers(module) | _arguments(call)


def _run_with_gradients(module: nn.Module, call: Call) -> Tensors:
    """Besides, gradients of inputs and parameters, of results weighed by numbers that every type has."""
    torch.manual_seed(0)
    call = _requiring(call)
    with torch.enable_grad():
        found = returned(module(*call.args, **call.kwargs))
        moving = {name: y for name, y in found.items() if y.requires_grad}
        generator = torch.Generator().manual_seed(0)
        weights = [
            (torch.randint(-4, 5, y.shape, generator=generator) / 4).to(y.dtype) for y in moving.values()
        ]
        leaves = {name: x for name, x in _arguments(call).items() if x.requires_grad}
        leaves |= {f"parameter {name}": p for name, p in module.named_parameters() if p.requires_grad}
        grads: list[torch.Tensor | None] = []
        if moving and leaves:
            results, wanted = list(moving.values()), list(leaves.values())
            grads += torch.autograd.grad(results, wanted, weights, allow_unused=True)
    named = zip(leaves, grads, strict=False)
    gradients = {f"gradient of {name}": g for name, g in named if g is not None}
    found |= _buffers(module) | _arguments(call) | gradients
    return {name: tensor.detach() for name, tensor in found.items()}


def _requiring(call: Call) -> Call:
    """The same call, whose floating-point tensors require gradients."""
    return call.mapped(lambda x: x.detach().requires_grad_(x.is_floating_point()))


def _arguments(call: Call) -> Tensors:
    leaves, _ = pytree.tree_flatten_with_path((call.args, dict(call.kwargs)))
    return {f"input{pytree.keystr(path[1:])}": x for path, x in leaves if isinstance(x, torch.Tensor)}


def _buffers(module: nn.Module) -> Tensors:
    return {f"buffer {key}": buffer for key, buffer in module.named_buffers()}


def returned(outputs: Any) -> Tensors:
    """Every tensor in what was returned, named by where it stood."""
    leaves, _ = pytree.tree_flatten_with_path(outputs)
    return {f"output{pytree.keystr(path)}": leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
