"""Ways to run a network: eager PyTorch, its compiler, two runtimes, and daceml, each as a step to time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from benchmarks.interleave import Step
from benchmarks.models.spec import ModelSpec

if TYPE_CHECKING:
    from daceml.transformations.recipe import Recipe

Mode = Literal["inference", "training"]
Casting = Callable[[], AbstractContextManager[Any]]

# Runtimes run inference only, of weights that do not change; frozen, Inductor and daceml rely on that, too
WAYS: dict[str, tuple[Mode, ...]] = {
    "eager": ("inference", "training"),
    "eager_channels_last": ("inference", "training"),
    "inductor": ("inference", "training"),
    "inductor_frozen": ("inference",),
    "onnxruntime": ("inference",),
    "openvino": ("inference",),
    "daceml": ("inference", "training"),
    "daceml_frozen": ("inference",),
}


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A network, and a way to run it.

    Attributes:
        module: whose parameters and buffers are looked at.
        inputs: of a call; they require gradients in training.
        run: the module, or what it was compiled to.
        step: a call, or a training step that leaves no gradients.
    """

    module: nn.Module
    inputs: tuple[Any, ...]
    run: Callable[..., Any]
    step: Step


def ways_of(spec: ModelSpec, mode: Mode) -> list[str]:
    """Names of `WAYS` that a network has in this mode: channels last wants images."""
    images = any(x.dim() == 4 for x in tensors_of(spec.example()))
    return [way for way, modes in WAYS.items() if mode in modes and (images or way != "eager_channels_last")]


def build_step(
    find: Callable[[], ModelSpec],
    mode: Mode,
    way: str,
    *,
    train_mode: bool = False,
    recipe: Recipe | None = None,
) -> Step:
    """A step of a network, compiled when it runs first; see `prepare`."""
    return prepare(find, mode, way, train_mode=train_mode, recipe=recipe).step


def prepare(
    find: Callable[[], ModelSpec],
    mode: Mode,
    way: str,
    *,
    train_mode: bool = False,
    recipe: Recipe | None = None,
    cuts: bool = False,
) -> Prepared:
    """A network with a way to run it.

    Args:
        find: gives the network; a module's function, since other processes call it.
        mode: `inference` runs forward without gradients, `training` forward and backward with a dense
            cotangent; gradients start anew at each step and no optimizer runs.
        way: of `WAYS`.
        train_mode: run inference in train mode, for blocks that are something else in eval mode.
        recipe: daceml's passes in the place of the standard ones.
        cuts: whether daceml may run parts of the network eagerly, as it does for its users.
    """
    torch.manual_seed(0)
    spec = find()
    module, inputs = spec.module(), spec.example()
    module.train(mode == "training" or train_mode)
    if way in RUNTIMES:
        with spec.casting():
            step = RUNTIMES[way](module, inputs)
        return Prepared(module=module, inputs=inputs, run=module, step=step)
    if way == "eager_channels_last":
        module = module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        inputs = pytree.tree_map_only(torch.Tensor, _channels_last, inputs)
    run = compiled_by(way, module, training=mode == "training", recipe=recipe, cuts=cuts)
    if mode == "training":
        inputs = pytree.tree_map_only(torch.Tensor, _requiring, inputs)
        step = training_step(run, module, inputs, spec.casting)
    else:
        step = partial(_without_gradients, run, inputs, spec.casting)
    return Prepared(module=module, inputs=inputs, run=run, step=step)


def compiled_by(
    way: str, module: nn.Module, *, training: bool, recipe: Recipe | None = None, cuts: bool = False
) -> Callable[..., Any]:
    """The module as a way of `WAYS` runs it; eager ways run it as it is."""
    if way == "inductor":
        return torch.compile(module)
    if way == "inductor_frozen":
        return torch.compile(module, options={"freezing": True})
    if way in ("daceml", "daceml_frozen"):
        import daceml

        frozen = way == "daceml_frozen"
        fullgraph = False if cuts else None
        return daceml.compile(module, backward=training, recipe=recipe, freeze=frozen, fullgraph=fullgraph)
    return module


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Every tensor in inputs or results, however they are nested."""
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def training_step(
    run: Callable[..., Any], module: nn.Module, inputs: tuple[Any, ...], casting: Casting = nullcontext
) -> Step:
    """Forward and backward, from cotangents that are drawn in the first step; takes the gradients off."""
    leaves = [*tensors_of(inputs), *module.parameters()]
    if not any(tensor.requires_grad for tensor in leaves):
        raise ValueError(
            f"{type(module).__name__} has nothing to train: no parameter and no input requires a gradient; "
            "give it inputs that do"
        )
    cotangents: list[torch.Tensor] = []

    def step() -> None:
        with casting():
            results = [y for y in tensors_of(run(*inputs)) if y.requires_grad]
        if not cotangents:
            cotangents.extend(_cotangents(results))
        with torch.autocast("cpu", enabled=False):
            torch.autograd.backward(results, cotangents)
        for tensor in leaves:
            tensor.grad = None

    return step


def _cotangents(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Normal numbers, drawn where the results lie; the same in each call."""
    device = results[0].device
    generator = torch.Generator(device).manual_seed(1)
    return [torch.randn(y.shape, generator=generator, device=device).to(y) for y in results]


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _without_gradients(run: Callable[..., Any], inputs: tuple[Any, ...], casting: Casting) -> Any:
    with torch.no_grad(), casting():
        return run(*inputs)


def _requiring(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def _onnxruntime_step(module: nn.Module, inputs: tuple[Any, ...]) -> Step:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with _exported(module, inputs) as path:
        session = onnxruntime.InferenceSession(
            str(path), sess_options=options, providers=["CPUExecutionProvider"]
        )
    flat = tensors_of(inputs)
    feeds = {entry.name: t.numpy() for entry, t in zip(session.get_inputs(), flat, strict=True)}
    return partial(session.run, None, feeds)


def _openvino_step(module: nn.Module, inputs: tuple[Any, ...]) -> Step:
    from openvino import Core  # pyright: ignore[reportMissingImports]

    options = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    with _exported(module, inputs) as path:
        request = Core().compile_model(str(path), "CPU", options).create_infer_request()
    return partial(request.infer, [tensor.numpy() for tensor in tensors_of(inputs)])


@contextmanager
def _exported(module: nn.Module, inputs: tuple[Any, ...]) -> Generator[Path]:
    """The ONNX file that torch's own exporter writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, inputs, str(path), dynamo=True, verbose=False)
        yield path


RUNTIMES: dict[str, Callable[[nn.Module, tuple[Any, ...]], Step]] = {
    "onnxruntime": _onnxruntime_step,
    "openvino": _openvino_step,
}
