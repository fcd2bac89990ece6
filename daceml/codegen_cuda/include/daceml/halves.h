// Numbers of 16 bits: stored as such, computed as float. Conversions round to nearest, ties to even; NaN stays NaN.
#pragma once

#include <daceml/device.h>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace dace {

namespace bits {

#if !defined(__CUDACC__)
inline std::uint32_t of(float x) { return same_bits<std::uint32_t>(x); }

// A number of 16 bits with `mantissa` of them behind the point, as torch has it.
inline std::uint16_t half_of(float x) {
    const std::uint32_t bits = of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return std::uint16_t(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) return std::uint16_t(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to
        const float shifted = same_bits<float>(magnitude) + 0.5f;
        return std::uint16_t(sign | (of(shifted) - 0x3f000000u));
    }
    const std::uint32_t even = magnitude >> 13 & 1u;
    return std::uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + even) >> 13));
}
inline float float_of_half(std::uint16_t bits) {
    const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return same_bits<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude < 0x400u) {
        const float small = float(magnitude) * 0x1p-24f;
        return same_bits<float>(sign | of(small));
    }
    return same_bits<float>(sign | ((magnitude << 13) + 0x38000000u));
}
inline std::uint16_t bfloat_of(float x) {
    const std::uint32_t bits = of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t((bits >> 16) | 0x40u);
    return std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline float float_of_bfloat(std::uint16_t bits) { return same_bits<float>(std::uint32_t(bits) << 16); }
#endif

}  // namespace bits

struct alignas(2) float16 {
    std::uint16_t bits;
    float16() = default;
#if defined(__CUDACC__)
    DACEML_HD explicit float16(float x) : bits(__half_as_ushort(__float2half_rn(x))) {}
    DACEML_HD operator float() const { return __half2float(__ushort_as_half(bits)); }
#else
    explicit float16(float x) : bits(bits::half_of(x)) {}
    operator float() const { return bits::float_of_half(bits); }
#endif
    template <typename T>
    DACEML_HD explicit float16(T x) : float16(static_cast<float>(x)) {}
};

struct alignas(2) bfloat16 {
    std::uint16_t bits;
    bfloat16() = default;
#if defined(__CUDACC__)
    DACEML_HD explicit bfloat16(float x) : bits(__bfloat16_as_ushort(__float2bfloat16_rn(x))) {}
    DACEML_HD operator float() const { return __bfloat162float(__ushort_as_bfloat16(bits)); }
#else
    explicit bfloat16(float x) : bits(bits::bfloat_of(x)) {}
    operator float() const { return bits::float_of_bfloat(bits); }
#endif
    template <typename T>
    DACEML_HD explicit bfloat16(T x) : bfloat16(static_cast<float>(x)) {}
};

}  // namespace dace
