"""Buckets that a user gives: a list, or a file of `daceml trace optimize --plan`; checked against a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from daceml.distributed.agreement import Buckets
from daceml.errors import BucketPlanError
from daceml.plain_files import read_plain

PLAN_FORMAT = "daceml.buckets"
PLAN_VERSION = 1
_MOST_BYTES = 64 * 2**20  # of a plan file: names of parameters, even of very large models, need far less

Given = str | Path | Sequence[Sequence[str]]


def planned_buckets(given: Given, parameters: Mapping[str, tuple[int, str]]) -> Buckets:
    """Names of the parameters of each bucket, in the order in which buckets are sent.

    Args:
        given: a plan file, or the names themselves.
        parameters: name -> bytes and element type, of what is trained.
    Raises:
        BucketPlanError: the file is none, or the buckets are not those of this model: a name that it does not
            have or that comes twice, a parameter in no bucket, two element types in one.
    """
    where = str(given) if isinstance(given, (str, Path)) else ""
    buckets = _read(Path(given)) if isinstance(given, (str, Path)) else tuple(map(tuple, given))
    bucket_of: dict[str, int] = {}
    for number, names in enumerate(buckets):
        if not names:
            raise BucketPlanError(f"bucket {number} is empty", where=where, fix="leave it out")
        for name in names:
            if name not in parameters:
                raise BucketPlanError(
                    f"bucket {number} has {name!r}, which the model does not train",
                    where=where,
                    why=f"it trains {', '.join(list(parameters)[:3])}, ...",
                    fix="use the plan of a run of this model; names are those of named_parameters()",
                )
            if name in bucket_of:
                raise BucketPlanError(
                    f"{name!r} is in bucket {bucket_of[name]} and in bucket {number}",
                    where=where,
                    fix="name every parameter once",
                )
            bucket_of[name] = number
        kinds = sorted({parameters[name][1] for name in names})
        if len(kinds) > 1:
            raise BucketPlanError(
                f"bucket {number} has gradients of {' and '.join(kinds)}",
                where=where,
                why="a bucket is one tensor",
                fix="give each element type buckets of its own",
            )
    missing = [name for name in parameters if name not in bucket_of]
    if missing:
        raise BucketPlanError(
            f"{missing[0]!r} is in no bucket" + (f", nor are {len(missing) - 1} more" * (len(missing) > 1)),
            where=where,
            why="its gradients would never be averaged",
            fix="add it to a bucket, or freeze it (requires_grad=False)",
        )
    return buckets


def _read(path: Path) -> Buckets:
    try:
        told: Any = json.loads(read_plain(path, most_bytes=_MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise _unreadable(path, why) from error
    if not isinstance(told, dict):
        raise _unreadable(path, "it holds no object")
    plan = cast("dict[str, Any]", told)
    if (plan.get("format"), plan.get("version")) != (PLAN_FORMAT, PLAN_VERSION):
        raise _unreadable(path, f"it is not of format {PLAN_FORMAT!r}, version {PLAN_VERSION}")
    rows = plan.get("buckets")
    if not isinstance(rows, list) or not all(map(_are_names, cast("list[Any]", rows))):
        raise _unreadable(path, "its 'buckets' are no list of lists of names")
    return tuple(map(tuple, cast("list[list[str]]", rows)))


def _unreadable(path: Path, why: str) -> BucketPlanError:
    return BucketPlanError(
        "a plan of buckets cannot be read",
        where=str(path),
        why=why,
        fix="give the file that `daceml trace optimize DIR --plan FILE` wrote",
    )


def _are_names(row: Any) -> bool:
    return isinstance(row, list) and all(isinstance(name, str) for name in cast("list[Any]", row))
