// The one native library of daceml: loads compiled programs and calls them from torch through operators.
//
//   daceml::bind(Tensor[] weights, str library) -> int          a program with its weights; the tensors are shared
//   daceml::call(Tensor[] inputs, int program) -> Tensor[]      for programs that write no buffer of the module
//   daceml::hold(Tensor[] tensors) -> int                       inputs that nobody else reads, for one call
//   daceml::call_held(Tensor[] inputs, int held, int program) -> Tensor[]
//                                                               releases each of them after its last reader
//   daceml::call_into(Tensor[] inputs, Tensor(a!)[] written, int program) -> ()
//                                                               `written` holds the outputs, then the buffers written
//
// Two calls, because torch functionalises an operator that both writes and returns lists of tensors in neither form.
// Built once per torch version from torch's stable C ABI only, so no torch C++ header is needed.
#include <dlfcn.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

// torch's own headers before the declarations that were made from them: the compiler compares the two.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/c/shim.h>

#include <daceml/device_place.h>
#include <daceml/pages.h>
#include <daceml/program.h>

daceml_draw daceml_bernoulli();  // random_stream.cpp
extern "C" uint64_t daceml_fingerprint(const void* const* arrays, const int64_t* bytes, int64_t count);
bool daceml_call_log_on();  // call_log.cpp
int64_t daceml_call_log_now_ns();
void daceml_call_log_add(int64_t program, int64_t start_ns, int64_t end_ns, std::vector<double> step_us);

namespace {

using daceml::check;
using daceml::DeviceGuard;
using daceml::Place;
using daceml::require;

// An owned tensor handle.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(other.release()) {}
  Tensor& operator=(Tensor&& other) noexcept {
    reset();
    handle_ = other.release();
    return *this;
  }
  ~Tensor() { reset(); }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() {
    AtenTensorHandle handle = handle_;
    handle_ = nullptr;
    return handle;
  }
  void* pointer() const {
    void* pointer = nullptr;
    check(aoti_torch_get_data_ptr(handle_, &pointer), "reading a tensor's address");
    return pointer;
  }

 private:
  void reset() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
    handle_ = nullptr;
  }
  AtenTensorHandle handle_ = nullptr;
};

// A message with what torch said of the call that failed last in this thread, where torch's part has failed. torch has
// a function for it from 2.13 on.
std::string torch_failed(const std::string& message) {
  using Said = const char* (*)();
  static const auto said = reinterpret_cast<Said>(dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
  if (said == nullptr || (message.rfind("aten::", 0) != 0 && message.rfind("there is no memory", 0) != 0)) return message;
  const std::string all = said();
  if (all.empty()) return message;
  const std::string line = all.substr(0, all.find('\n'));
  const bool negative = line.find("negative dimension") != std::string::npos;  // where inputs are too small
  return (negative ? "a size is negative" : message) + ": " + line;
}

std::vector<Tensor> tensors_of(StableIValue value) {
  auto list = reinterpret_cast<StableListHandle>(value);
  size_t count = 0;
  check(torch_list_size(list, &count), "reading a tensor list");
  std::vector<Tensor> tensors;
  tensors.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    StableIValue element = 0;
    check(torch_list_get_item(list, i, &element), "reading a tensor list");
    tensors.emplace_back(reinterpret_cast<AtenTensorHandle>(element));
  }
  torch_delete_list(list);
  return tensors;
}

std::string describe(int64_t ndim, const int64_t* sizes) {
  std::string text = "[";
  for (int64_t d = 0; d < ndim; ++d) text += (d ? ", " : "") + (sizes[d] < 0 ? "?" : std::to_string(sizes[d]));
  return text + "]";
}

// Refuses a tensor whose storage somebody has made smaller than its sizes say, as resize_ of a storage can.
void require_memory(AtenTensorHandle tensor, int32_t dtype, int64_t ndim, const int64_t* sizes, const int64_t* strides,
                    const std::string& name) {
  int64_t last = 0;
  int64_t dense = 1;  // the stride of row-major order
  for (int64_t d = ndim - 1; d >= 0; --d) {
    if (sizes[d] == 0) return;
    last += (sizes[d] - 1) * (strides == nullptr ? dense : strides[d]);
    dense *= sizes[d];
  }
  int64_t offset = 0;
  int64_t bytes = 0;
  check(aoti_torch_get_storage_offset(tensor, &offset), "reading a layout");
  check(aoti_torch_get_storage_size(tensor, &bytes), "reading a storage");
  require((offset + last + 1) * static_cast<int64_t>(aoti_torch_dtype_element_size(dtype)) <= bytes,
          name + " has no memory for all of its elements: its storage was resized");
}

