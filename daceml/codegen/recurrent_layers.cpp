// Recurrent operators: matrix products by torch, gates in loops of one pass; states as `saving.py` describes them.
#include <omp.h>

#include <utility>
#include <vector>

#include <daceml/aten_recurrent.h>
#include <daceml/vector_math.h>

namespace daceml {
namespace aten {
namespace recurrent {
namespace {

using kernel::sigmoid;
using kernel::tanh;

enum Kind : int64_t { tanh_cell, relu_cell, gru_cell, lstm_cell };
constexpr int64_t gates_of[] = {1, 1, 3, 4};
constexpr int64_t parts_of[] = {2, 2, 5, 6};

// Rows of an array with a stride between them, as torch sees them; or transposed.
class Matrix {
 public:
  template <typename T>
  Matrix(const T* first, int64_t rows, int64_t columns, int64_t stride, bool transposed = false) {
    const int64_t sizes[2] = {transposed ? columns : rows, transposed ? rows : columns};
    const int64_t strides[2] = {transposed ? 1 : stride, transposed ? stride : 1};
    failed_ = aoti_torch_create_tensor_from_blob(const_cast<T*>(first), 2, sizes, strides, 0,
                                                 sizeof(T) == 4 ? aoti_torch_dtype_float32() : aoti_torch_dtype_float64(),
                                                 aoti_torch_device_type_cpu(), 0, &handle_);
  }
  Matrix(Matrix&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), failed_(other.failed_) {}
  ~Matrix() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  // this = a b + beta this
  int32_t product(const Matrix& a, const Matrix& b, double beta) const {
    if (failed_ || a.failed_ || b.failed_) return 1;
    if (beta == 0) return aoti_torch_cpu_mm_out(handle_, a.handle_, b.handle_);
    return aoti_torch_cpu_addmm_out(handle_, handle_, a.handle_, b.handle_, beta, 1.0);
  }

 private:
  AtenTensorHandle handle_ = nullptr;
  int32_t failed_ = 0;
};

// Memory of one call.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t count) : first_(new T[count > 0 ? count : 1]) {}
  ~Scratch() { delete[] first_; }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  operator T*() const { return first_; }

 private:
  T* first_;
};

template <typename T>
struct Sizes {
  int64_t kind, steps, batch, inputs, hidden, directions, reverse;
  int64_t rows() const { return gates_of[kind] * hidden; }
  int64_t width() const { return parts_of[kind] * hidden; }
  int64_t states() const { return (steps + 1) * batch * width(); }
  // Whether direction d goes from the last step to the first.
  bool backward(int64_t d) const { return reverse || d == 1; }
  int64_t place(int64_t d, int64_t step) const { return backward(d) ? steps - 1 - step : step; }
};

template <typename T>
void copy_rows(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t rows, int64_t columns) {
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t u = 0; u < columns; ++u) to[n * to_stride + u] = from == nullptr ? T(0) : from[n * from_stride + u];
  }
}

// One step of one sequence: from the state before (h, c) and products that stand in the new one, the new state.
template <typename T>
void cell(int64_t kind, int64_t hidden, const T* __restrict__ before, T* __restrict__ now, const T* __restrict__ given) {
  const int64_t H = hidden;
  switch (kind) {
    case tanh_cell:
      for (int64_t u = 0; u < H; ++u) now[u] = tanh(now[H + u]);
      break;
    case relu_cell:
      for (int64_t u = 0; u < H; ++u) now[u] = now[H + u] <= T(0) ? T(0) : now[H + u];
      break;
    case gru_cell:
#pragma GCC ivdep
      for (int64_t u = 0; u < H; ++u) {
        const T n = given[2 * H + u] + sigmoid(now[2 * H + u]) * now[4 * H + u];
        const T z = sigmoid(now[H + u]);
        now[3 * H + u] = n;
        now[u] = (T(1) - z) * tanh(n) + z * before[u];
      }
      break;
    default:
#pragma GCC ivdep
      for (int64_t u = 0; u < H; ++u) {
        const T c = sigmoid(now[4 * H + u]) * before[H + u] + sigmoid(now[2 * H + u]) * tanh(now[5 * H + u]);
        now[H + u] = c;
        now[u] = sigmoid(now[3 * H + u]) * tanh(c);
      }
  }
}

// to = from + bias, row by row; a null bias is 0.
template <typename T>
void add_bias(T* to, int64_t to_stride, const T* from, int64_t from_stride, const T* bias, int64_t rows,
              int64_t columns) {
  if (bias == nullptr) return copy_rows(to, to_stride, from, from_stride, rows, columns);
  for (int64_t n = 0; n < rows; ++n) {
#pragma GCC ivdep
    for (int64_t u = 0; u < columns; ++u) to[n * to_stride + u] = from[n * from_stride + u] + bias[u];
  }
}

// Products of states, which have few rows, with one matrix of weights, [inner, columns] or transposed: MKL leaves such a
// product to one thread, so threads take columns of the result apart.
template <typename T>
class StateProduct {
 public:
  StateProduct(const T* weights, int64_t rows, int64_t columns, int64_t inner, bool transposed)
      : rows_(rows), columns_(columns), parts_(rows * columns * inner < least_products ? 1 : omp_get_max_threads()) {
    for (int64_t p = 0; p < parts_; ++p) {
      const int64_t first = start(p), count = start(p + 1) - first;
      if (transposed) {
        weights_.emplace_back(weights + first * inner, count, inner, inner, true);
      } else {
        weights_.emplace_back(weights + first, inner, count, columns);
      }
    }
  }

