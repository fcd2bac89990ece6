// Stream capture and graphs: a replay runs every node again.
#include <algorithm>
#include <functional>
#include <set>
#include <thread>

#include "devices.h"
#include "queues.h"
#include "refusals.h"
#include "turns.h"

namespace fake {

namespace {

std::vector<std::weak_ptr<Capture>> captures;
thread_local cudaStreamCaptureMode allowed = cudaStreamCaptureModeGlobal;
unsigned long long last_capture = 0;
long replays = 0;

std::size_t this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }

// Everything that some nodes stand behind, themselves among them.
std::set<std::size_t> behind(const Graph& graph, std::vector<std::size_t> open) {
    std::set<std::size_t> found;
    while (!open.empty()) {
        const auto node = open.back();
        open.pop_back();
        if (!found.insert(node).second) continue;
        open.insert(open.end(), graph.nodes[node].needs.begin(), graph.nodes[node].needs.end());
    }
    return found;
}

// Nodes one after another: as they were captured, or the latest first that may run.
cudaError_t run(const Graph& graph) {
    std::vector<bool> done(graph.nodes.size());
    const auto ready = [&](std::size_t node) {
        const auto& needs = graph.nodes[node].needs;
        return !done[node] && std::all_of(needs.begin(), needs.end(), [&](std::size_t one) { return done[one]; });
    };
    for (std::size_t count = 0; count < graph.nodes.size(); ++count) {
        std::size_t next = count;
        if (order() == Order::others_first)
            for (next = graph.nodes.size() - 1; !ready(next);) --next;
        const auto& work = graph.nodes[next].work;
        if (const cudaError_t failed = work.action()) {
            break_device(failed, "a node of a graph failed: " + work.name);
            return failed;
        }
        done[next] = true;
    }
    return cudaSuccess;
}

struct Executable {
    std::shared_ptr<Graph> graph;
    std::shared_ptr<Marker> last;  // the end of its last launch, which the next one waits for
};

}  // namespace

bool capturing(cudaStream_t handle) {
    const Turn turn;
    const Stream* const stream = stream_of(handle, "a capture");
    return stream != nullptr && stream->capture != nullptr;
}

cudaError_t unsafe_while_capturing(const char* function) {
    if (allowed == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    for (const auto& one : captures) {
        const auto capture = one.lock();
        if (capture == nullptr || capture->mode == cudaStreamCaptureModeRelaxed) continue;
        const bool own = capture->thread == this_thread();
        if (!own && (capture->mode != cudaStreamCaptureModeGlobal || allowed != cudaStreamCaptureModeGlobal)) continue;
        capture->spoilt = std::string("it cannot have ") + function;
        return refuse(cudaErrorStreamCaptureUnsupported, std::string(function) + " while a stream is being captured");
    }
    return cudaSuccess;
}

}  // namespace fake

using fake::refuse;
using fake::Turn;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, fake::allowed);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    const Turn turn;
    fake::Stream* const stream = fake::stream_of(handle, "cudaStreamBeginCapture");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (handle == nullptr || stream->capture != nullptr)
        return refuse(cudaErrorStreamCaptureUnsupported, "a capture of the legacy stream, or of one that is captured");
    auto capture = std::make_shared<fake::Capture>();
    capture->number = ++fake::last_capture;
    capture->graph->device = stream->device;
    capture->origin = stream;
    capture->streams = {stream};
    capture->mode = mode;
    capture->thread = fake::this_thread();
    stream->capture = capture;
    stream->last.clear();
    fake::captures.push_back(capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* made) {
    const Turn turn;
    fake::Stream* const stream = fake::stream_of(handle, "cudaStreamEndCapture");
    *made = nullptr;
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const auto capture = stream->capture;
    if (capture == nullptr || capture->origin != stream)
        return refuse(cudaErrorStreamCaptureUnmatched, "a capture ends on a stream on which it did not begin");
    const auto joined = fake::behind(*capture->graph, stream->last);
    bool left = false;
    for (auto* const one : capture->streams) {
        for (const auto node : one->last) left = left || joined.count(node) == 0;
        one->capture = nullptr;
        one->last.clear();
    }
    std::erase_if(fake::captures, [&](const auto& one) { return one.lock() == capture; });
    if (!capture->spoilt.empty())
        return refuse(cudaErrorStreamCaptureInvalidated, "the graph of a stream that is captured: " + capture->spoilt);
    if (left) return refuse(cudaErrorStreamCaptureUnjoined, "a capture ends while a stream has work that nobody waits for");
    *made = reinterpret_cast<cudaGraph_t>(new std::shared_ptr<fake::Graph>(capture->graph));
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    const Turn turn;
    const fake::Stream* const stream = fake::stream_of(handle, "cudaStreamIsCapturing");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *status = stream->capture == nullptr  ? cudaStreamCaptureStatusNone
              : !stream->capture->spoilt.empty() ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* number,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
    const cudaError_t failed = cudaStreamIsCapturing(handle, status);
    if (failed != cudaSuccess) return failed;
    if (graph != nullptr || nodes != nullptr || edges != nullptr || count != nullptr)
        return refuse(cudaErrorNotSupported, "cudaStreamGetCaptureInfo of nodes has no stand-in");
    if (*status != cudaStreamCaptureStatusNone && number != nullptr)
        *number = fake::stream_of(handle, "")->capture->number;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
    if (nodes != nullptr) return refuse(cudaErrorNotSupported, "cudaGraphGetNodes of more than their number");
    *count = (*reinterpret_cast<std::shared_ptr<fake::Graph>*>(graph))->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
    auto* const of = reinterpret_cast<std::shared_ptr<fake::Graph>*>(graph);
    *made = reinterpret_cast<cudaGraphExec_t>(new fake::Executable{*of, nullptr});
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
    const Turn turn;
    fake::Stream* const stream = fake::stream_of(stream_handle, "cudaGraphLaunch");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return refuse(cudaErrorNotSupported, "a graph within a graph has no stand-in");
    auto& executable = *reinterpret_cast<fake::Executable*>(handle);
    if (executable.graph->device != stream->device)
        return refuse(cudaErrorInvalidValue, "a graph is replayed on another device than that of its capture");
    ++fake::replays;
    if (executable.last != nullptr) fake::append(*stream, {"the last replay", {}, executable.last, nullptr});
    executable.last = std::make_shared<fake::Marker>();
    executable.last->stream = stream;
    const auto graph = executable.graph;
    fake::append(*stream, {"a replay", [graph] { return fake::run(*graph); }, nullptr, executable.last});
    return fake::broken();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
    delete reinterpret_cast<fake::Executable*>(handle);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    delete reinterpret_cast<std::shared_ptr<fake::Graph>*>(handle);
    return cudaSuccess;
}

// Replays of this process, for tests.
long fake_device_replays() { return fake::replays; }

}  // extern "C"
