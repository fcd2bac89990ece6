// Stores past the caches, and hints for what will be read.
//
// Such stores become visible to other threads at their own thread's next locked instruction, which the barrier at
// the end of a parallel loop has, and every lock. Where the processor has none of them, they are plain ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace daceml {
namespace kernel {

constexpr std::size_t line_bytes = 64;

#if defined(__CUDACC__) || defined(__HIPCC__) || !defined(__SSE__)
#define DACEML_STREAMS 0
#elif defined(__clang__)
#define DACEML_STREAMS 1
typedef float StreamPart __attribute__((vector_size(16)));
inline void stream_part(char* to, StreamPart part) {
    __builtin_nontemporal_store(part, reinterpret_cast<StreamPart*>(to));
}
#else
#define DACEML_STREAMS 1
#if defined(__AVX512F__)
typedef float StreamPart __attribute__((vector_size(64)));
#define DACEML_STORE __builtin_ia32_movntps512
#elif defined(__AVX__)
typedef float StreamPart __attribute__((vector_size(32)));
#define DACEML_STORE __builtin_ia32_movntps256
#else
typedef float StreamPart __attribute__((vector_size(16)));
#define DACEML_STORE __builtin_ia32_movntps
#endif
inline void stream_part(char* to, StreamPart part) {
    DACEML_STORE(reinterpret_cast<float*>(to), part);
}
#undef DACEML_STORE
#endif

// to[0 .. count) = from[0 .. count); the caches have what is no whole line.
template <typename T>
inline void stream(T* to, const T* from, std::ptrdiff_t count) {
    char* out = reinterpret_cast<char*>(to);
    const char* in = reinterpret_cast<const char*>(from);
    std::size_t left = std::size_t(count) * sizeof(T);
#if DACEML_STREAMS
    std::size_t head = (line_bytes - reinterpret_cast<std::uintptr_t>(out) % line_bytes) % line_bytes;
    head = head < left ? head : left;
    if (head) {
        std::memcpy(out, in, head);
        out += head, in += head, left -= head;
    }
    for (; left >= line_bytes; left -= line_bytes) {
        for (std::size_t at = 0; at < line_bytes; at += sizeof(StreamPart)) {
            StreamPart part;
            std::memcpy(&part, in + at, sizeof part);
            stream_part(out + at, part);
        }
        out += line_bytes, in += line_bytes;
    }
#endif
    if (left) std::memcpy(out, in, left);
}

// from[ahead .. ahead + count) will be read soon, if it exists.
template <typename T>
inline void fetch(const T* from, std::ptrdiff_t ahead, std::ptrdiff_t count) {
#if !defined(__CUDACC__) && !defined(__HIPCC__)
    std::uintptr_t at = reinterpret_cast<std::uintptr_t>(from) + ahead * sizeof(T);
    for (const std::uintptr_t end = at + count * sizeof(T); at < end; at += line_bytes) {
        __builtin_prefetch(reinterpret_cast<const void*>(at));
    }
#endif
}

}  // namespace kernel
}  // namespace daceml
