// The functions of an exported model: see the header that lies beside the library.
//
// Compiled with what `c_api.py` writes before it: DACEML_FUNCTION(name), DACEML_FEATURES, DACEML_INTERFACE, the hash of
// the weights, and `refused_sizes`, which says why the program is not right for some sizes.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <daceml/pages.h>
#include <daceml/program.h>

#include "sha256.h"

extern "C" const daceml_program daceml_program_v1;

namespace {

constexpr char magic[8] = {'D', 'M', 'L', 'W', 'G', 'T', '0', '1'};

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error(why); }

std::string described(const int64_t* sizes, int32_t rank) {
  std::string text = "[";
  for (int32_t d = 0; d < rank; ++d) text += (d ? ", " : "") + (sizes[d] < 0 ? "?" : std::to_string(sizes[d]));
  return text + "]";
}

// Memory of one call in flight.
struct Frame {
  char* workspace = nullptr;
  int64_t capacity = 0;
  std::vector<daceml_view> views;
  std::vector<int64_t> symbols;

  ~Frame() {
    forget_views();
    std::free(workspace);
  }
  void forget_views() {
    for (auto& view : views) {
      if (view.handle != nullptr) aoti_torch_delete_tensor_object(view.handle);
      view = {nullptr, nullptr};
    }
  }
  void fit(const std::vector<int64_t>& wanted, int64_t bytes) {
    if (wanted != symbols) {
      forget_views();
      symbols = wanted;
    }
    if (bytes <= capacity) return;
    forget_views();
    std::free(workspace);
    workspace = static_cast<char*>(std::aligned_alloc(64, (static_cast<size_t>(bytes) + 63) / 64 * 64));
    capacity = workspace == nullptr ? 0 : bytes;
    if (workspace == nullptr) fail("there are no " + std::to_string(bytes) + " bytes for the workspace");
    advise_large_pages(workspace, bytes);
  }
};

class Model {
 public:
  explicit Model(const char* path) {
    require_features();
    read(path);
  }

  void run(const void* const* inputs, const int64_t* const* sizes, void* const* outputs) {
    const daceml_program& p = daceml_program_v1;
    const std::vector<const int64_t*> given = checked(sizes);
    std::vector<int64_t> symbols(p.symbols);
    bind(given, symbols);
    const std::vector<int64_t> output_sizes = sizes_of_outputs(symbols);
    std::unique_ptr<Frame> frame = take();
    frame->fit(symbols, p.workspace_bytes(symbols.data()));
    std::vector<AtenTensorHandle> made(p.outputs, nullptr);
    daceml_call call{};
    call.inputs = const_cast<void* const*>(reinterpret_cast<const void* const*>(inputs));
    call.weights = weights_.data();
    call.outputs = made.data();
    call.symbols = symbols.data();
    call.workspace = frame->workspace;
    call.views = frame->views.data();
    const int32_t status = p.run(&call);
    give(std::move(frame));
    const int64_t* of = output_sizes.data();
    std::string problem = status == 0 ? "" : call.error == nullptr ? "the program failed" : call.error;
    for (int32_t i = 0; i < p.outputs; ++i) {
      int64_t bytes = item_bytes(p.output_specs[i].dtype);
      for (int32_t d = 0; d < p.output_specs[i].ndim; ++d) bytes *= *of++;
      if (made[i] == nullptr) continue;
      void* from = nullptr;
      if (aoti_torch_get_data_ptr(made[i], &from) != 0) problem = "a result has no address";
      if (problem.empty() && bytes > 0) memcpy(outputs[i], from, static_cast<size_t>(bytes));
      aoti_torch_delete_tensor_object(made[i]);
    }
    if (!problem.empty()) fail(problem);
  }

  void output_sizes(const int64_t* const* sizes, int64_t* found) {
    std::vector<int64_t> symbols(daceml_program_v1.symbols);
    bind(checked(sizes), symbols);
    for (int64_t size : sizes_of_outputs(symbols)) *found++ = size;
  }

 private:
  static int64_t item_bytes(int32_t dtype) {
    static const int64_t bytes[] = {1, 1, 2, 4, 8, 2, 4, 8, 0, 8, 16, 1};
    return dtype == 15 || dtype == 27 ? 2 : dtype == 28 ? 4 : dtype == 29 ? 8 : dtype < 12 ? bytes[dtype] : 0;
  }

  static void require_features() {
#if defined(__x86_64__)
    __builtin_cpu_init();
#define DACEML_FEATURE(name) \
  if (!__builtin_cpu_supports(name)) fail("this processor has no " name ", for which the library was compiled");
    DACEML_FEATURES
#endif
  }