  // to += state weights; `begin(first, count)` sets columns of `to` first
  template <typename Begin>
  int32_t add_to(T* to, int64_t to_stride, const Matrix& state, Begin&& begin) const {
    int32_t failed = 0;
    const auto part = [&](int64_t p) {
      const int64_t first = start(p), count = start(p + 1) - first;
      begin(first, count);
      return Matrix(to + first, rows_, count, to_stride).product(state, weights_[p], 1);
    };
    if (parts_ == 1) return part(0);  // MKL would start new threads within a region of one thread
#pragma omp parallel for reduction(| : failed)
    for (int64_t p = 0; p < parts_; ++p) failed |= part(p);
    return failed;
  }

 private:
  static constexpr int64_t least_products = 1 << 20;
  int64_t start(int64_t part) const { return columns_ * part / parts_; }

  int64_t rows_, columns_, parts_;
  std::vector<Matrix> weights_;
};

// The input's share of so many rows is computed at a time: enough for a product of full speed, and few enough to stay in
// a cache until the steps read them.
constexpr int64_t rows_at_once = 256;

template <typename T>
int32_t run(const Sizes<T>& s, T* y, T* last_h, T* last_c, T* kept, const T* x, const T* w, const T* r, const T* b,
            const T* first_h, const T* first_c) {
  const int64_t H = s.hidden, B = s.batch, G = s.rows(), S = s.width(), I = s.inputs;
  const int64_t at_once = s.steps * B <= rows_at_once ? s.steps : B >= rows_at_once ? 1 : rows_at_once / B;
  // the state after one step follows the one before it in memory; where nobody wants them all, two take turns
  Scratch<T> own(kept == nullptr ? 2 * B * S : 0), given(at_once * B * G), biases(G);
  for (int64_t d = 0; d < s.directions; ++d) {
    T* const states = kept == nullptr ? static_cast<T*>(own) : kept + d * s.states();
    const auto state = [&](int64_t step) { return states + (kept == nullptr ? step % 2 : step) * B * S; };
    const T* const rd = r + d * G * H;
    const T* const bd = b == nullptr ? nullptr : b + d * 2 * G;
    copy_rows(states, S, first_h == nullptr ? nullptr : first_h + d * B * H, H, B, H);
    if (s.kind == lstm_cell) copy_rows(states + H, S, first_c == nullptr ? nullptr : first_c + d * B * H, H, B, H);
    // the bias of the state is the reset gate's factor, too, for a GRU's new values
    const int64_t both = s.kind == gru_cell ? 2 * H : G;
    for (int64_t u = 0; u < G && bd != nullptr; ++u) biases[u] = u < both ? bd[u] + bd[G + u] : bd[u];
    const T* const bias = bd == nullptr ? nullptr : static_cast<T*>(biases);
    const Matrix weights_x(w + d * G * I, G, I, I, true);
    const StateProduct<T> weights(rd, B, both, H, true), weights_n(rd + (G - H) * H, B, G - both, H, true);
    int64_t first_place = 0;  // of the steps whose share `given` holds
    for (int64_t step = 0; step < s.steps; ++step) {
      const int64_t place = s.place(d, step);
      if (step % at_once == 0) {
        const int64_t count = s.steps - step < at_once ? s.steps - step : at_once;
        first_place = s.backward(d) ? place - count + 1 : place;
        if (Matrix(&given[0], count * B, G, G).product(Matrix(x + first_place * B * I, count * B, I, I), weights_x, 0)) {
          return 1;
        }
        if (both < G) add_bias(given + both, G, given + both, G, bias == nullptr ? bias : bias + both, count * B, G - both);
      }
      const T* const before = state(step);
      T* const now = state(step + 1);
      const T* const g = given + (place - first_place) * B * G;
      T* const gates = now + (s.kind == lstm_cell ? 2 * H : H);
      const Matrix h(before, B, H, S);
      const auto add_given = [&](int64_t first, int64_t count) {
        add_bias(gates + first, S, g + first, G, bias == nullptr ? bias : bias + first, B, count);
      };
      if (weights.add_to(gates, S, h, add_given)) return 1;
      if (s.kind == gru_cell) {
        const auto add_reset = [&](int64_t first, int64_t count) {
          copy_rows(now + 4 * H + first, S, bd == nullptr ? nullptr : bd + G + 2 * H + first, 0, B, count);
        };
        if (weights_n.add_to(now + 4 * H, S, h, add_reset)) return 1;
      }
#pragma omp parallel for if (B * H >= 2048)
      for (int64_t n = 0; n < B; ++n) cell(s.kind, H, before + n * S, now + n * S, g + n * G);
      if (y != nullptr) copy_rows(y + (place * s.directions + d) * B * H, H, now, S, B, H);
    }
    const T* const end = state(s.steps);
    if (last_h != nullptr) copy_rows(last_h + d * B * H, H, end, S, B, H);
    if (last_c != nullptr) copy_rows(last_c + d * B * H, H, end + H, S, B, H);
  }
  return 0;
}

// One step of one sequence backwards: `dh` and `dc` of the state after it become what flows to the one before, all but
// what goes through the gates; `dx` and `dr` are the gates' cotangents as the input's and the state's weights see them.
template <typename T>
void cell_backward(int64_t kind, int64_t hidden, const T* __restrict__ before, const T* __restrict__ now,
                   const T* __restrict__ dy, T* __restrict__ dh, T* __restrict__ dc, T* __restrict__ dx,
                   T* __restrict__ dr) {
  const int64_t H = hidden;
  if (dy != nullptr) {
    for (int64_t u = 0; u < H; ++u) dh[u] += dy[u];
  }
  switch (kind) {
    case tanh_cell:
      for (int64_t u = 0; u < H; ++u) {
        dx[u] = dh[u] * (T(1) - now[u] * now[u]);
        dh[u] = T(0);
      }
      break;
    case relu_cell:
      for (int64_t u = 0; u < H; ++u) {
        dx[u] = now[H + u] <= T(0) ? T(0) : dh[u];
        dh[u] = T(0);
      }
      break;
    case gru_cell:
#pragma GCC ivdep
      for (int64_t u = 0; u < H; ++u) {
        const T z = sigmoid(now[H + u]), r = sigmoid(now[2 * H + u]), n = tanh(now[3 * H + u]);
        const T dn = dh[u] * (T(1) - z) * (T(1) - n * n);
        const T dz = dh[u] * (before[u] - n) * ((T(1) - z) * z);
        const T dreset = dn * now[4 * H + u] * ((T(1) - r) * r);
        dx[u] = dz;
        dx[H + u] = dreset;
        dx[2 * H + u] = dn;
        dr[u] = dz;
        dr[H + u] = dreset;
        dr[2 * H + u] = dn * r;
        dh[u] = dh[u] * z;
      }
      break;
    default:
#pragma GCC ivdep
      for (int64_t u = 0; u < H; ++u) {
        const T i = sigmoid(now[2 * H + u]), o = sigmoid(now[3 * H + u]), f = sigmoid(now[4 * H + u]);
        const T g = tanh(now[5 * H + u]), c = tanh(now[H + u]);
        const T through = dc[u] + dh[u] * o * (T(1) - c * c);
        dx[u] = through * g * ((T(1) - i) * i);
        dx[H + u] = dh[u] * c * ((T(1) - o) * o);
        dx[2 * H + u] = through * before[H + u] * ((T(1) - f) * f);
        dx[3 * H + u] = through * i * (T(1) - g * g);
        dc[u] = through * f;
        dh[u] = T(0);
      }
  }
}

template <typename T>
void sum_rows(T* to, const T* from, int64_t rows, int64_t columns) {
  for (int64_t u = 0; u < columns; ++u) to[u] = T(0);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t u = 0; u < columns; ++u) to[u] += from[n * columns + u];
  }
}

