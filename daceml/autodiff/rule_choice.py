"""Which rules give the gradients of a node, and what to do where none does."""

from __future__ import annotations

from collections.abc import Collection

from daceml.autodiff.vjp import Rule, rules_of
from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.operands import Operand, operands
from daceml.sdfg.network import Network


def applicable_rules(
    node: ONNXNode, network: Network, active: Collection[str], *, prefer_native: bool = False
) -> dict[str, Rule] | str:
    """Formal input -> its rule, for each one that gradients flow to; else why rules do not cover the node.

    Args:
        prefer_native: only rules that give what the lowered form does not say.
    """
    found = operands(node, network.state, network.sdfg)
    targets = [formal for formal, held in found.inputs.items() if _touches(held, active)]
    given = [formal for formal, held in found.outputs.items() if _touches(held, active)]
    chosen: dict[str, Rule] = {}
    reasons: list[str] = []
    for rule in rules_of(node.op_type, node.domain):
        wanted = [t for t in targets if t in rule.wrt and t not in chosen]
        if not wanted:
            continue
        reason = _refusal(rule, node, network, given)
        if reason is None:
            chosen |= dict.fromkeys(wanted, rule)
        else:
            reasons.append(f"{rule.node.__name__}: {reason}")
    if missing := [t for t in targets if t not in chosen]:
        return "\n".join(reasons) or f"no rule gives the gradient of {', '.join(missing)}"
    if prefer_native and not any(rule.by_definition for rule in chosen.values()):
        return "its lowered form is preferred"
    return chosen


def _refusal(rule: Rule, node: ONNXNode, network: Network, given: Collection[str]) -> str | None:
    formals = {f.connector for f in (*node.schema.inputs, *node.schema.outputs)}
    if unknown := [name for name in (*rule.keeps, *rule.wrt) if name not in formals]:
        return f"{node.schema.title} has no operand {', '.join(unknown)}"
    if unseen := [name for name in given if name not in rule.cotangents]:
        return f"it does not take a gradient of {', '.join(unseen)}"
    return None if rule.when is None else bind(node, network).call_by_name(rule.when)


def _touches(held: Operand, active: Collection[str]) -> bool:
    return any(a in active for a in held) if isinstance(held, tuple) else held in active


def advice_without_rule(title: str) -> str:
    """What to do where an operator has no derivative; its title is as in "ONNX Gemm-13"."""
    name = title.rpartition(" ")[2].partition("-")[0]
    return (
        "none is needed for right results: daceml.compile(module) runs eagerly where gradients are wanted;\n"
        f"to have the rest compiled, detach what {name} reads, or compile the modules around it;\n"
        f'or give it a rule, @vjp("{name}") of daceml.autodiff.vjp, as those under daceml/autodiff/rules/'
    )
