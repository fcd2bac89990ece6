// What streams, events and graphs consist of; shared by the files that implement them.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "streams.h"

namespace fake {

struct Stream;

// A moment of a stream that others may wait for.
struct Marker {
    bool reached = false;
    Stream* stream = nullptr;
    std::chrono::steady_clock::time_point at{};
};

// One entry of a queue; an entry without an action waits for, or sets, a marker.
struct Work {
    std::string name;
    Action action;
    std::shared_ptr<Marker> waits, sets;
};

// A graph in the order of its capture, in which every node stands behind those that it needs.
struct Node {
    Work work;
    std::vector<std::size_t> needs;
};
struct Graph {
    std::vector<Node> nodes;
    int device = 0;
};

struct Capture {
    unsigned long long number = 0;
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    Stream* origin = nullptr;
    std::vector<Stream*> streams;  // that take part
    cudaStreamCaptureMode mode{};
    std::size_t thread = 0;
    std::string spoilt;  // what was refused meanwhile
};

struct Stream {
    int device = 0;
    std::deque<Work> queue;
    std::shared_ptr<Capture> capture;
    std::vector<std::size_t> last;  // nodes of the capture that the next one stands behind
};

struct Event {
    int device = 0;
    bool timing = true;
    std::shared_ptr<Marker> marker;
    std::weak_ptr<Capture> capture;  // that it was recorded in
    std::vector<std::size_t> nodes;
};

// The stream of a handle, null among them; null where there is none, which `refuse` has said.
Stream* stream_of(cudaStream_t handle, const char* function);

void append(Stream& stream, Work work);
void finish(Stream& stream);
void finish(const Marker& marker);
// A little of what has to run before a marker is reached, for those who ask again and again.
void advance(Stream& stream);
Order order();

}  // namespace fake
