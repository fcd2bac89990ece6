"""Ways in which a trace can be bad: bytes, JSON, gzip. All follows from a seed."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

from benchmarks.byte_mutations import cut, drop_bytes, flipped, insert_bytes, twice

Raw = dict[str, Any]

_TIMES = ("ts", "dur")
_VALUES: tuple[Any, ...] = (
    None, True, "", "x", "\ud800", "7", "-1", [], [1, 2], {}, {"a": []}, -1, 0, 0.5, -0.0, 1e300, -1e300,
    float("nan"), float("inf"), 2**31, 2**63, -(2**63), 2**64 - 1, 10**30, 10**400, 1e15 + 0.25,
)  # fmt: skip


def mutated(data: bytes, seed: int) -> tuple[bytes, str]:
    """A damaged form of a trace, plain JSON; and what was done to it."""
    rng = random.Random(seed)
    done: list[str] = []
    if rng.random() < 0.7:
        content = json.loads(data)
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            change = rng.choice(CONTENT)
            done.append(change.__name__)
            try:
                content = change(content, rng)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                continue  # what it would change was changed already
        data = json.dumps(content, ensure_ascii=rng.random() < 0.9).encode("utf-8", "surrogatepass")
    if not done or rng.random() < 0.1:
        change = rng.choice(BYTES)
        done.append(change.__name__)
        data = change(data, rng)
    if rng.random() < 0.3:
        data = gzip.compress(data, compresslevel=1, mtime=0)
        done.append("gzip")
        if rng.random() < 0.6:
            change = rng.choice(BYTES)
            done.append(change.__name__)
            data = change(data, rng)
    return data, ", ".join(done)


# Bytes


def flip(data: bytes, rng: random.Random) -> bytes:
    return flipped(data, rng, (1, 1, 2, 16))


def replace_digits(data: bytes, rng: random.Random) -> bytes:
    """Another number: the most that a flipped bit can do unseen."""
    changed = bytearray(data)
    digits = [index for index, byte in enumerate(changed) if chr(byte).isdigit()]
    for _ in range(rng.choice((1, 4, 64))):
        changed[rng.choice(digits)] = ord(rng.choice("0123456789-e."))
    return bytes(changed)


def no_utf8(data: bytes, rng: random.Random) -> bytes:
    word = rng.choice((b"aten", b"cuda", b"kernel", b"Memcpy", b"gemm"))
    return data.replace(word, b"\xff\xfe" + word[2:])


def control_characters(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"aten", rng.choice((b"a\x00n", b"a\nt", b"\x1b[31m")))


def nested(data: bytes, rng: random.Random) -> bytes:
    depth = rng.choice((10, 1000, 200_000))
    return data.replace(b"[]", b"[" * depth + b"]" * depth, 1) + b" " * rng.randrange(3)


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    cut, cut, flip, flip, replace_digits, insert_bytes, drop_bytes, twice, no_utf8, control_characters,
    nested,
)  # fmt: skip


# Content


def _some(content: Any, rng: random.Random) -> list[Raw]:
    """A few events, or many."""
    events = content["traceEvents"]
    return rng.sample(events, min(len(events), rng.choice((1, 1, 2, 5, len(events) // 2, len(events)))))


def negative_durations(content: Any, rng: random.Random) -> Any:
    for event in _some(content, rng):
        if "dur" in event:
            event["dur"] = -event["dur"]
    return content


def odd_times(content: Any, rng: random.Random) -> Any:
    for event in _some(content, rng):
        event[rng.choice(_TIMES)] = rng.choice(_VALUES)
    return content


def shifted_times(content: Any, rng: random.Random) -> Any:
    shift = rng.choice((-1e3, 1, 50, 1e6, 1e12, -1e15))
    for event in _some(content, rng):
        if "ts" in event:
            event["ts"] += shift
    return content


def odd_fields(content: Any, rng: random.Random) -> Any:
    for event in _some(content, rng):
        event[rng.choice(list(event))] = rng.choice(_VALUES)
    return content


def odd_arguments(content: Any, rng: random.Random) -> Any:
    for event in _some(content, rng):
        if event.get("args"):
            event["args"][rng.choice(list(event["args"]))] = rng.choice(_VALUES)
    return content


def deleted_keys(content: Any, rng: random.Random) -> Any:
    for event in _some(content, rng):
        del event[rng.choice(list(event))]
    return content


def deleted_arguments(content: Any, rng: random.Random) -> Any:
    for event in _some(content, rng):
        if event.get("args"):
            del event["args"][rng.choice(list(event["args"]))]
    return content


def duplicate_ids(content: Any, rng: random.Random) -> Any:
    key = rng.choice(("correlation", "External id", "Sequence number", "stream", "device"))
    value = rng.choice((0, 1, 2, -1))
    for event in _some(content, rng):
        event.get("args", {})[key] = value
    return content


def duplicate_events(content: Any, rng: random.Random) -> Any:
    content["traceEvents"] += _some(content, rng)
    return content


def other_units(content: Any, rng: random.Random) -> Any:
    """Nanoseconds, or another unit, and times that a float rounds."""
    factor = rng.choice((1000, 1000, 1e-3, 1e-6, 1e3))
    for event in content["traceEvents"]:
        for key in _TIMES:
            if key in event:
                event[key] *= factor
    return content


def skewed_device(content: Any, rng: random.Random) -> Any:
    """A clock of the device that goes before or after that of the host."""
    shift = rng.choice((-1e6, -500, -50, -5, 5, 1e5))
    for event in content["traceEvents"]:
        if str(event.get("cat")).lower() in ("kernel", "gpu_memcpy", "gpu_memset"):
            event["ts"] += shift
    return content


def swapped_values(content: Any, rng: random.Random) -> Any:
    key = rng.choice(("ts", "dur", "pid", "tid", "args", "name", "cat", "ph", "id"))
    chosen = [event for event in _some(content, rng) if key in event]
    for event, value in zip(chosen, rng.sample([event[key] for event in chosen], len(chosen)), strict=True):
        event[key] = value
    return content


def shuffled(content: Any, rng: random.Random) -> Any:
    rng.shuffle(content["traceEvents"])
    return content


def removed_events(content: Any, rng: random.Random) -> Any:
    gone = {id(event) for event in _some(content, rng)}
    content["traceEvents"] = [event for event in content["traceEvents"] if id(event) not in gone]
    return content


def odd_events(content: Any, rng: random.Random) -> Any:
    for _ in range(rng.choice((1, 3))):
        content["traceEvents"].insert(rng.randrange(len(content["traceEvents"])), rng.choice(_VALUES))
    return content


def other_phases(content: Any, rng: random.Random) -> Any:
    for event in _some(content, rng):
        event["ph"] = rng.choice(("X", "B", "E", "s", "f", "i", "C", "b", ""))
    return content


def other_categories(content: Any, rng: random.Random) -> Any:
    name = rng.choice(("kernel", "cuda_runtime", "cpu_op", "Operator", "Kernel", "cuda_sync", "new", ""))
    for event in _some(content, rng):
        event["cat"] = name
    return content


def odd_header(content: Any, rng: random.Random) -> Any:
    keys = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceEvents", "schemaVersion")
    key = rng.choice(keys)
    value: Any = rng.choice(_VALUES)
    content[key] = rng.choice((value, [value], {"rank": value, "world_size": rng.choice(_VALUES)}))
    return content


def bare_list(content: Any, rng: random.Random) -> Any:
    return content["traceEvents"] if rng.random() < 0.5 else [content]


CONTENT: tuple[Callable[[Any, random.Random], Any], ...] = (
    negative_durations, odd_times, odd_times, shifted_times, odd_fields, odd_fields, odd_arguments,
    deleted_keys, deleted_arguments, duplicate_ids, duplicate_events, swapped_values, shuffled,
    other_units, skewed_device, removed_events, odd_events, other_phases, other_categories, odd_header,
    bare_list,
)  # fmt: skip
