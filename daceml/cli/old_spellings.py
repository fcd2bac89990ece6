"""Former spellings of commands and options: they keep working, with a note on stderr."""

from __future__ import annotations

from collections.abc import Sequence

import typer

_MOVED = ("profile", "replay", "optimize")  # took traces, or made them
_SPLIT = ("whatif", "predict")  # took a trace or a model
_OPTIONS = {
    "compile": {"--export": "--device-kernels"},
    "explore": {"--device": "--to"},
    "whatif": {"--on": "--to"},
}
_TRACES = (".json", ".gz")
_SILENT = ("--json", "--quiet", "-q")


def current_spelling(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with commands and options as they are called now.

    Prints a note about each, except next to --json and --quiet.
    """
    command = arguments[0] if arguments else ""
    found = list(arguments)
    renamed: list[str] = []
    for old, new in _OPTIONS.get(command, {}).items():
        if any(word.partition("=")[0] == old for word in found):
            renamed.append(f"`{old}` is now `{new}`")
            found = [new + word[len(old) :] if word.partition("=")[0] == old else word for word in found]
    if _is_moved(command, found[1:]):
        renamed.append(f"`daceml {command}` is now `daceml trace {command}`")
        found = ["trace", *found]
    if not any(word in _SILENT for word in arguments):
        for line in renamed:
            typer.echo(line, err=True)
    return found


def _is_moved(command: str, words: Sequence[str]) -> bool:
    if command in _MOVED:
        return True
    before = (command, *words)
    return command in _SPLIT and any(
        # a target device of `predict` may be a file, too
        word.endswith(_TRACES) and not word.startswith("-") and previous != "--to"
        for previous, word in zip(before, words, strict=False)
    )
