// What CUDA adds to C++, for a C++ compiler: keywords, the position of a thread, barriers, warps, atomics, launches.
#pragma once

#include <daceml/lean_library.h>

#include <daceml/emulation/shared.h>
#include <daceml/emulation/threads.h>

#include <cstring>
#include <type_traits>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::daceml::emulation::current->thread_index)
#define blockIdx (::daceml::emulation::current->block_index)
#define blockDim (::daceml::emulation::current->block_size)
#define gridDim (::daceml::emulation::current->grid_size)

#define __syncthreads() ::daceml::emulation::synchronize_block(__LINE__)

// An array of the block: T name[count].
#define DACEML_SHARED(T, name, count)                       \
    static const char name##_declaration = 0;               \
    const ::daceml::emulation::Shared<T> name(&name##_declaration, count, #name)

// Run `kernel(...)`; 0, or a code and `error()`.
#define DACEML_LAUNCH(kernel, gx, gy, gz, bx, by, bz, shared_bytes, stream, ...)                                      \
    ::daceml::emulation::launch({{std::uint32_t(gx), std::uint32_t(gy), std::uint32_t(gz)},                           \
                                 {std::uint32_t(bx), std::uint32_t(by), std::uint32_t(bz)}, std::size_t(shared_bytes)}, \
                                [&] { kernel(__VA_ARGS__); })

namespace daceml {

// A device so small that blocks go round in kernels of a few thousand threads, see `daceml/device.h`.
inline std::int64_t threads_at_once() { return 1024; }

}  // namespace daceml

namespace daceml::emulation {

template <typename Body>
int launch(const Launch& how, Body body) {
    return run(how, [](void* argument) { (*static_cast<Body*>(argument))(); }, &body);
}

template <typename T>
std::uint64_t packed(T value) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "4 or 8 bytes, as CUDA has it");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <typename T>
T unpacked(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

// Lanes are divided into segments of `width`; who asks beyond its own has its own value.
template <typename T>
T shuffle(std::uint32_t mask, T value, std::int64_t source, int width) {
    const std::int64_t lane = current->lane(), begin = lane / width * width;
    const auto* values = exchange(Together::shuffle, mask, packed(value));
    const bool inside = source >= begin && source < begin + width;
    return unpacked<T>(taken_from(values, mask, std::uint32_t(inside ? source : lane)));
}

template <typename T, typename Operator>
T reduced(std::uint32_t mask, T value, Operator join) {
    const auto* values = exchange(Together::reduce, mask, packed(value));
    T result = value;
    for (std::uint32_t lane = 0; lane < warp_lanes; ++lane)
        if ((mask >> lane & 1) != 0 && lane != current->lane()) result = join(result, unpacked<T>(values[lane]));
    return result;
}

template <typename T, typename Operator>
T atomically(T* place, Operator change) {
    count_atomic();
    const T before = *place;
    *place = change(before);
    return before;
}

}  // namespace daceml::emulation

template <typename T>
T __shfl_sync(std::uint32_t mask, T value, int lane, int width = 32) {
    const int begin = int(daceml::emulation::current->lane()) / width * width;
    return daceml::emulation::shuffle(mask, value, begin + (lane & (width - 1)), width);
}
template <typename T>
T __shfl_xor_sync(std::uint32_t mask, T value, int lanes, int width = 32) {
    return daceml::emulation::shuffle(mask, value, daceml::emulation::current->lane() ^ std::uint32_t(lanes), width);
}
template <typename T>
T __shfl_down_sync(std::uint32_t mask, T value, unsigned delta, int width = 32) {
    return daceml::emulation::shuffle(mask, value, std::int64_t(daceml::emulation::current->lane()) + delta, width);
}
template <typename T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned delta, int width = 32) {
    return daceml::emulation::shuffle(mask, value, std::int64_t(daceml::emulation::current->lane()) - delta, width);
}
inline void __syncwarp(std::uint32_t mask = 0xffffffffu) {
    daceml::emulation::exchange(daceml::emulation::Together::barrier, mask, 0);
}
inline std::uint32_t __ballot_sync(std::uint32_t mask, int predicate) {
    const auto* values = daceml::emulation::exchange(daceml::emulation::Together::vote, mask, predicate != 0);
    std::uint32_t lanes = 0;
    for (std::uint32_t lane = 0; lane < 32; ++lane) lanes |= std::uint32_t(values[lane] & 1) << lane;
    return lanes;
}
inline int __any_sync(std::uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(std::uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

template <typename T>
T __reduce_add_sync(std::uint32_t mask, T value) {
    return daceml::emulation::reduced(mask, value, [](T a, T b) { return T(a + b); });
}
template <typename T>
T __reduce_max_sync(std::uint32_t mask, T value) {
    return daceml::emulation::reduced(mask, value, [](T a, T b) { return a > b ? a : b; });
}
template <typename T>
T __reduce_min_sync(std::uint32_t mask, T value) {
    return daceml::emulation::reduced(mask, value, [](T a, T b) { return a < b ? a : b; });
}

template <typename T>
T atomicAdd(T* place, T value) {
    return daceml::emulation::atomically(place, [=](T before) { return T(before + value); });
}
template <typename T>
T atomicCAS(T* place, T expected, T value) {
    return daceml::emulation::atomically(place, [=](T before) { return before == expected ? value : before; });
}
