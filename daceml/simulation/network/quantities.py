"""Figures with a unit, as people write them: "100Gbps", "25 GB/s", "25MB", "5us"."""

from __future__ import annotations

import re

from daceml.errors import WhatIfError

_PREFIX = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TIME_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
_LARGEST = 1e15
_FIGURE = r"\s*(?P<figure>\d+(\.\d*)?([eE][+-]?\d+)?)\s*"
_BANDWIDTH = re.compile(
    _FIGURE + r"(?P<prefix>[KMGT]i|[kKMGT]?)(?P<unit>B/s|Bps|bps|b/s|bit/s|bits/s|byte/s|bytes/s)\s*"
)
_SIZE = re.compile(_FIGURE + r"(?P<prefix>[KMGT]i|[kKMGT]?)(?P<unit>B|bytes?)?\s*")
_DURATION = re.compile(_FIGURE + r"(?P<unit>ns|us|µs|ms|s)\s*")


def bytes_per_s(text: str) -> float:
    """A bandwidth; b and bit are an eighth of B and byte, G is 1e9 and Gi is 2**30.

    Raises:
        WhatIfError: it is none, or has no unit.
    """
    match = _BANDWIDTH.fullmatch(text)
    if match is None:
        raise WhatIfError(
            f"{text!r} is no bandwidth", fix='give a figure and its unit, such as "100Gbps" or "25GB/s"'
        )
    value = _positive(text, match) * _scale(match["prefix"])
    return value if match["unit"].startswith(("B", "byte")) else value / 8


def size_bytes(text: str) -> float:
    """An amount of data: "25MB" is 25e6 bytes, "25MiB" is 25 * 2**20.

    Raises:
        WhatIfError: it is none.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise WhatIfError(
            f"{text!r} is no amount of data", fix='give bytes, or a unit as well, such as "102MB" or "25MiB"'
        )
    return _positive(text, match) * _scale(match["prefix"])


def duration_us(text: str) -> float:
    """A time, in microseconds.

    Raises:
        WhatIfError: it is none, or has no unit.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise WhatIfError(f"{text!r} is no time", fix='give a figure and its unit, such as "5us" or "1.5ms"')
    return float(match["figure"]) * _TIME_US[match["unit"]]


def _scale(prefix: str) -> float:
    return _BINARY[prefix] if prefix in _BINARY else _PREFIX[prefix]


def _positive(text: str, match: re.Match[str]) -> float:
    value = float(match["figure"])
    if not 0 < value <= _LARGEST:
        raise WhatIfError(f"{text!r} is not above zero and finite", fix=f"give a figure up to {_LARGEST:g}")
    return value
