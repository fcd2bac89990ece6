// 128-bit accesses to memory: several neighbours at once, where their address is a multiple of their size.
#pragma once

#include <daceml/halves.h>

namespace daceml {

template <typename T, int count>
struct alignas(sizeof(T) * count) Vector {
    T elements[count];
};

// Whether a vector may be at an address.
template <int count, typename T>
DACEML_HD bool aligned(const T* address) {
    return reinterpret_cast<std::uintptr_t>(address) % (sizeof(T) * count) == 0;
}

namespace kernel {

// `target[0 .. extent) = source[0 .. extent)`; all `count` of them in one load, if the address allows it.
template <int count, typename T>
__device__ __forceinline__ void load_vector(const T* __restrict__ source, T* __restrict__ target, int extent) {
    if (extent == count && aligned<count>(source)) {
        const Vector<T, count> loaded = *reinterpret_cast<const Vector<T, count>*>(source);
#pragma unroll
        for (int i = 0; i < count; ++i) target[i] = loaded.elements[i];
    } else {
#pragma unroll
        for (int i = 0; i < count; ++i)
            if (i < extent) target[i] = source[i];
    }
}

// The same in one store.
template <int count, typename T>
__device__ __forceinline__ void store_vector(const T* __restrict__ source, T* __restrict__ target, int extent) {
    if (extent == count && aligned<count>(target)) {
        Vector<T, count> stored;
#pragma unroll
        for (int i = 0; i < count; ++i) stored.elements[i] = source[i];
        *reinterpret_cast<Vector<T, count>*>(target) = stored;
    } else {
#pragma unroll
        for (int i = 0; i < count; ++i)
            if (i < extent) target[i] = source[i];
    }
}

}  // namespace kernel
}  // namespace daceml
