#include "kernels.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <string>
#include <unordered_map>

#include "devices.h"
#include "refusals.h"
#include "streams.h"
#include "turns.h"

namespace fake {

namespace {

std::unordered_map<const void*, const char*> of_torch;  // kernels that have no stand-in
std::map<std::string, long> launches;
cudaStream_t (*current_stream)(int device) = nullptr;
char module;

std::string text(std::int64_t number) { return std::to_string(number); }

cudaError_t check_sizes(const std::string& kernel, std::int64_t const (&sizes)[6], std::int64_t shared_bytes) {
    constexpr std::int64_t most[6] = {2147483647, 65535, 65535, 1024, 1024, 64};
    bool fits = sizes[3] * sizes[4] * sizes[5] <= 1024;
    for (int i = 0; i < 6; ++i) fits = fits && sizes[i] > 0 && sizes[i] <= most[i];
    if (!fits)
        return refuse(cudaErrorInvalidConfiguration,
                      kernel + " is launched with a grid of " + text(sizes[0]) + " x " + text(sizes[1]) + " x " +
                          text(sizes[2]) + " blocks of " + text(sizes[3]) + " x " + text(sizes[4]) + " x " +
                          text(sizes[5]) + " threads");
    if (shared_bytes > 48 << 10)
        return refuse(cudaErrorInvalidValue, kernel + " asks for " + text(shared_bytes) + " bytes of shared memory");
    return cudaSuccess;
}

}  // namespace

int launch(const char* name, std::int64_t const (&sizes)[6], std::int64_t shared_bytes, void* handle,
           std::initializer_list<const void*> pointers, std::function<void()> body) {
    const Turn turn;
    const std::string kernel(name);
    const auto stream = static_cast<cudaStream_t>(handle);
    const int device = current_device();
    if (const cudaError_t bad = check_sizes(kernel, sizes, shared_bytes)) return bad;
    if (device_of_stream(stream) != device)
        return refuse(cudaErrorInvalidResourceHandle, kernel + " is launched on a stream of another device than cuda:" +
                                                          text(device) + ", which is the current one");
    if (current_stream != nullptr && current_stream(device) != stream)
        return refuse(cudaErrorInvalidResourceHandle, kernel + " is launched on another stream than torch's current one");
    int place = 0;
    for (const void* const pointer : pointers) {
        const int lies = pointer == nullptr ? device : device_of(pointer);
        if (lies != device)
            return refuse(cudaErrorIllegalAddress,
                          "argument " + text(place) + " of " + kernel + " lies in the memory of " +
                              (lies < 0 ? std::string("the host") : "cuda:" + text(lies)) + ", it runs on cuda:" +
                              text(device));
        ++place;
    }
    ++launches[kernel];
    const daceml::emulation::Launch how{
        {std::uint32_t(sizes[0]), std::uint32_t(sizes[1]), std::uint32_t(sizes[2])},
        {std::uint32_t(sizes[3]), std::uint32_t(sizes[4]), std::uint32_t(sizes[5])},
        std::size_t(shared_bytes)};
    return enqueue(stream, kernel, [=] {
        auto run = body;
        const auto call = [](void* argument) { (*static_cast<std::function<void()>*>(argument))(); };
        if (daceml::emulation::run(how, call, &run) == 0) return cudaSuccess;
        break_device(cudaErrorLaunchFailure, kernel + ": " + daceml::emulation::error());
        return cudaErrorLaunchFailure;
    });
}

}  // namespace fake

extern "C" {

// How often a kernel whose name holds a text was launched or captured.
long fake_device_launches(const char* part) {
    long count = 0;
    for (const auto& [name, times] : fake::launches)
        if (name.find(part) != std::string::npos) count += times;
    return count;
}

// Who says what torch's current stream of a device is: the library that knows torch.
void fake_device_current_stream(cudaStream_t (*function)(int device)) { fake::current_stream = function; }

// ---- kernels that nvcc has compiled, as those of torch: known by name, and refused

void** __cudaRegisterFatBinary(void*) {
    static void* handle = &fake::module;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    fake::of_torch[host] = name;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t, cudaStream_t) {
    const auto found = fake::of_torch.find(kernel);
    const char* const mangled = found == fake::of_torch.end() ? "a kernel that nobody has registered" : found->second;
    int status = 0;
    char* const name = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    const std::string said = status == 0 ? name : mangled;
    std::free(name);
    return fake::refuse(cudaErrorNotSupported, "a kernel of torch is launched, and its operator has no stand-in: " + said);
}

unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, void*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    *grid = *block = dim3(1, 1, 1);
    *shared = 0;
    *static_cast<cudaStream_t*>(stream) = nullptr;
    return cudaSuccess;
}

}  // extern "C"
