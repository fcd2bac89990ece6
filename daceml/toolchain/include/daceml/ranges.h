// Ranges around the steps of a program, as profilers show them: operators of torch's profiler, and NVTX's ranges.
#pragma once

#include <daceml_torch.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define DACEML_NVTX
#endif

namespace daceml {

// From here to the end of the scope. Whoever listens is called: torch's profiler and other observers of its operators,
// and the tool that NVTX_INJECTION64_PATH names, in a domain of its own.
class Range {
 public:
  explicit Range(const char* name) {
#ifdef DACEML_NVTX
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(domain(), &attributes);
#endif
    if (aoti_record_function_start(name, nullptr, nullptr, 0, &record_) != 0) record_ = nullptr;
  }
  ~Range() {
    if (record_ != nullptr) aoti_record_function_end(record_);
#ifdef DACEML_NVTX
    nvtxDomainRangePop(domain());
#endif
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
#ifdef DACEML_NVTX
  static nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t own = nvtxDomainCreateA("daceml");
    return own;
  }
#endif
  AtenRecordFunctionHandle record_ = nullptr;
};

}  // namespace daceml
