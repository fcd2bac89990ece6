// Functions of glibc's vector library (libmvec, at most 4 ulp, right for infinities, NaN and denormals) with the same
// bits wherever they are called: alone, in vectors of any width, and in what is left over behind the last vector.
//
// libmvec's functions for 2, 4 and 8 lanes and the scalar ones of libm differ in the last place, so a value that two
// loops compute would not be the same in both, and x == x.amax() would not find it. Here every form is the widest of
// the processor (vector_lanes.cpp), and gcc vectorises loops that call it. Elsewhere they are the functions of <math.h>.
#pragma once

#include <math.h>

#define DACEML_LANES_OF_UNARY(each) \
    each(exp) each(log) each(log1p) each(expm1) each(tanh) each(erf) each(erfc) each(sin) each(cos) each(tan) \
    each(asin) each(acos) each(atan) each(sinh) each(cosh) each(asinh) each(acosh) each(atanh)

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(__CUDACC__)
#if __GLIBC_PREREQ(2, 35)
#define DACEML_HAS_VECTOR_LANES 1
#endif
#endif

namespace daceml {
namespace vectorised {

#ifdef DACEML_HAS_VECTOR_LANES
#ifndef DACEML_LANES_SIMD  // where they are defined
#define DACEML_LANES_SIMD extern "C" __attribute__((__const__, __simd__("notinbranch")))
#endif
#define DACEML_LANES_UNARY(name)                                                    \
    DACEML_LANES_SIMD double daceml_##name(double) noexcept;                        \
    DACEML_LANES_SIMD float daceml_##name##f(float) noexcept;                       \
    inline double name(double x) { return daceml_##name(x); }                       \
    inline float name(float x) { return daceml_##name##f(x); }
DACEML_LANES_OF_UNARY(DACEML_LANES_UNARY)
DACEML_LANES_SIMD double daceml_pow(double, double) noexcept;
DACEML_LANES_SIMD float daceml_powf(float, float) noexcept;
inline double pow(double a, double b) { return daceml_pow(a, b); }
inline float pow(float a, float b) { return daceml_powf(a, b); }
#undef DACEML_LANES_SIMD
#else
#define DACEML_LANES_UNARY(name)                        \
    inline double name(double x) { return ::name(x); }  \
    inline float name(float x) { return ::name##f(x); }
DACEML_LANES_OF_UNARY(DACEML_LANES_UNARY)
inline double pow(double a, double b) { return ::pow(a, b); }
inline float pow(float a, float b) { return ::powf(a, b); }
#endif
#undef DACEML_LANES_UNARY

}  // namespace vectorised
}  // namespace daceml
