"""MODEL on the command line: `path.py:Name`, `package.module:Name` or a `.onnx` file, or what is wrong."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from daceml.errors import DacemlError, ModelReferenceError
from daceml.runtime.progress import publish

if TYPE_CHECKING:
    from torch import nn

    from daceml.module.onnx_model import ONNXModel

_FORMS = "write path.py:Name, package.module:Name or a .onnx file"


def resolve(
    reference: str, *, train: bool = False, dims: Mapping[str, int] | None = None
) -> nn.Module | ONNXModel:
    """The model that a text names, in eval mode unless `train`.

    Args:
        dims: sizes that named dimensions of a `.onnx` file are fixed to.
    Raises:
        ModelReferenceError: nothing usable has that name; the message says what is there.
        OnnxFileError: a `.onnx` file that is missing or malformed.
    """
    if reference.endswith(".onnx"):
        from daceml.module.onnx_model import ONNXModel

        if train:
            raise ModelReferenceError(
                f"{reference} has no training mode", why="an ONNX file is what it is", fix="leave --train out"
            )
        publish("load")
        return ONNXModel(reference, dims=dims)
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        why = "there is no name after a colon"
        raise ModelReferenceError(f"{reference!r} names no model", why=why, fix=_FORMS)
    publish("load")
    return _module(_find(_source(place), name, place), reference).train(train)


def has_fresh_weights(reference: str) -> bool:
    """Whether a reference that was resolved names a class: its weights are those that it begins with."""
    place, _, name = reference.rpartition(":")
    if not place:
        return False
    return inspect.isclass(_find(_source(place), name, place))


def _source(place: str) -> ModuleType:
    return load_file(Path(place)) if place.endswith(".py") else _import(place)


def load_file(path: Path) -> ModuleType:
    """Run a Python file as a module, as if it were a script.

    Raises:
        ModelReferenceError: there is none, or it does not run.
    """
    if not path.is_file():
        raise ModelReferenceError(
            f"there is no file {path}", where=f"folder {Path.cwd()}", fix=f"check the path; {_FORMS}"
        )
    for known in list(sys.modules.values()):
        if getattr(known, "__file__", None) == str(path.resolve()) and known.__name__ != "__main__":
            return known
    sys.path.insert(0, str(path.parent.resolve()))  # as if it were run as a script
    name = path.stem if path.stem not in sys.modules else f"daceml_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None, "a file that ends in .py has a loader"
    source = importlib.util.module_from_spec(spec)
    sys.modules[name] = source  # dataclasses and pickle look modules up there
    loader = spec.loader
    _guard(lambda: loader.exec_module(source), f"{path} cannot be loaded", "mend the file, then try again")
    return source


def _import(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    return _guard(
        lambda: importlib.import_module(name),
        f"the module {name} cannot be imported",
        f"run from the folder that contains it, or install it; {_FORMS}",
    )


def _find(source: ModuleType, name: str, place: str) -> Any:
    if hasattr(source, name):
        return getattr(source, name)
    public = [(n, value) for n, value in vars(source).items() if not n.startswith("_")]
    usable = [n for n, value in public if _is_candidate(value, source)]
    close = difflib.get_close_matches(name, usable, n=1)
    raise ModelReferenceError(
        f"{place} has no {name}",
        why=f"it has {', '.join(usable)}" if usable else "it defines no module, class or function",
        fix=f"did you mean {place}:{close[0]}?" if close else "name one of these" if usable else _FORMS,
    )


def _is_candidate(value: Any, source: ModuleType) -> bool:
    from torch import nn

    if isinstance(value, nn.Module) or (inspect.isclass(value) and issubclass(value, nn.Module)):
        return True
    return inspect.isfunction(value) and value.__module__ == source.__name__


def _module(found: Any, reference: str) -> nn.Module:
    from torch import nn

    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        why = "a model is an nn.Module, its class, or a function"
        raise ModelReferenceError(f"{reference} is a {type(found).__name__}", why=why, fix=_FORMS)
    what = "class" if inspect.isclass(found) else "function"
    if required := _required_parameters(found):
        raise ModelReferenceError(
            f"{reference} needs arguments: {', '.join(required)}",
            why=f"a {what} is called without any",
            fix="write a function without arguments that returns the module, and name that",
        )
    fix = "make sure that it can be called without arguments"
    made = _guard(found, f"the {what} {reference} failed", fix)
    if not isinstance(made, nn.Module):
        raise ModelReferenceError(
            f"{reference} makes a {type(made).__name__}", why="a model is an nn.Module", fix=_FORMS
        )
    return made


def _required_parameters(found: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:  # written in C, without a signature
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variable]


def _guard(action: Callable[[], Any], what: str, fix: str) -> Any:
    """Run the user's code; whatever it raises becomes a reason."""
    try:
        return action()
    except DacemlError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ModelReferenceError(what, where=_place(error), why=reason, fix=fix) from error


def _place(error: BaseException) -> str:
    """The innermost line of the traceback that is the user's: no import machinery, none of ours."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen") and file != __file__ and not file.startswith(importlib.__file__):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
