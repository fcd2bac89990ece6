// Pointwise convolution with channels innermost in memory: a product of matrices, written once.
//
// A tile of rows x columns is accumulated in registers in the order of the input's channels, each product and sum
// rounded once where the processor can. The weight lies in panels of 32 columns, [columns / 32][depth][32], filled up
// with zeros. NaN and infinities stay what they are.
#pragma once

#include <omp.h>
#include <stdint.h>
#include <string.h>

#include <daceml/vector_math.h>

namespace daceml {

// The numbers of a call, in the order in which drivers have them.
struct Pointwise {
  int64_t n, c, h, w, oh, ow, sh, sw, k;
};

namespace pointwise {

// As many rows as leave registers for two vectors of the weight and one element.
#if defined(__AVX512F__)
constexpr int width = 16, most_rows = 14;
#elif defined(__AVX__)
constexpr int width = 8, most_rows = 6;
#elif defined(__aarch64__)
constexpr int width = 4, most_rows = 14;
#else
constexpr int width = 4, most_rows = 6;
#endif
constexpr int panel = 32, tile_columns = 2 * width;
typedef float lanes __attribute__((vector_size(4 * width), aligned(4), may_alias));

// A tile: where its rows begin, and what its sums become.
struct Tile {
  const float* x;       // the first row
  int64_t step;         // from row to row
  const float* weight;  // the first column of the tile
  int64_t depth;
  const float* bias;   // a whole tile of columns
  const float* other;  // added to the sums; may be null
  float* y;
  int64_t across;  // from row to row of y and other
  int columns;
  float low, high;
  bool swish;
};

// Fewer than `width` elements.
inline void copy_some(float* to, const float* from, int count) {
  for (int part = width / 2; part > 0; part /= 2) {
    if ((count & part) == 0) continue;
    memcpy(to, from, 4 * part);
    to += part;
    from += part;
  }
}

// Writes the sums of a tile, [rows][tile_columns], where a clip of whole vectors is not all.
__attribute__((noinline)) inline void finish(const Tile& t, int rows, float* sums) {
  const lanes low = t.low - lanes{}, high = t.high - lanes{};
  for (int r = 0; r < rows; ++r, sums += tile_columns) {
    const float* const other = t.other == nullptr ? nullptr : t.other + r * t.across;
    float* const y = t.y + r * t.across;
    for (int c = 0; c < t.columns; c += width) {
      lanes& s = *reinterpret_cast<lanes*>(sums + c);
      const int count = t.columns - c;
      if (other != nullptr && count >= width) {
        s += *reinterpret_cast<const lanes*>(other + c);
      } else if (other != nullptr) {
        lanes rest = {};
        copy_some(reinterpret_cast<float*>(&rest), other + c, count);
        s += rest;
      }
      s = s <= low ? low : s >= high ? high : s;
    }
    for (int c = 0; t.swish && c < t.columns; c += width) {
      for (int i = 0; i < width; ++i) sums[c + i] *= kernel::sigmoid(sums[c + i]);
    }
    for (int c = 0; c < t.columns; c += width) {
      if (t.columns - c >= width) {
        memcpy(y + c, sums + c, 4 * width);
      } else {
        copy_some(y + c, sums + c, t.columns - c);
      }
    }
  }
}

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#define DACEML_INLINE __attribute__((always_inline))

// f(0), ..., f(n - 1) with constants: arrays that only such loops go through stay in registers.
template <int i>
struct Number {
  constexpr operator int() const { return i; }
};
template <int n, typename F>
DACEML_INLINE inline void each(F&& f) {
  if constexpr (n > 0) {
    each<n - 1>(f);
    f(Number<n - 1>{});
  }
}

template <int rows, int vectors>
__attribute__((noinline)) void multiply(const Tile& t) {
  // Addresses of three rows are multiples of one step behind a base, so few registers hold all.
  constexpr int bases = (rows + 2) / 3;
  lanes s[rows * vectors], shift[vectors];
  const float* x[bases];
  const int64_t step = t.step;
  const float* weight = t.weight;
  each<rows * vectors>([&](auto i) DACEML_INLINE { s[i] = lanes{}; });
  each<bases>([&](auto b) DACEML_INLINE { x[b] = t.x + 3 * b * step; });
  for (int64_t k = t.depth; k > 0; --k) {
    lanes w[vectors];
    each<vectors>([&](auto v) DACEML_INLINE { w[v] = *reinterpret_cast<const lanes*>(weight + v * width); });
    each<rows>([&](auto r) DACEML_INLINE {
      const lanes a = x[r / 3][r % 3 * step] - lanes{};
      each<vectors>([&](auto v) DACEML_INLINE { s[r * vectors + v] += a * w[v]; });
    });
    each<bases>([&](auto b) DACEML_INLINE {
      ++x[b];
      asm("" : "+r"(x[b]));  // a base of its own, not one more multiple
    });
    weight += panel;
  }
  // added at the end: products would lose digits to a large one
  each<vectors>([&](auto v) DACEML_INLINE { shift[v] = *reinterpret_cast<const lanes*>(t.bias + v * width); });
  each<rows * vectors>([&](auto i) DACEML_INLINE { s[i] += shift[i % vectors]; });
  if (t.columns == vectors * width && t.other == nullptr && !t.swish) {
    const lanes low = t.low - lanes{}, high = t.high - lanes{};
    float* y = t.y;
    each<rows>([&](auto r) DACEML_INLINE {
      each<vectors>([&](auto v) DACEML_INLINE {
        const lanes a = s[r * vectors + v];
        *reinterpret_cast<lanes*>(y + v * width) = a <= low ? low : a >= high ? high : a;
      });
      y += t.across;
    });
    return;
  }
  alignas(64) float sums[rows * tile_columns] = {};
  each<rows * vectors>([&](auto i) DACEML_INLINE {
    *reinterpret_cast<lanes*>(sums + i / vectors * tile_columns + i % vectors * width) = s[i];
  });
  finish(t, rows, sums);
}

#undef DACEML_INLINE
#pragma GCC pop_options

template <int rows, int vectors>
inline void multiply_any(int count, const Tile& t) {
  if (count == rows) return multiply<rows, vectors>(t);
  if constexpr (rows > 1) multiply_any<rows - 1, vectors>(count, t);
}

inline int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Call {
  const Pointwise& g;
  const float *x, *weight, *bias, *other;
  float* y;
  float low, high;
  bool swish;

  // Rows of the result that follow each other at one step: all, or one line of an image.
  bool whole() const { return g.sh == 1 && g.sw == 1; }
  int64_t rows() const { return g.n * g.oh * g.ow; }

  // Rows [first, last), columns [left, right); left is a multiple of `panel`.
  void part(int64_t first, int64_t last, int64_t left, int64_t right) const {
    // rows that stay in the first or second cache while all columns pass
    const int64_t chunk = 16384 / g.c > 112 ? 16384 / g.c : 112, chunks = ceil_of(last - first, chunk);
    const int64_t line = whole() ? rows() : g.ow;
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t begin = first + (last - first) * i / chunks, end = first + (last - first) * (i + 1) / chunks;
      for (int64_t c = left; c < right; c += tile_columns) {
        alignas(64) float shift[tile_columns] = {};
        const int columns = right - c < tile_columns ? right - c : tile_columns;
        if (bias != nullptr) memcpy(shift, bias + c, 4 * columns);
        for (int64_t row = begin; row < end;) {
          const int64_t there = line - row % line, stop = there < end - row ? row + there : end;
          const int64_t tiles = ceil_of(stop - row, most_rows);
          Tile tile = {from(row),    whole() ? g.c : g.sw * g.c, weight + c / panel * panel * g.c + c % panel,
                       g.c,          shift,                      other == nullptr ? nullptr : other + row * g.k + c,
                       y + row * g.k + c, g.k, columns, low, high, swish};
          for (int64_t j = 0, at = 0; j < tiles; ++j) {
            const int64_t next = (stop - row) * (j + 1) / tiles, count = next - at;
            if (columns > width) {
              multiply_any<most_rows, 2>(count, tile);
            } else {
              multiply_any<most_rows, 1>(count, tile);
            }
            at = next;
            tile.x += count * tile.step;
            tile.y += count * g.k;
            if (other != nullptr) tile.other += count * g.k;
          }
          row = stop;
        }
      }
    }
  }

