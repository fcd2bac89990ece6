"""A device in a TOML file: the catalogue's, or a user's own."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from daceml.devices.specification import FIGURES, PER_ARITHMETIC, Device, Sourced
from daceml.errors import DeviceError
from daceml.plain_files import read_plain

_FIGURE = '{ value = 80, source = "whose figure it is", verified = true }'
_TEXTS = ("name", "family", "kind", "vendor", "architecture")
_LISTS = ("aliases", "notes")
_KINDS = ("gpu", "cpu")


def read_device(path: Path) -> Device:
    """The device that a file describes.

    Raises:
        DeviceError: the file cannot be read, is no TOML, or describes no device.
    """
    try:
        text = read_plain(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError(
            "the description of a device cannot be read",
            where=str(path),
            why=str(error),
            fix="give a text file in TOML: docs/devices.md",
        ) from error
    return device_of(text, where=str(path))


def device_of(text: str, *, where: str) -> Device:
    """The device that a text in TOML describes.

    Args:
        where: the file, for errors.
    Raises:
        DeviceError: the text is no TOML, or describes no device.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refused(
            where, str(error), "mend the line: strings in quotes, a figure as " + _FIGURE
        ) from error
    sources = values.pop("sources", {})
    if not isinstance(sources, dict) or not all(isinstance(one, str) for one in sources.values()):
        raise _refused(
            where, "sources is no table of texts", '[sources] holds lines like: sheet = "V100 data sheet"'
        )
    known = {one.name: one for one in fields(Device)}
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            fix = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}, and [sources]"
            raise _refused(where, f"there is no field {name!r}", fix)
    for name, one in known.items():
        if one.default is MISSING and one.default_factory is MISSING and name not in values:
            raise _refused(where, f"{name} is missing", f'add a line: {name} = "..."')
    read = {name: _value(name, value, sources, where) for name, value in values.items()}
    try:
        return Device(**read)
    except DeviceError as error:
        error.where = where
        raise


def _value(name: str, value: Any, sources: Mapping[str, str], where: str) -> Any:
    if name in FIGURES:
        return _sourced(name, value, sources, where)
    if name in PER_ARITHMETIC:
        if not isinstance(value, dict):
            raise _refused(where, f"{name} is no table", f"[{name}] holds lines like: float32 = {_FIGURE}")
        return {key: _sourced(f"{name}.{key}", one, sources, where) for key, one in value.items()}
    if name in _TEXTS:
        if not isinstance(value, str) or not value:
            raise _refused(where, f"{name} is {value!r}", f'give a text: {name} = "..."')
        if name == "kind" and value not in _KINDS:
            raise _refused(where, f"kind is {value!r}", f"say one of {', '.join(_KINDS)}")
        return value
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise _refused(where, f"{name} is not a list of texts", f'write: {name} = ["...", "..."]')
        return tuple(value)
    if not _whole(value) or value <= 0:
        raise _refused(where, f"{name} is {value!r}", "write 90 for compute capability 9.0")
    return value


def _sourced(label: str, value: Any, sources: Mapping[str, str], where: str) -> Sourced:
    fix = f"write {label} = {_FIGURE}"
    if not isinstance(value, dict):
        raise _refused(where, f"{label} has no source", fix)
    given = {"verified": False, **value}
    if set(given) != {"value", "source", "verified"}:
        odd = sorted(set(given) ^ {"value", "source", "verified"})
        raise _refused(where, f"{label} lacks, or does not know, {', '.join(odd)}", fix)
    number, source, verified = given["value"], given["source"], given["verified"]
    if not (_whole(number) or isinstance(number, float)):
        raise _refused(where, f"the value of {label} is {number!r}", fix)
    if not isinstance(source, str) or not isinstance(verified, bool):
        raise _refused(where, f"source and verified of {label} are {source!r} and {verified!r}", fix)
    return Sourced(value=number, source=sources.get(source, source), verified=verified)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refused(where: str, why: str, fix: str) -> DeviceError:
    return DeviceError("this file describes no device", where=where, why=why, fix=fix)
