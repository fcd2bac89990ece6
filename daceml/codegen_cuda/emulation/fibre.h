// A fibre: a stack of its own, and the registers that a call keeps.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace daceml::emulation {

#if defined(__x86_64__)

// Keep the registers of a call on this stack, whose top goes to `from`; go on where the stack `to` was left.
extern "C" __attribute__((visibility("hidden"))) void daceml_switch_stack(void** from, void* to);
asm(R"(
    .text
    .hidden daceml_switch_stack
    .globl daceml_switch_stack
    .type daceml_switch_stack, @function
daceml_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size daceml_switch_stack, .-daceml_switch_stack
)");

class Fibre {
public:
    void prepare(void* stack, std::size_t bytes, void (*entry)()) {
        auto* words = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(stack) + bytes);
        words[-2] = reinterpret_cast<std::uintptr_t>(entry);  // behind it, a call would have pushed a return address
        for (int i = 3; i <= 8; ++i) words[-i] = 0;
        top_ = words - 8;
    }
    void go(Fibre& next) { daceml_switch_stack(&top_, next.top_); }

private:
    void* top_ = nullptr;
};

#elif defined(__aarch64__)

extern "C" __attribute__((visibility("hidden"))) void daceml_switch_stack(void** from, void* to);
asm(R"(
    .text
    .hidden daceml_switch_stack
    .globl daceml_switch_stack
    .type daceml_switch_stack, %function
daceml_switch_stack:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size daceml_switch_stack, .-daceml_switch_stack
)");

class Fibre {
public:
    void prepare(void* stack, std::size_t bytes, void (*entry)()) {
        auto* words = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(stack) + bytes) - 20;
        for (int i = 0; i < 20; ++i) words[i] = 0;
        words[11] = reinterpret_cast<std::uintptr_t>(entry);  // x30, to which the switch returns
        top_ = words;
    }
    void go(Fibre& next) { daceml_switch_stack(&top_, next.top_); }

private:
    void* top_ = nullptr;
};

#else

class Fibre {
public:
    void prepare(void* stack, std::size_t bytes, void (*entry)()) {
        getcontext(&context_);
        context_.uc_stack.ss_sp = stack;
        context_.uc_stack.ss_size = bytes;
        context_.uc_link = nullptr;
        makecontext(&context_, entry, 0);
    }
    void go(Fibre& next) { swapcontext(&context_, &next.context_); }

private:
    ucontext_t context_;
};

#endif

// Stacks of many fibres, each behind a page that nobody may touch; pages exist once they are used.
class Stacks {
public:
    static constexpr std::size_t bytes = 256 << 10;
    ~Stacks() {
        if (memory_ != nullptr) munmap(memory_, size_);
    }
    // False if there is no room.
    bool reserve(std::size_t count) {
        if (count * bytes <= size_) return true;
        if (memory_ != nullptr) munmap(memory_, size_);
        size_ = count * bytes;
        memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory_ == MAP_FAILED) {
            memory_ = nullptr;
            size_ = 0;
            return false;
        }
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        for (std::size_t i = 0; i < count; ++i) mprotect(at(i), page, PROT_NONE);
        return true;
    }
    char* at(std::size_t number) const { return static_cast<char*>(memory_) + number * bytes; }
    bool holds(const void* address) const {
        const auto* place = static_cast<const char*>(address);
        return memory_ != nullptr && place >= at(0) && place < at(0) + size_;
    }

private:
    void* memory_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace daceml::emulation
