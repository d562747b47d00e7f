// A stand-in for libcuda.so.1 that has no device, but loads whatever it is given: so much cuDNN needs to make plans ready for a device that
// is described to it. Nothing can be run.
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))
static int good() { return 0; }
static int handle(void **made, ...) { *made = (void *)0x1000; return 0; }
EXPORT int cuInit(unsigned) { return 100; }  // no device
EXPORT int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
EXPORT int cuGetErrorString(int, const char **text) { *text = "there is no GPU"; return 0; }
EXPORT int cuGetErrorName(int, const char **text) { *text = "NO_GPU"; return 0; }
static void *find(const char *name) {
  if (!strcmp(name, "cuInit")) return (void *)cuInit;
  if (!strcmp(name, "cuDriverGetVersion")) return (void *)cuDriverGetVersion;
  return strstr(name, "Load") || strstr(name, "GetKernel") || strstr(name, "GetFunction") ? (void *)handle : (void *)good;
}
EXPORT int cuGetProcAddress(const char *name, void **p, ...) { *p = find(name); return 0; }
EXPORT int cuGetProcAddress_v2(const char *name, void **p, int, unsigned long, int *status) {
  *p = find(name);
  if (status) *status = 0;
  return 0;
}
// those that cuDNN looks for by name, 9.12 to 9.28
#define HANDLE(NAME) EXPORT int NAME(void **made) { return handle(made); }
HANDLE(cuLibraryLoadData) HANDLE(cuLibraryLoadFromFile) HANDLE(cuLibraryGetKernel) HANDLE(cuKernelGetFunction) HANDLE(cuModuleLoadData)
HANDLE(cuModuleLoadDataEx) HANDLE(cuModuleGetFunction) HANDLE(cuLinkCreate)
#define GOOD(NAME) EXPORT int NAME() { return 0; }
GOOD(cuModuleUnload) GOOD(cuLibraryUnload) GOOD(cuTensorMapEncodeIm2col) GOOD(cuTensorMapEncodeTiled) GOOD(cuCtxGetCurrent) GOOD(cuCtxGetLimit)
GOOD(cuCtxPopCurrent) GOOD(cuCtxPushCurrent) GOOD(cuDeviceGet) GOOD(cuDeviceGetCount) GOOD(cuDeviceGetAttribute) GOOD(cuKernelGetAttribute)
GOOD(cuKernelSetAttribute) GOOD(cuFuncSetAttribute) GOOD(cuFuncGetAttribute) GOOD(cuLaunchKernel) GOOD(cuLaunchKernelEx)
GOOD(cuLaunchCooperativeKernel) GOOD(cuLinkAddData) GOOD(cuLinkComplete) GOOD(cuLinkDestroy) GOOD(cuOccupancyMaxPotentialClusterSize)
GOOD(cuOccupancyMaxActiveBlocksPerMultiprocessor) GOOD(cuStreamGetCtx)
