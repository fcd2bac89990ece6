"""A compiled module as a notebook shows it: what each of its programs does."""

from __future__ import annotations

from html import escape

from daceml.module.module import DaceModule
from daceml.report.explanation.explanation import explanation_of
from daceml.report.explanation.explanation_html import explanation_html


def module_html(module: DaceModule) -> str:
    """An explanation of each program that calls have made so far, the latest open."""
    name, variants = type(module.session.eager).__name__, module.session.variants
    if not variants:
        return f"<p>{escape(name)}: nothing is compiled yet; the first call compiles it.</p>"
    parts: list[str] = []
    for variant in variants:
        manifest = variant.program.manifest
        inputs = ", ".join(f"{x.name} [{', '.join(map(str, x.shape))}]" for x in manifest.inputs)
        kind = "inference" if variant.backward is None else "training"
        latest = " open" if variant is module.session.latest else ""
        parts.append(
            f"<details{latest}><summary>{escape(f'{name}, {kind}: {inputs}')}</summary>"
            f"{explanation_html(explanation_of(module, variant))}</details>"
        )
    return "\n".join(parts)
