// The numbers that torch's default generator draws next, in vectors and on all threads: eager PyTorch draws the same.
//
// torch's generator is a Mersenne Twister (MT19937), which its kernels ask for one number after the other. Its words
// are a linear recurrence, word[k + 624] = word[k + 397] ^ twist(word[k], word[k + 1]), so 227 of them at once depend
// on none of each other. Going on without looking at the words is cheap, hence each thread finds its own beginning.
#include <omp.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include <daceml/program.h>

namespace {

constexpr int64_t words_of_block = 624;
constexpr int64_t draws_of_block = words_of_block / 2;  // a draw takes two words
constexpr int64_t offset_of_recurrence = 397;
constexpr int64_t blocks_of_chunk = 16;  // 43 KB: a chunk of words and its draws fit into the cache next to the core
constexpr int64_t least_parallel_draws = 1 << 16;
// Cost of words that are passed over, in parts of that of words that are drawn from.
constexpr double cost_of_passing = 0.35;

// What `torch.Generator.get_state()` gives, up to what this file changes: at::CPUGeneratorImplStateLegacy.
struct State {
  uint64_t seed;
  int32_t left;    // words of the block, this one included, until the next has to be made
  int32_t seeded;
  uint64_t next;   // position in the block
  uint64_t words[words_of_block];
  int64_t left_words() const { return left - 1; }
};
static_assert(sizeof(State) == 24 + 8 * words_of_block, "as torch stores it");

// A stretch of the recurrence: the block before, then `blocks_of_chunk` new ones.
class Stretch {
 public:
  explicit Stretch(const uint32_t* before) { std::memcpy(words_, before, sizeof(uint32_t) * words_of_block); }

  void make(int64_t blocks) {
    uint32_t* w = words_;
    for (int64_t k = 0; k < blocks * words_of_block; ++k) {
      const uint32_t joined = (w[k] & 0x80000000u) | (w[k + 1] & 0x7fffffffu);
      w[k + words_of_block] = w[k + offset_of_recurrence] ^ (joined >> 1) ^ (-(w[k + 1] & 1u) & 0x9908b0dfu);
    }
  }
  // The last block that was made becomes the one before.
  void go_on(int64_t blocks) {
    std::memmove(words_, words_ + blocks * words_of_block, sizeof(uint32_t) * words_of_block);
  }
  void pass(int64_t blocks) {
    for (int64_t some; blocks > 0; blocks -= some) {
      some = blocks < blocks_of_chunk ? blocks : blocks_of_chunk;
      make(some);
      go_on(some);
    }
  }
  const uint32_t* at(int64_t word) const { return words_ + word; }

