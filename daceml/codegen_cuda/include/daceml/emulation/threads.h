// CUDA's threads on a processor, for tests: each thread of a block is a fibre, barriers are exact.
//
// A kernel is compiled as C++ against this header and run block after block. A thread runs until it must wait; the
// scheduler then goes on with another one, in the order that was asked for. What a real device would do in some way
// or other is an error here, with a sentence: a barrier that not all threads of the block reach, a shuffle whose mask
// names lanes that are elsewhere, a value read from a lane that takes no part, shared memory that two threads use
// without a barrier between them (`shared.h`), an array that is left (`arrays.h`).
#pragma once

#include <cstddef>
#include <cstdint>

namespace daceml::emulation {

constexpr int warp_lanes = 32;
constexpr std::uint32_t all_lanes = 0xffffffffu;

struct Size3 {
    std::uint32_t x = 1, y = 1, z = 1;
};

// The thread that runs.
struct Position {
    Size3 thread_index, block_index, block_size, grid_size;
    std::uint32_t linear;  // in its block; lane and warp follow from it
    std::uint32_t lane() const { return linear % warp_lanes; }
    std::uint32_t warp() const { return linear / warp_lanes; }
};
extern Position* current;

// Order in which threads of a block, and blocks, go on: the result of a right kernel does not depend on it.
enum class Order : std::int32_t { ascending = 0, descending = 1, random = 2 };

struct Launch {
    Size3 grid, block;
    std::size_t dynamic_shared_bytes = 0;
};

// Run `body(argument)` once for every thread of every block. 0, or 1 with a message in `error()`.
int run(const Launch& launch, void (*body)(void*), void* argument);

// Of the runs that follow; `seed` is for the random one.
void set_order(Order order, std::uint64_t seed);

// What went wrong in the last run: a sentence; empty if nothing.
const char* error();

// Stop the run from within a thread. Does not return.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- what threads call

// Wait for all threads of the block. `line` tells one barrier from another.
void synchronize_block(int line = __builtin_LINE());

// What a warp does together: every lane of `mask` gives 8 bytes, and all go on when the last one has come.
enum class Together : std::int32_t { barrier, shuffle, vote, reduce };
const char* name_of(Together what);

// The values of all lanes of `mask`, which this lane takes part in; valid until it waits again.
const std::uint64_t* exchange(Together what, std::uint32_t mask, std::uint64_t value);

// The value that lane `source` gave to a shuffle; an error if it takes no part.
std::uint64_t taken_from(const std::uint64_t* values, std::uint32_t mask, std::uint32_t source);

// What has happened so far: barriers between two moments order what was done before and after.
struct Moment {
    std::uint32_t block = 0;  // barriers of the block
    std::uint32_t warp = 0;   // barriers and exchanges of the warp
};
Moment now();

// Shared memory of the block that runs, by what identifies the declaration; made and marked as unwritten at first.
void* shared_memory(const void* declaration, std::size_t bytes, std::size_t shadow_bytes, void** shadow);

// Dynamic shared memory of the block that runs.
void* dynamic_shared_memory();

// Atomic operations that a run has done, of all threads.
std::uint64_t atomics();
void count_atomic();

}  // namespace daceml::emulation
