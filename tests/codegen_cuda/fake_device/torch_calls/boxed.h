// torch's C functions for CUDA call kernels of cuBLAS and cuDNN past its dispatcher. Those that are generated on top of
// this header have the same names and call through the dispatcher, where operators have stand-ins.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device, void** stream);
extern "C" void fake_device_current_stream(cudaStream_t (*function)(int device));

namespace fake {

using c10::IValue;

inline const at::Tensor& tensor(AtenTensorHandle handle) { return *reinterpret_cast<at::Tensor*>(handle); }

inline IValue optional_tensor(const AtenTensorHandle* handle) { return handle == nullptr ? IValue() : IValue(tensor(*handle)); }

template <typename To, typename From>
IValue optional(const From* value) {
    return value == nullptr ? IValue() : IValue(static_cast<To>(*value));
}

template <typename To, typename From>
IValue list(const From* values, std::int64_t count) {
    c10::List<To> made;
    for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<To>(values[i]));
    return IValue(made);
}

template <typename To, typename From>
IValue optional_list(const From* const* values, std::int64_t count) {
    return values == nullptr ? IValue() : list<To>(*values, count);
}

inline IValue tensors(const AtenTensorHandle* handles, std::int64_t count) {
    c10::List<at::Tensor> made;
    for (std::int64_t i = 0; i < count; ++i) made.push_back(tensor(handles[i]));
    return IValue(made);
}

inline IValue optional_tensors(const AtenTensorHandle* const* handles, std::int64_t count) {
    c10::List<std::optional<at::Tensor>> made;
    for (std::int64_t i = 0; i < count; ++i) {
        made.push_back(handles[i] == nullptr ? std::nullopt : std::optional<at::Tensor>(tensor(*handles[i])));
    }
    return IValue(made);
}

inline IValue optional_string(const char* const* value) {
    return value == nullptr ? IValue() : IValue(std::string(*value));
}

inline IValue device(const std::int32_t* type, std::int32_t index) {
    return type == nullptr ? IValue() : IValue(c10::Device(static_cast<c10::DeviceType>(*type), static_cast<c10::DeviceIndex>(index)));
}

inline IValue generator(const AtenGeneratorHandle* handle) {
    TORCH_CHECK(handle == nullptr, "generators of their own have no stand-in");
    return {};
}

inline void give(const IValue& value, AtenTensorHandle* result) {
    *result = reinterpret_cast<AtenTensorHandle>(new at::Tensor(value.toTensor()));
}
inline void give(const IValue& value, std::int64_t* result) { *result = value.toInt(); }

// What the runtime asks at each launch: whether the kernel is in the stream that torch has chosen.
inline cudaStream_t current_stream(int device) {
    void* stream = nullptr;
    aoti_torch_get_current_cuda_stream(device, &stream);
    return static_cast<cudaStream_t>(stream);
}

// Calls an operator; its results go where the caller wants them.
template <typename... Results>
AOTITorchError call(const char* name, const char* overload, std::vector<IValue> stack, Results... results) {
    try {
        const auto found = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
        found.callBoxed(&stack);
        std::size_t place = 0;
        (give(stack[place++], results), ...);
        return AOTI_TORCH_SUCCESS;
    } catch (const std::exception& error) {
        std::cerr << name << ": " << error.what() << std::endl;
        return AOTI_TORCH_FAILURE;
    }
}

const bool told = (fake_device_current_stream(current_stream), true);

}  // namespace fake
