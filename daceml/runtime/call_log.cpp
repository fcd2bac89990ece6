// Which programs ran when, for whoever records a run: one row for each call, while somebody asks for them.
//
// The launcher gives every recorded call an array of its own for the times of its steps, so calls on several threads
// do not mix.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

namespace {

struct Row {
  int64_t program;
  int64_t thread;  // as the operating system numbers it, and torch's profiler with it
  int64_t start_ns;
  int64_t end_ns;
  std::vector<double> step_us;
};

std::atomic<bool> logging{false};
std::mutex mutex;
std::vector<Row> rows;

}  // namespace

bool daceml_call_log_on() { return logging.load(std::memory_order_relaxed); }

// Of the same epoch as the profiler's, so that the two can be laid side by side.
int64_t daceml_call_log_now_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

void daceml_call_log_add(int64_t program, int64_t start_ns, int64_t end_ns, std::vector<double> step_us) {
  const std::lock_guard<std::mutex> lock(mutex);
  rows.push_back({program, static_cast<int64_t>(syscall(SYS_gettid)), start_ns, end_ns, std::move(step_us)});
}

// Called through ctypes. Starting forgets what was recorded before.
extern "C" void daceml_call_log_start() {
  const std::lock_guard<std::mutex> lock(mutex);
  rows.clear();
  logging.store(true, std::memory_order_relaxed);
}

// Returns the number of rows, and in `steps` that of all their steps.
extern "C" int64_t daceml_call_log_stop(int64_t* steps) {
  logging.store(false, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex);
  *steps = 0;
  for (const Row& row : rows) *steps += static_cast<int64_t>(row.step_us.size());
  return static_cast<int64_t>(rows.size());
}

// Writes the first `count` rows, five numbers each: program, thread, start, end, number of steps; and `steps` times.
// Forgets them. Calls that were in flight when recording stopped may have added rows: those are dropped.
extern "C" void daceml_call_log_take(int64_t count, int64_t* heads, double* step_us) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (int64_t i = 0; i < count; ++i) {
    const Row& row = rows[i];
    const int64_t steps = static_cast<int64_t>(row.step_us.size());
    const int64_t head[] = {row.program, row.thread, row.start_ns, row.end_ns, steps};
    memcpy(heads, head, sizeof head);
    heads += 5;
    if (steps > 0) memcpy(step_us, row.step_us.data(), steps * sizeof(double));
    step_us += steps;
  }
  rows.clear();
}
