"""Commands of the same name for models and for traces: each names the owner of an option that it lacks."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from daceml.errors import ConfigurationError


class Sibling(TyperCommand):
    """A command that also exists for the other kind of input: `daceml X` for models, `daceml trace X`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as the base class does.

        Raises:
            ConfigurationError: an option belongs to the other command.
        """
        other, foreign = self.other(ctx)
        foreign -= _options(self)
        for option in (word.partition("=")[0] for word in args):
            if option in foreign:
                kinds, this = ("model", "trace"), f"daceml {self.name}"
                if other == this:
                    kinds, this = ("trace", "model"), f"daceml trace {self.name}"
                raise ConfigurationError(
                    f"{option} is an option of `{other}`",
                    why=f"`{this}` takes a {kinds[0]}",
                    fix=f"give a {kinds[1]} to `{other}`, or leave {option} out; {this} --help has the rest",
                )
        return super().parse_args(ctx, args)

    def other(self, ctx: Any) -> tuple[str, frozenset[str]]:
        """Return the name and the options of the command for the other kind of input."""
        name, root = self.name or "", ctx.find_root().command
        group = root.commands["trace"]
        if ctx.parent.command is group:
            return f"daceml {name}", _options(root.commands[name])
        return f"daceml trace {name}", _options(group.commands[name])


def _options(command: TyperCommand | TyperGroup) -> frozenset[str]:
    return frozenset(option for param in command.params for option in param.opts if option.startswith("-"))
