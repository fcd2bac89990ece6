"""Ranges around the steps of a program, in the words of `daceml/ranges.h`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.toolchain.range_names import PREFIX

if TYPE_CHECKING:
    from daceml.codegen.planning.steps import Step
    from daceml.sdfg.network import Network


def range_name(step: Step, network: Network) -> str:
    """What profilers call a step: its label, and the modules that it computes parts of."""
    origins = (origin for array in step.writes for origin in network.origins.get(array, ()))
    modules = dict.fromkeys(filter(None, (step.module_path, *(origin.module_path for origin in origins))))
    return PREFIX + " @ ".join(filter(None, (step.label, ", ".join(modules))))


def range_line(step: Step, network: Network) -> str:
    """C++ that opens the range of a step, until the end of the scope."""
    name = "".join(c if c.isprintable() else " " for c in range_name(step, network))
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'daceml::Range range("{quoted}");'
