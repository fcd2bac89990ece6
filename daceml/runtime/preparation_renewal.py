"""When arrays that were prepared of weights are made again."""

from __future__ import annotations

# Preparing costs some tens of calls' weight traffic: one that has served as many calls has paid.
_ENOUGH_CALLS = 8
_MOST_PATIENCE = 1024


class Renewals:
    """Follows the calls of a program whose weights somebody may change.

    A change after some calls is followed at once: weights were trained, or loaded. For a caller who changes
    them at every call, preparing would cost more than it brings; the changes that are let pass in between
    double in number, each time that it was in vain.

    Attributes:
        calls: that ran since the last renewal.
    """

    def __init__(self) -> None:
        self.calls = _ENOUGH_CALLS
        self._patience = 0
        self._passed = 0

    def due(self) -> bool:
        """Whether the change that a call has just met is followed; else another program runs for it."""
        if self.calls >= _ENOUGH_CALLS:
            self._patience = 0
        elif self._passed < self._patience:
            self._passed += 1
            return False
        else:
            self._patience = min(2 * self._patience + 1, _MOST_PATIENCE)
        self.calls = self._passed = 0
        return True
