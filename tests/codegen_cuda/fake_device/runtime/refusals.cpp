// Errors of the fake device: the last one of each thread, and the one that ended the device's work.
#include "refusals.h"

#include <cstdio>

#include <map>
#include <mutex>

namespace fake {

namespace {

std::mutex lock;
std::map<cudaError_t, std::string> sentences;
std::string last_sentence;
long refused = 0;
cudaError_t sticky = cudaSuccess;
thread_local cudaError_t last = cudaSuccess;

void note(cudaError_t code, const std::string& sentence) {
    const std::lock_guard<std::mutex> guard(lock);
    sentences[code] = last_sentence = "the fake device refuses: " + sentence;
    ++refused;
    std::fprintf(stderr, "%s\n", last_sentence.c_str());
}

}  // namespace

cudaError_t refuse(cudaError_t code, const std::string& sentence) {
    note(code, sentence);
    return last = code;
}

void break_device(cudaError_t code, const std::string& sentence) {
    note(code, sentence);
    const std::lock_guard<std::mutex> guard(lock);
    if (sticky == cudaSuccess) sticky = code;
}

cudaError_t broken() {
    const std::lock_guard<std::mutex> guard(lock);
    if (sticky != cudaSuccess) last = sticky;
    return sticky;
}

cudaError_t answer(cudaError_t code) {
    if (code != cudaSuccess) last = code;
    return code;
}

}  // namespace fake

extern "C" {

cudaError_t cudaGetLastError() {
    const cudaError_t found = fake::last;
    fake::last = fake::sticky;
    return found;
}

cudaError_t cudaPeekAtLastError() { return fake::last; }

const char* cudaGetErrorName(cudaError_t) { return "an error of the fake device"; }

const char* cudaGetErrorString(cudaError_t code) {
    const std::lock_guard<std::mutex> guard(fake::lock);
    const auto found = fake::sentences.find(code);
    if (found != fake::sentences.end()) return found->second.c_str();
    return code == cudaSuccess ? "no error" : code == cudaErrorNotReady ? "not ready" : "an error without a sentence";
}

// How often something was refused in this process, and the last sentence: for tests.
long fake_device_refusals() { return fake::refused; }
const char* fake_device_last_refusal() { return fake::last_sentence.c_str(); }

// Forgets what was refused; only a new process does so with a real device whose work has failed.
void fake_device_mend() {
    const std::lock_guard<std::mutex> guard(fake::lock);
    fake::sticky = fake::last = cudaSuccess;
    fake::sentences.clear();
    fake::last_sentence.clear();
    fake::refused = 0;
}

// What the generated stand-ins of all other functions call.
cudaError_t fake_device_lacks(const char* name) {
    return fake::refuse(cudaErrorNotSupported, std::string(name) + " has no stand-in");
}

}  // extern "C"
