"""What a fault is that is put into daceml by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A change that makes daceml wrong.

    Attributes:
        file: below the repository.
        old: text that stands there exactly once.
        new: what replaces it.
        wrong: what does not hold any more.
    """

    file: str
    old: str
    new: str
    wrong: str

    def applied(self, text: str) -> str:
        """The text of the file with the fault in it.

        Raises:
            ValueError: the text to be replaced stands there never, or more than once.
        """
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"{self.file} has {self.old!r} {count} times, not once: bring the fault up to date"
            )
        return text.replace(self.old, self.new)
