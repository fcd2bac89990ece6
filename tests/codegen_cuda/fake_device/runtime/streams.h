// Streams of the fake device: queues of work that run when somebody waits for them, not before.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

namespace fake {

// What a stream does: memory is open while it runs. A code other than success ends the device's work.
using Action = std::function<cudaError_t()>;

// In which order the work of streams runs; what a right program computes does not depend on it.
enum class Order : int {
    at_once = 0,      // when it is enqueued
    late = 1,         // when somebody waits for it, and nothing besides what that needs
    others_first = 2  // when somebody waits, and then first all that other streams can do
};

// Puts work into a stream, or into the graph that a capture of it makes.
cudaError_t enqueue(cudaStream_t stream, const std::string& name, Action action);

bool capturing(cudaStream_t stream);
// The device that a stream belongs to.
int device_of_stream(cudaStream_t stream);
// CUDA's refusal of what may not be called now, since a capture is under way that this thread must not disturb.
cudaError_t unsafe_while_capturing(const char* function);

// Runs everything that streams of a device have.
void finish_device(int device);

}  // namespace fake
