"""Where decisions lie: in the cache, under what is compiled and the machine that measured it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from daceml.config import config
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.toolchain.cache import Cache, digest
from daceml.tuning.decision import Decision

log = logging.getLogger(__name__)


def stored_decision(
    cache: Cache, key: str, budget_s: float | None, search: Callable[[float], Decision]
) -> Decision:
    """The decision that the cache has, or that of a search; of several that ask at once one searches.

    One whose budget was used up stands for that budget alone: with another one the search begins anew, and
    programs that it has compiled are there.

    Args:
        key: of the program with the standard recipe.
        budget_s: seconds; None for the option of the environment.
    """
    budget_s = config().search_budget_s if budget_s is None else budget_s
    key = digest(key, "search", fingerprint())
    known = cache.find("decisions", key)
    if known is not None:
        return Decision.load(known)

    def build(folder: Path) -> None:
        found = search(budget_s)
        log.info("a search of %.1f s has chosen %s", found.spent_s, found.title)
        found.save(folder)

    decision = Decision.load(cache.get("decisions", digest(key, f"budget {budget_s}"), build))
    if decision.complete:
        cache.get("decisions", key, decision.save)
    return decision
