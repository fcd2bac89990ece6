// Depthwise convolution with channels innermost in memory.
#pragma once

#include <stdint.h>

#include <daceml/vector_math.h>

namespace daceml {

struct Depthwise {
  int64_t n, c, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
};

typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));

#define DACEML_LANES(pointer) (*(const lanes*)(pointer))
#define DACEML_CLIP(s) ((s) <= lo ? lo : (s) >= hi ? hi : (s))

// x sigmoid(x) in place.
inline void swish(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= kernel::sigmoid(x[i]);
}

// y = clip(convolution of x + bias) from low to high, or swish of it; the weight is [kh, kw, c]. NaN stays NaN.
__attribute__((optimize("O3", "fp-contract=fast"))) inline void depthwise(const float* x, const float* weight,
                                                                          const float* bias, float* y,
                                                                          const Depthwise& g, float low, float high,
                                                                          bool gated) {
  const int64_t rows = g.n * g.oh, c = g.c, across = g.dw * c, step = g.sw * c;
  const lanes lo = low - lanes{}, hi = high - lanes{};
#pragma omp parallel for if (rows * g.ow * c > 32768)
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t top = row % g.oh * g.sh - g.ph;
    const float* const image = x + row / g.oh * g.h * g.w * c;
    int64_t a0 = 0, a1 = g.kh;
    while (a0 < a1 && top + a0 * g.dh < 0) ++a0;
    while (a1 > a0 && top + (a1 - 1) * g.dh >= g.h) --a1;
    for (int64_t j = 0; j < g.ow;) {
      const int64_t left = j * g.sw - g.pw;
      float* out = y + (row * g.ow + j) * c;
      const bool four = j + 4 <= g.ow && left >= 0 && left + 3 * g.sw + (g.kw - 1) * g.dw < g.w;
      int64_t k = 0;
      if (four) {
        for (; k + 32 <= c; k += 32) {
          lanes s[8];
          for (int e = 0; e < 8; ++e) s[e] = bias == nullptr ? lanes{} : DACEML_LANES(bias + k + 16 * (e % 2));
          for (int64_t a = a0; a < a1; ++a) {
            const float* p = image + ((top + a * g.dh) * g.w + left) * c + k;
            const float* q = weight + a * g.kw * c + k;
            for (int64_t b = 0; b < g.kw; ++b, p += across, q += c) {
              const lanes w0 = DACEML_LANES(q), w1 = DACEML_LANES(q + 16);
#pragma GCC unroll 4
              for (int e = 0; e < 4; ++e) {
                s[2 * e] += DACEML_LANES(p + e * step) * w0;
                s[2 * e + 1] += DACEML_LANES(p + e * step + 16) * w1;
              }
            }
          }
          for (int e = 0; e < 8; ++e) *(lanes*)(out + e / 2 * c + k + 16 * (e % 2)) = DACEML_CLIP(s[e]);
        }
        for (; k + 16 <= c; k += 16) {
          lanes s[4];
          for (int e = 0; e < 4; ++e) s[e] = bias == nullptr ? lanes{} : DACEML_LANES(bias + k);
          for (int64_t a = a0; a < a1; ++a) {
            const float* p = image + ((top + a * g.dh) * g.w + left) * c + k;
            const float* q = weight + a * g.kw * c + k;
            for (int64_t b = 0; b < g.kw; ++b, p += across, q += c) {
#pragma GCC unroll 4
              for (int e = 0; e < 4; ++e) s[e] += DACEML_LANES(p + e * step) * DACEML_LANES(q);
            }
          }
          for (int e = 0; e < 4; ++e) *(lanes*)(out + e * c + k) = DACEML_CLIP(s[e]);
        }
      }
      const int64_t columns = four ? 4 : 1;
      for (int64_t e = 0; e < columns && k < c; ++e) {
        const int64_t begin = left + e * g.sw;
        int64_t b0 = 0, b1 = g.kw, m = k;
        while (b0 < b1 && begin + b0 * g.dw < 0) ++b0;
        while (b1 > b0 && begin + (b1 - 1) * g.dw >= g.w) --b1;
        for (; m + 16 <= c; m += 16) {
          lanes s = bias == nullptr ? lanes{} : DACEML_LANES(bias + m);
          for (int64_t a = a0; a < a1; ++a) {
            const float* p = image + ((top + a * g.dh) * g.w + begin) * c + m;
            const float* q = weight + a * g.kw * c + m;
            for (int64_t b = b0; b < b1; ++b) s += DACEML_LANES(p + b * across) * DACEML_LANES(q + b * c);
          }
          *(lanes*)(out + e * c + m) = DACEML_CLIP(s);
        }
        for (; m < c; ++m) {
          float s = bias == nullptr ? 0.0f : bias[m];
          for (int64_t a = a0; a < a1; ++a) {
            const float* p = image + ((top + a * g.dh) * g.w + begin) * c + m;
            const float* q = weight + a * g.kw * c + m;
            for (int64_t b = b0; b < b1; ++b) s += p[b * across] * q[b * c];
          }
          out[e * c + m] = s <= low ? low : s >= high ? high : s;
        }
      }
      j += columns;
    }
    if (gated) swish(y + row * g.ow * c, g.ow * c);
  }
}

#undef DACEML_LANES
#undef DACEML_CLIP

}  // namespace daceml
