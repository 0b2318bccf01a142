// cuBLASLt: products of matrices by plain loops, and everything else as documented.
//
//     D = epilogue(alpha op(A) op(B) + beta C)      A, B, C, D by columns unless their order is row
//
// A product is checked in two places.  The heuristic, cublasLtMatmulAlgoCheck and cublasLtMatmul
// check its descriptors alike (cublaslt_check.c).  cublasLtMatmul checks addresses
// (cublaslt_run.c).  Uses that the documentation leaves open are refused.
//
// This file has the library and the descriptors, with a table of attributes for their fields.

#include <stdlib.h>
#include <string.h>

#include "cublaslt_internal.h"
#include "emulator.h"

// ---- Descriptors

_Static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
_Static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
_Static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t), "fits");

typedef struct Field {
  int attribute;
  size_t offset, bytes;
} Field;
#define FIELD(attribute, type, field)                                                              \
  { attribute, offsetof(type, field), sizeof(((type *)0)->field) }

static const Field layout_fields[] = {
    FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, Layout, type),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, Layout, order),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, Layout, rows),
    FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, Layout, columns),
    FIELD(CUBLASLT_MATRIX_LAYOUT_LD, Layout, ld),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, Layout, batch),
    FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, Layout, step),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, Layout, batch_mode),
    {-1, 0, 0},
};
static const Field desc_fields[] = {
    FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, Desc, compute),
    FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, Desc, scale),
    FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, Desc, pointer_mode),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSA, Desc, trans_a),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSB, Desc, trans_b),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSC, Desc, trans_c),
    FIELD(CUBLASLT_MATMUL_DESC_FILL_MODE, Desc, fill),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, Desc, epilogue),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, Desc, bias),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, Desc, bias_step),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, Desc, bias_type),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, Desc, aux),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, Desc, aux_ld),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, Desc, aux_step),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, Desc, aux_type),
    FIELD(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, Desc, sm_count),
    FIELD(CUBLASLT_MATMUL_DESC_FAST_ACCUM, Desc, fast_accum),
    {-1, 0, 0},
};
static const Field preference_fields[] = {
    FIELD(CUBLASLT_MATMUL_PREF_SEARCH_MODE, Preference, search),
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Preference, workspace),
    FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, Preference, reductions),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Preference, align[0]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Preference, align[1]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Preference, align[2]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Preference, align[3]),
    {-1, 0, 0},
};
static const Field algo_fields[] = {
    FIELD(CUBLASLT_ALGO_CONFIG_ID, Algo, id),
    FIELD(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, Algo, parts),
    FIELD(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, Algo, reduction),
    {-1, 0, 0},
};

static const Field *find(const Field *f, int attribute) {
  while (f->attribute >= 0 && f->attribute != attribute)
    f++;
  return f->attribute >= 0 ? f : NULL;
}

