// One function of <daceml/vector_math.h> against the same function of double, over floats in the order of their bits.
#include <daceml/vector_math.h>

#include <algorithm>
#include <cmath>

namespace {

constexpr std::int64_t part = 4096;

struct Seen {
    double ulp = -1;
    std::uint32_t at = 0;
    std::int64_t faults = 0;
};

// Distance in units in the last place that the wanted value has as a float, infinity as the number after the largest.
inline double distance(float value, double wanted) {
    const double over = 0x1p128;
    const double seen = std::clamp(double(value), -over, over), exact = std::clamp(wanted, -over, over);
    const auto exponent = std::int64_t(same_bits<std::uint64_t>(std::fabs(exact)) >> 52);
    const std::int64_t unit = std::clamp(exponent, std::int64_t(1023 - 126), std::int64_t(1023 + 127)) - 23;
    return std::fabs(seen - exact) * same_bits<double>((2046 - unit) << 52);
}

template <typename Narrow, typename Wide>
void compare(Narrow narrow, Wide wide, std::int64_t stride, double* worst, std::uint32_t* at, std::int64_t* faults) {
    const std::int64_t count = ((std::int64_t(1) << 32) + stride - 1) / stride;
    Seen all;
#pragma omp parallel
    {
        float x[part], y[part];
        double wanted[part], ulp[part];
        std::int32_t wrong[part];
        Seen mine;
#pragma omp for schedule(static)
        for (std::int64_t first = 0; first < count; first += part) {
            const std::int64_t n = std::min(part, count - first);
            for (std::int64_t i = 0; i < n; ++i) x[i] = same_bits<float>(std::uint32_t((first + i) * stride));
            for (std::int64_t i = 0; i < n; ++i) y[i] = narrow(x[i]);
            for (std::int64_t i = 0; i < n; ++i) wanted[i] = wide(double(x[i]));
            for (std::int64_t i = 0; i < n; ++i) {
                const bool unknown = y[i] != y[i], none = wanted[i] != wanted[i];
                const bool signs = std::signbit(y[i]) != std::signbit(wanted[i]);
                wrong[i] = (unknown != none) | (!none & signs);
                ulp[i] = unknown | none ? 0.0 : distance(y[i], wanted[i]);
            }
            for (std::int64_t i = 0; i < n; ++i) {
                mine.faults += wrong[i];
                if (ulp[i] > mine.ulp) mine.ulp = ulp[i], mine.at = same_bits<std::uint32_t>(x[i]);
            }
        }
#pragma omp critical
        {
            all.faults += mine.faults;
            if (mine.ulp > all.ulp || (mine.ulp == all.ulp && mine.at < all.at)) all.ulp = mine.ulp, all.at = mine.at;
        }
    }
    *worst = all.ulp, *at = all.at, *faults = all.faults;
}

}  // namespace

#define COMPARED(name)                                                                                          \
    extern "C" void compare_##name(std::int64_t stride, double* worst, std::uint32_t* at, std::int64_t* faults) { \
        compare([](float x) { return daceml::kernel::name(x); }, [](double x) { return ::name(x); }, stride,      \
                worst, at, faults);                                                                               \
    }
COMPARED(exp)
COMPARED(expm1)
COMPARED(log)
COMPARED(log1p)
COMPARED(tanh)
COMPARED(erf)
COMPARED(sigmoid)
