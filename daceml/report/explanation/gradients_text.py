"""Where gradients come from, as plain text: rules, and lowered forms that were differentiated."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from daceml.text_tables import WIDTH


def gradients_text(by_rule: Sequence[str], lowered: Sequence[str]) -> str:
    """A line for each of the two; empty where there is no backward pass.

    Args:
        by_rule, lowered: operators, each with where it is: "ONNX Relu-14, node /act/Relu".
    """
    lines: list[str] = []
    for how, operators in (("by rule", by_rule), ("from the lowered form", lowered)):
        counted = Counter(map(_name, operators))
        names = [name if count == 1 else f"{name} x{count}" for name, count in sorted(counted.items())]
        if names:
            lines += textwrap.wrap(f"gradients {how}: {', '.join(names)}", WIDTH, subsequent_indent="  ")
    return "\n".join(lines)


def _name(operator: str) -> str:
    title, _, _ = operator.partition(",")
    return title.removeprefix("ONNX ").rpartition("-")[0]
