// Functions that tasklets call by plain names, for float, double and integers; half types are widened before.
//
// Part of <daceml/kernel.h>, after DaCe's headers. exp, log, tanh, erf, erfc, pow, ... are the overloads that <math.h>
// brings into the global namespace; in generated kernels those of <daceml/vector_math.h>.
#pragma once

#include <math.h>
#include <string.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define DACEML_HD __host__ __device__ __forceinline__
#else
#define DACEML_HD inline
#endif

// Larger and smaller of two numbers, the first of equal ones; NaN if either is one, as torch and numpy have it. Two
// choices, and no `||`, which gcc does not vectorise; the first is one instruction.
template <typename T>
DACEML_HD T nan_max(T a, T b) {
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
template <typename T>
DACEML_HD T nan_min(T a, T b) {
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
}

// x, or 0 where it is less; NaN and -0.0 stay. One instruction.
template <typename T>
DACEML_HD T rectify(T x) {
    return x < T(0) ? T(0) : x;
}

// 1 / (1 + exp(-x)); 0 and 1 far out, never NaN for a number.
template <typename T, std::enable_if_t<std::is_floating_point<T>::value>* = nullptr>
DACEML_HD T sigmoid(T x) {
    return T(1) / (T(1) + exp(-x));
}

// The same bits as another type of the same width.
template <typename T, typename S>
DACEML_HD T same_bits(S x) {
    static_assert(sizeof(T) == sizeof(S), "types of one width");
    T result;
    memcpy(&result, &x, sizeof(T));
    return result;
}
template <typename S>
DACEML_HD float bits_float32(S x) {
    return same_bits<float>(x);
}
template <typename S>
DACEML_HD double bits_float64(S x) {
    return same_bits<double>(x);
}
template <typename S>
DACEML_HD std::int32_t bits_int32(S x) {
    return same_bits<std::int32_t>(x);
}
template <typename S>
DACEML_HD std::int64_t bits_int64(S x) {
    return same_bits<std::int64_t>(x);
}

// A floating-point number cut to an integer, as torch does it on x86: NaN and numbers beyond int32 or int64 become the
// lowest one, and narrower types take the last bits of an int32 (uint8 from double: of an int64). Spelled so that gcc
// does not take float(int(x)) for trunc(x), which loses that and has -0.0 for 0.
template <typename T, typename S>
DACEML_HD T whole(S x) {
#if defined(__CUDA_ARCH__)
    return T(x);
#else
    if constexpr (std::is_same_v<T, std::uint8_t> && std::is_same_v<S, double>) {
        return T(std::int64_t(x));
    } else if constexpr (sizeof(T) < sizeof(std::int32_t)) {
        return T(std::int32_t(x));
    } else {
        using U = std::make_unsigned_t<T>;
        return T(U(T(x)) | U(U(x != x) << (8 * sizeof(T) - 1)));
    }
#endif
}
template <typename S>
DACEML_HD std::int8_t whole_int8(S x) {
    return whole<std::int8_t>(x);
}
template <typename S>
DACEML_HD std::uint8_t whole_uint8(S x) {
    return whole<std::uint8_t>(x);
}
template <typename S>
DACEML_HD std::int16_t whole_int16(S x) {
    return whole<std::int16_t>(x);
}
template <typename S>
DACEML_HD std::uint16_t whole_uint16(S x) {
    return whole<std::uint16_t>(x);
}
template <typename S>
DACEML_HD std::int32_t whole_int32(S x) {
    return whole<std::int32_t>(x);
}
template <typename S>
DACEML_HD std::int64_t whole_int64(S x) {
    return whole<std::int64_t>(x);
}

// The operand itself: differentiation takes it for a constant.
template <typename T>
DACEML_HD T without_gradient(T x) {
    return x;
}

// Integer division towards zero. The processor traps on x / 0 and on the one quotient that does not fit: here they
// are 0 and the number itself.
template <typename T, std::enable_if_t<std::is_integral<T>::value>* = nullptr>
DACEML_HD T trunc_div(T a, T b) {
    if (b == T(0)) return T(0);
    if constexpr (std::is_signed<T>::value) {
        if (b == T(-1)) return T(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(a));
    }
    return T(a / b);
}

// Remainder with the sign of the dividend, as C has it; 0 for a divisor 0.
template <typename T, std::enable_if_t<std::is_integral<T>::value>* = nullptr>
DACEML_HD T trunc_mod(T a, T b) {
    if (b == T(0)) return T(0);
    if constexpr (std::is_signed<T>::value) {
        if (b == T(-1)) return T(0);
    }
    return T(a % b);
}
template <typename T, std::enable_if_t<std::is_floating_point<T>::value>* = nullptr>
DACEML_HD T trunc_mod(T a, T b) {
    return fmod(a, b);
}

// Quotient rounded down, and the remainder that goes with it: the sign is the divisor's, as Python has it.
template <typename T, std::enable_if_t<std::is_integral<T>::value>* = nullptr>
DACEML_HD T floor_mod(T a, T b) {
    const T r = trunc_mod(a, b);
    return (r != T(0) && ((r < T(0)) != (b < T(0)))) ? T(r + b) : r;
}
template <typename T, std::enable_if_t<std::is_floating_point<T>::value>* = nullptr>
DACEML_HD T floor_mod(T a, T b) {
    const T r = fmod(a, b);
    if (r == T(0)) return copysign(r, b);
    return ((r < T(0)) != (b < T(0))) ? r + b : r;
}
template <typename T, std::enable_if_t<std::is_integral<T>::value>* = nullptr>
DACEML_HD T floor_div(T a, T b) {
    const T q = trunc_div(a, b);
    return (b != T(0) && trunc_mod(a, b) != T(0) && ((a < T(0)) != (b < T(0)))) ? T(q - 1) : q;
}
template <typename T, std::enable_if_t<std::is_floating_point<T>::value>* = nullptr>
DACEML_HD T floor_div(T a, T b) {
    return floor(a / b);
}

// Shifts by any amount: bits that leave are lost, a shift by the width or more (or by a negative amount) loses all.
template <typename T, std::enable_if_t<std::is_integral<T>::value>* = nullptr>
DACEML_HD T shift_left(T a, T b) {
    using U = std::make_unsigned_t<T>;
    return U(b) < U(8 * sizeof(T)) ? T(std::uint64_t(U(a)) << U(b)) : T(0);
}
template <typename T, std::enable_if_t<std::is_integral<T>::value>* = nullptr>
DACEML_HD T shift_right(T a, T b) {
    using U = std::make_unsigned_t<T>;
    return U(b) < U(8 * sizeof(T)) ? T(a >> U(b)) : (a < T(0) ? T(-1) : T(0));
}

// a to the power b with wrap-around; a negative power is 0 except of 1 and -1.
template <typename T, std::enable_if_t<std::is_integral<T>::value>* = nullptr>
DACEML_HD T int_pow(T a, T b) {
    using U = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;
    if constexpr (std::is_signed<T>::value) {
        if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? ((b % 2) ? T(-1) : T(1)) : T(0);
    }
    U result = 1, factor = U(a);
    for (auto rest = std::make_unsigned_t<T>(b); rest != 0; rest = decltype(rest)(rest >> 1)) {
        if (rest & 1) result *= factor;
        factor *= factor;
    }
    return T(result);
}
