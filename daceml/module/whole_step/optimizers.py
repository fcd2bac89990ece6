"""torch's optimizers, as whole steps need them: which rule, which state, and this step's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from daceml.autodiff.optimizers.optimizer_rules import RULES
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
        if group["differentiable"]:
            raise _refusal(f"{kind.__name__} with differentiable=True")
        decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        return ("AdamW" if decoupled else "Adam") + (" amsgrad" if group["amsgrad"] else "")
    raise _refusal(kind.__name__)


def _refusal(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what} cannot be part of a compiled step",
        why="there are rules for SGD, Adam and AdamW, not for what is derived from them",
        fix="compile the module alone (daceml.compile) and call optimizer.step()",
    )


def refuse_hooks(optimizer: torch.optim.Optimizer) -> None:
    """Refuse what torch would run around `optimizer.step()` and between backward pass and update.

    Raises:
        ConfigurationError: a hook of the optimizer, or one of a parameter's gradient.
    """
    own: dict[str, Any] = vars(optimizer)
    if own.get("_optimizer_step_pre_hooks") or own.get("_optimizer_step_post_hooks"):
        what = "the optimizer has hooks of its step"
    else:
        members = [p for group in optimizer.param_groups for p in group["params"]]
        hooked = (getattr(p, "_backward_hooks", None) or _after_hooks(p) for p in members)
        if not any(hooked):
            return
        what = "a parameter has hooks of its gradient"
    raise ConfigurationError(
        f"{what}, and a compiled step would not run them",
        why="gradients and update are inside of one program",
        fix="remove them, or compile the module alone (daceml.compile) and call optimizer.step()",
    )


def _after_hooks(parameter: torch.Tensor) -> Any:
    return getattr(parameter, "_post_accumulate_grad_hooks", None)


def state_strides(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, name: str) -> tuple[int, ...]:
    """Strides of one of the optimizer's tensors for a parameter, which may not be there yet."""
    held = optimizer.state[parameter].get(name) if parameter in optimizer.state else None
    return tuple((_fresh(parameter.to("meta")) if held is None else held).stride())


def prepare_state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, rule: str) -> tuple[str, ...]:
    """Make the optimizer's tensors for a parameter where there are none yet, as its first step would.

    Returns:
        names of those that were made.
    """
    state = optimizer.state[parameter]
    made = [name for name in RULES[rule].state if state.get(name) is None]
    for name in made:
        state[name] = _fresh(parameter)
    if "Adam" in rule and "step" not in state:
        counts = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
        state["step"] = torch.tensor(0.0, dtype=counts)
        made.append("step")
    return tuple(made)


def _fresh(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter, memory_format=torch.preserve_format)


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
