// Attention as its steps give it where numbers are not finite: product, scale, mask, softmax, product.
//
// torch's fused kernel gives 0 for a row of scores of -inf, and for one of NaN where a vector is not filled; the steps
// give NaN. Such a row has the logarithm 0 or one that is not finite, and its numbers are computed again here.
#include <daceml/aten_attention.h>
#include <daceml/aten_dispatch.h>

#include <cmath>
#include <limits>
#include <vector>

namespace daceml {
namespace aten {
namespace spelled {
namespace {

// A tensor of four dimensions, under any strides; three of the logarithms, whose last stride is 0.
template <typename T>
struct Box {
  T* data = nullptr;
  int64_t sizes[4] = {1, 1, 1, 1};
  int64_t strides[4] = {};

  int32_t read(AtenTensorHandle handle) {
    int64_t rank = 0;
    int64_t *shape = nullptr, *steps = nullptr;
    void* pointer = nullptr;
    if (aoti_torch_get_dim(handle, &rank) || aoti_torch_get_sizes(handle, &shape) ||
        aoti_torch_get_strides(handle, &steps) || aoti_torch_get_data_ptr(handle, &pointer) || rank > 4) {
      return 1;
    }
    data = static_cast<T*>(pointer);
    for (int64_t d = 0; d < rank; ++d) {
      sizes[d] = shape[d];
      strides[d] = steps[d];
    }
    return 0;
  }
  T& at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return data[b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3]];
  }
  bool finite(int64_t b, int64_t h) const {
    int32_t wrong = 0;
    for (int64_t i = 0; i < sizes[2]; ++i) {
      const T* const row = &at(b, h, i, 0);
      const int64_t step = strides[3];
      if (step == 1) {  // the loop that vectors can do
        for (int64_t j = 0; j < sizes[3]; ++j) wrong |= !(std::fabs(row[j]) <= std::numeric_limits<T>::max());
      } else {
        for (int64_t j = 0; j < sizes[3]; ++j) wrong |= !std::isfinite(row[j * step]);
      }
    }
    return wrong == 0;
  }
};

template <typename T>
struct Operands {
  Box<T> q, k, v, mask;
  T scale = 1;
  bool masked = false, hides = false;

  int32_t read(AtenTensorHandle Q, AtenTensorHandle K, AtenTensorHandle V, AtenTensorHandle M, int32_t replaces,
               double factor) {
    masked = M != nullptr;
    hides = replaces != 0;
    if (q.read(Q) || k.read(K) || v.read(V) || (masked && mask.read(M))) return 1;
    scale = static_cast<T>(std::isnan(factor) ? 1 / std::sqrt(static_cast<double>(q.sizes[3])) : factor);
    return 0;
  }
  bool hidden(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return hides && mask.at(b, h, i, j) == -std::numeric_limits<T>::infinity();
  }
  // The weights of a row, whose logarithm is returned.
  T weights(int64_t b, int64_t h, int64_t i, T* row) const {
    const int64_t keys = k.sizes[2];
    T largest = -std::numeric_limits<T>::infinity();
    bool is_nan = false;
    for (int64_t j = 0; j < keys; ++j) {
      double sum = 0;
      for (int64_t d = 0; d < q.sizes[3]; ++d) sum += static_cast<double>(q.at(b, h, i, d)) * k.at(b, h, j, d);
      row[j] = static_cast<T>(sum) * scale;
      if (hidden(b, h, i, j)) {
        row[j] = -std::numeric_limits<T>::infinity();
      } else if (masked) {
        row[j] += mask.at(b, h, i, j);
      }
      is_nan = is_nan || row[j] != row[j];
      if (row[j] > largest) largest = row[j];
    }
    if (is_nan) largest = std::numeric_limits<T>::quiet_NaN();
    double sum = 0;
    for (int64_t j = 0; j < keys; ++j) sum += row[j] = std::exp(row[j] - largest);
    for (int64_t j = 0; j < keys; ++j) row[j] = static_cast<T>(row[j] / sum);
    return largest + static_cast<T>(std::log(sum));
  }
};

template <typename T>
int32_t mend(const Operands<T>& on, AtenTensorHandle Y, AtenTensorHandle logarithms) {
  Box<T> y, sums;
  if (y.read(Y) || sums.read(logarithms)) return 1;
  const int64_t heads = y.sizes[1], rows = y.sizes[2], keys = on.k.sizes[2];
#pragma omp parallel for
  for (int64_t head = 0; head < y.sizes[0] * heads; ++head) {
    const int64_t b = head / heads, h = head % heads;
    std::vector<T> row;
    for (int64_t i = 0; i < rows; ++i) {
      T& sum = sums.at(b, h, i, 0);
      if (std::isfinite(sum) && sum != 0) continue;
      row.resize(keys);
      sum = on.weights(b, h, i, row.data());
      for (int64_t d = 0; d < y.sizes[3]; ++d) {
        double value = 0;
        for (int64_t j = 0; j < keys; ++j) value += static_cast<double>(row[j]) * on.v.at(b, h, j, d);
        y.at(b, h, i, d) = static_cast<T>(value);
      }
    }
  }
  return 0;
}

// Gradients of one head; a hidden score has none.
template <typename T>
void gradients(const Operands<T>& on, const Box<T>& dy, const Box<T>* to, int64_t b, int64_t h) {
  const int64_t rows = on.q.sizes[2], keys = on.k.sizes[2], width = on.q.sizes[3];
  std::vector<double> dk(keys * width), dv(keys * width), outer(keys);
  std::vector<T> row(keys);
  for (int64_t i = 0; i < rows; ++i) {
    on.weights(b, h, i, row.data());
    double share = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double sum = 0;
      for (int64_t d = 0; d < width; ++d) {
        sum += static_cast<double>(dy.at(b, h, i, d)) * on.v.at(b, h, j, d);
        dv[j * width + d] += static_cast<double>(row[j]) * dy.at(b, h, i, d);
      }
      outer[j] = sum * row[j];
      share += outer[j];
    }
    for (int64_t j = 0; j < keys; ++j) {
      outer[j] = on.hidden(b, h, i, j) ? 0 : (outer[j] - row[j] * share) * on.scale;
      for (int64_t d = 0; d < width; ++d) dk[j * width + d] += outer[j] * on.q.at(b, h, i, d);
    }
    for (int64_t d = 0; d < width; ++d) {
      double sum = 0;
      for (int64_t j = 0; j < keys; ++j) sum += outer[j] * on.k.at(b, h, j, d);
      to[0].at(b, h, i, d) = static_cast<T>(sum);
    }
  }
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t d = 0; d < width; ++d) {
      to[1].at(b, h, j, d) = static_cast<T>(dk[j * width + d]);
      to[2].at(b, h, j, d) = static_cast<T>(dv[j * width + d]);
    }
  }
}

