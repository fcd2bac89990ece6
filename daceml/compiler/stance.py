"""What compiled modules do where no compiled variant fits: compile, run eagerly, or refuse."""

from __future__ import annotations

from typing import Literal, Self

from daceml.errors import ConfigurationError

Stance = Literal["default", "eager_on_recompile", "fail_on_recompile", "force_eager"]
_STANCES = ("default", "eager_on_recompile", "fail_on_recompile", "force_eager")

stances: list[Stance] = ["default"]
"""One stance, which holds now: asking this list takes less than a function."""


class stance:  # noqa: N801  a function to its users, which also is a context manager
    """Set the stance of all compiled modules, for good or for the time of a `with` block.

        daceml.stance("fail_on_recompile")          # from now on
        with daceml.stance("eager_on_recompile"):   # until the end of the block
            ...

    Args:
        name: "default" compiles where no variant fits a call; "eager_on_recompile" runs the user's forward
            there; "fail_on_recompile" raises RecompileError there; "force_eager" runs the user's forward
            always. The first compilation of a module counts as well.
    Raises:
        ConfigurationError: another name.
    """

    def __init__(self, name: Stance) -> None:
        if name not in _STANCES:
            raise ConfigurationError(
                f"there is no stance {name!r}",
                why=f"stances are {', '.join(_STANCES)}",
                fix="write for example daceml.stance('fail_on_recompile')",
            )
        self._before: Stance = stances[0]
        stances[0] = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        stances[0] = self._before


def current_stance() -> Stance:
    """The stance of this process."""
    return stances[0]
