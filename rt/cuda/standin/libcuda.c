// A stub of the driver library, for building cuDNN plans on a machine without a driver.
//
// cuDNN builds a plan from the properties of a GPU and needs neither the GPU nor a driver; but it
// requires libcuda.so.1, and registers compiled kernels with it.  So this stub has all symbols of
// the real library (CMakeLists.txt gives their source), and returns CUDA_ERROR_STUB_LIBRARY, with
// one exception: loading and looking up a compiled kernel succeed, and return an unusable handle.
//
// It is among the runtime's sources and not with the backend that uses it, since the runtime's
// plans determine its behaviour.  nnaot puts its folder on LD_LIBRARY_PATH of the process that
// builds plans, and only if there is no real libcuda.so.1; nothing is linked against it.  A program
// that would run a kernel through it gets an error from the first call.

#define _GNU_SOURCE // NOLINT(bugprone-reserved-identifier)
#include <dlfcn.h>
#include <stddef.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, STUB_LIBRARY = 34, NOT_FOUND = 500 };
enum { DRIVER_VERSION = 13000 }; // as in the property files

#define ANSWER(name, value) int name(void);
#include "names.h"
#undef ANSWER
#define ANSWER(name, value)                                                                        \
  int name(void) {                                                                                 \
    return value;                                                                                  \
  }
#include "names.h"

static int nothing; // target of all handles

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
  *version = DRIVER_VERSION;
  return SUCCESS;
}

int cuGetErrorString(int error, const char **text);
int cuGetErrorString(int error, const char **text) {
  *text = error == SUCCESS ? "no error" : "this is nnaot's stand-in for the driver";
  return SUCCESS;
}

int cuGetErrorName(int error, const char **text);
int cuGetErrorName(int error, const char **text) {
  *text = error == SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_STUB_LIBRARY";
  return SUCCESS;
}

// Returns a handle.  Other arguments are ignored.
#define HANDLE(name)                                                                               \
  int name(void **handle);                                                                         \
  int name(void **handle) {                                                                        \
    *handle = &nothing;                                                                            \
    return SUCCESS;                                                                                \
  }
HANDLE(cuLibraryLoadData)
HANDLE(cuLibraryGetKernel)
HANDLE(cuLibraryGetModule)
HANDLE(cuKernelGetFunction)
HANDLE(cuModuleLoadData)
HANDLE(cuModuleLoadDataEx)
HANDLE(cuModuleGetFunction)

#define ZERO(name)                                                                                 \
  int name(int *value);                                                                            \
  int name(int *value) {                                                                           \
    *value = 0;                                                                                    \
    return SUCCESS;                                                                                \
  }
ZERO(cuFuncGetAttribute)
ZERO(cuKernelGetAttribute)

// Both forms: the libraries get all other functions from here.
int cuGetProcAddress(const char *name, void **function);
int cuGetProcAddress(const char *name, void **function) {
  if (!name || !function) return INVALID_VALUE;
  *function = dlsym(RTLD_DEFAULT, name);
  return *function ? SUCCESS : NOT_FOUND;
}
int cuGetProcAddress_v2(const char *name, void **function);
int cuGetProcAddress_v2(const char *name, void **function) {
  return cuGetProcAddress(name, function);
}