 private:
  uint32_t words_[(blocks_of_chunk + 1) * words_of_block];
};

inline uint32_t tempered(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// out[i] = whether a number of [0, 1) is below the probability: the low 53 bits of (first word, second word).
template <typename T>
void draw(const uint32_t* words, T* out, int64_t count, uint64_t limit) {
  constexpr int64_t at_once = 512;
  uint32_t first[at_once], second[at_once];
  for (int64_t start = 0; start < count; start += at_once) {
    const int64_t some = count - start < at_once ? count - start : at_once;
    for (int64_t i = 0; i < some; ++i) {
      first[i] = tempered(words[2 * (start + i)]);
      second[i] = tempered(words[2 * (start + i) + 1]);
    }
    for (int64_t i = 0; i < some; ++i) {
      const uint64_t number = (static_cast<uint64_t>(first[i] & 0x1fffffu) << 32) | second[i];
      out[start + i] = static_cast<T>(number < limit);
    }
  }
}

// Draws from blocks that follow each other, and leaves the last of them in `block`.
//   odd: the first draw begins with the last word of `block`.
template <typename T>
void draw_from_blocks(uint32_t* block, bool odd, T* out, int64_t count, uint64_t limit) {
  // the last draw of an odd stream leaves a word over, so that the last block may give one draw more
  const int64_t words = 2 * count - (odd ? 1 : 0);
  const int64_t blocks = (words + words_of_block - 1) / words_of_block;
  uint32_t last[words_of_block];
#pragma omp parallel if (count >= least_parallel_draws)
  {
    // later threads pass over more, so they draw less, each by the same ratio, and all end together
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const auto share = [&](int t) { return 1 - std::pow(1 - cost_of_passing, t); };
    const auto begin_of = [&](int t) {
      return t == threads ? blocks : static_cast<int64_t>(share(t) / share(threads) * static_cast<double>(blocks));
    };
    const int64_t begin = begin_of(thread), end = begin_of(thread + 1);
    Stretch stretch(block);
    stretch.pass(begin);
    for (int64_t b = begin, some; b < end; b += some) {
      some = end - b < blocks_of_chunk ? end - b : blocks_of_chunk;
      stretch.make(some);
      const int64_t start = b * draws_of_block;
      const int64_t here = count - start < some * draws_of_block ? count - start : some * draws_of_block;
      draw(stretch.at(words_of_block - (odd ? 1 : 0)), out + start, here, limit);
      stretch.go_on(some);
    }
    if (end == blocks && begin < end) std::memcpy(last, stretch.at(0), sizeof(last));
  }
  if (blocks > 0) std::memcpy(block, last, sizeof(last));
}

template <typename T>
void bernoulli(State& state, T* out, int64_t count, double probability) {
  // number * 2^-53 < probability; both sides times 2^53 are exact
  const auto limit = static_cast<uint64_t>(std::ceil(probability * 9007199254740992.0));
  uint32_t block[words_of_block];
  for (int64_t i = 0; i < words_of_block; ++i) block[i] = static_cast<uint32_t>(state.words[i]);
  const int64_t there = state.left_words();
  const int64_t before = count < there / 2 ? count : there / 2;
  draw(block + state.next, out, before, limit);
  const int64_t rest = count - before;
  if (rest == 0) {
    state.next += static_cast<uint64_t>(2 * before);
    state.left -= static_cast<int32_t>(2 * before);
    return;
  }
  const bool odd = there % 2 != 0;
  draw_from_blocks(block, odd, out + before, rest, limit);
  const int64_t words = 2 * rest - (odd ? 1 : 0);
  const int64_t taken = (words - 1) % words_of_block + 1;  // of the last block
  for (int64_t i = 0; i < words_of_block; ++i) state.words[i] = block[i];
  state.next = static_cast<uint64_t>(taken);
  state.left = static_cast<int32_t>(words_of_block + 1 - taken);
}

daceml_exchange exchange = nullptr;

}  // namespace

extern "C" {

// Draws `count` numbers, 1 with `probability` and 0 else, from a state, and advances it.
// Returns 0, or 1 where elements of so many bytes are none of: bool (1), float (4), double (8).
int32_t daceml_bernoulli_from(void* state, void* out, int64_t element_bytes, int64_t count, double probability) {
  State& from = *static_cast<State*>(state);
  switch (element_bytes) {
    case 1: bernoulli(from, static_cast<uint8_t*>(out), count, probability); return 0;
    case 4: bernoulli(from, static_cast<float*>(out), count, probability); return 0;
    case 8: bernoulli(from, static_cast<double*>(out), count, probability); return 0;
    default: return 1;
  }
}

// How the state of torch's default generator is read and replaced; null where it cannot be.
void daceml_set_exchange(daceml_exchange function) { exchange = function; }

}  // extern "C"

daceml_draw daceml_bernoulli() {
  if (exchange == nullptr) return nullptr;
  return [](void* out, int64_t element_bytes, int64_t count, double probability) -> int32_t {
    State before, after;
    if (exchange(nullptr, &before) != 0) return 1;
    // Another thread that draws meanwhile has those numbers: they are drawn anew from where it has come to.
    for (int tries = 0; tries < 4; ++tries) {
      after = before;
      if (daceml_bernoulli_from(&after, out, element_bytes, count, probability) != 0) return 1;
      State expected = before;
      const int32_t found = exchange(&expected, &after);
      if (found == 0) return 0;
      if (found < 0) return 1;
      before = expected;
    }
    return 1;
  };
}
