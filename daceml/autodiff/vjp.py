"""Rules of reverse-mode differentiation: how an operator's cotangents become those of its inputs.

A rule is the formula, and its parameter names say what it needs: forward inputs and outputs by their formal
names, cotangents of outputs as `dY`, attributes as keywords. What it names of the forward pass is kept for
the backward pass, and nothing else.

Every rule defines an operator of the domain `daceml.grad`, named after the forward one (`SoftmaxGrad`). The
formula is its native implementation; others are registered like those of any operator, with
`@implements("SoftmaxGrad", domain="daceml.grad", kind="aten")`. So forward and backward choose their
implementations independently, and a gradient is fused, scheduled and costed like any other node.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from daceml.onnx_ops.registry import implements, parameter_names
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import define_operator, is_defined, node_class
from daceml.onnx_ops.schema.schema import Formal, OperatorSchema

DOMAIN = "daceml.grad"

Function = TypeVar("Function", bound=Callable[..., Any])
# Takes operands by name; answers shape and element type of an extra output.
ExtraOutput = Callable[..., tuple[tuple[Any, ...], Any]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A derivative rule.

    Attributes:
        op_type, domain: the operator that it differentiates.
        wrt: formal inputs that it gives the gradients of.
        keeps: formal inputs and outputs of the forward node that it reads.
        cotangents: formal outputs whose cotangents it reads.
        node: class of the backward operator.
        when: takes forward operands and attributes by name; None where the rule holds, else the reason.
        extra: optional forward outputs that the rule needs -> their shape and element type.
        by_definition: whether it gives what users ask for, which is no derivative of the forward pass.
    """

    op_type: str
    domain: str
    wrt: tuple[str, ...]
    keeps: tuple[str, ...]
    cotangents: tuple[str, ...]
    node: type[ONNXNode]
    when: Callable[..., str | None] | None = None
    extra: Mapping[str, ExtraOutput] = field(default_factory=dict[str, ExtraOutput])
    by_definition: bool = False


_rules: dict[tuple[str, str], list[Rule]] = {}


