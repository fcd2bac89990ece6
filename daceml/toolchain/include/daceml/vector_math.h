// Functions of float that gcc vectorises by itself: no branch, no table, no call, the same bits in every lane and in
// what is left over behind the last vector.
//
// Generated kernels stand in namespace daceml::kernel (`codegen/kernel_source.py`), so the plain names of their tasklets
// find these functions first; double, and functions that have no polynomial here, are those of <daceml/vector_lanes.h>.
// The largest errors over all 2^32 arguments, in units
// in the last place of the result (of denormals too; `python -m benchmarks.vector_math`): exp 1.04, expm1 1.61,
// log 1.52, log1p 1.62, tanh 2.61, erf 1.85, sigmoid 2.41.
// Polynomials are minimax fits whose coefficients were rounded to float one after the other, the rest fitted again.
// Infinities, NaN, signed zeros, overflow, underflow and denormal numbers are as IEEE 754 and C have them; rounding
// is to nearest. Device compilers have functions of their own, and keep them.
#pragma once

#include <daceml/scalar_math.h>
#include <daceml/vector_lanes.h>

namespace daceml {
namespace kernel {

#if defined(__CUDACC__) || defined(__HIPCC__)
using ::exp;
using ::expm1;
using ::log;
using ::log1p;
using ::tanh;
using ::erf;
using ::sigmoid;
#else

namespace parts {

// a b + c. Where the processor has no such instruction, fmaf is a call; the product is exact in double, and the sum
// is rounded twice, which is at most 2^-29 units in the last place more.
inline float fused(float a, float b, float c) {
#if defined(__FP_FAST_FMAF) || defined(__FMA__)
    return __builtin_fmaf(a, b, c);
#else
    return float(double(a) * double(b) + double(c));
#endif
}

// Polynomials by halves, so that a processor has several operations to do at once; x2 is x^2.
inline float quartic(float x, float x2, float c0, float c1, float c2, float c3, float c4) {
    return fused(fused(c4, x2, fused(c3, x, c2)), x2, fused(c1, x, c0));
}
inline float octic(float x, float x2, float c0, float c1, float c2, float c3, float c4, float c5, float c6, float c7,
                   float c8) {
    return fused(quartic(x, x2, c4, c5, c6, c7, c8), x2 * x2, fused(fused(c3, x, c2), x2, fused(c1, x, c0)));
}

constexpr float log2_e = 0x1.715476p+0f;
// log 2 in two parts; the first has 9 bits to spare, so a product with an exponent is exact
constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;

// x = n log 2 + r, with n whole and |r| at most log(2) / 2.
struct Reduced {
    float r;
    std::uint32_t n;  // what holds n in its low bits, as two's complement; the rest is shifted out
};
inline Reduced reduced(float x) {
    // so large that no bit stands behind the point: adding it rounds to a whole number
    constexpr float whole = 0x1.8p+23f;
    const float sum = fused(x, log2_e, whole);
    const float n = sum - whole;
    return {fused(n, -ln2_low, fused(n, -ln2_high, x)), same_bits<std::uint32_t>(sum)};
}
// 2^n for -127 < n < 128.
inline float power_of_two(std::uint32_t n) {
    return same_bits<float>((n + 127u) << 23);
}

// e^r = 1 + r + r^2 q(r), q of degree 4, relative error 2^-28.2.
inline float exp_reduced(float r) {
    const float r2 = r * r;
    const float q = quartic(r, r2, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558b0p-5f, 0x1.12398ep-7f, 0x1.6a4d60p-10f);
    return 1.0f + fused(q, r2, r);
}
// The least x for which e^x is a normal number, and one from which on down it is 0.
constexpr float least_normal = -0x1.5d589ep+6f, zero_from = -104.0f;
// p 2^n for e^x below the normal numbers: a whole number of the smallest one, rounded behind 2^23. A product that
// underflows would take the processor a hundred cycles, and masks make many of them.
inline float scaled_below(float p, std::uint32_t n) {
    const float count = fused(p, power_of_two(n + 149u), 0x1p+23f);
    return same_bits<float>(same_bits<std::uint32_t>(count) - same_bits<std::uint32_t>(0x1p+23f));
}

// e^r - 1 for the reduced r, with q of degree 4 as above, of relative error 2^-26.1 to e^r - 1.
inline float expm1_reduced(float r) {
    const float r2 = r * r;
    const float q = quartic(r, r2, 0x1.fffffep-2f, 0x1.5554b4p-3f, 0x1.5556f2p-5f, 0x1.12254ap-7f, 0x1.6b9c68p-10f);
    return fused(q, r2, r);
}

// log(1 + f) = f - f^2 / 2 + f^3 p(f) for f in [sqrt(1/2) - 1, sqrt(2) - 1], p of degree 8, relative error 2^-30.3;
// and n log 2 added.
inline float log_of(float f, float n) {
    const float f2 = f * f;
    const float p = octic(f, f2, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a47ap-3f, -0x1.555c4cp-3f, 0x1.233b2ap-3f,
                          -0x1.fc269ap-4f, 0x1.e6c66cp-4f, -0x1.de1440p-4f, 0x1.147a2ep-4f);
    const float tail = fused(fused(p, f, -0.5f), f2, n * ln2_low);
    return fused(n, ln2_high, f) + tail;
}
// The exponent of a positive normal number, above which its fraction lies in [sqrt(1/2), sqrt(2)).
constexpr std::int32_t root_half = 0x3f3504f3;
inline std::int32_t exponent_of(float x) {
    return (same_bits<std::int32_t>(x) - root_half) >> 23;
}

// log(x) and log1p(x - 1) where they are no number or infinite, else y.
inline float log_edges(float x, float y) {
    const float infinite = std::numeric_limits<float>::infinity();
    y = x < infinite ? y : x;
    y = x == 0.0f ? -infinite : y;
    return x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : y;
}

}  // namespace parts

inline float exp(float x) {
    const parts::Reduced part = parts::reduced(x);
    const float p = parts::exp_reduced(part.r);
    // 2^128 is no number, but its product with p may be one
    float y = same_bits<float>(same_bits<std::uint32_t>(p) + (part.n << 23));
    const float below = parts::scaled_below(p, part.n);
    y = x < parts::least_normal ? below : y;
    y = x < parts::zero_from ? 0.0f : y;
    return x < 0x1.62e430p+6f ? y : x + std::numeric_limits<float>::infinity();
}

// 1 / (1 + e^-x), with no exponential of a positive number: e^x / (1 + e^x) for x < 0 keeps small results.
inline float sigmoid(float x) {
    const float a = -__builtin_fabsf(x);
    const parts::Reduced part = parts::reduced(a);
    const float p = parts::exp_reduced(part.r);
    const float below = parts::scaled_below(p, part.n);
    float e = a < parts::least_normal ? below : p * parts::power_of_two(part.n);
    e = a < parts::zero_from ? 0.0f : e;
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// 2^n (e^r - 1) + (2^n - 1)
inline float expm1(float x) {
    const float high = x > 89.0f ? 89.0f : x;
    const parts::Reduced part = parts::reduced(high < -18.0f ? -18.0f : high);
    // half of it, as 2^128 is no number
    const float half = parts::power_of_two(part.n - 1u);
    const float y = 2.0f * parts::fused(half, parts::expm1_reduced(part.r), half - 0.5f);
    // denormals have no halves, and -0 its sign
    return __builtin_fabsf(x) < 0x1p-25f ? x : y;
}

// t / (t + 2) with t = e^(2 |x|) - 1.
inline float tanh(float x) {
    const float a = __builtin_fabsf(x);
    const parts::Reduced part = parts::reduced(2.0f * (a > 9.1f ? 9.1f : a));
    const float power = parts::power_of_two(part.n);
    const float t = parts::fused(power, parts::expm1_reduced(part.r), power - 1.0f);
    return __builtin_copysignf(t / (t + 2.0f), x);
}

// 1 - e^-u with u = -log(erfc(|x|)) = |x| (2 / sqrt(pi) + r(|x|)), r of degree 8 up to 3.93, where erf is 1:
// relative error 2^-27.9 to erf.
inline float erf(float x) {
    const float a = __builtin_fabsf(x) > 3.93f ? 3.93f : __builtin_fabsf(x);
    const float r = parts::octic(a, a * a, -0x1.d0e2f2p-25f, 0x1.45f2fap-1f, 0x1.a4fa4ap-4f, -0x1.39cc9cp-6f,
                                 -0x1.516f9ep-13f, 0x1.b52192p-10f, -0x1.4bed7ep-11f, 0x1.edba50p-14f, -0x1.36daecp-17f);
    const parts::Reduced part = parts::reduced(-parts::fused(a, 0x1.20dd76p+0f, a * r));
    const float power = parts::power_of_two(part.n);
    return __builtin_copysignf(parts::fused(-power, parts::expm1_reduced(part.r), 1.0f - power), x);
}

inline float log(float x) {
    const bool denormal = x < 0x1p-126f;
    const float scaled = denormal ? x * 0x1p+25f : x;
    const std::int32_t n = parts::exponent_of(scaled);
    const float fraction = same_bits<float>(same_bits<std::int32_t>(scaled) - (n << 23));
    return parts::log_edges(x, parts::log_of(fraction - 1.0f, float(denormal ? n - 25 : n)));
}

// 1 + x = 2^n (1 + f), and f = 2^-n x + (2^-n - 1) is rounded once.
inline float log1p(float x) {
    const float sum = 1.0f + x;
    const std::int32_t n = parts::exponent_of(sum);
    const float scale = parts::power_of_two(std::uint32_t(-n));
    const float fraction = same_bits<float>(same_bits<std::int32_t>(sum) - (n << 23));
    // far out the sum is x itself, and 2^-n may be denormal
    const float f = x < 0x1p+30f ? parts::fused(x, scale, scale - 1.0f) : fraction - 1.0f;
    const float y = parts::log_edges(sum, parts::log_of(f, float(n)));
    return __builtin_fabsf(x) < 0x1p-25f ? x : y;
}

template <typename T>
using Arithmetic = std::enable_if_t<std::is_arithmetic<T>::value>*;
// Of a float itself, of a double and of integers as of a double.
template <typename... T>
using Floating = std::conditional_t<(std::is_same<T, float>::value && ...), float, double>;

#define DACEML_OTHER_TYPES(name)                       \
    template <typename T, Arithmetic<T> = nullptr>     \
    inline Floating<T> name(T x) {                     \
        return vectorised::name(Floating<T>(x));            \
    }
DACEML_LANES_OF_UNARY(DACEML_OTHER_TYPES)
#undef DACEML_OTHER_TYPES

template <typename T, Arithmetic<T> = nullptr>
inline double sigmoid(T x) {
    return 1.0 / (1.0 + vectorised::exp(-double(x)));
}
template <typename A, typename B, Arithmetic<A> = nullptr, Arithmetic<B> = nullptr>
inline Floating<A, B> pow(A a, B b) {
    return vectorised::pow(Floating<A, B>(a), Floating<A, B>(b));
}

#endif

}  // namespace kernel
}  // namespace daceml