// Refuses a tensor that the program would misread: element type, device, rank, sizes, layout, memory.
const int64_t* matching_sizes(AtenTensorHandle tensor, const daceml_tensor& spec, Place& place, const char* role,
                              size_t index) {
  const std::string name = std::string(role) + " " + std::to_string(index);
  int32_t dtype = 0;
  int64_t ndim = 0;
  int64_t* sizes = nullptr;
  check(aoti_torch_get_dtype(tensor, &dtype), "reading a dtype");
  check(aoti_torch_get_dim(tensor, &ndim), "reading a rank");
  check(aoti_torch_get_sizes(tensor, &sizes), "reading sizes");
  require(dtype == spec.dtype, name + " has another element type than the program was compiled for");
  place.require_here(tensor, name);
  bool same = ndim == spec.ndim;
  for (int64_t d = 0; same && d < ndim; ++d) same = spec.sizes[d] < 0 || spec.sizes[d] == sizes[d];
  require(same, name + " has sizes " + describe(ndim, sizes) + ", the program was compiled for " +
                    describe(spec.ndim, spec.sizes));
  if (spec.strides == nullptr) {
    bool contiguous = false;
    check(aoti_torch_is_contiguous(tensor, &contiguous), "reading a layout");
    require(contiguous, name + " is not contiguous in row-major order");
    require_memory(tensor, dtype, ndim, sizes, nullptr, name);
    return sizes;
  }
  int64_t* strides = nullptr;
  check(aoti_torch_get_strides(tensor, &strides), "reading a layout");
  require_memory(tensor, dtype, ndim, sizes, strides, name);
  for (int64_t d = 0; d < ndim; ++d) {
    require(sizes[d] == 1 || strides[d] == spec.strides[d],
            name + " has strides " + describe(ndim, strides) + ", the program was compiled for " +
                describe(ndim, spec.strides));
  }
  return sizes;
}

// Memory of one call in flight: workspace, and torch views into it that outlive the call.
struct Frame {
  Tensor workspace;
  char* base = nullptr;
  int64_t capacity = -1;
  std::vector<daceml_view> views;
  std::vector<int64_t> symbols;

  ~Frame() { forget_views(); }
  void forget_views() {
    for (auto& view : views) {
      if (view.handle != nullptr) aoti_torch_delete_tensor_object(view.handle);
      view = {nullptr, nullptr};
    }
  }
  void fit(const std::vector<int64_t>& wanted, int64_t bytes, const Place& place) {
    if (wanted != symbols) {
      forget_views();
      symbols = wanted;
    }
    if (bytes <= capacity) return;
    forget_views();
    const int64_t one = 1;
    AtenTensorHandle handle = nullptr;
    if (aoti_torch_empty_strided(1, &bytes, &one, aoti_torch_dtype_uint8(), place.type(), place.index(), &handle)) {
      require(false, torch_failed("there is no memory for a workspace of " + std::to_string(bytes) + " bytes"));
    }
    workspace = Tensor(handle);
    base = bytes == 0 ? nullptr : static_cast<char*>(workspace.pointer());
    if (!place.on_cuda) advise_large_pages(base, bytes);
    capacity = bytes;
  }
};