// Where gradients go to; null is one that nobody wants.
template <typename T>
struct Gradients {
  T *x, *w, *r, *b, *first_h, *first_c;
};

template <typename T>
int32_t run_backward(const Sizes<T>& s, const Gradients<T>& to, const T* kept, const T* x, const T* w, const T* r,
                     const T* dy, const T* dlast_h, const T* dlast_c) {
  const int64_t H = s.hidden, B = s.batch, G = s.rows(), S = s.width(), I = s.inputs, N = s.steps * B;
  const bool apart = s.kind == gru_cell;
  // in the order of the input, whichever way the direction goes
  Scratch<T> dx(N * G), dr_apart(apart ? N * G : 0), dh(B * H), dc(B * H), earlier(N * H);
  T* const dr = apart ? static_cast<T*>(dr_apart) : static_cast<T*>(dx);
  for (int64_t d = 0; d < s.directions; ++d) {
    const T* const states = kept + d * s.states();
    copy_rows(&dh[0], H, dlast_h == nullptr ? nullptr : dlast_h + d * B * H, H, B, H);
    copy_rows(&dc[0], H, dlast_c == nullptr ? nullptr : dlast_c + d * B * H, H, B, H);
    const StateProduct<T> weights(r + d * G * H, B, H, G, false);
    for (int64_t step = s.steps - 1; step >= 0; --step) {
      const int64_t place = s.place(d, step);
      const T* const before = states + step * B * S;
      const T* const of_y = dy == nullptr ? nullptr : dy + (place * s.directions + d) * B * H;
#pragma omp parallel for if (B * H >= 2048)
      for (int64_t n = 0; n < B; ++n) {
        cell_backward(s.kind, H, before + n * S, before + (B + n) * S, of_y == nullptr ? of_y : of_y + n * H,
                      dh + n * H, dc + n * H, dx + (place * B + n) * G, dr + (place * B + n) * G);
      }
      if (weights.add_to(&dh[0], H, Matrix(dr + place * B * G, B, G, G), [](int64_t, int64_t) {})) return 1;
      if (to.r != nullptr) copy_rows(earlier + place * B * H, H, before, S, B, H);
    }
    if (to.first_h != nullptr) copy_rows(to.first_h + d * B * H, H, static_cast<const T*>(dh), H, B, H);
    if (to.first_c != nullptr) copy_rows(to.first_c + d * B * H, H, static_cast<const T*>(dc), H, B, H);
    if (to.b != nullptr) {
      sum_rows(to.b + d * 2 * G, static_cast<const T*>(dx), N, G);
      sum_rows(to.b + d * 2 * G + G, static_cast<const T*>(dr), N, G);
    }
    const Matrix gates(static_cast<const T*>(dx), N, G, G), turned(static_cast<const T*>(dx), N, G, G, true);
    if ((to.r != nullptr && Matrix(to.r + d * G * H, G, H, H)
                                .product(Matrix(dr, N, G, G, true), Matrix(&earlier[0], N, H, H), 0)) ||
        (to.w != nullptr && Matrix(to.w + d * G * I, G, I, I).product(turned, Matrix(x, N, I, I), 0)) ||
        (to.x != nullptr && Matrix(to.x, N, I, I).product(gates, Matrix(w + d * G * I, G, I, I), d > 0))) {
      return 1;
    }
  }
  return 0;
}

