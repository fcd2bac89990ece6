"""A page for every code of `daceml.errors`, with the sentences that daceml's sources raise under it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import daceml.errors
from daceml.errors import DacemlError

# What the first digits of a code say.
GROUPS = {
    "DML0": "Settings and environment",
    "DML1": "Operators",
    "DML2": "From a module to a network, and calls",
    "DML3": "Gradients",
    "DML4": "Programs",
    "DML5": "The command line",
    "DML60": "Recorded runs",
    "DML61": "Task graphs and what-if questions",
    "DML62": "Operation databases",
    "DML63": "Measurements",
    "DML64": "Devices and estimates",
    "DML65": "Predictions",
    "DML66": "Strategies for several ranks",
    "DML67": "Ranks, recorded and real",
    "DML68": "Parallel plans, and memory of devices",
    "DML7": "Exploration",
    "DML80": "Models that leave the process",
    "DML81": "The page",
}


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """What one place of the sources says: `…` stands for what is known only then."""

    kind: str
    what: str
    fix: str
    module: str


@dataclass(frozen=True, kw_only=True)
class ErrorCode:
    """A code, the class that has it, and the kinds of that class that share it."""

    code: str
    cls: type[DacemlError]
    kinds: tuple[type[DacemlError], ...]

    @property
    def page(self) -> str:
        return f"errors/{self.code}.md"


def error_codes() -> list[ErrorCode]:
    """Every code of the registry, in order."""
    classes = [value for value in vars(daceml.errors).values() if _is_error(value)]
    owners = sorted((cls for cls in classes if "code" in vars(cls)), key=lambda cls: cls.code)
    return [
        ErrorCode(
            code=owner.code,
            cls=owner,
            kinds=tuple(cls for cls in classes if cls.code == owner.code and cls is not owner),
        )
        for owner in owners
        if owner is not DacemlError
    ]


def sentences(sources: Mapping[str, str], names: Iterable[str]) -> list[Sentence]:
    """Where classes of these names are made in sources (module -> text), and what they are told."""
    wanted, found = set(names), list[Sentence]()
    for module, text in sorted(sources.items()):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and (kind := _name(node.func)) in wanted and node.args:
                fix = next((_text(word.value) for word in node.keywords if word.arg == "fix"), "")
                if what := _text(node.args[0]):
                    found.append(Sentence(kind=kind, what=what, fix=fix, module=module))
    return list(dict.fromkeys(found))


def sources_of(package: Path) -> dict[str, str]:
    """The text of every module of a package: dotted name -> text."""
    return {
        ".".join(path.relative_to(package.parent).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
    }


def error_page(error: ErrorCode, said: Sequence[Sentence]) -> str:
    """The page of one code; `said` is what any of its classes says."""
    lines = [f"# {error.code}: {error.cls.__name__}", "", inspect.getdoc(error.cls) or "", ""]
    bases = [base for base in error.cls.__mro__[1:] if base not in (Exception, BaseException, object)]
    above = ", ".join(f"`{base.__name__}`" for base in bases)
    lines += [f"`except daceml.errors.{error.cls.__name__}` catches it, and so does {above}.", ""]
    if error.kinds:
        lines += ["Subclasses with the same code:", ""]
        lines += [f"- `{kind.__name__}`: {inspect.getdoc(kind)}" for kind in error.kinds] + [""]
    lines += ["## Messages", ""]
    mine = [one for one in said if one.kind in {error.cls.__name__, *(k.__name__ for k in error.kinds)}]
    if not mine:
        lines += ["The message is composed where the error is raised.", ""]
    for one in mine:
        lines += ["```text", f"[{error.code}] {one.what}", *_labelled("fix", one.fix), "```", ""]
        lines += [f"from `{one.module}`", ""]
    return "\n".join([*lines, "[What the fields are](index.md#fields), and [all codes](index.md#codes)."])


def error_index(errors: Sequence[ErrorCode]) -> str:
    """The page that lists all codes and explains the form that they share."""
    lines = ["# Errors", "", *FORM.strip().splitlines(), "", "## Codes", ""]
    group = ""
    for error in errors:
        if (title := _group(error.code)) != group:
            group = title
            lines += ["", f"### {group}", "", "| code | class | when |", "|---|---|---|"]
        when = " ".join((inspect.getdoc(error.cls) or "").split())
        lines.append(f"| [{error.code}]({error.code}.md) | `{error.cls.__name__}` | {when} |")
    return "\n".join(lines) + "\n"


FORM = """
Every error of daceml has a code and the same form:

```text
[DML101] no implementation of ONNX NonMaxSuppression can run here
  where: Detector.head.nms (model.py:41)
  why:   native: none registered
         aten: no equivalent
         onnxruntime: disabled by DACEML_FALLBACK=none
  fix:   allow onnxruntime implementations, or add @implements("NonMaxSuppression") under daceml/onnx_ops/
```

## Fields

| field | what it says |
|---|---|
| `code` | `DML` and three digits; a code keeps its meaning |
| `what` | what failed, in one sentence |
| `where` | your line, the node or the file; empty if there is none |
| `why` | the cause, with values; one line for each attempt |
| `fix` | how to fix it |

Each field is an attribute of the exception. All classes are in `daceml.errors`, and are subclasses of
`daceml.DacemlError`. The page of a code lists its sentences from the sources; `…` stands for names and
figures of the case.
"""


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, DacemlError)


def _group(code: str) -> str:
    return next(title for start, title in GROUPS.items() if code.startswith(start))


def _labelled(label: str, text: str) -> list[str]:
    return [f"  {label + ':':<7}{text}".replace("\n", "\n         ")] if text else []


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(value: ast.expr) -> str:
    """A string of the sources with `…` for its fields; empty for anything that is no string."""
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) if isinstance(part, ast.Constant) else "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (_text(left) or "…") + (_text(right) or "…")
        case ast.IfExp(body=body, orelse=other):
            return _text(body) or _text(other)
        case _:
            return ""