class Bound {
 public:
  Bound(const std::string& library, std::vector<Tensor> weights) : weights_(std::move(weights)) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(std::string("daceml: ") + dlerror());
    program_ = static_cast<const daceml_program*>(dlsym(handle, "daceml_program_v1"));
    require(program_ != nullptr && program_->abi == DACEML_ABI, library + " was built for another daceml");
    require(weights_.size() == static_cast<size_t>(program_->weights), "wrong number of weights");
    place_.on_cuda = program_->on_cuda != 0;
    pointers_.assign(weights_.size(), nullptr);
    for (size_t i = 0; i < weights_.size(); ++i) refresh(i);
  }

  // The inputs from `borrowed` on belong to the call, which releases each after its last reader.
  std::vector<Tensor> call(std::vector<Tensor> inputs, size_t borrowed) {
    return run(inputs, borrowed, [](const std::vector<int64_t>&) {});
  }

  void call_into(std::vector<Tensor> inputs, const std::vector<Tensor>& written) {
    require(written.size() >= static_cast<size_t>(program_->outputs), "too few tensors to write to");
    const std::vector<Tensor> outputs = run(inputs, inputs.size(), [&](const std::vector<int64_t>& sizes) {
      const int64_t* of = sizes.data();
      for (int32_t i = 0; i < program_->outputs; ++i) {
        daceml_tensor spec = program_->output_specs[i];
        spec.sizes = of;
        Place place = place_;
        matching_sizes(written[i].get(), spec, place, "output", i);
        of += spec.ndim;
      }
    });
    for (size_t i = 0; i < outputs.size(); ++i) {
      check(aoti_torch_copy_(written[i].get(), outputs[i].get(), 0), "writing an output");
    }
  }

  // A number that changes when a weight moves; graphs have addresses in them.
  uint64_t addresses() const {
    uint64_t mixed = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      mixed = (mixed ^ reinterpret_cast<uint64_t>(address(i))) * 0x9e3779b97f4a7c15u;
    }
    return mixed;
  }

  daceml_fallback fallback = nullptr;
  daceml_all_reduce all_reduce = nullptr;
  double* profile = nullptr;
  int64_t number = 0;  // in the registry

 private:
  void log_call(int64_t start_ns, std::vector<double> step_us) const {
    const int64_t end_ns = daceml_call_log_now_ns();
    if (profile != nullptr) {
      for (size_t i = 0; i < step_us.size(); ++i) profile[i] += step_us[i];
    }
    daceml_call_log_add(number, start_ns, end_ns, std::move(step_us));
  }

  bool packed(size_t i) const { return program_->weight_specs[i].ndim < 0; }

  // Where a program finds a weight; the program alone holds a packed one, so nobody moves it.
  void* address(size_t i) const { return packed(i) ? weights_[i].get() : weights_[i].pointer(); }

  void refresh(size_t i) {
    if (packed(i)) {
      pointers_[i] = weights_[i].get();
      return;
    }
    matching_sizes(weights_[i].get(), program_->weight_specs[i], place_, "weight", i);
    pointers_[i] = weights_[i].pointer();
  }

  static std::vector<void*> pointers_of(const std::vector<Tensor>& tensors, size_t count) {
    std::vector<void*> pointers(count);
    for (size_t i = 0; i < count; ++i) pointers[i] = tensors[i].pointer();
    return pointers;
  }

  // `check_sizes` sees the sizes of all outputs, one after another, before anything runs.
  template <typename Check>
  std::vector<Tensor> run(std::vector<Tensor>& inputs, size_t borrowed, Check check_sizes) {
    const daceml_program& p = *program_;
    require(inputs.size() == static_cast<size_t>(p.inputs),
            "the program takes " + std::to_string(p.inputs) + " tensors, got " + std::to_string(inputs.size()));
    Place place = place_;
    std::vector<const int64_t*> input_sizes(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      input_sizes[i] = matching_sizes(inputs[i].get(), p.input_specs[i], place, "input", i);
    }
    const std::vector<void*> input_pointers = pointers_of(inputs, inputs.size());
    std::vector<int64_t> symbols(p.symbols);
    const int32_t bad = p.bind_symbols(input_sizes.data(), symbols.data());
    require(bad < 0, "input " + std::to_string(bad) + " contradicts the sizes of another input");
    const std::vector<void*> weight_pointers = current_weights();
    int64_t dimensions = 0;
    for (int32_t i = 0; i < p.outputs; ++i) dimensions += p.output_specs[i].ndim;
    std::vector<int64_t> output_sizes(dimensions);
    p.output_sizes(symbols.data(), output_sizes.data());
    check_sizes(output_sizes);
    std::vector<Tensor> outputs(p.outputs);
    std::vector<AtenTensorHandle> held(inputs.size(), nullptr);

    uint32_t threads = 0;
    torch_get_num_threads(&threads);  // makes this thread's OpenMP obey torch.set_num_threads

    const DeviceGuard guard(place);
    std::unique_ptr<Frame> frame = take_frame();
    frame->fit(symbols, p.workspace_bytes(symbols.data()), place);
    for (size_t i = borrowed; i < inputs.size(); ++i) held[i] = inputs[i].release();
    static_assert(sizeof(Tensor) == sizeof(AtenTensorHandle), "a tensor is nothing but its handle");
    const bool recorded = daceml_call_log_on();
    std::vector<double> own_us(recorded ? p.steps : 0);
    const int64_t start_ns = recorded ? daceml_call_log_now_ns() : 0;
    daceml_call call{input_pointers.data(),
                     weight_pointers.data(),
                     reinterpret_cast<AtenTensorHandle*>(outputs.data()),
                     held.data(),
                     symbols.data(),
                     frame->base,
                     frame->views.data(),
                     recorded ? own_us.data() : profile,
                     fallback,
                     place.on_cuda ? nullptr : daceml_bernoulli(),
                     daceml_fingerprint,
                     all_reduce,
                     guard.stream,
                     place.index(),
                     nullptr};
    const int32_t status = p.run(&call);
    if (recorded) log_call(start_ns, std::move(own_us));
    for (size_t i = borrowed; i < inputs.size(); ++i) inputs[i] = Tensor(held[i]);
    give_frame(std::move(frame));
    if (status != 0) require(false, call.error == nullptr ? "the program failed" : torch_failed(call.error));
    return outputs;
  }

  // Addresses are read at every call: `parameter.data = x` moves them without telling anyone. After a large network
  // nothing of this is in a cache, and following handle -> tensor -> storage for hundreds of weights one by one costs
  // more than all else on the host, so the lines are asked for first. The offset only steers what is prefetched.
  std::vector<void*> current_weights() {
    constexpr size_t storage_of_tensor = 16;  // c10::TensorImpl::storage_, behind intrusive_ptr_target
    for (const Tensor& weight : weights_) __builtin_prefetch(weight.get());
    for (const Tensor& weight : weights_) {
      const char* tensor = *reinterpret_cast<const char* const*>(weight.get());
      for (size_t line = 0; line < 192; line += 64) __builtin_prefetch(tensor + line);
    }
    for (const Tensor& weight : weights_) {
      const char* tensor = *reinterpret_cast<const char* const*>(weight.get());
      const char* storage = *reinterpret_cast<const char* const*>(tensor + storage_of_tensor);
      __builtin_prefetch(storage);
      __builtin_prefetch(storage + 64);
    }
    std::vector<void*> now(weights_.size());
    for (size_t i = 0; i < weights_.size(); ++i) now[i] = address(i);
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (now[i] != pointers_[i]) refresh(i);
    }
    return now;
  }

  std::unique_ptr<Frame> take_frame() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (idle_ != nullptr) return std::move(idle_);
    auto frame = std::make_unique<Frame>();
    frame->views.assign(program_->views, {nullptr, nullptr});
    return frame;
  }

  // One idle frame is kept: a caller's pages stay warm, and a burst of threads gives its memory back. That of a device
  // goes back to torch, which knows the stream that still uses it and the graph that a capture makes.
  void give_frame(std::unique_ptr<Frame> frame) {
    if (place_.on_cuda) return;
    std::lock_guard<std::mutex> lock(mutex_);
    idle_ = std::move(frame);
  }

  const daceml_program* program_ = nullptr;
  Place place_;  // of the weights
  std::vector<Tensor> weights_;
  std::vector<void*> pointers_;
  std::unique_ptr<Frame> idle_;
  std::mutex mutex_;
};

