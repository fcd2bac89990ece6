// What a symbolic size may call; DaCe prints these names.
#pragma once

#include <stdint.h>

namespace {

static inline int64_t int_floor(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t int_ceil(int64_t a, int64_t b) { return -int_floor(-a, b); }
static inline int64_t Abs(int64_t a) { return a < 0 ? -a : a; }
template <typename... T> static inline int64_t Max(int64_t a, T... rest) {
  ((a = a < (int64_t)rest ? (int64_t)rest : a), ...);
  return a;
}
template <typename... T> static inline int64_t Min(int64_t a, T... rest) {
  ((a = a > (int64_t)rest ? (int64_t)rest : a), ...);
  return a;
}

}  // namespace
