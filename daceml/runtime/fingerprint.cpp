// A number that differs, but for one chance in 2^64, where any byte of some arrays does.
//
// Arrays are cut into pieces, which threads take in any order. A piece goes through 32 lanes of 64 bits,
//   lane = rotate((lane ^ word) * odd, 29),
// which for a fixed word is a bijection of the lane and for a fixed lane one of the word: the change of a single
// element always shows, and the rotation carries a change of a sign, which a product leaves in the highest bit, into
// the lowest ones. The result of a piece is mixed with its number, and the sum of all is the fingerprint.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <daceml/program.h>

namespace {

typedef uint64_t Words __attribute__((vector_size(64)));
constexpr int64_t vectors = 4;
constexpr int64_t block_bytes = vectors * sizeof(Words);
constexpr int64_t piece_bytes = int64_t(1) << 15;
constexpr uint64_t odd = 0x9e3779b97f4a7c15;

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every bit depends on every other.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline void absorb(Words (&lanes)[vectors], const char* block) {
  for (int64_t v = 0; v < vectors; ++v) {
    Words words;
    memcpy(&words, block + v * sizeof(Words), sizeof(Words));
    const Words product = (lanes[v] ^ words) * odd;
    lanes[v] = (product << 29) | (product >> 35);
  }
}

uint64_t piece(const char* bytes, int64_t count, uint64_t number) {
  Words lanes[vectors];
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t i = 0; i < 8; ++i) lanes[v][i] = odd * static_cast<uint64_t>(8 * v + i + 1);
  }
  int64_t done = 0;
  for (; done + block_bytes <= count; done += block_bytes) absorb(lanes, bytes + done);
  if (done < count) {
    char rest[block_bytes] = {};
    memcpy(rest, bytes + done, count - done);
    absorb(lanes, rest);
  }
  uint64_t result = mixed(number);
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t i = 0; i < 8; ++i) result = mixed(result ^ lanes[v][i]);
  }
  return result;
}

}  // namespace

// Of `count` arrays of `bytes[i]` bytes each.
extern "C" uint64_t daceml_fingerprint(const void* const* arrays, const int64_t* bytes, int64_t count) {
  std::vector<int64_t> ends(count);  // pieces up to the end of each array
  int64_t pieces = 0;
  for (int64_t i = 0; i < count; ++i) ends[i] = pieces += (bytes[i] + piece_bytes - 1) / piece_bytes;
  uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(static) if (pieces > 8)
  for (int64_t k = 0; k < pieces; ++k) {
    const int64_t i = std::upper_bound(ends.begin(), ends.end(), k) - ends.begin();
    const int64_t from = (i == 0 ? k : k - ends[i - 1]) * piece_bytes;
    const int64_t size = std::min(bytes[i] - from, piece_bytes);
    sum += piece(static_cast<const char*>(arrays[i]) + from, size, static_cast<uint64_t>(k));
  }
  return sum;
}
