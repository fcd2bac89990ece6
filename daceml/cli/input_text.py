"""The text of one `--input`: shape, element type and the range of its values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daceml.errors import ModelReferenceError

if TYPE_CHECKING:
    import torch

# Element type -> bits; 0 for floating point
TYPES = {
    "float32": 0, "float64": 0, "float16": 0, "bfloat16": 0,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint8": 8, "bool": 1,
}  # fmt: skip
_SIZES_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}

_NUMBER = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)"
_RANGE = re.compile(rf"\s*(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})\s*|\s*(?P<only>{_NUMBER})\s*")
# `1..5` would read as `1.` and `.5`: whole numbers first
_WHOLE = re.compile(r"\s*(?P<low>[+-]?\d+)\s*\.\.\s*(?P<high>[+-]?\d+)\s*")

_MOST_DIMENSIONS, _MOST_DIGITS = 64, 18
_SHOWN = 100  # letters of a refused text
_MOST_LETTERS = 400  # of a number: 1.8e308 in digits has 309

FORMS = "write for example 8,3,224,224 or 2,128:int64=0..999"


@dataclass(frozen=True, kw_only=True)
class TensorText:
    """A tensor to be made up.

    Attributes:
        shape: its sizes.
        kind: name of the element type.
        low, high: both included; None for the default values.
    """

    shape: tuple[int, ...]
    kind: str = "float32"
    low: float | None = None
    high: float | None = None

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * _SIZES_BYTES.get(self.kind, 1)

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        """Random values: floats from the normal distribution, others 0 or 1, where no range is given."""
        import torch

        dtype: torch.dtype = getattr(torch, self.kind)
        if dtype.is_floating_point:
            if self.low is None or self.high is None:
                return torch.randn(self.shape, generator=generator).to(dtype)
            drawn = torch.rand(self.shape, generator=generator, dtype=torch.float64)
            return (drawn * (self.high - self.low) + self.low).to(dtype)
        low, high = (0, 1) if self.low is None or self.high is None else (int(self.low), int(self.high))
        if low == high:
            return torch.full(self.shape, low, dtype=dtype)
        # torch draws below its bound, which has to be an int64, too: 2^63 - 1 itself never comes
        return torch.randint(low, min(high + 1, 2**63 - 1), self.shape, generator=generator).to(dtype)


def parse_input(text: str) -> TensorText:
    """`2,128:int64=0..999` -> shape, type and range; `:float32` is a scalar, `4=1` is all ones.

    Raises:
        ModelReferenceError: it does not parse.
    """
    described, equals, values = text.partition("=")
    sizes, colon, kind = described.partition(":")
    kind = kind.strip() if colon else "float32"
    parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
    if parts and not parts[-1]:
        parts.pop()  # `3,` as Python writes a tuple of one
    if kind not in TYPES:
        raise refuse(text, f"{kind!r} is none of {', '.join(TYPES)}")
    if not all(part.isdecimal() for part in parts) or (not parts and not colon):
        raise refuse(text, "a shape is whole numbers with commas between")
    if len(parts) > _MOST_DIMENSIONS:
        raise refuse(text, f"it has {len(parts)} dimensions, and a tensor {_MOST_DIMENSIONS} at most")
    if any(len(part) > _MOST_DIGITS for part in parts):
        raise refuse(text, f"a size has {_MOST_DIGITS} digits at most")
    low, high = _range(text, values, kind) if equals else (None, None)
    return TensorText(shape=tuple(map(int, parts)), kind=kind, low=low, high=high)


def _range(text: str, values: str, kind: str) -> tuple[float, float]:
    found = _WHOLE.fullmatch(values) or _RANGE.fullmatch(values)
    if found is None:
        raise refuse(text, f"{values!r} is no range LOW..HIGH, both included, and no number")
    groups = found.groupdict()
    words = [groups["only"]] * 2 if groups.get("only") else [groups["low"], groups["high"]]
    bits = TYPES[kind]
    if any(len(word) > _MOST_LETTERS for word in words):
        raise refuse(text, f"a number has {_MOST_LETTERS} letters at most")
    if bits and not all(re.fullmatch(r"[+-]?\d+", word) for word in words):
        raise refuse(text, f"values of {kind} are whole numbers")
    low, high = (int(word) if bits else float(word) for word in words)
    if low > high:
        raise refuse(text, f"the range {values} holds no value: {words[0]} is larger than {words[1]}")
    if bits:
        least, most = (
            (0, 2**bits - 1) if kind in ("uint8", "bool") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        if low < least or high > most:
            raise refuse(text, f"values of {kind} lie in {least}..{most}")
    return low, high


def refuse(text: str, why: str) -> ModelReferenceError:
    """The refusal of one `--input`."""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return ModelReferenceError(f"--input {shown} is no input", why=why, fix=FORMS)
