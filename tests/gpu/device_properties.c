// Prints cuDNN's properties of GPU 0 as JSON: the form of the files in rt/cuda/devices, from which
// plans are built without a GPU.
//
//     device_properties > h200.json

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdio.h>

static int failed(const char *what) {
  char text[1024] = "";
  cudnnGetLastErrorString(text, sizeof text);
  fprintf(stderr, "device_properties: %s: %s\n", what, text);
  return 1;
}

int main(void) {
  static char text[1 << 16];
  cudnnBackendDescriptor_t d;
  const int32_t gpu = 0;
  int64_t n = 0;
  if (cudaSetDevice(0) != cudaSuccess) {
    fprintf(stderr, "device_properties: there is no GPU\n");
    return 1;
  }
  if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d))
    return failed("create");
  if (cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &gpu))
    return failed("the number of the GPU");
  if (cudnnBackendFinalize(d)) return failed("finalize");
  if (cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               sizeof text, &n, text))
    return failed("the text");
  fwrite(text, 1, (size_t)n, stdout);
  putchar('\n');
  cudnnBackendDestroyDescriptor(d);
  return fflush(stdout) != 0;
}
