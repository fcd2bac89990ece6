"""Ways in which the bytes of any file can be bad."""

from __future__ import annotations

import random
from collections.abc import Sequence


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(data: bytes, rng: random.Random, counts: Sequence[int]) -> bytes:
    """As many bits as one of the counts says are others."""
    changed = bytearray(data)
    for _ in range(rng.choice(counts)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def insert_bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.randrange(1, 40)) + data[at:]


def drop_bytes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randrange(1, 40) :]


def twice(data: bytes, rng: random.Random) -> bytes:
    return data + data[rng.randrange(len(data)) :]
