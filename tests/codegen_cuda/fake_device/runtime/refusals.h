// How the fake device says no: a sentence on stderr, which is also what `cudaGetErrorString` gives, and CUDA's code.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace fake {

// Notes a refusal and gives `code`. The sentence names what was called and why a device would refuse it.
cudaError_t refuse(cudaError_t code, const std::string& sentence);

// The device's work failed: every later call that asks the device gets `code`, as after a trap.
void break_device(cudaError_t code, const std::string& sentence);

// What work that failed has left, else success.
cudaError_t broken();

// Gives `code`, without a sentence: an answer that a caller expects, such as "not ready".
cudaError_t answer(cudaError_t code);

}  // namespace fake
