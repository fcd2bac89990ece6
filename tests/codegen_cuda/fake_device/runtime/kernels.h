// Launches of emulated kernels: checked as CUDA checks them, and put into their stream.
#pragma once

#include <daceml/emulation/threads.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <type_traits>

namespace fake {

// 0, or CUDA's code: sizes, stream and pointers are not what the current device can run.
int launch(const char* kernel, std::int64_t const (&sizes)[6], std::int64_t shared_bytes, void* stream,
           std::initializer_list<const void*> pointers, std::function<void()> body);

template <typename T>
const void* pointer_of(const T& argument) {
    if constexpr (std::is_pointer_v<T>) return argument;
    return nullptr;
}

}  // namespace fake
