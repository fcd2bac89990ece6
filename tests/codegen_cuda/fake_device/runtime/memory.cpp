// Memory of the devices, which the host must not touch, and pinned memory of the host.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include <map>
#include <memory>
#include <vector>

#include "devices.h"
#include "refusals.h"
#include "streams.h"
#include "turns.h"

namespace fake {

namespace {

constexpr std::size_t page = 4096;
constexpr unsigned char unwritten = 0xff;  // a NaN, as two, four or eight bytes

struct Allocation {
    std::size_t bytes, mapped;
    int device;
};

std::map<const char*, Allocation> allocations;
std::map<const char*, std::size_t> pins;
std::size_t used[devices] = {};
int open = 0;

template <typename Map>
auto holding(Map& map, const void* address) {
    auto next = map.upper_bound(static_cast<const char*>(address));
    return next == map.begin() ? map.end() : std::prev(next);
}

void protect_all(int protection) {
    for (const auto& [address, one] : allocations) mprotect(const_cast<char*>(address), one.mapped, protection);
}

}  // namespace

int device_of(const void* address) {
    const Turn turn;
    const auto found = holding(allocations, address);
    if (found == allocations.end() || static_cast<const char*>(address) > found->first + found->second.bytes) return -1;
    return found->second.device;
}

bool pinned(const void* address) {
    const Turn turn;
    const auto found = holding(pins, address);
    return found != pins.end() && static_cast<const char*>(address) < found->first + found->second;
}

OpenMemory::OpenMemory() {
    if (open++ == 0) protect_all(PROT_READ | PROT_WRITE);
}

OpenMemory::~OpenMemory() {
    if (--open == 0) protect_all(PROT_NONE);
}

}  // namespace fake

using fake::answer;
using fake::refuse;
using fake::Turn;

extern "C" {

cudaError_t cudaMalloc(void** made, std::size_t bytes) {
    const Turn turn;
    if (const cudaError_t bad = fake::unsafe_while_capturing("cudaMalloc")) return bad;
    const int device = fake::current_device();
    *made = nullptr;
    if (fake::used[device] + bytes > fake::memory_bytes) return answer(cudaErrorMemoryAllocation);
    const std::size_t inner = (bytes + fake::page - 1) / fake::page * fake::page;
    // a closed page on each side, and closed itself as long as nothing of the device runs
    void* const found = mmap(nullptr, inner + 2 * fake::page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return answer(cudaErrorMemoryAllocation);
    char* const begin = static_cast<char*>(found) + fake::page;
    fake::allocations[begin] = {bytes, inner, device};
    fake::used[device] += bytes;
    {
        const fake::OpenMemory now;
        mprotect(begin, inner, PROT_READ | PROT_WRITE);
        std::memset(begin, fake::unwritten, inner);
    }
    *made = begin;
    return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
    if (memory == nullptr) return cudaSuccess;
    const Turn turn;
    if (const cudaError_t bad = fake::unsafe_while_capturing("cudaFree")) return bad;
    const auto found = fake::allocations.find(static_cast<char*>(memory));
    if (found == fake::allocations.end()) return refuse(cudaErrorInvalidValue, "cudaFree of what is no allocation");
    fake::finish_device(found->second.device);
    fake::used[found->second.device] -= found->second.bytes;
    munmap(static_cast<char*>(memory) - fake::page, found->second.mapped + 2 * fake::page);
    fake::allocations.erase(found);
    return fake::broken();
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *total = fake::memory_bytes;
    *free = fake::memory_bytes - fake::used[fake::current_device()];
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** made, std::size_t bytes, unsigned int) {
    const Turn turn;
    *made = std::aligned_alloc(fake::page, (bytes + fake::page - 1) / fake::page * fake::page);
    fake::pins[static_cast<char*>(*made)] = bytes;
    return *made == nullptr ? answer(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
    const Turn turn;
    fake::pins.erase(static_cast<char*>(memory));
    std::free(memory);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    const int device = fake::device_of(address);
    std::memset(attributes, 0, sizeof *attributes);
    attributes->device = device < 0 ? fake::current_device() : device;
    if (device >= 0) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->devicePointer = const_cast<void*>(address);
    } else {
        attributes->type = fake::pinned(address) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
        attributes->hostPointer = const_cast<void*>(address);
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    const Turn turn;
    if (bytes == 0) return cudaSuccess;
    const bool to = fake::device_of(target) >= 0, from = fake::device_of(source) >= 0;
    const bool says_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool says_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && (to != says_to || from != says_from))
        return refuse(cudaErrorInvalidValue, "a copy that says another kind than where its memory lies");
    const bool staged = !from && !fake::pinned(source), waits = !to && !fake::pinned(target);
    if (waits && fake::capturing(stream))
        return refuse(cudaErrorStreamCaptureUnsupported, "a captured copy to memory of the host that is not pinned");
    std::shared_ptr<std::vector<char>> copy;
    if (staged && !fake::capturing(stream)) {  // as CUDA does: the caller may change it at once
        const auto* first = static_cast<const char*>(source);
        copy = std::make_shared<std::vector<char>>(first, first + bytes);
    }
    const cudaError_t failed = fake::enqueue(stream, "a copy", [=] {
        std::memmove(target, copy == nullptr ? source : copy->data(), bytes);
        return cudaSuccess;
    });
    return failed != cudaSuccess || !waits ? failed : cudaStreamSynchronize(stream);
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
    const Turn turn;
    if (const cudaError_t bad = fake::unsafe_while_capturing("cudaMemcpy")) return bad;
    const cudaError_t failed = cudaMemcpyAsync(target, source, bytes, kind, nullptr);
    return failed != cudaSuccess ? failed : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
    if (bytes != 0 && fake::device_of(target) < 0)
        return refuse(cudaErrorInvalidValue, "cudaMemsetAsync of memory of the host");
    return fake::enqueue(stream, "a fill", [=] {
        std::memset(target, value, bytes);
        return cudaSuccess;
    });
}

}  // extern "C"