// The memory of a tensor; null of a null one.
template <typename T>
inline int32_t pointer(AtenTensorHandle tensor, T** found) {
  void* held = nullptr;
  if (tensor != nullptr && aoti_torch_get_data_ptr(tensor, &held)) return 1;
  *found = static_cast<T*>(held);
  return 0;
}

template <typename T>
inline int32_t describe(Sizes<T>* s, AtenTensorHandle x, AtenTensorHandle r) {
  return aoti_torch_get_size(x, 0, &s->steps) || aoti_torch_get_size(x, 1, &s->batch) ||
         aoti_torch_get_size(x, 2, &s->inputs) || aoti_torch_get_size(r, 2, &s->hidden) ||
         aoti_torch_get_size(r, 0, &s->directions);
}

template <typename T>
inline int32_t forward_of(AtenTensorHandle const (&given)[10], int64_t kind, int64_t reverse) {
  Sizes<T> s = {kind, 0, 0, 0, 0, 0, reverse};
  T* p[10] = {};
  for (int k = 0; k < 10; ++k) {
    if (pointer(given[k], &p[k])) return 1;
  }
  return describe(&s, given[4], given[6]) || run<T>(s, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9]);
}

template <typename T>
inline int32_t backward_of(AtenTensorHandle const (&given)[13], int64_t kind, int64_t reverse) {
  Sizes<T> s = {kind, 0, 0, 0, 0, 0, reverse};
  T* p[13] = {};
  for (int k = 0; k < 13; ++k) {
    if (pointer(given[k], &p[k])) return 1;
  }
  return describe(&s, given[7], given[9]) ||
         run_backward<T>(s, {p[0], p[1], p[2], p[3], p[4], p[5]}, p[6], p[7], p[8], p[9], p[10], p[11], p[12]);
}

}  // namespace
}  // namespace recurrent

