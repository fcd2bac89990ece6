"""From which step to which each array of a plan exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from daceml.codegen.planning.steps import Location, Step, Storage, handed_over

Lives = dict[str, tuple[int, int]]


def lives(steps: Sequence[Step], roots: Mapping[str, str]) -> Lives:
    """Array -> the first and the last step that touches it."""
    found: Lives = {}
    for i, step in enumerate(steps):
        for name in (*step.reads, *step.writes):
            first, _ = found.get(roots[name], (i, i))
            found[roots[name]] = (first, i)
    return found


def makes(
    steps: Sequence[Step],
    roots: Mapping[str, str],
    locations: Mapping[str, Location],
    lived: Lives,
) -> dict[int, tuple[str, ...]]:
    """Step index -> fresh arrays and outputs to be made before it; see `Plan`."""
    found: dict[int, tuple[str, ...]] = {}
    for name, location in locations.items():
        if location.storage not in (Storage.FRESH, Storage.OUTPUT):
            continue
        if roots[name] != name:  # the copy of a view to its output makes the output itself
            continue
        first = lived[name][0] if name in lived else len(steps)
        if first < len(steps) and name in {roots[a] for a in handed_over(steps[first])}:
            continue
        found[first] = (*found.get(first, ()), name)
    return found


def releases(locations: Mapping[str, Location], lived: Lives, *, inputs: bool) -> dict[int, tuple[str, ...]]:
    """Step index -> fresh arrays, and inputs where these are wanted, whose last reader it is."""
    wanted = {Storage.FRESH, *([Storage.INPUT] if inputs else [])}
    found: dict[int, tuple[str, ...]] = {}
    for name, location in locations.items():
        if location.storage in wanted and name in lived:
            last = lived[name][1]
            found[last] = (*found.get(last, ()), name)
    return found
