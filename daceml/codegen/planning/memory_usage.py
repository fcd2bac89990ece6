"""What steps do to the memory in use, and which of them may change places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic

from daceml.codegen.planning.late_steps import AnyStep, meets


class Usage(Generic[AnyStep]):
    """Arrays and bytes of the steps of a program.

    Args:
        steps: in an order that runs.
        root: array -> the array whose memory it is.
        made_bytes: what the first write of an array takes.
        freed_bytes: what its last read gives back.
        fixed: steps that stay in order among each other, such as draws of random numbers.

    Attributes:
        steps: as given.
        times: array -> how many steps touch it.
    """

    def __init__(
        self,
        steps: Sequence[AnyStep],
        *,
        root: Callable[[str], str],
        made_bytes: Callable[[str], int],
        freed_bytes: Callable[[str], int],
        fixed: Callable[[AnyStep], bool],
    ) -> None:
        self.steps = steps
        self.made_bytes, self.freed_bytes = made_bytes, freed_bytes
        self._root, self._fixed = root, fixed
        self._writes = {id(s): {root(a) for a in s.writes} for s in steps}
        self._touched = {id(s): self._writes[id(s)] | {root(a) for a in s.reads} for s in steps}
        self.times = Counter(a for arrays in self._touched.values() for a in arrays)

    def writes(self, step: AnyStep) -> set[str]:
        """Arrays that a step writes, none of them a view."""
        return self._writes[id(step)]

    def touches(self, step: AnyStep) -> set[str]:
        """Arrays that a step reads or writes, none of them a view."""
        return self._touched[id(step)]

    def exchangeable(self, first: AnyStep, second: AnyStep) -> bool:
        """Whether two neighbours may change places."""
        if self._fixed(first) and self._fixed(second):
            return False
        written = self.writes(first)
        return not meets(second, written, self.touches(first) - written, self._root)
