"""A whole training step as one program: forward, loss, backward, and the optimizer's update.

Nothing between the parts is kept for torch: no gradient is a tensor of its own, and no graph of autograd is
built. `parameter.grad` is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from daceml.autodiff.optimizer_rules import RULES
from daceml.config import config
from daceml.errors import CallError, ConfigurationError, GradientError
from daceml.frontend.arguments import Arguments
from daceml.frontend.capture import capture
from daceml.frontend.gradient_record import Wanted
from daceml.frontend.gradient_stops import mark_gradient_stops
from daceml.frontend.guards import input_key
from daceml.frontend.module_watch import ModuleWatch
from daceml.frontend.optimizers import numbers_of, prepare_state, rule_of
from daceml.frontend.pipeline import Stages, build, onnx_network, optimise, warming, without_collection
from daceml.frontend.program_key import program_key
from daceml.frontend.tracing import tracing
from daceml.runtime.cache import Cache, digest
from daceml.runtime.program import Program, StoredProgram

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from daceml.sdfg.network import Network

_STATE = "optimizer::"
"""How the keys of the optimizer's tensors begin, beside those of the module's state_dict."""


class _Loss(nn.Module):
    """The loss as a module over the model."""

    def __init__(self, model: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, inputs: tuple[Any, ...], targets: tuple[Any, ...]) -> torch.Tensor:
        return self.loss(self.model(*inputs), *targets)


class CompiledStep:
    """`step(inputs, targets)`: one step of training, compiled; returns the loss, detached.

    Args:
        model: in training mode where it has dropout or batch norms.
        loss: takes the model's output and the targets; gives a scalar.
        optimizer: SGD, Adam or AdamW; its learning rates and other numbers are read at every step, and its
            state is kept where it keeps it.
    Raises:
        ConfigurationError: an optimizer that has no rule, or one for parameters of another model.
    """

    def __init__(
        self, model: nn.Module, loss: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer
    ) -> None:
        self.module = _Loss(model, loss)
        self.optimizer = optimizer
        known = {id(p) for p in model.parameters()}
        for group in optimizer.param_groups:
            rule_of(optimizer, group)
            if any(id(p) not in known for p in group["params"]):
                raise ConfigurationError(
                    "the optimizer has parameters that the model does not have",
                    why="a compiled step updates what it computes gradients of",
                    fix="make the optimizer with model.parameters()",
                )
        self._programs: dict[Any, tuple[Program, ModuleWatch, list[torch.Tensor]]] = {}
        self._beginning: set[int] = set()

    def __call__(self, inputs: Any, targets: Any = ()) -> torch.Tensor:
        """One step.

        Args:
            inputs: the model's tensor, or a tuple of its arguments.
            targets: what the loss takes besides the output, a tensor or a tuple.
        """
        both = tuple(x if isinstance(x, tuple) else (x,) for x in (inputs, targets))
        arguments = Arguments(both, {})
        program = self._program(arguments)
        with torch.no_grad():
            tensors = [x.detach().contiguous() for x in arguments.tensors]
            (loss, *_) = program([*tensors, self._numbers()])
        return loss

    def _numbers(self) -> torch.Tensor:
        """This step's numbers, and the count of steps in the optimizer's state."""
        rows: list[list[float]] = []
        for group in self.optimizer.param_groups:
            states = [self.optimizer.state[p] for p in group["params"] if p.requires_grad]
            steps = [s["step"] for s in states if "step" in s]
            for taken in steps:
                taken += 1  # the tensor in the state of the optimizer itself
            step = int(steps[0].item()) if steps else 1
            rows.append(numbers_of(group, rule_of(self.optimizer, group), step, self._begins(group)))
        width = max(map(len, rows))
        return torch.tensor([row + [0.0] * (width - len(row)) for row in rows], dtype=torch.float64)

    def _begins(self, group: dict[str, Any]) -> bool:
        """Whether the momentum of a group begins with this step's gradient, which is not damped then."""
        ids = {id(p) for p in group["params"] if p.requires_grad}
        fresh = ids & self._beginning
        self._beginning -= ids
        if fresh and fresh != ids and group["dampening"]:
            raise CallError(
                "some parameters of a group begin with their momentum, and others have one",
                why="the first gradient is not damped, and a group has one number for all of it",
                fix="put them into groups of their own, or use dampening=0",
            )
        return bool(fresh)

    def _program(self, arguments: Arguments) -> Program:
        rules = tuple(
            (rule_of(self.optimizer, g), bool(g.get("maximize")), tuple(p.requires_grad for p in g["params"]))
            for g in self.optimizer.param_groups
        )
        key = (input_key(arguments.leaves), rules)
        known = self._programs.get(key)
        state = self._state()
        tensors = list(state.values())
        if known is not None:
            program, watch, bound = known
            same = len(bound) == len(tensors) and all(a is b for a, b in zip(bound, tensors, strict=True))
            if watch.unchanged() and same:
                return program
        program, watch = self._compile(arguments, state)
        self._programs[key] = program, watch, tensors
        return program

    def _state(self) -> dict[str, torch.Tensor]:
        """The optimizer's tensors by key."""
        names = {id(p): key for key, p in self.module.named_parameters()}
        found: dict[str, torch.Tensor] = {}
        for group in self.optimizer.param_groups:
            rule = rule_of(self.optimizer, group)
            for parameter in group["params"]:
                if parameter.requires_grad:
                    if "momentum" in rule and self.optimizer.state[parameter].get("momentum_buffer") is None:
                        self._beginning.add(id(parameter))
                    for name, tensor in prepare_state(self.optimizer, parameter, rule).items():
                        found[f"{_STATE}{names[id(parameter)]}.{name}"] = tensor
        return found

    def _compile(self, arguments: Arguments, state: dict[str, torch.Tensor]) -> tuple[Program, ModuleWatch]:
        cache = Cache(config().cache_folder)
        with tracing(), torch.autocast("cpu", enabled=False):
            with torch.enable_grad():
                captured = capture(self.module, arguments, gradients=True)
            exported = captured.program
            if captured.assigned:
                raise CallError(
                    "the model assigns attributes in its forward pass",
                    why=f"for example {captured.assigned[0].name!r}; a whole step keeps nothing in between",
                    fix="compile the module alone (daceml.compile)",
                )
            mark_gradient_stops(exported)
            parameters = dict(self.module.named_parameters())
            wanted = Wanted(
                inputs=(False,) * len(arguments.tensors),
                state=tuple(k for k, p in parameters.items() if p.requires_grad and id(p) in self._places()),
            )
            with torch.no_grad():
                key = digest(program_key(exported, wanted=wanted), "step", *map(repr, self._plan(parameters)))

                def make(folder: Path) -> None:
                    with warming(cache), without_collection():
                        stages = Stages()
                        network = self._network(exported, wanted, stages)
                        build(optimise(network, stages, padding=False), cache, folder, stages)

                folder = cache.get("programs", key, make)
                tensors = parameters | dict(self.module.named_buffers()) | captured.held | state
                return StoredProgram(folder).bind(tensors), ModuleWatch(self.module)

    def _places(self) -> dict[int, int]:
        """Parameter -> the group that it is in."""
        groups = self.optimizer.param_groups
        return {id(p): row for row, group in enumerate(groups) for p in group["params"]}

    def _plan(self, parameters: dict[str, nn.Parameter]) -> Sequence[tuple[str, int, str, bool]]:
        """Key, group, rule and direction of every parameter that the optimizer has."""
        places, groups = self._places(), self.optimizer.param_groups
        return [
            (key, row, rule_of(self.optimizer, groups[row]), bool(groups[row].get("maximize")))
            for key, p in parameters.items()
            if (row := places.get(id(p))) is not None and p.requires_grad
        ]

    def _network(self, exported: ExportedProgram, wanted: Wanted, stages: Stages) -> Network:
        from daceml.autodiff.engine import add_gradients
        from daceml.autodiff.optimizer_updates import Updated, add_updates
        from daceml.autodiff.replacements import replace_for_training
        from daceml.sdfg.builder import Builder, Computation, parameters
        from daceml.sdfg.scalar import compute_type, literal
        from daceml.transformations.coarse.convolution_padding import place_padding

        network = onnx_network(exported, stages)
        place_padding(network)
        replace_for_training(network)
        loss = network.outputs[0]
        if loss not in network.scalars:
            raise CallError(
                "the loss of a compiled step must be a scalar",
                why=f"it has shape {list(network.sdfg.arrays[loss].shape)}",
                fix="give it a reduction: loss.mean() or loss.sum()",
            )
        arrays = {key: array for array, key in network.weights.items()}
        reached = [arrays[key] for key in wanted.state if key in arrays]
        gradients = add_gradients(network, [loss], reached)
        seed = gradients.cotangents[loss]
        network.sdfg.arrays[seed].transient = True
        (place,) = parameters(1)
        one = literal(1.0, compute_type(network.sdfg.arrays[seed].dtype))
        Builder(network.sdfg, network.state).emit(
            Computation(label="seed", target=seed, index=(place,), params=(place,), extents=(1,), value=one)
        )
        updated: list[Updated] = []
        for key, row, rule, maximize in self._plan(dict(self.module.named_parameters())):
            gradient = gradients.arrays.get(arrays.get(key, ""))
            if gradient is None:
                continue
            state = {name: f"{_STATE}{key}.{name}" for name in RULES[rule].state}
            updated.append(
                Updated(
                    array=arrays[key], gradient=gradient, rule=rule, row=row, state=state, maximize=maximize
                )
            )
        if not updated:
            raise GradientError(
                "a compiled step has nothing to update",
                why="the loss depends on no parameter that the optimizer has and that requires a gradient",
                fix="check requires_grad and the optimizer's parameters",
            )
        add_updates(network, updated, len(self.optimizer.param_groups))
        return network


def compile_step(
    model: nn.Module, loss: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer
) -> CompiledStep:
    """Forward, loss, backward and optimizer update of one training step as one compiled program.

    With `step = daceml.compile_step(model, loss, optimizer)`, `step(inputs, targets)` does for a batch what
    `optimizer.zero_grad(); l = loss(model(inputs), targets); l.backward(); optimizer.step()` does, and
    returns the loss.

    Args:
        model, loss, optimizer: see `CompiledStep`.
    """
    return CompiledStep(model, loss, optimizer)
