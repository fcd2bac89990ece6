// Events: moments of streams, and joints of graphs that are being captured.
#include <algorithm>

#include "devices.h"
#include "queues.h"
#include "refusals.h"
#include "turns.h"

using fake::answer;
using fake::refuse;
using fake::Turn;

namespace {

fake::Event* event_of(cudaEvent_t handle) { return reinterpret_cast<fake::Event*>(handle); }

void add_missing(std::vector<std::size_t>& to, const std::vector<std::size_t>& from) {
    for (const auto node : from)
        if (std::find(to.begin(), to.end(), node) == to.end()) to.push_back(node);
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned int flags) {
    auto* const event = new fake::Event;
    event->device = fake::current_device();
    event->timing = (flags & cudaEventDisableTiming) == 0;
    *made = reinterpret_cast<cudaEvent_t>(event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* made) { return cudaEventCreateWithFlags(made, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    delete event_of(handle);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
    const Turn turn;
    fake::Stream* const stream = fake::stream_of(stream_handle, "cudaEventRecord");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    fake::Event& event = *event_of(handle);
    if (event.device != stream->device)
        return refuse(cudaErrorInvalidResourceHandle, "an event of another device than the stream that records it");
    event.capture = stream->capture;
    event.nodes = stream->last;
    event.marker = nullptr;
    if (stream->capture != nullptr) return cudaSuccess;
    event.marker = std::make_shared<fake::Marker>();
    event.marker->stream = stream;
    fake::append(*stream, {"an event", {}, nullptr, event.marker});
    return fake::broken();
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
    if (flags != cudaEventRecordDefault) return refuse(cudaErrorNotSupported, "external events have no stand-in");
    return cudaEventRecord(event, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned int flags) {
    const Turn turn;
    fake::Stream* const stream = fake::stream_of(stream_handle, "cudaStreamWaitEvent");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return refuse(cudaErrorNotSupported, "external events have no stand-in");
    fake::Event& event = *event_of(handle);
    const auto capture = event.capture.lock();
    if (capture == nullptr) {
        if (event.marker == nullptr) return cudaSuccess;  // never recorded
        if (stream->capture != nullptr) {
            // as CUDA: it would become part of the graph and wait for a moment that never comes again
            stream->capture->spoilt = "it waits for a stream that is not captured";
            return refuse(cudaErrorStreamCaptureIsolation, "a captured stream waits for one that is not captured");
        }
        fake::append(*stream, {"a wait", {}, event.marker, nullptr});
        return fake::broken();
    }
    if (stream->capture == nullptr) {
        if (!stream->queue.empty() && stream == fake::stream_of(nullptr, ""))
            return refuse(cudaErrorStreamCaptureImplicit, "the legacy stream would join a capture");
        stream->capture = capture;
        stream->last.clear();
        capture->streams.push_back(stream);
    }
    if (stream->capture != capture)
        return refuse(cudaErrorStreamCaptureMerge, "a stream waits for an event of another capture");
    add_missing(stream->last, event.nodes);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    const Turn turn;
    fake::Event& event = *event_of(handle);
    if (event.capture.lock() != nullptr)
        return refuse(cudaErrorCapturedEvent, "cudaEventQuery of an event that a capture has recorded");
    if (const cudaError_t bad = fake::unsafe_while_capturing("cudaEventQuery")) return bad;
    if (event.marker == nullptr || event.marker->reached) return fake::broken();
    fake::advance(*event.marker->stream);
    return answer(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    const Turn turn;
    fake::Event& event = *event_of(handle);
    if (event.capture.lock() != nullptr)
        return refuse(cudaErrorCapturedEvent, "cudaEventSynchronize of an event that a capture has recorded");
    if (const cudaError_t bad = fake::unsafe_while_capturing("cudaEventSynchronize")) return bad;
    if (event.marker != nullptr) fake::finish(*event.marker);
    return fake::broken();
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t first, cudaEvent_t second) {
    const Turn turn;
    const auto &from = *event_of(first), &to = *event_of(second);
    if (!from.timing || !to.timing || from.marker == nullptr || to.marker == nullptr)
        return refuse(cudaErrorInvalidResourceHandle, "the time between events that have none");
    if (!from.marker->reached || !to.marker->reached) return answer(cudaErrorNotReady);
    *ms = std::chrono::duration<float, std::milli>(to.marker->at - from.marker->at).count();
    return cudaSuccess;
}

}  // extern "C"
