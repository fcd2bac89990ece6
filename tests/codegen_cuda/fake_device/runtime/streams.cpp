#include "streams.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>

#include "devices.h"
#include "queues.h"
#include "refusals.h"
#include "turns.h"

namespace fake {

namespace {

Order chosen = [] {
    const char* const named = std::getenv("FAKE_DEVICE_ORDER");
    const std::string name = named == nullptr ? "late" : named;
    return name == "at_once" ? Order::at_once : name == "others_first" ? Order::others_first : Order::late;
}();

std::atomic<bool> python_ends = false;

Stream legacy[devices];
std::vector<Stream*> streams = [] {
    std::vector<Stream*> all;
    for (int device = 0; device < devices; ++device) {
        legacy[device].device = device;
        all.push_back(&legacy[device]);
    }
    return all;
}();

// False where the front waits for a marker that is not reached.
bool run_front(Stream& stream) {
    if (stream.queue.front().waits != nullptr && !stream.queue.front().waits->reached) return false;
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (work.action && broken() == cudaSuccess) {
        const OpenMemory now;
        const cudaError_t failed = work.action();
        if (failed != cudaSuccess && broken() == cudaSuccess)
            break_device(failed, "work of a stream failed: " + work.name);
    }
    if (work.sets != nullptr) {
        work.sets->at = std::chrono::steady_clock::now();
        work.sets->reached = true;
    }
    return true;
}

void run_others(const Stream& but) {
    for (bool moved = true; moved;) {
        moved = false;
        for (auto it = streams.rbegin(); it != streams.rend(); ++it)
            while (*it != &but && !(*it)->queue.empty() && run_front(**it)) moved = true;
    }
}

void run_one(Stream& stream) {
    if (!run_front(stream)) {
        finish(*stream.queue.front().waits);
        run_front(stream);
    }
}

}  // namespace

Order order() { return chosen; }

Stream* stream_of(cudaStream_t handle, const char* function) {
    if (handle == nullptr || handle == cudaStreamLegacy) return &legacy[current_device()];
    auto* const stream = reinterpret_cast<Stream*>(handle);
    if (std::find(streams.begin(), streams.end(), stream) != streams.end()) return stream;
    refuse(cudaErrorInvalidResourceHandle, std::string(function) + " gets a stream that does not exist");
    return nullptr;
}

void append(Stream& stream, Work work) {
    stream.queue.push_back(std::move(work));
    if (chosen == Order::at_once) finish(stream);
}

void finish(Stream& stream) {
    if (chosen == Order::others_first) run_others(stream);
    while (!stream.queue.empty()) run_one(stream);
}

void finish(const Marker& marker) {
    if (!marker.reached && chosen == Order::others_first) run_others(*marker.stream);
    while (!marker.reached) run_one(*marker.stream);
}

void advance(Stream& stream) {
    if (!stream.queue.empty()) run_one(stream);
}

cudaError_t enqueue(cudaStream_t handle, const std::string& name, Action action) {
    const Turn turn;
    Stream* const stream = stream_of(handle, name.c_str());
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t bad = broken()) return bad;
    if (stream->capture == nullptr) {
        append(*stream, {name, std::move(action), nullptr, nullptr});
        return chosen == Order::at_once ? broken() : cudaSuccess;
    }
    auto& graph = *stream->capture->graph;
    graph.nodes.push_back({{name, std::move(action), nullptr, nullptr}, stream->last});
    stream->last = {graph.nodes.size() - 1};
    return cudaSuccess;
}

int device_of_stream(cudaStream_t handle) {
    const Turn turn;
    const Stream* const stream = stream_of(handle, "a launch");
    return stream == nullptr ? -1 : stream->device;
}

void finish_device(int device) {
    for (auto it = streams.rbegin(); it != streams.rend(); ++it)
        if ((*it)->device == device) finish(**it);
}

}  // namespace fake

using fake::answer;
using fake::refuse;
using fake::Turn;

namespace {

cudaError_t captured(const char* function) {
    return refuse(cudaErrorStreamCaptureUnsupported, std::string(function) + " of a stream that is being captured");
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned int flags, int) {
    const Turn turn;
    if (flags != cudaStreamNonBlocking)
        return refuse(cudaErrorNotSupported, "streams that wait for the legacy one have no stand-in");
    auto* const stream = new fake::Stream;
    stream->device = fake::current_device();
    fake::streams.push_back(stream);
    *made = reinterpret_cast<cudaStream_t>(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    const Turn turn;
    fake::Stream* const stream = fake::stream_of(handle, "cudaStreamDestroy");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    fake::finish(*stream);
    std::erase(fake::streams, stream);
    delete stream;
    return fake::broken();
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    const Turn turn;
    fake::Stream* const stream = fake::stream_of(handle, "cudaStreamSynchronize");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) {
        stream->capture->spoilt = "it is waited for";
        return captured("cudaStreamSynchronize");
    }
    fake::finish(*stream);
    return fake::broken();
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    const Turn turn;
    fake::Stream* const stream = fake::stream_of(handle, "cudaStreamQuery");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return captured("cudaStreamQuery");
    if (stream->queue.empty()) return fake::broken();
    fake::advance(*stream);
    return answer(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
    const Turn turn;
    if (const cudaError_t bad = fake::unsafe_while_capturing("cudaDeviceSynchronize")) return bad;
    fake::finish_device(fake::current_device());
    return fake::broken();
}

cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
    *priority = 0;
    return cudaSuccess;
}

// Python calls nothing any more: what is left in the streams does not run.
void fake_device_python_ends() { fake::python_ends = true; }

// The order of work from now on; what is enqueued runs first.
void fake_device_order(int order) {
    const Turn turn;
    for (int device = 0; device < fake::devices; ++device) fake::finish_device(device);
    fake::chosen = static_cast<fake::Order>(order);
}

// Puts a function of Python's into a stream; `done` is told when it will not run again.
cudaError_t fake_device_enqueue(cudaStream_t stream, const char* name, int (*run)(long), void (*done)(long),
                                long number) {
    const std::shared_ptr<void> held(nullptr, [done, number](void*) {
        if (!fake::python_ends) done(number);
    });
    return fake::enqueue(stream, name, [run, held, number] {
        return fake::python_ends || run(number) == 0 ? cudaSuccess : cudaErrorLaunchFailure;
    });
}

}  // extern "C"
