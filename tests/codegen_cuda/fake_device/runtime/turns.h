// One thread at a time is inside the fake device.
#pragma once

namespace fake {

// While it exists, this thread alone is inside; one thread may hold several. A thread that has to wait lets go of
// Python's lock, which the work of the thread inside may need: operators that stand in for CUDA's are Python.
class Turn {
public:
    Turn();
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
};

}  // namespace fake
