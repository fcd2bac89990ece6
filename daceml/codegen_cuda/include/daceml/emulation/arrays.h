// Arrays of a kernel between pages that nobody may touch: who leaves one stops the run, and the message says where.
#pragma once

#include <cstddef>

namespace daceml::emulation {

// Which end of an array touches its page; the other end has room up to the next page, filled with a pattern.
enum class Edge : int { end = 0, begin = 1 };

// Memory of `bytes`, aligned to 16 as torch's is at least; a null pointer if there is none left. Arrays that end
// between two multiples of 16 have a pattern behind them.
void* make_array(const char* name, std::size_t bytes, Edge edge);

// Frees all arrays.
void free_arrays();

// 0, or 1 with a message in `error()`: somebody wrote into a pattern.
int check_arrays();

}  // namespace daceml::emulation
