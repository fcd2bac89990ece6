"""Functions of one element each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.gradient_checks.draws import Draw, kinked, real, tied, uses
from benchmarks.operators.draws import Chance

# Where each is defined, with a distance from its poles.
_SMOOTH: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("exp", "expm1", "exp2", "sin", "cos", "tanh", "sigmoid", "erf", "erfc"), (-3, 3)),
    **dict.fromkeys(("atan", "asinh", "sinh", "cosh", "square", "neg", "sinc", "deg2rad"), (-3, 3)),
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"), (0.2, 3)),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), (-0.9, 0.9)),
    "log1p": (-0.8, 3),
    "acosh": (1.1, 4),
    "tan": (-1.2, 1.2),
    "logit": (0.1, 0.9),
}


@uses(*_SMOOTH)
def smooth(c: Chance, name: str) -> Draw:
    return Draw(call=getattr(torch, name), tensors=[c.within(c.shape(), "float64", *_SMOOTH[name])])


@uses("abs", "sign", "round", "floor", "ceil", "trunc", "frac", "positive", "nan_to_num")
def kinks(c: Chance, name: str) -> Draw:
    x, away = kinked(c, c.shape())
    return Draw(call=getattr(torch, name), tensors=[x], smooth=away)


@uses("sqrt at zero", "rsqrt at zero", "log at zero")
def poles(c: Chance, name: str) -> Draw:
    return Draw(call=getattr(torch, name.split()[0]), tensors=[np.abs(tied(c, c.shape()))], smooth=False)


_PLAIN = ("relu", "relu6", "hardswish", "selu", "silu", "mish", "softsign", "tanhshrink")


@uses(*_PLAIN, "logsigmoid")
def activation(c: Chance, name: str) -> Draw:
    x, away = kinked(c, c.shape())
    return Draw(call=getattr(functional, name), tensors=[x], smooth=away)


@uses("hardsigmoid")
def hardsigmoid(c: Chance, _: str) -> Draw:
    """torch's gradient of it multiplies by a sixth of 24 binary digits, for float64 too."""
    x, away = kinked(c, c.shape())
    return Draw(
        call=functional.hardsigmoid,
        formula=lambda x: functional.relu6(x + 3) / 6,
        tensors=[x],
        smooth=away,
    )


_PARAMETERS: dict[str, Callable[[Chance], dict[str, Any]]] = {
    "leaky_relu": lambda c: {"negative_slope": c.of((0.01, 0.25, 0.0, 2.0, -0.5))},
    "elu": lambda c: {"alpha": c.of((1.0, 0.5, 2.0))},
    "celu": lambda c: {"alpha": c.of((1.0, 0.5, 2.0))},
    "gelu": lambda c: {"approximate": c.of(("none", "tanh"))},
    "softplus": lambda c: {"beta": c.of((1, 2.0, 0.5)), "threshold": c.of((20, 1.0, 2.0))},
    "hardtanh": lambda c: {"min_val": c.of((-1.0, -0.5)), "max_val": c.of((1.0, 0.5))},
    "hardshrink": lambda c: {"lambd": c.of((0.5, 1.0, 0.0))},
    "softshrink": lambda c: {"lambd": c.of((0.5, 1.0, 0.0))},
    "threshold": lambda c: {"threshold": c.of((0.0, 0.5, -1.0)), "value": c.of((0.0, 7.0))},
    "rrelu": lambda c: {"lower": 0.125, "upper": c.of((0.25, 0.5)), "training": False},
}


@uses(*_PARAMETERS)
def activation_with_parameters(c: Chance, name: str) -> Draw:
    x, away = kinked(c, c.shape())
    attributes = _PARAMETERS[name](c)
    return Draw(call=getattr(functional, name), tensors=[x], attributes=attributes, smooth=away)


@uses("glu")
def gated(c: Chance, name: str) -> Draw:
    shape = list(c.shape(1, 3))
    axis = c.axis(len(shape))
    shape[axis] = 2 * shape[axis]
    return Draw(call=functional.glu, tensors=[real(c, shape)], attributes={"dim": axis})


@uses("prelu")
def prelu(c: Chance, name: str) -> Draw:
    shape = c.shape(2, 4, empty=False)
    x, away = kinked(c, shape)
    return Draw(call=functional.prelu, tensors=[x, real(c, (c.of((1, shape[1])),))], smooth=away)


@uses("add", "sub", "mul", "atan2", "hypot", "logaddexp", "logaddexp2")
def binary(c: Chance, name: str) -> Draw:
    shape = c.shape()
    pair = [real(c, shape), real(c, c.broadcast(shape))]
    attributes = {"alpha": c.of((1, 2, -0.5))} if name in ("add", "sub") else {}
    return Draw(call=getattr(torch, name), tensors=pair[:: c.of((1, -1))], attributes=attributes)


@uses("maximum", "minimum", "fmax", "fmin", "copysign")
def binary_kinks(c: Chance, name: str) -> Draw:
    shape = c.shape()
    return Draw(
        call=getattr(torch, name), tensors=[tied(c, shape), tied(c, c.broadcast(shape))], smooth=False
    )


