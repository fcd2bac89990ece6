"""Rows of the table of numbers: parameters of one group that have taken equally many steps.

A group has one learning rate, but its parameters need not have begun together: one may have been frozen
before, or have had no gradient. Each such part of a group is a row of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from daceml.autodiff.optimizers.optimizer_rules import RULES
from daceml.errors import ConfigurationError
from daceml.module.whole_step.optimizers import numbers_of, prepare_state, rule_of, state_strides

STATE = "optimizer::"
"""How the keys of the optimizer's tensors begin, beside those of the module's state_dict."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Parameters that share all numbers of a step.

    Attributes:
        group: its place in the optimizer.
        rule, maximize: what is done with them.
        members: keys in the module's state_dict.
    """

    group: int
    rule: str
    maximize: bool
    members: tuple[str, ...]


def rows_of(optimizer: torch.optim.Optimizer, keys: Mapping[int, str]) -> tuple[Row, ...]:
    """The rows that an optimizer's parameters make now; frozen ones are in none.

    Args:
        keys: identity of a parameter -> its key in the module's state_dict.
    Raises:
        ConfigurationError: a parameter that the module does not have.
    """
    rows: list[Row] = []
    for number, group in enumerate(optimizer.param_groups):
        rule = rule_of(optimizer, group)
        parts: dict[Any, list[str]] = {}
        for parameter in group["params"]:
            if id(parameter) not in keys:
                raise ConfigurationError(
                    "the optimizer has parameters that the model does not have",
                    why="a compiled step updates what it computes gradients of",
                    fix="make the optimizer with model.parameters()",
                )
            if parameter.requires_grad:
                parts.setdefault(progress(optimizer, parameter), []).append(keys[id(parameter)])
        rows += [
            Row(group=number, rule=rule, maximize=bool(group.get("maximize")), members=tuple(members))
            for members in parts.values()
        ]
    return tuple(rows)


def table_width(rows: Sequence[Row]) -> int:
    """Columns of the table."""
    return max(len(RULES[row.rule].numbers) for row in rows)


def progress(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> tuple[int, bool]:
    """How many steps a parameter has taken, and whether it has a momentum yet."""
    state = optimizer.state.get(parameter, {})
    return int(state["step"]) if "step" in state else 0, state.get("momentum_buffer") is not None


class UpdatedRows:
    """The rows of a compiled program, without the parameters that turned out to have no gradient.

    Attributes:
        held: key, parameter and name of every tensor of the optimizer.
    Raises:
        ConfigurationError: two parameters share memory.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, rows: Sequence[Row], parameters: Mapping[str, nn.Parameter],
        updated: frozenset[str],
    ) -> None:  # fmt: skip
        self.optimizer, self.rows = optimizer, tuple(rows)
        self.members = [[(k, parameters[k]) for k in row.members if k in updated] for row in rows]
        self._checked: list[tuple[dict[str, Any], torch.Tensor, int]] | None = None
        self._progress: list[tuple[int, bool]] = []
        self.held = [
            (f"{key}.{name}", parameter, name)
            for row, members in zip(self.rows, self.members, strict=True)
            for key, parameter in members
            for name in RULES[row.rule].state
        ]
        _refuse_shared_memory({key for row in rows for key in row.members}, parameters)

    def tensors(self) -> list[torch.Tensor | None]:
        """The optimizer's tensors in the order of `held`; None where there is none yet."""
        state = self.optimizer.state
        return [state[p].get(name) if p in state else None for _, p, name in self.held]

    def even(self) -> bool:
        """Whether the parameters of each row still are at the same step."""
        known = self._checked
        if known is not None and all(s.get("step") is step and step._version == v for s, step, v in known):
            return True
        found = [{progress(self.optimizer, p) for _, p in members} for members in self.members]
        if any(len(states) > 1 for states in found):
            return False
        self._progress = [next(iter(states), (0, False)) for states in found]
        return True

    def prepare(self) -> list[tuple[nn.Parameter, str]]:
        """Make the state that is missing; returns what was made."""
        return [
            (parameter, name)
            for row, members in zip(self.rows, self.members, strict=True)
            for _, parameter in members
            for name in prepare_state(self.optimizer, parameter, row.rule)
        ]

    def forget(self) -> None:
        """The state is another one: look at it again."""
        self._checked = None

    def numbers(self) -> torch.Tensor:
        """The table of this step."""
        groups = self.optimizer.param_groups
        table = [
            numbers_of(groups[row.group], row.rule, taken + 1, not begun)
            for row, (taken, begun) in zip(self.rows, self._progress, strict=True)
        ]
        width = table_width(self.rows)
        return torch.tensor([row + [0.0] * (width - len(row)) for row in table], dtype=torch.float64)

    def count(self) -> None:
        """A step has been taken: count it where the optimizer counts."""
        states = [self.optimizer.state[p] for members in self.members for _, p in members]
        steps = [(state, state["step"]) for state in states if "step" in state]
        if steps:
            torch._foreach_add_([step for _, step in steps], 1)  # pyright: ignore
        self._checked = [(state, step, step._version) for state, step in steps]
        self._progress = [(taken + 1, True) for taken, _ in self._progress]


class HeldTensors:
    """What a program may be bound to before the optimizer has made its tensors: what there is, or zeros.

    Args:
        order: parameter -> name -> strides of the optimizer's tensors.
        state: key -> tensor of the module.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        rows: Sequence[Row],
        order: Mapping[str, Mapping[str, tuple[int, ...]]],
        state: Mapping[str, torch.Tensor],
    ) -> None:
        self.optimizer, self.rows, self.order, self.tensors = optimizer, rows, order, state

    def state(self, keys: Sequence[str]) -> dict[str, torch.Tensor]:
        """A program's tensors, by its keys."""
        return {key: self.tensors[key] if key in self.tensors else self._held(key) for key in keys}

    def numbers(self, updated: Sequence[str]) -> torch.Tensor:
        """The table of the next step, for a program that updates some parameters."""
        parameters = {k: p for k, p in self.tensors.items() if isinstance(p, nn.Parameter)}
        rows = UpdatedRows(self.optimizer, self.rows, parameters, frozenset(updated))
        rows.even()
        return rows.numbers()

    def _held(self, key: str) -> torch.Tensor:
        owner, _, name = key.removeprefix(STATE).rpartition(".")
        parameter = self.tensors[owner]
        known = self.optimizer.state.get(parameter, {}).get(name)
        if known is not None:
            return known
        made = parameter.detach().new_empty_strided(parameter.shape, self.order[owner][name])
        return made.zero_()


def _refuse_shared_memory(members: set[str], parameters: Mapping[str, nn.Parameter]) -> None:
    """An export has one of two parameters at one place only: the other would seem to have no gradient."""
    seen: dict[int, str] = {}
    for key, parameter in parameters.items():
        if not parameter.numel():
            continue
        other = seen.setdefault(parameter.data_ptr(), key)
        if other != key and members & {key, other}:
            raise ConfigurationError(
                f"parameters {other!r} and {key!r} share memory",
                why="a compiled step updates all parameters at once, each in its place",
                fix="use one parameter in both places, or give one its own: p.data = p.data.clone()",
            )


def layouts(
    optimizer: torch.optim.Optimizer, rows: Sequence[Row], parameters: Mapping[str, nn.Parameter]
) -> dict[str, dict[str, tuple[int, ...]]]:
    """Key of a parameter -> name -> strides of the optimizer's tensor."""
    return {
        key: {name: state_strides(optimizer, parameters[key], name) for name in RULES[row.rule].state}
        for row in rows
        for key in row.members
    }
