"""How long something may take, as people write it."""

from __future__ import annotations

import math
import re

from daceml.errors import ConfigurationError

_TEXT = re.compile(r"(?P<figure>\d+(\.\d*)?) ?(?P<unit>s|min|m|h|)")
_SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def budget_s(budget: str | float, *, name: str = "--budget", may_be_zero: bool = False) -> float:
    """Seconds of "90", "90s", "2m", "2min" or "1.5h"; a number is seconds.

    Args:
        name: of the option, for the error.
        may_be_zero: no time at all is a budget, too.

    Raises:
        ConfigurationError: it is no time, or none at all.
    """
    if isinstance(budget, str):
        found = _TEXT.fullmatch(budget.strip())
        seconds = math.nan if found is None else float(found["figure"]) * _SECONDS[found["unit"]]
    else:
        seconds = float(budget)
    if not (0 < seconds < math.inf or (may_be_zero and seconds == 0)):
        raise ConfigurationError(
            f"{name} {budget!r} is no time to spend", fix="give seconds, or a unit as well: 90s, 2m, 1.5h"
        )
    return seconds