@uses("div", "fmod", "remainder", "true_divide")
def quotient(c: Chance, name: str) -> Draw:
    shape = c.shape()
    divisor = c.positive(c.broadcast(shape), "float64") * c.of((1, -1))
    mode = {"rounding_mode": c.of((None, None, "floor", "trunc"))} if name == "div" else {}
    return Draw(
        call=getattr(torch, name), tensors=[real(c, shape), divisor], attributes=mode,
        smooth=name == "true_divide" or mode == {"rounding_mode": None},
    )  # fmt: skip


@uses("pow")
def power(c: Chance, name: str) -> Draw:
    shape = c.shape()
    match c.between(0, 3):
        case 0:
            return Draw(call=torch.pow, tensors=[c.positive(shape, "float64"), real(c, c.broadcast(shape))])
        case 1:
            base = np.abs(tied(c, shape))
            return Draw(call=torch.pow, tensors=[base, tied(c, c.broadcast(shape))], smooth=False)
        case 2:
            exponent = c.of((0, 1, 2, 3, -1, 0.5, 2.5))
            call = lambda x, exponent: x**exponent  # noqa: E731
            return Draw(call=call, tensors=[c.positive(shape, "float64")], attributes={"exponent": exponent})
        case _:
            call = lambda x, exponent: x**exponent  # noqa: E731
            exponent = c.of((0, 1, 2, 3, 4))
            return Draw(call=call, tensors=[tied(c, shape)], attributes={"exponent": exponent}, smooth=False)


@uses("scalar power")
def scalar_power(c: Chance, name: str) -> Draw:
    call = lambda x, base: base**x  # noqa: E731
    return Draw(call=call, tensors=[real(c, c.shape())], attributes={"base": c.of((2, 0.5, 3.0, 1.0))})


@uses("xlogy", "xlog1py")
def times_logarithm(c: Chance, name: str) -> Draw:
    shape = c.shape()
    call = torch.xlogy if name == "xlogy" else torch.special.xlog1py
    return Draw(call=call, tensors=[tied(c, shape), c.positive(c.broadcast(shape), "float64")], smooth=False)


@uses("addcmul", "addcdiv", "lerp")
def ternary(c: Chance, name: str) -> Draw:
    shape = c.shape()
    x, y, z = (real(c, c.broadcast(shape)) for _ in range(3))
    z = np.abs(z) + 0.3
    attributes = {} if name == "lerp" else {"value": c.of((1, -0.5, 2))}
    return Draw(call=getattr(torch, name), tensors=[x, y, z], attributes=attributes)


@uses("where by comparison")
def chosen(c: Chance, name: str) -> Draw:
    shape = c.shape()
    compare = c.of(("lt", "le", "gt", "ge", "eq", "ne"))
    call = lambda x, y, compare: torch.where(getattr(torch, compare)(x, y), x * y, y - x)  # noqa: E731
    tensors = [tied(c, shape), tied(c, c.broadcast(shape))]
    return Draw(call=call, tensors=tensors, attributes={"compare": compare}, smooth=False)


@uses("where")
def where(c: Chance, name: str) -> Draw:
    shape = c.shape()
    call = lambda m, x, y: torch.where(m, x, y)  # noqa: E731
    return Draw(
        call=call, tensors=[c.values(shape, "bool"), *(real(c, c.broadcast(shape)) for _ in range(2))]
    )


@uses("masked_fill")
def masked_fill(c: Chance, name: str) -> Draw:
    shape = c.shape()
    mask, value = c.values(c.broadcast(shape), "bool"), c.of((0.0, -1.5, float("-inf")))
    return Draw(call=torch.masked_fill, tensors=[real(c, shape), mask], attributes={"value": value})


@uses("masked_fill by a tensor")
def masked_fill_tensor(c: Chance, name: str) -> Draw:
    shape = c.shape()
    return Draw(call=torch.masked_fill, tensors=[real(c, shape), c.values(shape, "bool"), real(c, ())])


@uses("clamp")
def clamp(c: Chance, name: str) -> Draw:
    x, away = kinked(c, c.shape())
    bounds = c.of(({"min": -0.5}, {"max": 1.0}, {"min": -0.5, "max": 1.0}, {"min": 1.0, "max": -0.5}))
    return Draw(call=torch.clamp, tensors=[x], attributes=bounds, smooth=away)


@uses("clamp by tensors")
def clamp_tensors(c: Chance, name: str) -> Draw:
    shape = c.shape()
    tensors = [tied(c, shape), tied(c, c.broadcast(shape)), tied(c, c.broadcast(shape))]
    return Draw(call=torch.clamp, tensors=tensors, smooth=False)


@uses("detach")
def detach(c: Chance, name: str) -> Draw:
    return Draw(call=lambda x: x.detach() * x + x.detach().exp(), tensors=[real(c, c.shape())], smooth=False)


@uses("used twice")
def used_twice(c: Chance, name: str) -> Draw:
    shape = c.shape()
    call = lambda x, y: (x * y + x.sin(), x.exp() * x, y + 1)  # noqa: E731
    return Draw(call=call, tensors=[real(c, shape), real(c, c.broadcast(shape))])


@uses("to another type")
def converted(c: Chance, name: str) -> Draw:
    call = lambda x, dtype: x.to(dtype) * 2  # noqa: E731
    dtype = c.of((torch.float32, torch.float64))
    return Draw(call=call, tensors=[tied(c, c.shape())], attributes={"dtype": dtype}, smooth=False)