  // The sizes of each input: those that were given, or the program's own where all of these are known.
  static std::vector<const int64_t*> checked(const int64_t* const* sizes) {
    const daceml_program& p = daceml_program_v1;
    std::vector<const int64_t*> found(p.inputs);
    for (int32_t i = 0; i < p.inputs; ++i) {
      const daceml_tensor& spec = p.input_specs[i];
      found[i] = sizes == nullptr ? spec.sizes : sizes[i];
      bool same = true;
      for (int32_t d = 0; d < spec.ndim; ++d) {
        same = same && found[i][d] >= 0 && (spec.sizes[d] < 0 || spec.sizes[d] == found[i][d]);
      }
      if (!same) {
        fail("input " + std::to_string(i) + " has sizes " + described(found[i], spec.ndim) +
             ", the model was exported for " + described(spec.sizes, spec.ndim));
      }
    }
    const std::string why = refused_sizes(found.data());
    if (!why.empty()) fail(why);
    return found;
  }

  static void bind(const std::vector<const int64_t*>& sizes, std::vector<int64_t>& symbols) {
    const int32_t bad = daceml_program_v1.bind_symbols(sizes.data(), symbols.data());
    if (bad >= 0) fail("input " + std::to_string(bad) + " contradicts the sizes of another input");
  }

  static std::vector<int64_t> sizes_of_outputs(const std::vector<int64_t>& symbols) {
    const daceml_program& p = daceml_program_v1;
    size_t count = 0;
    for (int32_t i = 0; i < p.outputs; ++i) count += p.output_specs[i].ndim;
    std::vector<int64_t> found(count);
    p.output_sizes(symbols.data(), found.data());
    return found;
  }

  void read(const char* path) {
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) fail(std::string(path) + " is no plain file");
    std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path, "rb"), fclose);
    if (file == nullptr) fail(std::string("there is no file of weights ") + path);
    if (fseek(file.get(), 0, SEEK_END) != 0) fail(std::string(path) + " cannot be read");
    const long bytes = ftell(file.get());
    rewind(file.get());
    if (bytes < 16) fail(std::string(path) + " is no file of weights");
    memory_.reset(static_cast<char*>(std::aligned_alloc(64, (static_cast<size_t>(bytes) + 127) / 64 * 64)));
    if (memory_ == nullptr) fail("there is no memory for the weights");
    if (fread(memory_.get(), 1, bytes, file.get()) != static_cast<size_t>(bytes)) {
      fail(std::string(path) + " cannot be read to its end");
    }
    if (daceml::sha256(memory_.get(), bytes) != DACEML_WEIGHTS_SHA256) {
      fail(std::string(path) + " is not what this library was exported with: its SHA-256 differs");
    }
    if (memcmp(memory_.get(), magic, sizeof magic) != 0) fail(std::string(path) + " is no file of weights");
    int64_t count = 0;
    memcpy(&count, memory_.get() + 8, sizeof count);
    if (count != daceml_program_v1.weights) fail(std::string(path) + " has another number of weights");
    for (int64_t i = 0; i < count; ++i) {
      int64_t offset = 0;
      memcpy(&offset, memory_.get() + 16 + 8 * i, sizeof offset);
      weights_.push_back(memory_.get() + offset);
    }
  }

  std::unique_ptr<Frame> take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_ != nullptr) return std::move(idle_);
    auto frame = std::make_unique<Frame>();
    frame->views.assign(daceml_program_v1.views, {nullptr, nullptr});
    return frame;
  }

  void give(std::unique_ptr<Frame> frame) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_ = std::move(frame);
  }

  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  std::vector<void*> weights_;
  std::unique_ptr<Frame> idle_;  // one is kept, so that its pages stay warm
  std::mutex mutex_;
};

template <typename Body>
int32_t guarded(char* error, int64_t error_bytes, Body body) {
  std::string why;
  try {
    body();
    return 0;
  } catch (const std::exception& thrown) {
    why = thrown.what();
  } catch (...) {
    why = "something was thrown";
  }
  if (error != nullptr && error_bytes > 0) snprintf(error, static_cast<size_t>(error_bytes), "%s", why.c_str());
  return 1;
}

}  // namespace

extern "C" {

void* DACEML_FUNCTION(load)(const char* weights, char* error, int64_t error_bytes) {
  void* made = nullptr;
  guarded(error, error_bytes, [&] { made = new Model(weights); });
  return made;
}

int32_t DACEML_FUNCTION(run)(void* model, const void* const* inputs, const int64_t* const* sizes,
                             void* const* outputs, char* error, int64_t error_bytes) {
  return guarded(error, error_bytes, [&] { static_cast<Model*>(model)->run(inputs, sizes, outputs); });
}

int32_t DACEML_FUNCTION(output_sizes)(void* model, const int64_t* const* sizes, int64_t* found, char* error,
                                      int64_t error_bytes) {
  return guarded(error, error_bytes, [&] { static_cast<Model*>(model)->output_sizes(sizes, found); });
}

const char* DACEML_FUNCTION(interface)(void) { return DACEML_INTERFACE; }

void DACEML_FUNCTION(free)(void* model) { delete static_cast<Model*>(model); }

}  // extern "C"
