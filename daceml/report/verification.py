"""`verify`: a compiled module and eager PyTorch, both beside eager PyTorch in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.errors import CallError, ConfigurationError
from daceml.frontend.module import DaceModule, compile_module
from daceml.frontend.onnx_model import ONNXModel
from daceml.report.accuracy import Accuracy, TensorError, compare
from daceml.report.text import cell, render, table

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

# What one run leaves behind: every tensor that was returned, and every buffer afterwards.
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How far a compiled module is from float64, and how far eager PyTorch is.

    Attributes:
        name: of the module.
        depth: steps of the compiled program; the error allowed grows with its square root.
        seeds: sets of inputs that were run.
        tensors: every output, and every buffer that a call changes, of every seed.
    """

    name: str
    depth: int
    seeds: int
    tensors: tuple[TensorError, ...]

    @property
    def passed(self) -> bool:
        """Whether every tensor is within its limit."""
        return all(tensor.passed for tensor in self.tensors)

    @property
    def failures(self) -> tuple[TensorError, ...]:
        """Tensors outside their limits."""
        return tuple(tensor for tensor in self.tensors if not tensor.passed)

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps; an error that is infinite is written as None."""
        return {
            "name": self.name,
            "passed": self.passed,
            "depth": self.depth,
            "seeds": self.seeds,
            "tensors": [_row(tensor) for tensor in self.tensors],
        }

    def __str__(self) -> str:
        rows = table("tensor", "error", "eager's", "limit", "ratio", "result")
        for tensor in self.tensors:
            figures = (f"{x:.2e}" for x in (tensor.error, tensor.eager_error, tensor.limit))
            verdict = "pass" if tensor.passed else tensor.reason or "FAIL"
            rows.add_row(cell(tensor.name), *figures, f"{tensor.over_eager:.2f}", cell(verdict))
        passed = sum(tensor.passed for tensor in self.tensors)
        runs = "1 set of inputs" if self.seeds == 1 else f"{self.seeds} sets of inputs"
        closing = f"{passed} of {len(self.tensors)} tensors within max(3 x eager's, 8 eps sqrt({self.depth}))"
        return f"{self.name}: distance from float64, {runs}\n{render(rows)}\n{closing}\n"


def verify(module: nn.Module | ONNXModel, *inputs: Any, seeds: int = 1) -> Verification:
    """Compare a module's compiled form with eager PyTorch, both against eager PyTorch in float64.

    Neither the module nor its buffers change: copies run. An error is ||y - y64|| / ||y64||.

    Args:
        module: an nn.Module, compiled by daceml or not, or an `ONNXModel`, whose peers are ONNX Runtime in
            float32 and ONNX's reference evaluator in float64.
        inputs: positional arguments of a call.
        seeds: sets of inputs: the given one; for each further seed floating-point tensors are drawn from the
            normal distribution of the same mean and deviation, others are shuffled.
    Raises:
        CallError: the module cannot run in float64.
        ConfigurationError: something that is no module.
    """
    if seeds < 1:
        raise ConfigurationError(f"verify cannot run {seeds} seeds", fix="pass seeds=1 or more")
    with torch.no_grad():
        if isinstance(module, ONNXModel):
            from daceml.report.onnx_reference import onnx_peers

            eager, reference = onnx_peers(module.model)
            peers = _Peers(
                name=module.name,
                compiled=lambda args: _returned(module(*args)),
                eager=lambda args: _returned(eager(args)),
                reference=lambda args: _returned(reference(args)),
                state={},
            )
            depth = len(module.program.manifest.steps)
        else:
            peers, compiled = _module_peers(module)
            compiled(*_copied(inputs))  # compiles, so that the depth is known
            depth = len(compiled.session.latest.program.manifest.steps)
        parts = [peers.run(_draw(inputs, seed), seed, max(depth, 1)) for seed in range(seeds)]
    tensors = Accuracy.joined(parts).tensors
    return Verification(name=peers.name, depth=max(depth, 1), seeds=seeds, tensors=tensors)


@dataclass(frozen=True, kw_only=True)
class _Peers:
    """Three ways to run the same network; each takes arguments and returns named tensors, buffers included.

    Attributes:
        name: of the network.
        state: buffers before a call, named as the results name them.
    """

    name: str
    compiled: Callable[[Sequence[Any]], Tensors]
    eager: Callable[[Sequence[Any]], Tensors]
    reference: Callable[[Sequence[Any]], Tensors]
    state: Tensors

    def run(self, inputs: Sequence[Any], seed: int, depth: int) -> Accuracy:
        """Compare all three for one set of inputs: outputs, and the buffers that a call changes."""
        ours, eager = (peer(_copied(inputs)) for peer in (self.compiled, self.eager))
        reference = self.reference(pytree.tree_map_only(torch.Tensor, _as_float64, _copied(inputs)))
        names = [n for n in eager if n not in self.state or self._changed(n, ours) or self._changed(n, eager)]
        # a result that is missing is an empty one, which no limit lets pass
        ours, eager, reference = (
            {f"seed{seed}.{n}": run.get(n, torch.empty(0)) for n in names} for run in (ours, eager, reference)
        )
        return compare(ours, eager, reference, depth=depth)

    def _changed(self, name: str, run: Tensors) -> bool:
        return not torch.equal(run[name], self.state[name])


def _module_peers(module: nn.Module) -> tuple[_Peers, DaceModule]:
    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"verify takes an nn.Module or an ONNXModel, not a {type(module).__name__}",
            fix="pass an instance of a module",
        )
    original = module.session.eager if isinstance(module, DaceModule) else module
    shapes = module.session.options["dynamic_shapes"] if isinstance(module, DaceModule) else None
    name = type(original).__name__
    compiled = compile_module(copy.deepcopy(original), backward=False, dynamic_shapes=shapes)
    assert isinstance(compiled, DaceModule)
    state = copy.deepcopy(_buffers(compiled))

    def run_compiled(args: Sequence[Any]) -> Tensors:
        for key, buffer in _buffers(compiled).items():
            buffer.copy_(state[key])
        return _run(compiled, args)

    def run_reference(args: Sequence[Any]) -> Tensors:
        try:
            with _default_float64():
                return _run(copy.deepcopy(original).double(), args)
        except (RuntimeError, TypeError) as error:
            raise CallError(
                f"{name} cannot run in float64, which it would be compared with",
                why=str(error).splitlines()[0],
                fix="create tensors inside forward in the type of an input, for example torch.zeros_like(x)",
            ) from error

    peers = _Peers(
        name=name,
        compiled=run_compiled,
        eager=lambda args: _run(copy.deepcopy(original), args),
        reference=run_reference,
        state=state,
    )
    return peers, compiled


def _run(module: nn.Module, args: Sequence[Any]) -> Tensors:
    """What the module returns, and its buffers afterwards."""
    torch.manual_seed(0)
    return _returned(module(*args)) | _buffers(module)


def _buffers(module: nn.Module) -> Tensors:
    return {f"buffer {key}": buffer for key, buffer in module.named_buffers()}


def _returned(outputs: Any) -> Tensors:
    """Every tensor in what was returned, named by where it stood."""
    leaves, _ = pytree.tree_flatten_with_path(outputs)
    return {f"output{pytree.keystr(path)}": leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


def _draw(inputs: Sequence[Any], seed: int) -> Sequence[Any]:
    if seed == 0:
        return inputs
    generator = torch.Generator().manual_seed(seed)

    def drawn(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point() and tensor.numel() > 1:
            noise = torch.randn(tensor.shape, generator=generator).double()
            return (noise * tensor.double().std() + tensor.double().mean()).to(tensor.dtype)
        flat = tensor.reshape(-1)
        return flat[torch.randperm(flat.numel(), generator=generator)].reshape(tensor.shape)

    return pytree.tree_map_only(torch.Tensor, drawn, tuple(inputs))


def _copied(inputs: Sequence[Any]) -> Sequence[Any]:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), tuple(inputs))


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


@contextmanager
def _default_float64() -> Generator[None]:
    """Tensors that forward itself creates are float64, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _row(tensor: TensorError) -> dict[str, Any]:
    figures = {"ratio": tensor.over_eager, **asdict(tensor)}
    finite = {k: None if isinstance(v, float) and v in (float("inf"),) else v for k, v in figures.items()}
    return {**finite, "passed": tensor.passed}
