// What the stand-in for nvcc includes before every text: CUDA in C++, with launches that go into streams.
#pragma once

#include <cuda_runtime.h>

#include <daceml/device.h>

#include "kernels.h"

#define __trap() ::daceml::emulation::fail("traps")

// Arguments are copied at the launch, as CUDA does it.
#define FAKE_LAUNCH(kernel, name, gx, gy, gz, bx, by, bz, shared_bytes, stream, ...)                            \
    ([&](auto... arguments) {                                                                                   \
        return ::fake::launch(name, {gx, gy, gz, bx, by, bz}, shared_bytes, stream,                             \
                              {::fake::pointer_of(arguments)...}, [=] { kernel(arguments...); });               \
    }(__VA_ARGS__))

#undef DACEML_LAUNCH
#define DACEML_LAUNCH(kernel, gx, gy, gz, bx, by, bz, shared_bytes, stream, ...) \
    ((gx) == 0 || (gy) == 0 || (gz) == 0                                         \
         ? 0                                                                     \
         : FAKE_LAUNCH(kernel, #kernel, gx, gy, gz, bx, by, bz, shared_bytes, stream, __VA_ARGS__))
