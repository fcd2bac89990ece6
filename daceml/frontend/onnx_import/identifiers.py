"""ONNX names made into identifiers that Python, C++ and dace all take."""

from __future__ import annotations

import keyword
import re

_CPP_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
""".split()  # noqa: SIM905  (reads as prose)
_PYTHON_KEYWORDS = [*keyword.kwlist, *keyword.softkwlist]
# Functions and types that generated code calls by plain names; an array of that name would hide them.
_CODE_NAMES = """
abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs
floor fma fmax fmin fmod int_ceil int_floor isfinite isinf isnan lgamma log log10 log1p log2 max min
nearbyint pow remainder rint round rsqrt sigmoid sign signbit sin sinh sqrt tan tanh tgamma trunc
select clamp without_gradient rectify
whole_int8 whole_uint8 whole_int16 whole_uint16 whole_int32 whole_int64
int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 half
complex64 complex128 int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t
ptrdiff_t intptr_t uintptr_t std dace math np numpy torch sympy main errno assert stdin stdout
stderr NULL INFINITY NAN EOF I M_PI linux unix
""".split()  # noqa: SIM905  (reads as prose)
RESERVED: frozenset[str] = frozenset([*_CPP_KEYWORDS, *_PYTHON_KEYWORDS, *_CODE_NAMES])

# i0, k0, … are parameters of maps; names with a leading underscore belong to dace and the C++ library.
_MAP_PARAMETER = re.compile(r"[ik]\d+")


def identifier(name: str) -> str:
    """An identifier that resembles the name: `/layer1/conv/Conv_output_0` -> `layer1_conv_Conv_output_0`."""
    text = re.sub(r"[^0-9A-Za-z]+|_+", "_", name).strip("_")
    if not text:
        return "v"
    if text[0].isdigit() or _MAP_PARAMETER.fullmatch(text):
        return "v_" + text
    return text + "_" if text in RESERVED else text


class Names:
    """Gives each name an identifier that no other name has; the same name always gets the same one."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._given: dict[str, str] = {}
        self._taken: set[str] = set(taken)

    def __getitem__(self, name: str) -> str:
        if name not in self._given:
            self._given[name] = self.fresh(name)
        return self._given[name]

    def fresh(self, name: str) -> str:
        """An identifier that resembles the name and is given to nothing else."""
        stem = identifier(name)
        candidate, count = stem, 0
        while candidate in self._taken:
            count += 1
            candidate = f"{stem.rstrip('_')}_{count}"
        self._taken.add(candidate)
        return candidate
