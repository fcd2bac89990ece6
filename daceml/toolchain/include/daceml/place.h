// Where the memory of a program lies, and what differs with that: the forms of torch's functions, copies, and looking
// at data. A driver for a CUDA device defines DACEML_ON_CUDA before it includes anything.
#pragma once

#include <stdio.h>
#include <string.h>

#include <daceml/pages.h>
#include <daceml/program.h>

#define DACEML_TRY(call, expression, message) \
  do {                                        \
    if ((expression) != 0) {                  \
      (call)->error = (message);              \
      return 1;                               \
    }                                         \
  } while (0)

namespace daceml {
// The text of a position outside [lowest, extent), which lasts until the next one of this thread.
inline const char* bounds_text(int64_t lowest, int64_t extent, const char* position, const char* where) {
  static thread_local char text[512];
  snprintf(text, sizeof text, "an index is outside [%lld, %lld): %s%s", static_cast<long long>(lowest),
           static_cast<long long>(extent), position, where);
  return text;
}
}  // namespace daceml

#ifdef DACEML_ON_CUDA
#include <daceml_torch_cuda.h>  // those of torch's C functions that are for CUDA
#define DACEML_ATEN(name) aoti_torch_cuda_##name

// daceml/codegen_cuda/device_functions.cu: all of them enqueue and return, 0 or CUDA's code of an error.
extern "C" {
int daceml_device_copy(void* stream, void* target, const void* source, int64_t bytes);
int daceml_device_finish(void* stream);
int daceml_device_check_positions(void* stream, const void* positions, int64_t item_bytes, int64_t count,
                                  int64_t offset, int64_t step, int64_t lowest, int64_t extent);
int daceml_device_check_starts(void* stream, const void* starts, int64_t item_bytes, int64_t count);
const char* daceml_launch_error();
}
#else
#define DACEML_ATEN(name) aoti_torch_cpu_##name
#endif

namespace daceml {

#ifdef DACEML_ON_CUDA
// CUDA reports an error of a kernel at whatever is called next.
constexpr const char* launch_hint = "; an earlier kernel may have caused it, which CUDA_LAUNCH_BLOCKING=1 tells";
#else
constexpr const char* launch_hint = "";
#endif

// What the caller of this thread is told of a launch that failed: at which kernel, and why.
inline const char* launch_failure(const char* label, const char* kernel, const char* why) {
  static thread_local char text[512];
  snprintf(text, sizeof text, "the launch of kernel %s (%s) failed: %s%s", label, kernel, why, launch_hint);
  return text;
}

#ifdef DACEML_ON_CUDA

inline int32_t device_type() { return aoti_torch_device_type_cuda(); }

// Memory of torch's caching allocator stays as it is.
inline void prepare_memory(void*, int64_t) {}

inline int32_t copy(daceml_call* call, void* target, const void* source, int64_t bytes) {
  DACEML_TRY(call, daceml_device_copy(call->stream, target, source, bytes), daceml_launch_error());
  return 0;
}

// A position outside ends the kernel that finds it, and with it the work of the process on the device, as torch's
// kernels do it: the host goes on before the device has looked.
template <typename T>
inline int32_t positions_outside(daceml_call* call, const T* positions, int64_t count, int64_t offset, int64_t step,
                                 int64_t lowest, int64_t extent) {
  return daceml_device_check_positions(call->stream, positions, sizeof(T), count, offset, step, lowest, extent);
}
template <typename T>
inline const char* outside_text(const T*, int64_t, int64_t, int64_t, int64_t lowest, int64_t extent,
                                const char* where) {
  return bounds_text(lowest, extent, "", where);
}
template <typename T>
inline int32_t starts_descend(daceml_call* call, const T* starts, int64_t count) {
  return daceml_device_check_starts(call->stream, starts, sizeof(T), count);
}

// Until everything that the call has enqueued is done.
inline void finish(daceml_call* call) { daceml_device_finish(call->stream); }

#else

inline int32_t device_type() { return aoti_torch_device_type_cpu(); }

inline void prepare_memory(void* memory, int64_t bytes) { advise_large_pages(memory, bytes); }

inline int32_t copy(daceml_call*, void* target, const void* source, int64_t bytes) {
  memmove(target, source, static_cast<size_t>(bytes));
  return 0;
}

// Whether any of the positions `offset, offset + step, ...` of an index array lies outside [lowest, extent).
template <typename T>
inline int32_t positions_outside(daceml_call*, const T* positions, int64_t count, int64_t offset, int64_t step,
                                 int64_t lowest, int64_t extent) {
  for (int64_t i = offset; i < count; i += step) {
    const int64_t position = static_cast<int64_t>(positions[i]);
    if (position < lowest || position >= extent) return 1;
  }
  return 0;
}

// Why a call is refused whose positions lie outside: the first of them, and the operator.
template <typename T>
inline const char* outside_text(const T* positions, int64_t count, int64_t offset, int64_t step, int64_t lowest,
                                int64_t extent, const char* where) {
  for (int64_t i = offset; i < count; i += step) {
    const int64_t position = static_cast<int64_t>(positions[i]);
    if (position >= lowest && position < extent) continue;
    char found[32];
    snprintf(found, sizeof found, "%lld in ", static_cast<long long>(position));
    return bounds_text(lowest, extent, found, where);
  }
  return bounds_text(lowest, extent, "", where);
}

// Whether starts of segments do not begin with 0, or one is smaller than the one before.
template <typename T>
inline int32_t starts_descend(daceml_call*, const T* starts, int64_t count) {
  if (count > 0 && starts[0] != 0) return 1;
  for (int64_t i = 1; i < count; ++i) {
    if (starts[i] < starts[i - 1]) return 1;
  }
  return 0;
}

inline void finish(daceml_call*) {}

#endif

}  // namespace daceml
