// Numbers of 16 bits: stored as such, computed as float. Conversions round to nearest, ties to even; NaN stays NaN.
#pragma once

#include <daceml/device.h>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace dace {

#if defined(__CUDACC__)
struct IeeeHalf {
    static __device__ __forceinline__ std::uint16_t of(float x) { return __half_as_ushort(__float2half_rn(x)); }
    static __device__ __forceinline__ float to(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
};
struct BrainFloat {
    static __device__ __forceinline__ std::uint16_t of(float x) {
        return __bfloat16_as_ushort(__float2bfloat16_rn(x));
    }
    static __device__ __forceinline__ float to(std::uint16_t bits) {
        return __bfloat162float(__ushort_as_bfloat16(bits));
    }
};
#define DACEML_CONVERSION __device__ __forceinline__
#else
// 10 bits behind the point, and 5 of the exponent.
struct IeeeHalf {
    static std::uint16_t of(float x) {
        const auto bits = same_bits<std::uint32_t>(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return std::uint16_t(sign | 0x7e00u);
        if (magnitude >= 0x47800000u) return std::uint16_t(sign | 0x7c00u);
        if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to
            const float shifted = same_bits<float>(magnitude) + 0.5f;
            return std::uint16_t(sign | (same_bits<std::uint32_t>(shifted) - 0x3f000000u));
        }
        const std::uint32_t even = magnitude >> 13 & 1u;
        return std::uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + even) >> 13));
    }
    static float to(std::uint16_t bits) {
        const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
        if (magnitude >= 0x7c00u) return same_bits<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
        if (magnitude < 0x400u) return same_bits<float>(sign | same_bits<std::uint32_t>(float(magnitude) * 0x1p-24f));
        return same_bits<float>(sign | ((magnitude << 13) + 0x38000000u));
    }
};
// The upper half of a float.
struct BrainFloat {
    static std::uint16_t of(float x) {
        const auto bits = same_bits<std::uint32_t>(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t((bits >> 16) | 0x40u);
        return std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
    static float to(std::uint16_t bits) { return same_bits<float>(std::uint32_t(bits) << 16); }
};
#define DACEML_CONVERSION inline
#endif

template <typename Format>
struct alignas(2) Narrow {
    std::uint16_t bits;
    Narrow() = default;
    DACEML_CONVERSION explicit Narrow(float x) : bits(Format::of(x)) {}
    template <typename T>
    DACEML_CONVERSION explicit Narrow(T x) : Narrow(static_cast<float>(x)) {}
    DACEML_CONVERSION operator float() const { return Format::to(bits); }
};
using float16 = Narrow<IeeeHalf>;
using bfloat16 = Narrow<BrainFloat>;
#undef DACEML_CONVERSION

}  // namespace dace
