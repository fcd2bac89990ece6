// The two devices: which one a thread uses, and their memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace fake {

constexpr int devices = 2;
constexpr std::size_t memory_bytes = std::size_t{16} << 30;
constexpr int architecture = 90;
constexpr int multiprocessors = 4;  // few, so that blocks go round in small cases

int current_device();

// The device whose memory an address lies in, or -1: the host's.
int device_of(const void* address);
// Whether the host has pinned what lies at an address.
bool pinned(const void* address);

// While one of these exists, the memory of the devices can be read and written; else whoever touches it gets a fault,
// as the host does with a real one.
class OpenMemory {
public:
    OpenMemory();
    ~OpenMemory();
    OpenMemory(const OpenMemory&) = delete;
    OpenMemory& operator=(const OpenMemory&) = delete;
};

}  // namespace fake
