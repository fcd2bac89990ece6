"""What the page shows of a guided optimisation, as plain data: graph, amounts, moves, history, recipe."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from daceml.errors import MoveError
from daceml.exploration.guided.guided import Guided, Measured, Program
from daceml.exploration.guided.pass_effect import Effect
from daceml.exploration.guided.recipe_script import recipe_script

if TYPE_CHECKING:
    from daceml.transformations.recipe import Step

_MOST_REFUSALS = 400  # of a pass, in a view that is asked for again and again


def model_view(
    guided: Guided,
    *,
    title: str,
    target: str = "",
    looking: bool = False,
    known: str = "",
    whole: Collection[str] = (),
) -> dict[str, Any]:
    """Everything about the current choice; what effects nobody has asked for yet are None.

    Args:
        title: name of the model.
        target: how a command line names it; "" where none does.
        looking: whether somebody finds out what moves would bring: there will be more to see.
        known: the "graph" of the view that whoever asks has; nodes and edges that are the same are left out.
        whole: passes whose refusals are all wanted; of others, those about the largest arrays are there.
    """
    with guided.held:
        return _view(guided, title=title, target=target, looking=looking, known=known, whole=whole)


def _view(
    guided: Guided, *, title: str, target: str, looking: bool, known: str, whole: Collection[str]
) -> dict[str, Any]:
    program, measured = guided.program(), guided.measured()
    graph = f"{program.number}{'' if measured is None else ', measured'}"
    try:
        first, no_first = guided.first_program(), ""
    except MoveError as error:
        first, no_first = None, f"{error.what}: {error.why}"
    return {
        "kind": "model",
        "title": title,
        "call": "forward and backward pass" if guided.training else "inference",
        "inputs": [
            {"name": name, "shape": list(x.shape), "dtype": str(x.dtype).removeprefix("torch.")}
            for name, x in guided.inputs
        ],
        "totals": _totals(program, measured),
        "start": None if first is None else _totals(first, None),
        "no_start": no_first,
        "hash": program.lowered.identity,
        "graph": graph,
        **({} if graph == known else {"nodes": _nodes(program, measured), "edges": _edges(program)}),
        "looking": looking and any(guided.known_effect(name) is None for name in guided.catalogue.steps),
        "moves": [_move(guided, step, whole=step.name in whole) for step in guided.catalogue.steps.values()],
        "history": [choice.title for choice in guided.history],
        "place": guided.place,
        "script": recipe_script(guided, title=title, target=target),
    }


def _totals(program: Program, measured: Measured | None) -> dict[str, Any]:
    time = program.time
    return {
        "steps": len(program.graph.nodes),
        "kernels": program.lowered.kernels,
        "moved_bytes": program.lowered.moved_bytes,
        "memory_bytes": program.lowered.memory_bytes,
        "flops": sum(node.flops for node in program.graph.nodes),
        "predicted_us": time.us,
        "low_us": time.low_us,
        "high_us": time.high_us,
        "measured_share": time.measured_share,
        "measured_us": None if measured is None else measured.call_us,
        "as_predicted": measured is None or measured.as_predicted,
        "first_low_us": None if measured is None else measured.predicted.low_us,
        "first_high_us": None if measured is None else measured.predicted.high_us,
    }


def _nodes(program: Program, measured: Measured | None) -> list[dict[str, Any]]:
    times = None if measured is None or len(measured.steps_us) != len(program.steps) else measured.steps_us
    return [
        {
            "half": node.half,
            "kind": node.kind,
            "label": node.label,
            "path": node.path,
            "source": node.source,
            "operators": list(node.operators),
            "implementation": node.implementation,
            "refusals": list(node.refusals),
            "bytes": node.unique_bytes,
            "flops": node.flops,
            "arrays": list(node.arrays),
            "weights": list(node.weights),
            "predicted_us": program.steps[i].us,
            "sigma": program.steps[i].sigma,
            "measured_us": None if times is None else times[i],
        }
        for i, node in enumerate(program.graph.nodes)
    ]


def _edges(program: Program) -> list[list[Any]]:
    return [
        [e.source, e.target, e.array, e.size_bytes, f"{e.dtype}[{', '.join(e.shape)}]"]
        for e in program.graph.edges
    ]


def _move(guided: Guided, step: Step, *, whole: bool) -> dict[str, Any]:
    places, effect = guided.chosen.get(step.name, ()), guided.known_effect(step.name)
    return {
        "pass": step.name,
        "level": step.level,
        "summary": step.summary,
        "by_place": step.takes_places,
        "applied": "everywhere" if places is None else "at places" if step.name in guided.chosen else "no",
        "at": list(places or ()),
        "effect": None if effect is None else _effect(effect, whole=whole),
    }


def _effect(effect: Effect, *, whole: bool) -> dict[str, Any]:
    refused = sorted(effect.refused, key=lambda one: -one[2])
    return {
        "time_us": effect.time_us,
        "moved_bytes": effect.moved_bytes,
        "memory_bytes": effect.memory_bytes,
        "steps": effect.steps,
        "places": list(effect.places),
        "refused": [list(one) for one in (refused if whole else refused[:_MOST_REFUSALS])],
        "refusals": len(refused),
        "why": effect.why,
        "changes": effect.changes,
    }
