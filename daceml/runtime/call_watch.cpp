// Calls of some C functions from Python, noticed as a profiler notices them.
//
// A profiler in Python runs for every call and every return, of which tracing a model has millions: it takes three
// times as long. This one compares an address and a name, and calls Python for the few that match. Only public functions
// of Python are called, found at run time, so no Python header is needed.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace call_watch {

using Profiler = int (*)(void* object, void* frame, int event, void* function);
using SetProfile = void (*)(Profiler, void* object);
using Call = void* (*)(void* callable, ...);
using Release = void (*)(void* object);

constexpr int c_call = 4;  // PyTrace_C_CALL

// PyObject keeps its type behind this offset, and PyCFunctionObject its PyMethodDef, which begins with the name.
constexpr size_t type_of_object = 8;
constexpr size_t definition_of_function = 16;

struct Filter {
  void* type;  // of functions that are written in C
  std::vector<void*> functions;
  std::vector<std::string> names;
  Call call;
  Release release;
};

inline thread_local Filter filter;

inline void* member_of(const void* object, size_t offset) {
  return *reinterpret_cast<void* const*>(static_cast<const char*>(object) + offset);
}

inline const char* name_of(const void* function) {
  return *static_cast<const char* const*>(member_of(function, definition_of_function));
}

inline bool matches(void* function) {
  if (member_of(function, type_of_object) != filter.type) return true;  // Python takes a closer look
  for (void* known : filter.functions) {
    if (known == function) return true;
  }
  const char* name = name_of(function);
  for (const std::string& known : filter.names) {
    if (known == name) return true;
  }
  return false;
}

inline int on_event(void* callable, void* frame, int event, void* function) {
  if (event != c_call || function == nullptr || !matches(function)) return 0;
  void* result = filter.call(callable, frame, function, static_cast<void*>(nullptr));
  if (result == nullptr) return -1;
  filter.release(result);
  return 0;
}

}  // namespace call_watch

// Calls `callable(frame, function)` before each call of one of `functions`, or of a C function that has one of `names`,
// on this thread, until sys.setprofile(None). `sample` is such a function with the name `name`.
// 0 where this Python keeps its objects in another way.
extern "C" int32_t daceml_watch_calls(void* callable, void* sample, const char* name, void** functions,
                                      int64_t function_count, const char** names, int64_t name_count) {
  using namespace call_watch;
  auto set_profile = reinterpret_cast<SetProfile>(dlsym(RTLD_DEFAULT, "PyEval_SetProfile"));
  filter.call = reinterpret_cast<Call>(dlsym(RTLD_DEFAULT, "PyObject_CallFunctionObjArgs"));
  filter.release = reinterpret_cast<Release>(dlsym(RTLD_DEFAULT, "Py_DecRef"));
  void* kind = dlsym(RTLD_DEFAULT, "PyCFunction_Type");
  if (set_profile == nullptr || filter.call == nullptr || filter.release == nullptr || kind == nullptr) return 0;
  if (member_of(sample, type_of_object) != kind || std::strcmp(name_of(sample), name) != 0) return 0;
  filter.type = kind;
  filter.functions.assign(functions, functions + function_count);
  filter.names.assign(names, names + name_count);
  set_profile(on_event, callable);
  return 1;
}
