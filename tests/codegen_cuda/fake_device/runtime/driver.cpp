// libcuda: what torch asks the driver for without a kernel of its own. The rest is generated, and refuses.
#include <cuda.h>

extern "C" {

CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned int* flags, int* active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
    *text = "the driver of the fake device refused this";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult, const char** text) { return cuGetErrorString(CUDA_SUCCESS, text); }

CUresult cuDriverGetVersion(int* version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

}  // extern "C"
