// Arrays between closed pages, and the faults of who leaves them.
#include <daceml/emulation/arrays.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include <vector>

#include "faults.h"

namespace daceml::emulation {

namespace {

constexpr unsigned char pattern = 0xfe;  // a NaN, as four bytes or two
constexpr std::size_t alignment = 16;
// Of closed memory on each side, which costs addresses only: an index that is off by many rows meets it, too.
constexpr std::size_t guard = std::size_t(256) << 20;

struct Array {
    std::string name;
    char *memory, *begin;
    std::size_t mapped, bytes;
    char* pages_end() const { return memory + mapped; }
};

std::vector<Array> arrays;
void (*told_of_fault)(const char*) = nullptr;
alignas(16) char handler_stack[64 << 10];

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

void on_fault(int, siginfo_t* info, void*) { told_of_fault(described(info->si_addr).c_str()); }

}  // namespace

FaultHandler::FaultHandler(void (*told)(const char*)) {
    told_of_fault = told;
    stack_t mine{};
    mine.ss_sp = handler_stack;
    mine.ss_size = sizeof handler_stack;
    sigaltstack(&mine, &stack_);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &segment_);
    sigaction(SIGBUS, &action, &bus_);
}

FaultHandler::~FaultHandler() {
    sigaction(SIGSEGV, &segment_, nullptr);
    sigaction(SIGBUS, &bus_, nullptr);
    sigaltstack(&stack_, nullptr);
}

std::string described(const void* address) {
    const auto* place = static_cast<const char*>(address);
    for (const auto& array : arrays) {
        if (place < array.memory || place >= array.pages_end()) continue;
        const auto byte = std::to_string(place - array.begin);
        return "touches byte " + byte + " of array " + array.name + ", which has " + std::to_string(array.bytes);
    }
    return "touches memory that belongs to no array, or its stack is full";
}

void* make_array(const char* name, std::size_t bytes, Edge edge) {
    const std::size_t page = page_bytes(), room = (bytes + alignment - 1) / alignment * alignment;
    const std::size_t inner = (room + page - 1) / page * page, mapped = inner + 2 * guard;
    void* memory = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* pages = static_cast<char*>(memory);
    if (inner != 0 && mprotect(pages + guard, inner, PROT_READ | PROT_WRITE) != 0) {
        munmap(memory, mapped);
        return nullptr;
    }
    std::memset(pages + guard, pattern, inner);
    char* begin = edge == Edge::begin ? pages + guard : pages + guard + inner - room;
    arrays.push_back({name, pages, begin, mapped, bytes});
    return begin;
}

void free_arrays() {
    for (const auto& array : arrays) munmap(array.memory, array.mapped);
    arrays.clear();
}

int check_arrays() {
    for (const auto& array : arrays) {
        const char *first = array.memory + guard, *last = array.pages_end() - guard;
        for (const char* place = first; place < last; ++place) {
            if (place == array.begin) place += array.bytes;
            if (place < last && static_cast<unsigned char>(*place) != pattern) {
                report("a kernel wrote byte " + std::to_string(place - array.begin) + " of array " + array.name +
                       ", which has " + std::to_string(array.bytes));
                return 1;
            }
        }
    }
    return 0;
}

}  // namespace daceml::emulation
