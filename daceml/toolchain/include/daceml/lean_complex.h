// <complex> without <sstream>, of which only its operators for streams make use: no generated kernel calls them.
//
// Strings and streams are half of the precompiled header of kernels, and gcc instantiates 300 functions of theirs again for
// every text that includes it. DACEML_LEAN_COMPLEX is defined where the toolchain has seen that this compiles.
#pragma once

#if defined(DACEML_LEAN_COMPLEX) && defined(__GLIBCXX__) && !defined(_GLIBCXX_SSTREAM)

#include <array>
#include <cmath>
#include <iosfwd>

// what <complex> names and <iosfwd> does not define
struct DacemlStreamState {
    static constexpr int failbit = 4;
};

#define _GLIBCXX_SSTREAM 1
#define ios_base DacemlStreamState
#include <complex>
#undef ios_base
#undef _GLIBCXX_SSTREAM

#else

#include <complex>

#endif
