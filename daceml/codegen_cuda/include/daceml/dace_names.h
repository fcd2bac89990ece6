// The names that DaCe's code generator prints, without DaCe's own headers, which bring CUB and take seconds to read.
#pragma once

#include <daceml/halves.h>

#define DACE_ALIGN(bytes) __attribute__((aligned(bytes)))

namespace dace {

using int8 = std::int8_t;
using int16 = std::int16_t;
using int32 = std::int32_t;
using int64 = std::int64_t;
using uint8 = std::uint8_t;
using uint16 = std::uint16_t;
using uint32 = std::uint32_t;
using uint64 = std::uint64_t;
using float32 = float;
using float64 = double;

namespace math {
// A power of a size, as code for a place in an array has it.
template <typename T>
DACEML_HD std::int64_t ipow(T base, unsigned exponent) {
    std::int64_t power = 1;
    while (exponent-- > 0) power *= base;
    return power;
}
}  // namespace math

enum class ReductionType { Sum, Product, Min, Max };

// An accumulator belongs to one thread: no atomic operation adds to it.
template <ReductionType type, typename T>
struct wcr_fixed {
    DACEML_HD static T reduce(T* place, const T& value) {
        if constexpr (type == ReductionType::Sum) return *place = *place + value;
        if constexpr (type == ReductionType::Product) return *place = *place * value;
        if constexpr (type == ReductionType::Min) return *place = *place < value ? *place : value;
        return *place = *place > value ? *place : value;
    }
};
template <typename T>
struct wcr_custom {
    template <typename Operator>
    DACEML_HD static T reduce(Operator join, T* place, const T& value) {
        return *place = join(*place, value);
    }
};

}  // namespace dace

// Generated kernels stand in this namespace.
namespace daceml::kernel {

template <typename A, typename B>
DACEML_HD std::int64_t int_floor(A a, B b) {
    return floor_div(std::int64_t(a), std::int64_t(b));
}
template <typename A, typename B>
DACEML_HD std::int64_t int_ceil(A a, B b) {
    return -floor_div(-std::int64_t(a), std::int64_t(b));
}
template <typename A, typename B>
DACEML_HD std::common_type_t<A, B> py_mod(A a, B b) {
    return floor_mod<std::common_type_t<A, B>>(a, b);
}
template <typename A, typename B>
DACEML_HD std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}
template <typename A, typename B>
DACEML_HD std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}
template <typename A, typename B>
DACEML_HD std::common_type_t<A, B> Min(A a, B b) {
    return min(a, b);
}
template <typename A, typename B>
DACEML_HD std::common_type_t<A, B> Max(A a, B b) {
    return max(a, b);
}
template <typename T>
DACEML_HD T sign(T x) {
    return T((T(0) < x) - (x < T(0)));
}
using ::abs;
DACEML_HD std::uint8_t abs(std::uint8_t x) { return x; }
DACEML_HD std::uint16_t abs(std::uint16_t x) { return x; }
DACEML_HD std::uint32_t abs(std::uint32_t x) { return x; }
DACEML_HD std::uint64_t abs(std::uint64_t x) { return x; }

}  // namespace daceml::kernel