// Numbers instead of addresses, so that a stale or invented number is refused and not followed.
class Registry {
 public:
  int64_t add(std::shared_ptr<Bound> bound) {
    std::unique_lock lock(mutex_);
    bound->number = ++last_;
    programs_[last_] = std::move(bound);
    return last_;
  }
  std::shared_ptr<Bound> find(int64_t number) {
    std::shared_lock lock(mutex_);
    auto found = programs_.find(number);
    require(found != programs_.end(), "program " + std::to_string(number) + " is not loaded");
    return found->second;
  }
  void remove(int64_t number) {
    std::shared_ptr<Bound> last;  // dropped without the lock: a weight's end may run Python
    std::unique_lock lock(mutex_);
    const auto found = programs_.find(number);
    if (found == programs_.end()) return;
    last = std::move(found->second);
    programs_.erase(found);
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<int64_t, std::shared_ptr<Bound>> programs_;
  int64_t last_ = 0;
};

Registry& registry() {
  static Registry* instance = new Registry;  // never destroyed: torch may be gone before static destructors run
  return *instance;
}

void boxed_bind(StableIValue* stack, uint64_t, uint64_t) {
  std::vector<Tensor> weights = tensors_of(stack[0]);
  auto text = reinterpret_cast<StringHandle>(stack[1]);
  const char* characters = nullptr;
  check(torch_string_c_str(text, &characters), "reading the library's name");
  const std::string library(characters);
  torch_delete_string(text);
  stack[0] = static_cast<StableIValue>(registry().add(std::make_shared<Bound>(library, std::move(weights))));
}

StableIValue list_of(std::vector<Tensor> tensors) {
  StableListHandle list = nullptr;
  check(torch_new_list_reserve_size(tensors.size(), &list), "making the list of outputs");
  for (auto& tensor : tensors) torch_list_push_back(list, reinterpret_cast<StableIValue>(tensor.release()));
  return reinterpret_cast<StableIValue>(list);
}

void boxed_call(StableIValue* stack, uint64_t, uint64_t) {
  std::vector<Tensor> inputs = tensors_of(stack[0]);
  const size_t all = inputs.size();
  stack[0] = list_of(registry().find(static_cast<int64_t>(stack[1]))->call(std::move(inputs), all));
}

// Tensors between `hold` and the call that takes them.
class Holdings {
 public:
  int64_t add(std::vector<Tensor> tensors) {
    std::lock_guard<std::mutex> lock(mutex_);
    held_.emplace(++last_, std::move(tensors));
    return last_;
  }
  std::vector<Tensor> take(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto node = held_.extract(number);
    require(!node.empty(), "no tensors are held under " + std::to_string(number));
    return std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int64_t, std::vector<Tensor>> held_;
  int64_t last_ = 0;
};

Holdings& holdings() {
  static Holdings* instance = new Holdings;
  return *instance;
}

void boxed_hold(StableIValue* stack, uint64_t, uint64_t) {
  stack[0] = static_cast<StableIValue>(holdings().add(tensors_of(stack[0])));
}

void boxed_call_held(StableIValue* stack, uint64_t, uint64_t) {
  std::vector<Tensor> inputs = tensors_of(stack[0]);
  std::vector<Tensor> held = holdings().take(static_cast<int64_t>(stack[1]));
  const size_t borrowed = inputs.size();
  inputs.insert(inputs.end(), std::make_move_iterator(held.begin()), std::make_move_iterator(held.end()));
  stack[0] = list_of(registry().find(static_cast<int64_t>(stack[2]))->call(std::move(inputs), borrowed));
}

void boxed_call_into(StableIValue* stack, uint64_t, uint64_t) {
  std::vector<Tensor> inputs = tensors_of(stack[0]);
  const std::vector<Tensor> written = tensors_of(stack[1]);
  registry().find(static_cast<int64_t>(stack[2]))->call_into(std::move(inputs), written);
}

void register_operators() {
  TorchLibraryHandle definitions = nullptr;
  check(aoti_torch_library_init_def("daceml", __FILE__, __LINE__, &definitions), "registering operators");
  check(aoti_torch_library_def(definitions, "bind(Tensor[] weights, str library) -> int"), "registering bind");
  check(aoti_torch_library_def(definitions, "call(Tensor[] inputs, int program) -> Tensor[]"), "registering call");
  check(aoti_torch_library_def(definitions, "call_into(Tensor[] inputs, Tensor(a!)[] written, int program) -> ()"),
        "registering call_into");
  check(aoti_torch_library_def(definitions, "hold(Tensor[] tensors) -> int"), "registering hold");
  check(aoti_torch_library_def(definitions, "call_held(Tensor[] inputs, int held, int program) -> Tensor[]"),
        "registering call_held");
  TorchLibraryHandle kernels = nullptr;
  check(aoti_torch_library_init_impl("daceml", "CompositeExplicitAutograd", __FILE__, __LINE__, &kernels),
        "registering kernels");
  check(aoti_torch_library_impl(kernels, "bind", &boxed_bind), "registering bind");
  check(aoti_torch_library_impl(kernels, "call", &boxed_call), "registering call");
  check(aoti_torch_library_impl(kernels, "call_into", &boxed_call_into), "registering call_into");
  check(aoti_torch_library_impl(kernels, "hold", &boxed_hold), "registering hold");
  check(aoti_torch_library_impl(kernels, "call_held", &boxed_call_held), "registering call_held");
}

struct AtLoad {
  AtLoad() { register_operators(); }
} at_load;

}  // namespace

// Called through ctypes: what is no torch value, or no operation of a graph. Python's collector forgets programs at any
// moment, in the middle of a trace, too, where torch would record an operator.
extern "C" void daceml_release(int64_t program) { registry().remove(program); }

extern "C" void daceml_set_fallback(int64_t program, daceml_fallback fallback) {
  registry().find(program)->fallback = fallback;
}

extern "C" void daceml_set_all_reduce(int64_t program, daceml_all_reduce all_reduce) {
  registry().find(program)->all_reduce = all_reduce;
}

extern "C" uint64_t daceml_weight_addresses(int64_t program) { return registry().find(program)->addresses(); }

extern "C" void daceml_set_profile(int64_t program, double* step_us) { registry().find(program)->profile = step_us; }
