"""What torch.export cannot take, or takes wrongly, in a form that it can: layers of torch.nn, distributions.

A batch norm with `momentum=None` reads its counter into a Python number, which no trace can follow. An
instance norm hides the change of its running statistics. Both are traced as the same computation on tensors.
Distributions read whether their parameters and values are valid into Python, and raise an error if not: they
are traced without that check, as Dynamo traces them, unless it is asked for by name (`validate_args=True`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributions import Distribution
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.instancenorm import _InstanceNorm  # pyright: ignore[reportPrivateUsage]

from daceml.errors import ExportError


@contextmanager
def traceable(module: nn.Module) -> Generator[None]:
    """Trace a module within the block; its layers are put back afterwards. Changes the module meanwhile.

    Raises:
        ExportError: a layer that exchanges statistics with other processes, or TorchScript.
    """
    changed: list[tuple[nn.Module, str]] = []
    validated = Distribution._validate_args  # pyright: ignore[reportPrivateUsage]
    try:
        Distribution.set_default_validate_args(False)
        for path, layer in module.named_modules():
            refuse_script(layer, path)
            if not layer.training:
                continue
            if isinstance(layer, nn.SyncBatchNorm):
                raise _synchronized(path)
            for name, method in _methods(layer).items():
                # an attribute of the instance hides the method of its class
                if name not in layer.__dict__:
                    layer.__dict__[name] = functools.partial(method, layer)
                    changed.append((layer, name))
        yield
    finally:
        Distribution.set_default_validate_args(validated)
        for layer, name in changed:
            layer.__dict__.pop(name, None)


def refuse_script(module: nn.Module, path: str = "") -> None:
    """Refuse what torch.jit made.

    Args:
        path: of a part of what is compiled.
    Raises:
        ExportError: the module is TorchScript.
    """
    if isinstance(module, torch.jit.ScriptModule):
        name = f"submodule {path!r}" if path else "the module"
        raise ExportError(
            f"{name} is TorchScript ({type(module).__name__}), which cannot be compiled",
            where=path,
            why="torch.jit runs it without Python, and a trace follows Python",
            fix="pass the module from before torch.jit.script or torch.jit.trace",
        )


def _methods(layer: nn.Module) -> dict[str, Callable[..., Any]]:
    """What replaces methods of a layer; nothing where a subclass has its own."""
    if isinstance(layer, _BatchNorm) and type(layer).forward is _BatchNorm.forward:
        if layer.track_running_stats and layer.momentum is None and layer.running_mean is not None:
            return {"forward": _cumulative_batch_norm}
    elif isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        own = type(layer)._apply_instance_norm  # pyright: ignore[reportPrivateUsage]
        if own is _InstanceNorm._apply_instance_norm:  # pyright: ignore[reportPrivateUsage]
            return {"_apply_instance_norm": _tracking_instance_norm}
    return {}


def _synchronized(path: str) -> ExportError:
    return ExportError(
        f"SyncBatchNorm {path or 'module'!r} cannot be compiled in training",
        where=path,
        why="its statistics are those of all processes of a group, and a compiled call belongs to one",
        fix="use BatchNorm1d, BatchNorm2d or BatchNorm3d, or call eval() on this layer",
    )


def _mix(running: torch.Tensor, batch: torch.Tensor, share: torch.Tensor | float) -> None:
    """running <- (1 - share) running + share batch, in float32 at least."""
    wide = torch.promote_types(running.dtype, torch.float32)
    running.copy_(running.to(wide) * (1 - share) + batch.to(wide) * share)


def _cumulative_batch_norm(layer: Any, input: torch.Tensor) -> torch.Tensor:
    """Running statistics that are averages over all batches so far: the n-th has a share of 1 / n."""
    layer._check_input_dim(input)
    layer.num_batches_tracked.add_(1)
    mean, variance = torch.zeros_like(layer.running_mean), torch.zeros_like(layer.running_var)
    y = functional.batch_norm(input, mean, variance, layer.weight, layer.bias, True, 1.0, layer.eps)
    wide = torch.promote_types(mean.dtype, torch.float32)
    share = torch.ones((), dtype=wide, device=mean.device) / layer.num_batches_tracked
    with torch.no_grad():
        _mix(layer.running_mean, mean, share)
        _mix(layer.running_var, variance, share)
    return y


def _tracking_instance_norm(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """x: [N, C, ...]. Running statistics take the mean over the batch of each sample's own."""
    y = functional.instance_norm(x, None, None, layer.weight, layer.bias, True, 0.0, layer.eps)
    if layer.momentum:
        spatial = list(range(2, x.dim()))
        wide = x.detach().to(torch.promote_types(x.dtype, layer.running_mean.dtype))
        with torch.no_grad():
            _mix(layer.running_mean, wide.mean(spatial).mean(0), layer.momentum)
            _mix(layer.running_var, wide.var(spatial).mean(0), layer.momentum)
    return y
