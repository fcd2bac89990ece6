// Functions of the driver by name: those of the libcuda that is loaded beside this.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <string>

#include "refusals.h"

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int,
                                                        unsigned long long, cudaDriverEntryPointQueryResult* found) {
    for (const char* suffix : {"_v3", "_v2", ""})
        if ((*function = dlsym(RTLD_DEFAULT, (std::string(name) + suffix).c_str())) != nullptr) break;
    if (*function == nullptr) return fake::refuse(cudaErrorSymbolNotFound, std::string("the driver has no ") + name);
    if (found != nullptr) *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
