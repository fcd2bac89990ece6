// Loops of which kernels consist, to be timed: what this processor does with what this compiler makes of them.
// Compiled as a kernel is, with the same header and flags; `tuning/speed_loops.py` has their signatures.
#include <cstdint>

namespace daceml {
namespace kernel {
namespace {

constexpr std::int64_t block = 128;  // as `transformations/hardware/read_ahead.py` has it

template <typename F>
void each(float* __restrict__ y, const float* __restrict__ x, std::int64_t n, F f) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
}

}  // namespace

extern "C" {

void daceml_speed_exp(float* y, const float* x, std::int64_t n) {
    each(y, x, n, [](float a) { return exp(a); });
}
void daceml_speed_log(float* y, const float* x, std::int64_t n) {
    each(y, x, n, [](float a) { return log(a); });
}
void daceml_speed_erf(float* y, const float* x, std::int64_t n) {
    each(y, x, n, [](float a) { return erf(a); });
}
void daceml_speed_divide(float* y, const float* x, std::int64_t n) {
    each(y, x, n, [](float a) { return 1.5f / a; });
}
void daceml_speed_pow(float* y, const float* x, std::int64_t n) {
    each(y, x, n, [](float a) { return pow(a, 1.5f); });
}

// One addition that waits for the one before.
void daceml_speed_chain(float* y, const float* x, std::int64_t n) {
    float sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i];
    y[0] = sum;
}

void daceml_speed_add(float* __restrict__ y, const float* __restrict__ x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] + x[n + i];
}

// y = a + b, where a and b lie behind each other in x; n a multiple of `block`.
void daceml_speed_shared_add(float* __restrict__ y, const float* __restrict__ x, std::int64_t n) {
#pragma omp parallel for
    for (std::int64_t b = 0; b < n; b += block) {
        for (std::int64_t i = b; i < b + block; ++i) y[i] = x[i] + x[n + i];
    }
}

// The same past the caches.
void daceml_speed_streamed_add(float* __restrict__ y, const float* __restrict__ x, std::int64_t n) {
#pragma omp parallel for
    for (std::int64_t b = 0; b < n; b += block) {
        float part[block];
        fetch(x + b, 8 * block, block);
        fetch(x + n + b, 8 * block, block);
        for (std::int64_t i = 0; i < block; ++i) part[i] = x[b + i] + x[n + b + i];
        stream(y + b, part, block);
    }
}

// A parallel region with as many pieces as n says, which do next to nothing.
void daceml_speed_region(float* y, const float* x, std::int64_t n) {
#pragma omp parallel for
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
}

}  // extern "C"

}  // namespace kernel
}  // namespace daceml
