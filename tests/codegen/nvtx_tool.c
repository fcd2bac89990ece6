// What a tool such as Nsight Systems is for NVTX: a library that is told of each range, and prints it.
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

static nvtxDomainHandle_t create(const char* name) {
  printf("domain %s\n", name);
  return (nvtxDomainHandle_t)&create;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  printf("%s %s\n", domain == (nvtxDomainHandle_t)&create ? "push" : "push into another domain",
         attributes->message.ascii);
  return 0;
}

static int pop(nvtxDomainHandle_t domain) {
  printf("pop\n");
  fflush(stdout);
  return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks* callbacks = (const NvtxExportTableCallbacks*)get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable functions;
  unsigned int count = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &count)) return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
  *functions[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *functions[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
