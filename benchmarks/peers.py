"""Ways to run a network: eager PyTorch, its compiler, ONNX Runtime, and daceml, each as a step to time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from benchmarks.interleave import Step
from benchmarks.models.spec import ModelSpec

Mode = Literal["inference", "training"]

# ONNX Runtime runs inference only
WAYS: dict[str, tuple[Mode, ...]] = {
    "eager": ("inference", "training"),
    "eager_channels_last": ("inference", "training"),
    "inductor": ("inference", "training"),
    "onnxruntime": ("inference",),
    "daceml": ("inference", "training"),
}


def build_step(find: Callable[[], ModelSpec], mode: Mode, way: str, *, train_mode: bool = False) -> Step:
    """A step of a network, with nothing left to compile.

    Args:
        find: gives the network; a module's function, since other processes call it.
        mode: `inference` runs forward without gradients, `training` forward and backward with a dense
            cotangent; gradients start anew at each step and no optimizer runs.
        way: of `WAYS`.
        train_mode: run inference in train mode, for blocks that are something else in eval mode.
    """
    torch.manual_seed(0)
    spec = find()
    module, inputs = spec.module(), spec.example()
    module.train(mode == "training" or train_mode)
    if way == "onnxruntime":
        return _onnxruntime_step(module, inputs)
    if way == "eager_channels_last":
        module = module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        inputs = pytree.tree_map_only(torch.Tensor, _channels_last, inputs)
    run = _compiled(module, way, training=mode == "training")
    return (
        _training_step(run, module, inputs)
        if mode == "training"
        else partial(_without_gradients, run, inputs)
    )


def _compiled(module: nn.Module, way: str, *, training: bool) -> Callable[..., Any]:
    if way == "inductor":
        return torch.compile(module)
    if way == "daceml":
        import daceml

        return daceml.compile(module, backward=training)
    return module


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _without_gradients(run: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    with torch.no_grad():
        return run(*inputs)


def _training_step(run: Callable[..., Any], module: nn.Module, inputs: tuple[Any, ...]) -> Step:
    inputs = pytree.tree_map_only(torch.Tensor, _requiring, inputs)
    leaves = [t for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)]
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(y.shape, generator=generator).to(y.dtype) for y in _results(run(*inputs))]

    def step() -> None:
        torch.autograd.backward(_results(run(*inputs)), cotangents)
        for tensor in (*leaves, *module.parameters()):
            tensor.grad = None

    return step


def _results(found: Any) -> list[torch.Tensor]:
    """Results that gradients can come back to."""
    tensors = [t for t in pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]
    return [t for t in tensors if t.requires_grad]


def _requiring(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def _onnxruntime_step(module: nn.Module, inputs: tuple[Any, ...]) -> Step:
    """ONNX Runtime on what torch's own exporter writes."""
    import onnxruntime

    flat = [t for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, inputs, str(path), dynamo=True, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
    feeds = {entry.name: t.numpy() for entry, t in zip(session.get_inputs(), flat, strict=True)}
    return partial(session.run, None, feeds)
