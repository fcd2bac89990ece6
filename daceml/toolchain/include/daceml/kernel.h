// What generated kernels use of DaCe's runtime, and the functions that tasklets call.
//
// <dace/dace.h> is this with streams, timers and files, which a kernel does not have: as a precompiled
// header it is twice as large, and loading it is most of the time in which a small kernel compiles.
#pragma once

#include <daceml/lean_library.h>

#include <daceml/lean_complex.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>
#include <tuple>
#include <type_traits>

// in the order of <dace/dace.h>: each of them needs those before it
#include <dace/types.h>
#include <dace/vector.h>
#include <dace/intset.h>
#include <dace/math.h>
#include <dace/complex.h>
#include <dace/pyinterop.h>
#include <dace/reduction.h>
#include <dace/copy.h>
#include <dace/alloc.h>

#include <daceml/scalar_math.h>
#include <daceml/streaming.h>
#include <daceml/tiles.h>
#include <daceml/vector_math.h>

// The byte that holds a bool: gcc vectorises loops that load it, and none that load a bool.
inline std::uint8_t byte_of(const bool& element) {
    return *reinterpret_cast<const std::uint8_t*>(&element);
}
