// The scheduler of an emulated block; compiled once, and linked to kernels that are compiled as C++.
#include <daceml/emulation/arrays.h>
#include <daceml/emulation/shared.h>
#include <daceml/emulation/threads.h>

#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "faults.h"
#include "fibre.h"

namespace daceml::emulation {

Position* current = nullptr;

namespace {

enum class State { ready, at_barrier, in_warp, ended };

struct Thread {
    Fibre fibre;
    Position position;
    State state = State::ended;
    int line = 0;             // of the barrier
    Together what{};          // in the warp
    std::uint32_t mask = 0;
    std::uint64_t given = 0;
    std::uint64_t received[warp_lanes];
};

struct Memory {
    std::vector<char> bytes;
    std::vector<char> shadow;
};

struct Block {
    std::vector<Thread> threads;
    std::vector<std::uint32_t> warp_moments;
    std::uint32_t barriers = 0;
    std::map<const void*, Memory> shared;
    std::vector<char> dynamic_shared;
};

Stacks stacks;
Block block;
Fibre scheduler;
Thread* running = nullptr;
void (*kernel)(void*) = nullptr;
void* kernel_argument = nullptr;
std::string message;
bool failed = false;
Order order = Order::ascending;
std::mt19937_64 generator;
std::uint64_t atomic_operations = 0;
sigjmp_buf out_of_run;

void to_scheduler() { running->fibre.go(scheduler); }

// What a fibre runs: the kernel, once for each block that it is woken for.
void thread_main() {
    for (;;) {
        kernel(kernel_argument);
        running->state = State::ended;
        to_scheduler();
    }
}

void resume(Thread& thread) {
    running = &thread;
    current = &thread.position;
    scheduler.go(thread.fibre);
    running = nullptr;
    current = nullptr;
}

std::string place(const Thread& thread) {
    const auto& t = thread.position.thread_index;
    const auto& b = thread.position.block_index;
    char text[120];
    std::snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", t.x, t.y, t.z, b.x, b.y, b.z);
    return text;
}

std::string does(const Thread& thread) {
    char text[120];
    switch (thread.state) {
        case State::ready: return "goes on";
        case State::ended: return "has ended";
        case State::at_barrier:
            std::snprintf(text, sizeof text, "waits at the barrier in line %d", thread.line);
            return text;
        default:
            std::snprintf(text, sizeof text, "waits for the lanes %08x in a %s", thread.mask, name_of(thread.what));
            return text;
    }
}

void note_failure(const std::string& text) {
    if (!failed) message = text;
    failed = true;
}

// Threads that will never go on: two that wait for different things, or one that waits for one that has ended.
void note_deadlock() {
    const auto& threads = block.threads;
    const auto waits = [](const Thread& t) { return t.state != State::ended; };
    const auto& first = *std::find_if(threads.begin(), threads.end(), waits);
    const auto other = std::find_if(threads.begin(), threads.end(), [&](const Thread& t) {
        return t.state != first.state || (t.state == State::at_barrier && t.line != first.line) ||
               (t.state == State::in_warp && (t.what != first.what || t.mask != first.mask));
    });
    std::string text = place(first) + " " + does(first);
    if (other != threads.end()) text += ", and " + place(*other) + " " + does(*other);
    note_failure(text + ": no thread can continue");
}

bool release_barrier() {
    auto& threads = block.threads;
    const int line = threads.front().line;
    const bool all = std::all_of(threads.begin(), threads.end(),
                                 [&](const Thread& t) { return t.state == State::at_barrier && t.line == line; });
    if (!all) return false;
    for (auto& thread : threads) thread.state = State::ready;
    ++block.barriers;
    return true;
}

void run_block() {
    auto& threads = block.threads;
    std::vector<std::size_t> turns(threads.size());
    std::iota(turns.begin(), turns.end(), std::size_t{0});
    if (order == Order::descending) std::reverse(turns.begin(), turns.end());
    if (order == Order::random) std::shuffle(turns.begin(), turns.end(), generator);
    for (auto& thread : threads) thread.state = State::ready;
    block.barriers = 0;
    std::fill(block.warp_moments.begin(), block.warp_moments.end(), 0);
    block.shared.clear();
    std::fill(block.dynamic_shared.begin(), block.dynamic_shared.end(), char(0xff));
    for (;;) {
        bool advanced = false;
        for (const auto turn : turns) {
            if (threads[turn].state != State::ready) continue;
            resume(threads[turn]);
            if (failed) return;
            advanced = true;
        }
        if (advanced) continue;
        const auto ended = [](const Thread& t) { return t.state == State::ended; };
        if (std::all_of(threads.begin(), threads.end(), ended)) return;
        if (!release_barrier()) {
            note_deadlock();
            return;
        }
    }
}

std::uint32_t product(const Size3& size) { return size.x * size.y * size.z; }

Size3 index_of(std::uint32_t linear, const Size3& size) {
    return {linear % size.x, linear / size.x % size.y, linear / (size.x * size.y)};
}

bool make_threads(const Launch& launch) {
    const auto count = product(launch.block);
    if (count == 0 || count > 1024 || product(launch.grid) == 0) {
        note_failure("a launch of " + std::to_string(product(launch.grid)) + " blocks of " + std::to_string(count) +
                     " threads: a device runs 1 to 1024 threads in a block, and no empty grid");
        return false;
    }
    if (!stacks.reserve(count)) {
        note_failure("no memory for the stacks of " + std::to_string(count) + " threads");
        return false;
    }
    block.threads.assign(count, Thread());
    block.warp_moments.assign((count + warp_lanes - 1) / warp_lanes, 0);
    block.dynamic_shared.assign(launch.dynamic_shared_bytes, 0);
    for (std::uint32_t t = 0; t < count; ++t) {
        auto& thread = block.threads[t];
        thread.position.linear = t;
        thread.position.thread_index = index_of(t, launch.block);
        thread.position.block_size = launch.block;
        thread.position.grid_size = launch.grid;
        thread.fibre.prepare(stacks.at(t), Stacks::bytes, thread_main);
    }
    return true;
}

// A fault in a thread: its stack is left as it is, and so is that of the scheduler below it.
void faulted(const char* text) {
    std::string where = running == nullptr ? "the emulation" : place(*running);
    note_failure(where + " " + text);
    siglongjmp(out_of_run, 1);
}

std::uint32_t lanes_of(const Thread& thread) {
    const auto first = thread.position.warp() * warp_lanes;
    const auto count = std::min<std::size_t>(warp_lanes, block.threads.size() - first);
    return count == warp_lanes ? all_lanes : (1u << count) - 1;
}

// Whether all lanes of a mask have come to one place. If so, everybody has the values, and may go on.
bool complete(Thread& last) {
    const auto first = last.position.warp() * warp_lanes;
    for (std::uint32_t lane = 0; lane < warp_lanes; ++lane) {
        if ((last.mask >> lane & 1) == 0) continue;
        const auto& other = block.threads[first + lane];
        if (other.state != State::in_warp || other.what != last.what || other.mask != last.mask) return false;
    }
    for (std::uint32_t lane = 0; lane < warp_lanes; ++lane) {
        if ((last.mask >> lane & 1) == 0) continue;
        auto& other = block.threads[first + lane];
        for (std::uint32_t source = 0; source < warp_lanes; ++source)
            other.received[source] = last.mask >> source & 1 ? block.threads[first + source].given : 0;
        other.state = State::ready;
    }
    if (last.mask == lanes_of(last)) ++block.warp_moments[last.position.warp()];
    return true;
}

bool one_warp(std::uint32_t a, std::uint32_t b) { return a / warp_lanes == b / warp_lanes; }

bool ordered(const Use& before, const Moment& moment, std::uint32_t thread) {
    return before.thread == thread || before.moment.block < moment.block ||
           (one_warp(before.thread, thread) && before.moment.warp < moment.warp);
}

[[noreturn]] void fail_for_race(const Use& before, const char* did, const char* does, const char* array,
                                std::size_t index) {
    fail("%s element %zu of shared array %s, which thread %u %s: there is no barrier between them", does, index, array,
         before.thread, did);
}

}  // namespace

int run(const Launch& launch, void (*body)(void*), void* argument) {
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> guard(one_at_a_time);
    message.clear();
    failed = false;
    atomic_operations = 0;
    kernel = body;
    kernel_argument = argument;
    if (!make_threads(launch)) return 1;
    const FaultHandler handler(faulted);
    const auto blocks = product(launch.grid);
    std::vector<std::uint32_t> turns(blocks);
    std::iota(turns.begin(), turns.end(), 0u);
    if (order == Order::descending) std::reverse(turns.begin(), turns.end());
    if (order == Order::random) std::shuffle(turns.begin(), turns.end(), generator);
    if (sigsetjmp(out_of_run, 1) == 0) {
        for (const auto turn : turns) {
            for (auto& thread : block.threads) thread.position.block_index = index_of(turn, launch.grid);
            run_block();
            if (failed) break;
        }
    }
    running = nullptr;
    current = nullptr;
    return failed ? 1 : 0;
}

void set_order(Order wanted, std::uint64_t seed) {
    order = wanted;
    generator.seed(seed);
}

const char* error() { return message.c_str(); }
extern "C" const char* daceml_launch_error() { return error(); }

void report(const std::string& text) {
    failed = false;
    note_failure(text);
}

void fail(const char* format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    note_failure(running == nullptr ? text : place(*running) + ": " + text);
    to_scheduler();
    __builtin_unreachable();  // a run that failed resumes nobody
}

void synchronize_block(int line) {
    running->state = State::at_barrier;
    running->line = line;
    to_scheduler();
}

const char* name_of(Together what) {
    switch (what) {
        case Together::barrier: return "barrier of the warp";
        case Together::shuffle: return "shuffle";
        case Together::vote: return "vote";
        default: return "reduction of the warp";
    }
}

const std::uint64_t* exchange(Together what, std::uint32_t mask, std::uint64_t value) {
    Thread& thread = *running;
    if ((mask >> thread.position.lane() & 1) == 0)
        fail("the mask %08x of a %s does not have the lane that calls it", mask, name_of(what));
    if ((mask & ~lanes_of(thread)) != 0)
        fail("the mask %08x of a %s names lanes that the block does not have", mask, name_of(what));
    thread.state = State::in_warp;
    thread.what = what;
    thread.mask = mask;
    thread.given = value;
    if (!complete(thread)) to_scheduler();
    return thread.received;
}

std::uint64_t taken_from(const std::uint64_t* values, std::uint32_t mask, std::uint32_t source) {
    if ((mask >> source & 1) == 0) fail("a shuffle reads lane %u, which is not in its mask %08x", source, mask);
    return values[source];
}

Moment now() { return {block.barriers, block.warp_moments[running->position.warp()]}; }

void* shared_memory(const void* declaration, std::size_t bytes, std::size_t shadow_bytes, void** shadow) {
    auto& memory = block.shared[declaration];
    if (memory.bytes.empty()) {
        memory.bytes.assign(bytes + 16, char(0xff));
        memory.shadow.assign(shadow_bytes, 0);
    }
    *shadow = memory.shadow.data();
    return memory.bytes.data();
}

void* dynamic_shared_memory() { return block.dynamic_shared.data(); }

std::uint64_t atomics() { return atomic_operations; }
void count_atomic() { ++atomic_operations; }

void note_read(Shadow& shadow, const char* array, std::size_t index) {
    const Moment moment = now();
    const std::uint32_t thread = running->position.linear;
    if (!shadow.writer.any) fail("reads element %zu of shared array %s, which no thread has written", index, array);
    if (!ordered(shadow.writer, moment, thread)) fail_for_race(shadow.writer, "wrote", "reads", array, index);
    const Use& last = shadow.reader;
    if (!last.any || last.moment.block < moment.block) {
        shadow.beside = shadow.other_warps = false;
    } else if (!one_warp(last.thread, thread)) {
        shadow.other_warps = true;
        shadow.beside = false;
    } else {
        shadow.beside = last.moment.warp == moment.warp && (shadow.beside || last.thread != thread);
    }
    shadow.reader = {thread, moment, true};
}

void note_write(Shadow& shadow, const char* array, std::size_t index) {
    const Moment moment = now();
    const std::uint32_t thread = running->position.linear;
    const Use &writer = shadow.writer, &reader = shadow.reader;
    if (writer.any && !ordered(writer, moment, thread)) fail_for_race(writer, "wrote", "writes", array, index);
    const bool read_now = reader.any && reader.moment.block == moment.block;
    const bool beside = shadow.beside && one_warp(reader.thread, thread) && reader.moment.warp == moment.warp;
    if (read_now && (shadow.other_warps || beside || !ordered(reader, moment, thread)))
        fail_for_race(reader, shadow.other_warps || beside ? "and others read" : "read", "writes", array, index);
    shadow.writer = {thread, moment, true};
    shadow.reader.any = false;
}

}  // namespace daceml::emulation