static cublasStatus_t set(void *at, const Field *fields, int attribute, const void *value,
                          size_t bytes) {
  const Field *f = find(fields, attribute);
  if (!f) return CUBLAS_STATUS_NOT_SUPPORTED; // an attribute that is not emulated
  if (!at || !value || bytes != f->bytes) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy((char *)at + f->offset, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const void *at, const Field *fields, int attribute, void *value,
                          size_t bytes, size_t *written) {
  const Field *f = find(fields, attribute);
  if (!f) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!at || (bytes == 0 && !written) || (bytes && (!value || bytes != f->bytes)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes) memcpy(value, (const char *)at + f->offset, bytes);
  if (written) *written = f->bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t out, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
  if (size < sizeof *out) return CUBLAS_STATUS_ALLOC_FAILED;
  memset(out, 0, sizeof *out);
  *(Layout *)out = (Layout){.type = (int32_t)type,
                            .order = CUBLASLT_ORDER_COL,
                            .batch = 1,
                            .rows = rows,
                            .columns = columns,
                            .ld = ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  *out = emulated_alloc(sizeof **out);
  return cublasLtMatrixLayoutInit_internal(*out, sizeof **out, type, rows, columns, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  free(l);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void *value, size_t bytes) {
  return set(l, layout_fields, (int)what, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t what, void *value,
                                                size_t bytes, size_t *written) {
  return get(l, layout_fields, (int)what, value, bytes, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t out, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (size < sizeof *out) return CUBLAS_STATUS_ALLOC_FAILED;
  memset(out, 0, sizeof *out);
  *(Desc *)out = (Desc){.compute = (int32_t)compute,
                        .scale = (int32_t)scale,
                        .pointer_mode = CUBLASLT_POINTER_MODE_HOST,
                        .trans_a = CUBLAS_OP_N,
                        .trans_b = CUBLAS_OP_N,
                        .trans_c = CUBLAS_OP_N,
                        .fill = CUBLAS_FILL_MODE_FULL,
                        .bias_type = -1,
                        .aux_type = -1,
                        .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *out = emulated_alloc(sizeof **out);
  return cublasLtMatmulDescInit_internal(*out, sizeof **out, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  free(d);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes) {
  return set(d, desc_fields, (int)what, value, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what, void *value,
                                              size_t bytes, size_t *written) {
  return get(d, desc_fields, (int)what, value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t out, size_t size) {
  if (size < sizeof *out) return CUBLAS_STATUS_ALLOC_FAILED;
  memset(out, 0, sizeof *out);
  *(Preference *)out =
      (Preference){.reductions = CUBLASLT_REDUCTION_SCHEME_MASK, .align = {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
  *out = emulated_alloc(sizeof **out);
  return cublasLtMatmulPreferenceInit_internal(*out, sizeof **out);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  free(p);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes) {
  return set(p, preference_fields, (int)what, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    void *value, size_t bytes, size_t *written) {
  return get(p, preference_fields, (int)what, value, bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    const void *value, size_t bytes) {
  if (what == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE;
  return set(algo, algo_fields, (int)what, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void *value, size_t bytes, size_t *written) {
  return get(algo, algo_fields, (int)what, value, bytes, written);
}

// ---- The library

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
  if (!out) return CUBLAS_STATUS_INVALID_VALUE;
  *out = NULL;
  // It allocates, so it cannot be created during capture, nor without a GPU.
  if (cudaFree(NULL) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *out = emulated_alloc(sizeof **out);
  cudaGetDevice(&(*out)->device);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  cudaDeviceSynchronize();
  free(h);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
  const char *other = getenv("EMULATED_CUBLASLT");
  return other ? strtoul(other, NULL, 10) : CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void) {
  return CUDART_VERSION;
}

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *out) {
  static const int version[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
  if (!out || (unsigned)type > PATCH_LEVEL) return CUBLAS_STATUS_INVALID_VALUE;
  *out = version[type];
  return CUBLAS_STATUS_SUCCESS;
}

#define STATUSES(S)                                                                                \
  S(CUBLAS_STATUS_SUCCESS, "success")                                                              \
  S(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized")                              \
  S(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed")                                  \
  S(CUBLAS_STATUS_INVALID_VALUE, "an invalid value was used as an argument")                       \
  S(CUBLAS_STATUS_ARCH_MISMATCH, "an absent device architectural feature is required")             \
  S(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed")                           \
  S(CUBLAS_STATUS_EXECUTION_FAILED, "the GPU program failed to execute")                           \
  S(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed")                                  \
  S(CUBLAS_STATUS_NOT_SUPPORTED, "the functionality is not supported")                             \
  S(CUBLAS_STATUS_LICENSE_ERROR, "the functionality requested requires a license")

const char *cublasLtGetStatusName(cublasStatus_t s) {
  switch (s) {
#define S(status, text)                                                                            \
  case status: return #status;
    STATUSES(S)
#undef S
  }
  return "CUBLAS_UNKNOWN";
}

const char *cublasLtGetStatusString(cublasStatus_t s) {
  switch (s) {
#define S(status, text)                                                                            \
  case status: return text;
    STATUSES(S)
#undef S
  }
  return "unknown status";
}