int32_t recurrent_layer(daceml_call* call, AtenTensorHandle y, AtenTensorHandle last_h, AtenTensorHandle last_c,
                               AtenTensorHandle state, AtenTensorHandle x, AtenTensorHandle w, AtenTensorHandle r,
                               AtenTensorHandle b, AtenTensorHandle first_h, AtenTensorHandle first_c, int64_t kind,
                               int64_t reverse) {
  const AtenTensorHandle given[10] = {y, last_h, last_c, state, x, w, r, b, first_h, first_c};
  int32_t type = 0;
  DACEML_TRY(call, aoti_torch_get_dtype(x, &type), "torch could not describe an operand");
  DACEML_TRY(call,
             type == aoti_torch_dtype_float32() ? recurrent::forward_of<float>(given, kind, reverse)
                                                : recurrent::forward_of<double>(given, kind, reverse),
             "a product of a recurrent layer failed");
  return 0;
}

int32_t recurrent_layer_backward(daceml_call* call, AtenTensorHandle dx, AtenTensorHandle dw,
                                        AtenTensorHandle dr, AtenTensorHandle db, AtenTensorHandle dfirst_h,
                                        AtenTensorHandle dfirst_c, AtenTensorHandle state, AtenTensorHandle x,
                                        AtenTensorHandle w, AtenTensorHandle r, AtenTensorHandle dy,
                                        AtenTensorHandle dlast_h, AtenTensorHandle dlast_c, int64_t kind,
                                        int64_t reverse) {
  const AtenTensorHandle given[13] = {dx, dw, dr, db, dfirst_h, dfirst_c, state, x, w, r, dy, dlast_h, dlast_c};
  int32_t type = 0;
  DACEML_TRY(call, aoti_torch_get_dtype(x, &type), "torch could not describe an operand");
  DACEML_TRY(call,
             type == aoti_torch_dtype_float32() ? recurrent::backward_of<float>(given, kind, reverse)
                                                : recurrent::backward_of<double>(given, kind, reverse),
             "a product of a recurrent layer failed");
  return 0;
}

}  // namespace aten
}  // namespace daceml
