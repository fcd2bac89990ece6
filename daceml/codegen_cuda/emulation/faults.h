// Memory that must not be touched: arrays of kernels between closed pages, and what to do when one is touched.
#pragma once

#include <csignal>
#include <string>

namespace daceml::emulation {

// While one of these exists, a fault calls `told` with what was touched; it does not return.
class FaultHandler {
public:
    explicit FaultHandler(void (*told)(const char*));
    ~FaultHandler();
    FaultHandler(const FaultHandler&) = delete;
    FaultHandler& operator=(const FaultHandler&) = delete;

private:
    struct sigaction segment_, bus_;
    stack_t stack_;
};

// What stands at an address that must not be touched: "touches byte 4096 of array a01, which has 4000".
std::string described(const void* address);

// Sets the message of `error()`.
void report(const std::string& text);

}  // namespace daceml::emulation
