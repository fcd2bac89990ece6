"""Lines of a driver that look at data before other steps rely on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from daceml.runtime.records.manifest import OTHER_WEIGHTS, OUTSIDE_LIMITS
from daceml.sdfg.network import IndexCheck
from daceml.sdfg.sizes import cpp, product, size, spanned_bytes

if TYPE_CHECKING:
    import dace


def position_lines(check: IndexCheck, desc: dace.data.Data, pointer: str) -> list[str]:
    """Positions that are data lie where they may."""
    count = cpp(product(size(s) for s in desc.shape))
    lowest = -check.extent if check.lowest is None else check.lowest
    positions = f"positions, {count}, {check.offset}, {check.step}, lowest, extent"
    lines = [
        f"const auto* positions = (const {desc.dtype.ctype}*){pointer};",
        f"const int64_t lowest = {cpp(lowest)}, extent = {cpp(check.extent)};",
        f"DACEML_TRY(c, daceml::positions_outside(c, {positions}),",
        f'           daceml::outside_text({positions}, "{_text(check.where)}"));',
    ]
    if check.ascending:
        lines += [
            f"DACEML_TRY(c, daceml::starts_descend(c, positions, {count}),",
            f'           "{_text(f"starts of segments are not ascending from 0: {check.where}")}");',
        ]
    return lines


def limit_lines(desc: dace.data.Data, pointer: str, limit: str) -> list[str]:
    """No element is NaN or beyond a limit.

    Args:
        pointer, limit: C++ expressions.
    """
    count = cpp(product(size(s) for s in desc.shape))
    return [f'DACEML_TRY(c, daceml::beyond({pointer}, {count}, {limit}), "{OUTSIDE_LIMITS}");']


def weight_lines(descs: Mapping[str, dace.data.Data], fingerprint: str) -> list[str]:
    """Weights are those of which arrays were prepared.

    Args:
        descs: pointer to a weight -> the weight.
        fingerprint: pointer to the expected number.
    """
    amounts = (spanned_bytes(desc) for desc in descs.values())
    return [
        f"const void* const weights[] = {{{', '.join(descs)}}};",
        f"static const int64_t bytes[] = {{{', '.join(map(cpp, amounts))}}};",
        f"DACEML_TRY(c, c->fingerprint(weights, bytes, {len(descs)}) != *(const uint64_t*){fingerprint},",
        f'           "{OTHER_WEIGHTS}");',
    ]


def _text(message: str) -> str:
    """A message inside a C++ literal."""
    return message.replace("\\", "/").replace('"', "'")
