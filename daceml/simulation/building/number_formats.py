"""The card that ran a trace's kernels, and the number formats in which it computes."""

from __future__ import annotations

from daceml.simulation.building.draft import Draft

# The first compute capability whose tensor cores take a format.
# Source: CUDA C++ Programming Guide, section "Arithmetic Instructions" and appendix "Compute Capabilities".
_FIRST_CAPABILITY: dict[str, tuple[int, int]] = {"fp16": (7, 0), "bf16": (8, 0), "fp8": (8, 9)}


def add_card(draft: Draft) -> None:
    """Note the card, and its formats where it is one of NVIDIA's; others have other capabilities."""
    used = {lane.device for lane in draft.lanes if lane.device is not None}
    known = [one for one in draft.trace.devices if one.get("id") in used] or list(draft.trace.devices)
    kinds = {(one.get("name"), one.get("computeMajor"), one.get("computeMinor")) for one in known}
    if len(kinds) != 1:
        return
    ((name, major, minor),) = kinds
    if not isinstance(name, str):
        return
    draft.card = name
    numbers = type(major) is int and type(minor) is int
    if not numbers or ("warpSize" in known[0] and known[0]["warpSize"] != _WARP) or "AMD" in name:
        return
    draft.formats = tuple(
        form
        for form, first in _FIRST_CAPABILITY.items()
        if (major, minor) >= first  # pyright: ignore[reportOperatorIssue]
    )


_WARP = 32  # threads; AMD's wavefronts have 64