template <typename T>
int32_t mend_gradients(const Operands<T>& on, AtenTensorHandle dY, const AtenTensorHandle* found) {
  Box<T> dy, to[3];
  if (dy.read(dY)) return 1;
  for (int n = 0; n < 3; ++n) {
    if (to[n].read(found[n])) return 1;
  }
  const int64_t heads = dy.sizes[1];
#pragma omp parallel for
  for (int64_t head = 0; head < dy.sizes[0] * heads; ++head) {
    const int64_t b = head / heads, h = head % heads;
    if (to[0].finite(b, h) && to[1].finite(b, h) && to[2].finite(b, h)) continue;
    gradients(on, dy, to, b, h);
  }
  return 0;
}

}  // namespace
}  // namespace spelled

int32_t attention_spelled(daceml_call* call, Fresh* y, Fresh* logsumexp, AtenTensorHandle q, AtenTensorHandle k,
                                 AtenTensorHandle v, AtenTensorHandle mask, int32_t hides, double scale) {
  Fresh* const targets[2] = {y, logsumexp};
  AtenTensorHandle found[2] = {};
  int32_t type = 0;
  DACEML_TRY(call,
             aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, 0,
                                                                        mask == nullptr ? nullptr : &mask,
                                                                        std::isnan(scale) ? nullptr : &scale, &found[0],
                                                                        &found[1]),
             "aten::_scaled_dot_product_flash_attention_for_cpu failed");
  const auto mended = [&](auto operands) {
    return operands.read(q, k, v, mask, hides, scale) || spelled::mend(operands, found[0], found[1]);
  };
  const int32_t failed =
      aoti_torch_get_dtype(q, &type) || (type == aoti_torch_dtype_float32() ? mended(spelled::Operands<float>())
                                                                           : mended(spelled::Operands<double>()));
  const int32_t undelivered = deliver(call, targets, found, 2);
  DACEML_TRY(call, failed, "torch could not describe an operand");
  return undelivered;
}

int32_t attention_spelled_backward(daceml_call* call, Fresh* dq, Fresh* dk, Fresh* dv, AtenTensorHandle dy,
                                          AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v,
                                          AtenTensorHandle y, AtenTensorHandle logsumexp, AtenTensorHandle mask,
                                          int32_t hides, double scale) {
  Fresh* const targets[3] = {dq, dk, dv};
  AtenTensorHandle found[3] = {};
  int32_t type = 0;
  DACEML_TRY(call,
             aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(
                 dy, q, k, v, y, logsumexp, 0.0, 0, mask == nullptr ? nullptr : &mask,
                 std::isnan(scale) ? nullptr : &scale, &found[0], &found[1], &found[2]),
             "aten::_scaled_dot_product_flash_attention_for_cpu_backward failed");
  const auto mended = [&](auto operands) {
    return operands.read(q, k, v, mask, hides, scale) || spelled::mend_gradients(operands, dy, found);
  };
  const int32_t failed =
      aoti_torch_get_dtype(q, &type) || (type == aoti_torch_dtype_float32() ? mended(spelled::Operands<float>())
                                                                           : mended(spelled::Operands<double>()));
  const int32_t undelivered = deliver(call, targets, found, 3);
  DACEML_TRY(call, failed, "torch could not describe an operand");
  return undelivered;
}

}  // namespace aten
}  // namespace daceml