  const float* from(int64_t row) const {
    if (whole()) return x + row * g.c;
    const int64_t line = row / g.ow;
    return x + ((line / g.oh * g.h + line % g.oh * g.sh) * g.w + row % g.ow * g.sw) * g.c;
  }

  // Cycles of one of `across` x `down` equal parts: the products of a tile, of at least four rows, which is what the
  // latency of a sum takes, and reading both operands.
  int64_t cycles(int64_t down, int64_t across) const {
    const int64_t most = ceil_of(rows(), down), wide = ceil_of(ceil_of(g.k, panel), across) * panel;
    return ((most > 4 ? most : 4) * wide * (16 / width) / 32 + (most + wide) / 4) * g.c;
  }

  void run() const {
    if (rows() == 0) return;
    const int64_t threads = cycles(1, 1) > 8192 ? omp_get_max_threads() : 1;
    int64_t down = 1, across = 1;
    for (int64_t a = 1; a <= threads; ++a) {
      if (cycles(threads / a, a) < cycles(down, across)) down = threads / a, across = a;
    }
    const int64_t panels = ceil_of(g.k, panel);
#pragma omp parallel for num_threads(down* across) schedule(static, 1) if (down * across > 1)
    for (int64_t i = 0; i < down * across; ++i) {
      const int64_t d = i / across, a = i % across;
      const int64_t right = panels * (a + 1) / across * panel;
      part(rows() * d / down, rows() * (d + 1) / down, panels * a / across * panel, right < g.k ? right : g.k);
    }
  }
};

}  // namespace pointwise
}  // namespace daceml
