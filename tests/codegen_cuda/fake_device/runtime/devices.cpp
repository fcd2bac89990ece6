// Device numbers, properties and attributes.
#include "devices.h"

#include <cstdio>
#include <cstring>

#include "refusals.h"

namespace fake {

namespace {
thread_local int current = 0;
}

int current_device() { return current; }

}  // namespace fake

using fake::answer;
using fake::refuse;

namespace {

bool known(int device) { return device >= 0 && device < fake::devices; }

cudaError_t no_device(const char* function, int device) {
    return refuse(cudaErrorInvalidDevice,
                  std::string(function) + " names device " + std::to_string(device) + ", there are 0 and 1");
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    *count = fake::devices;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = fake::current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (!known(device)) return no_device("cudaSetDevice", device);
    fake::current = device;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (!known(device)) return no_device("cudaGetDeviceProperties", device);
    std::memset(properties, 0, sizeof *properties);
    std::snprintf(properties->name, sizeof properties->name, "fake device");
    properties->uuid.bytes[0] = static_cast<char>(device + 1);
    properties->totalGlobalMem = fake::memory_bytes;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    properties->sharedMemPerMultiprocessor = 228 << 10;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxBlocksPerMultiProcessor = 32;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 2147483647;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    properties->major = fake::architecture / 10;
    properties->minor = fake::architecture % 10;
    properties->multiProcessorCount = fake::multiprocessors;
    properties->textureAlignment = 512;
    properties->l2CacheSize = 4 << 20;
    properties->memoryBusWidth = 1024;
    properties->unifiedAddressing = properties->concurrentKernels = properties->asyncEngineCount = 1;
    properties->pciDeviceID = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp properties;
    const cudaError_t failed = cudaGetDeviceProperties(&properties, device);
    if (failed != cudaSuccess) return failed;
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount: *value = properties.multiProcessorCount; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = properties.maxThreadsPerBlock; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = properties.maxThreadsPerMultiProcessor; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
        case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
        case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
        case cudaDevAttrClockRate: *value = 1000000; break;
        case cudaDevAttrMemoryClockRate: *value = 1000000; break;
        case cudaDevAttrConcurrentManagedAccess: *value = 0; break;
        default:
            return refuse(cudaErrorNotSupported,
                          "cudaDeviceGetAttribute of attribute " + std::to_string(attribute) + " has no stand-in");
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
    std::snprintf(id, length, "0000:%02x:00.0", device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = 0;
    return cudaSuccess;
}

}  // extern "C"