def vjp(
    op_type: str,
    *,
    wrt: str | tuple[str, ...] | None = None,
    name: str | None = None,
    domain: str = "",
    when: Callable[..., str | None] | None = None,
    extra: Mapping[str, ExtraOutput] | None = None,
    by_definition: bool = False,
) -> Callable[[Function], Function]:
    """Register a derivative rule; of several rules of an operator that hold, the first gives a gradient.

    Rules of users come before ours, so one of daceml's can be replaced.

    The function is traced like a native implementation. Its positional parameters are

    - formal inputs and outputs of the forward operator (a variadic one is a tuple, an absent one None),
    - `d` and a formal output: its cotangent, of that output's shape and type,
    - `d` and a formal input: the gradient to assign (`dX[:] = …`), None where nobody wants it.

    Instead of assigning, a function may return the gradients of `wrt`, in order.

    Args:
        op_type: operator, with the connector names of its newest version.
        wrt: inputs that get gradients; without it, the `d…` parameters that are no cotangents, else the only
            input.
        name: of the backward operator; `<op_type>Grad`, and with several rules `<op_type>Grad_<wrt>`.
        domain: of the forward operator.
        when: None where the rule holds for operands and attributes taken by name, else a sentence.
        extra: optional outputs of the forward node to be asked for: formal name -> function that takes
            forward operands by name and answers (shape, element type).
        by_definition: the gradient is no derivative, such as one that leaves out a row of padding: the
            lowered form does not have it.
    Raises:
        ValueError: a parameter that is none of the above.
    """

    def register(function: Function) -> Function:
        schema = node_class(op_type, domain=domain).schema
        inputs = {formal.connector: formal for formal in schema.inputs}
        outputs = {formal.connector: formal for formal in schema.outputs}
        positional, keywords = parameter_names(function)
        gradients = {f"d{name}": formal for name, formal in inputs.items()}
        cotangents = {f"d{name}": formal for name, formal in outputs.items()}
        assigned = tuple(p[1:] for p in positional if p in gradients and p not in cotangents)
        known = (*inputs, *outputs, *cotangents, *(f"d{a}" for a in assigned))
        if strange := [p for p in positional if p not in known]:
            raise ValueError(f"rule of {op_type}: {strange} are neither operands nor their gradients")
        targets = (wrt,) if isinstance(wrt, str) else wrt or assigned or tuple(inputs)[:1]
        title = name or f"{op_type}Grad" + (f"_{'_'.join(targets)}" if wrt else "")
        node = define_operator(
            OperatorSchema(
                op_type=title,
                domain=DOMAIN,
                since_version=1,
                inputs=tuple(
                    _formal(p, {**cotangents, **inputs, **outputs}[p])
                    for p in positional
                    if p[1:] not in assigned or p in cotangents
                ),
                outputs=tuple(_formal(f"d{t}", inputs[t]) for t in targets),
                attributes={k: a for k, a in schema.attributes.items() if k in keywords},
                doc=inspect.getdoc(function) or f"Gradient of {op_type}.",
            ),
            module=function.__module__,
        )
        # dace looks the class of a stored node up in the module that defines it
        vars(importlib.import_module(function.__module__))[title] = node
        implements(title, domain=DOMAIN, name="rule")(_assigning(function, targets, assigned))
        known_rules = _rules.setdefault((domain, op_type), [])
        # a user's rule comes before ours
        known_rules.insert(
            len(known_rules) if function.__module__.startswith("daceml.") else 0,
            Rule(
                op_type=op_type,
                domain=domain,
                wrt=targets,
                keeps=tuple(p for p in positional if p in inputs or (p in outputs and p not in cotangents)),
                cotangents=tuple(p[1:] for p in positional if p in cotangents),
                node=node,
                when=when,
                extra=extra or {},
                by_definition=by_definition,
            ),
        )
        return function

    return register


def rules_of(op_type: str, domain: str = "") -> tuple[Rule, ...]:
    """Rules of an operator, in order of registration."""
    load_rules()
    return tuple(_rules.get((domain, op_type), ()))


def differentiable_operators() -> tuple[tuple[str, str], ...]:
    """(domain, operator) of every operator with a rule."""
    load_rules()
    return tuple(sorted(_rules))


@functools.cache
def load_rules() -> None:
    """Import every module that registers rules."""
    is_defined("", "daceml")  # operators of our own come first
    package = importlib.import_module("daceml.autodiff.rules")
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"daceml.autodiff.rules.{found.name}")


def _formal(connector: str, of: Formal) -> Formal:
    option = "variadic" if of.option == "variadic" else "optional"
    return Formal(name=connector, connector=connector, option=option, min_arity=0, homogeneous=False)


def _assigning(
    function: Callable[..., Any], targets: tuple[str, ...], assigned: tuple[str, ...]
) -> Callable[..., Any]:
    """The function as a native implementation: what it returns is assigned to the gradients wanted."""
    if assigned:
        return function
    positional, keywords = parameter_names(function)
    parameters = list(inspect.signature(function).parameters.values())
    results = [inspect.Parameter(f"d{t}", inspect.Parameter.POSITIONAL_OR_KEYWORD) for t in targets]

    @functools.wraps(function)
    def implementation(*args: Any, **kwargs: Any) -> None:
        answer = function(*args[: len(positional)], **kwargs)
        values = answer if isinstance(answer, tuple) else (answer,)
        for result, value in zip(args[len(positional) :], values, strict=True):
            if result is not None:
                result[:] = value

    split = len(positional)
    signature = inspect.Signature([*parameters[:split], *results, *parameters[split:]])
    implementation.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
    assert len(keywords) == len(parameters) - split, "attributes are keyword-only"
    return implementation
