// Where the tensors of a program lie, as the launcher sees it, and the device on which its kernels are launched.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <daceml/program.h>

namespace daceml {

inline void require(bool condition, const std::string& message) {
  if (!condition) throw std::runtime_error("daceml: " + message);
}

inline void check(int32_t status, const char* what) { require(status == 0, std::string(what) + " failed"); }

// torch's functions for CUDA devices; a torch without CUDA has none of them.
struct CudaFunctions {
  int32_t (*current_stream)(int32_t device, void** stream);
  int32_t (*create_guard)(int32_t device, void** guard);
  int32_t (*delete_guard)(void* guard);

  static const CudaFunctions& get() {
    static const CudaFunctions found;
    return found;
  }

 private:
  CudaFunctions() {
    void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    require(library != nullptr, "the program is for a CUDA device, and this torch has no CUDA");
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      require(function != nullptr, std::string("torch has no ") + name);
    };
    find(current_stream, "aoti_torch_get_current_cuda_stream");
    find(create_guard, "aoti_torch_create_cuda_guard");
    find(delete_guard, "aoti_torch_delete_cuda_guard");
  }
};

// Where the tensors of a program lie; of a CUDA device the number is that of the first tensor that is looked at.
struct Place {
  bool on_cuda = false;
  int32_t device = -1;

  int32_t type() const { return on_cuda ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu(); }
  int32_t index() const { return device < 0 ? 0 : device; }

  void require_here(AtenTensorHandle tensor, const std::string& name) {
    int32_t found = 0;
    check(aoti_torch_get_device_type(tensor, &found), "reading a device");
    require(found == type(), name + (on_cuda ? " is not on a CUDA device" : " is not on the CPU"));
    if (!on_cuda) return;
    check(aoti_torch_get_device_index(tensor, &found), "reading a device");
    if (device < 0) device = found;
    require(found == device, name + " is on cuda:" + std::to_string(found) + ", and other tensors of the call on cuda:" +
                                 std::to_string(device));
  }
};

// While it exists, kernels are launched on a device; nothing is done for the CPU.
class DeviceGuard {
 public:
  explicit DeviceGuard(const Place& place) {
    if (!place.on_cuda) return;
    check(CudaFunctions::get().create_guard(place.index(), &guard_), "choosing a device");
    check(CudaFunctions::get().current_stream(place.index(), &stream), "asking for the current stream");
  }
  ~DeviceGuard() {
    if (guard_ != nullptr) CudaFunctions::get().delete_guard(guard_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  void* stream = nullptr;

 private:
  void* guard_ = nullptr;
};

}  // namespace daceml
