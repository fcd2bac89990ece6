"""torch's optimizers, as whole steps need them: which rule, which state, and this step's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from daceml.autodiff.optimizer_rules import RULES
from daceml.errors import ConfigurationError


def rule_of(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> str:
    """Key of the rule of a group of parameters.

    Raises:
        ConfigurationError: an optimizer, or an option of one, that has no rule.
    """
    kind = type(optimizer)
    if kind is torch.optim.SGD:
        if not group["momentum"]:
            return "SGD"
        return "SGD nesterov" if group["nesterov"] else "SGD momentum"
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        if group["amsgrad"]:
            raise _refusal(f"{kind.__name__} with amsgrad=True")
        decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        return "AdamW" if decoupled else "Adam"
    raise _refusal(kind.__name__)


def _refusal(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} cannot be part of a compiled step",
        why="there are rules for SGD, Adam without amsgrad, and AdamW",
        fix="compile the module alone (daceml.compile) and call optimizer.step()",
    )


def prepare_state(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, rule: str
) -> dict[str, torch.Tensor]:
    """The optimizer's tensors for a parameter, made where there are none yet, as its first step would."""
    state = optimizer.state[parameter]
    for name in RULES[rule].state:
        if state.get(name) is None:
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    if "Adam" in rule and "step" not in state:
        state["step"] = torch.tensor(0.0, dtype=torch.get_default_dtype())
    return {name: state[name] for name in RULES[rule].state}


def numbers_of(group: Mapping[str, Any], rule: str, step: int, first: bool) -> list[float]:
    """This step's numbers of a group, in the order of its rule.

    Args:
        step: number of this step, from 1.
        first: whether the momentum begins with this gradient, undamped.
    """
    lr, decay = float(group["lr"]), float(group["weight_decay"])
    known: dict[str, float] = {"lr": lr, "weight_decay": decay, "kept": 1 - lr * decay}
    if rule.startswith("SGD "):
        known |= {"momentum": group["momentum"], "share": 1.0 if first else 1 - group["dampening"]}
    elif rule != "SGD":
        beta1, beta2 = (float(beta) for beta in group["betas"])
        known |= {
            "mean_share": 1 - beta1,
            "beta2": beta2,
            "square_share": 1 - beta2,
            "square_correction": math.sqrt(1 - beta2**step),
            "eps": float(group["eps"]),
            "step_size": lr / (1 - beta1**step),
        }
    return [known[name] for name in RULES[rule].numbers]
