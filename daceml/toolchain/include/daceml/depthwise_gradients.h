// Gradients of the weight and the bias of a depthwise convolution, with rows innermost in memory.
#pragma once

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <vector>

#pragma GCC push_options
#pragma GCC optimize("O3", "fp-contract=fast")

namespace daceml {

// Channels of the result, and of the input, which each serve `channels / inputs` of them.
struct DepthwiseGradients {
  int64_t n, channels, inputs, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
};

#if defined(__AVX512F__)
typedef float row_lanes __attribute__((vector_size(64), aligned(4), may_alias));
#else
typedef float row_lanes __attribute__((vector_size(32), aligned(4), may_alias));
#endif
constexpr int64_t row_width = sizeof(row_lanes) / sizeof(float);

// Planes of one channel with zeros around their rows, so that no vector has an edge. A row of the input is split by
// the stride: element e of it, padding included, is at [e % sw][e / sw], and windows of neighbours are neighbours.
class DepthwisePlanes {
 public:
  explicit DepthwisePlanes(const DepthwiseGradients& g)
      : g_(g),
        width_((g.ow + row_width - 1) / row_width * row_width),
        length_(width_ + ((g.kw - 1) * g.dw) / g.sw + 1),
        x_(g.h * g.sw * length_),
        dy_(g.oh * width_) {}

  void fill(const float* x, const float* dy) {
    for (int64_t row = 0; row < g_.h; ++row) {
      for (int64_t phase = 0; phase < g_.sw; ++phase) {
        float* to = &x_[(row * g_.sw + phase) * length_];
        const float* from = x + row * g_.w;
        // elements of this phase that are inside the row; those before and behind stay 0
        const int64_t before = std::max<int64_t>(g_.pw - phase + g_.sw - 1, 0) / g_.sw;
        const int64_t end = std::min((g_.w + g_.pw - phase + g_.sw - 1) / g_.sw, length_);
        const int64_t shift = phase - g_.pw;
        if (g_.sw == 1) {
          if (end > before) memcpy(to + before, from + before + shift, (end - before) * sizeof(float));
        } else {
          for (int64_t t = before; t < end; ++t) to[t] = from[g_.sw * t + shift];
        }
      }
    }
    for (int64_t row = 0; row < g_.oh; ++row) {
      memcpy(&dy_[row * width_], dy + row * g_.ow, g_.ow * sizeof(float));
    }
  }

  // sums[b] += of all rows, for `taps` taps of a row of the window, from tap `first` on.
  template <int taps>
  void add(int64_t a, int64_t first, double* sums) const {
    // additions of few taps would wait for each other
    constexpr int sets = taps < 5 ? 4 : 1;
    row_lanes s[sets][taps] = {};
    for (int64_t row = 0; row < g_.oh; ++row) {
      const int64_t other = row * g_.sh + a * g_.dh - g_.ph;
      if (other < 0 || other >= g_.h) continue;
      const float* places[taps];
      for (int b = 0; b < taps; ++b) {
        const int64_t place = (first + b) * g_.dw;
        places[b] = &x_[(other * g_.sw + place % g_.sw) * length_ + place / g_.sw];
      }
      const float* gradient = &dy_[row * width_];
      int64_t j = 0;
      for (; j + sets * row_width <= width_; j += sets * row_width) {
#pragma GCC unroll 4
        for (int set = 0; set < sets; ++set) accumulate<taps>(s[set], gradient, places, j + set * row_width);
      }
      for (; j < width_; j += row_width) accumulate<taps>(s[0], gradient, places, j);
    }
    for (int set = 0; set < sets; ++set) {
      for (int b = 0; b < taps; ++b) sums[b] += total(s[set][b]);
    }
  }

  double bias() const {
    row_lanes s = {};
    for (size_t j = 0; j < dy_.size(); j += row_width) s += *reinterpret_cast<const row_lanes*>(&dy_[j]);
    return total(s);
  }

 private:
  template <int taps>
  static void accumulate(row_lanes* s, const float* gradient, const float* const* places, int64_t j) {
    const row_lanes d = *reinterpret_cast<const row_lanes*>(gradient + j);
#pragma GCC unroll 8
    for (int b = 0; b < taps; ++b) s[b] += d * *reinterpret_cast<const row_lanes*>(places[b] + j);
  }

  static double total(row_lanes s) {
    double sum = 0.0;
    for (int64_t lane = 0; lane < row_width; ++lane) sum += s[lane];
    return sum;
  }

  const DepthwiseGradients& g_;
  int64_t width_, length_;
  std::vector<float> x_, dy_;
};

inline void depthwise_row(const DepthwisePlanes& planes, int64_t a, int64_t taps, double* sums) {
  for (int64_t first = 0; first < taps;) {
    const int64_t left = taps - first;
    if (left >= 7) {
      planes.add<7>(a, first, sums + first);
      first += 7;
    } else if (left >= 5) {
      planes.add<5>(a, first, sums + first);
      first += 5;
    } else if (left >= 3) {
      planes.add<3>(a, first, sums + first);
      first += 3;
    } else {
      planes.add<1>(a, first, sums + first);
      first += 1;
    }
  }
}

// dweight[channels][kh][kw] and dbias[channels]; either may be missing.
inline void depthwise_gradients(const float* x, const float* dy, float* dweight, float* dbias,
                                const DepthwiseGradients& g) {
#pragma omp parallel if (g.n * g.channels * g.oh * g.ow * g.kh > 8192)
  {
    DepthwisePlanes planes(g);
    std::vector<double> sums(g.kh * g.kw);
#pragma omp for schedule(static)
    for (int64_t channel = 0; channel < g.channels; ++channel) {
      const int64_t input = channel / (g.channels / g.inputs);
      std::fill(sums.begin(), sums.end(), 0.0);
      double bias = 0.0;
      for (int64_t image = 0; image < g.n; ++image) {
        planes.fill(x + (image * g.inputs + input) * g.h * g.w, dy + (image * g.channels + channel) * g.oh * g.ow);
        if (dweight != nullptr) {
          for (int64_t a = 0; a < g.kh; ++a) depthwise_row(planes, a, g.kw, &sums[a * g.kw]);
        }
        if (dbias != nullptr) bias += planes.bias();
      }
      for (int64_t tap = 0; dweight != nullptr && tap < g.kh * g.kw; ++tap) {
        dweight[channel * g.kh * g.kw + tap] = static_cast<float>(sums[tap]);
      }
      if (dbias != nullptr) dbias[channel] = static_cast<float>(bias);
    }
  }
}

}  // namespace daceml

#pragma GCC pop_options
