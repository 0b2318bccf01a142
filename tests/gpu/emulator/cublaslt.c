// cuBLASLt: products of matrices by plain loops, and everything else as its documentation demands.
//
//     D = epilogue(alpha op(A) op(B) + beta C)      A, B, C, D by columns unless their order is row
//
// A product is checked in two places.  What its descriptors say is checked by the heuristic, by
// cublasLtMatmulAlgoCheck and by cublasLtMatmul alike, and answered as the real one does: types by
// the documentation's table, leading dimensions, batches, what epilogues need.  Addresses are
// checked by cublasLtMatmul: that they are in the gpu's memory as far as the matrix reaches,
// aligned as the heuristic was told they would be, and that D overlaps nothing it must not.
//
// The heuristic proposes some ways to do it; they differ in how many parts the sum over k is cut
// into, which needs workspace. Workspace is overwritten with NaN, as anything may be there later.
// Where documentation leaves open whether something works, it does not here.

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

// ---- Elements

__extension__ typedef _Float16 Half;

static int size_of(int32_t type) {
  switch (type) {
  case CUDA_R_16F:
  case CUDA_R_16BF: return 2;
  case CUDA_R_32F: return 4;
  case CUDA_R_64F: return 8;
  }
  return 0;
}

static double element(const void *at, int32_t type, int64_t i) {
  switch (type) {
  case CUDA_R_64F: return ((const double *)at)[i];
  case CUDA_R_32F: return (double)((const float *)at)[i];
  case CUDA_R_16F: return (double)((const Half *)at)[i];
  }
  uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return (double)x;
}

static void set_element(void *at, int32_t type, int64_t i, double x) {
  switch (type) {
  case CUDA_R_64F: ((double *)at)[i] = x; return;
  case CUDA_R_32F: ((float *)at)[i] = (float)x; return;
  case CUDA_R_16F: ((Half *)at)[i] = (Half)(float)x; return;
  }
  float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (f != f)
    bits |= 0x400000; // stays NaN
  else
    bits += 0x7fff + (bits >> 16 & 1); // to the nearest, or the even one
  ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
}

// With the 10 bits of mantissa that TF32 has.
static float as_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x == x) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// ---- Descriptors, in the memory of the opaque ones

typedef struct Layout {
  int32_t type, order, batch, batch_mode;
  uint64_t rows, columns;
  int64_t ld, step;
} Layout;

typedef struct Desc {
  int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c, fill, bias_type, aux_type;
  uint32_t epilogue;
  void *bias, *aux;
  int64_t bias_step, aux_ld, aux_step;
  int32_t sm_count;
  int8_t fast_accum;
} Desc;

typedef struct Preference {
  uint64_t workspace;
  uint32_t search, reductions, align[4];
} Preference;

// What is in a cublasLtMatmulAlgo_t.
typedef struct Algo {
  uint64_t magic;
  int32_t id, parts;
  uint32_t reduction;
  uint32_t align[4]; // of A, B, C, D
  uint32_t problem;  // which it was proposed for; 0: any
} Algo;

enum { N_ALGOS = 3, ALIGN = 16, AUX_ALIGN = 16 };
#define MAGIC UINT64_C(0x656d756c61746564)

_Static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
_Static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
_Static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t), "fits");

struct cublasLtContext {
  int device;
};

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
  if (!f) return CUBLAS_STATUS_NOT_SUPPORTED; // of what is not emulated
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

// ---- The library

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
  if (!out) return CUBLAS_STATUS_INVALID_VALUE;
  *out = NULL;
  // It allocates, so it cannot be made while a graph is recorded, nor without a gpu.
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

// ---- What descriptors say

typedef struct Problem {
  Desc how;
  Layout a, b, c, d;
  int64_t m, n, k;
  bool bias_in, bias_out, relu, gelu, drelu, dgelu, aux_in, aux_out;
  int32_t bias_type, aux_type;
  int64_t bias_length;
  uint32_t hash; // of what an algorithm depends on; not 0
} Problem;

static cublasStatus_t check_layout(const Layout *l) {
  if (size_of(l->type) == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (l->batch_mode != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  int64_t line = (int64_t)(l->order == CUBLASLT_ORDER_COL ? l->rows : l->columns);
  if (l->rows == 0 || l->columns == 0 || l->ld < line || l->batch < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

// The documentation's table for regular matrices: compute type, scale type, A and B, C and D, bias.
static bool in_table(const Problem *p) {
  int32_t ab = p->a.type, cd = p->d.type;
  if (p->b.type != ab || p->c.type != cd) return false;
  switch (p->how.compute) {
  case CUBLAS_COMPUTE_64F:
  case CUBLAS_COMPUTE_64F_PEDANTIC:
    return p->how.scale == CUDA_R_64F && ab == CUDA_R_64F && cd == CUDA_R_64F;
  case CUBLAS_COMPUTE_32F_FAST_TF32:
    return p->how.scale == CUDA_R_32F && ab == CUDA_R_32F && cd == CUDA_R_32F;
  case CUBLAS_COMPUTE_32F:
  case CUBLAS_COMPUTE_32F_PEDANTIC:
    return p->how.scale == CUDA_R_32F && ab != CUDA_R_64F && (cd == ab || cd == CUDA_R_32F);
  }
  return false;
}

static bool take_epilogue(Problem *p) {
  switch (p->how.epilogue) {
  case CUBLASLT_EPILOGUE_DEFAULT: return true;
  case CUBLASLT_EPILOGUE_BIAS: p->bias_in = true; return true;
  case CUBLASLT_EPILOGUE_RELU: p->relu = true; return true;
  case CUBLASLT_EPILOGUE_RELU_BIAS: p->relu = p->bias_in = true; return true;
  case CUBLASLT_EPILOGUE_RELU_AUX: p->relu = p->aux_out = true; return true;
  case CUBLASLT_EPILOGUE_RELU_AUX_BIAS: p->relu = p->aux_out = p->bias_in = true; return true;
  case CUBLASLT_EPILOGUE_GELU: p->gelu = true; return true;
  case CUBLASLT_EPILOGUE_GELU_BIAS: p->gelu = p->bias_in = true; return true;
  case CUBLASLT_EPILOGUE_GELU_AUX: p->gelu = p->aux_out = true; return true;
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: p->gelu = p->aux_out = p->bias_in = true; return true;
  case CUBLASLT_EPILOGUE_DRELU: p->drelu = p->aux_in = true; return true;
  case CUBLASLT_EPILOGUE_DRELU_BGRAD: p->drelu = p->aux_in = p->bias_out = true; return true;
  case CUBLASLT_EPILOGUE_DGELU: p->dgelu = p->aux_in = true; return true;
  case CUBLASLT_EPILOGUE_DGELU_BGRAD: p->dgelu = p->aux_in = p->bias_out = true; return true;
  case CUBLASLT_EPILOGUE_BGRADA:
  case CUBLASLT_EPILOGUE_BGRADB: p->bias_out = true; return true;
  }
  return false;
}

static cublasStatus_t check_epilogue(Problem *p) {
  const Desc *how = &p->how;
  if (!take_epilogue(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (how->epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  if (p->d.order == CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
  bool bias = p->bias_in || p->bias_out, aux = p->aux_in || p->aux_out;
  bool sums =
      how->epilogue == CUBLASLT_EPILOGUE_BGRADA || how->epilogue == CUBLASLT_EPILOGUE_BGRADB;
  p->bias_length = how->epilogue == CUBLASLT_EPILOGUE_BGRADB ? p->n : p->m;
  p->bias_type = how->bias_type == -1 ? p->d.type : how->bias_type;
  p->aux_type = how->aux_type == -1 ? p->d.type : how->aux_type;
  if (bias && !how->bias) return CUBLAS_STATUS_INVALID_VALUE;
  if (bias && p->bias_type != p->d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (bias && (uintptr_t)how->bias % (uintptr_t)size_of(p->bias_type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p->bias_out && p->d.batch > 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p->how.compute == CUBLAS_COMPUTE_64F && (aux || sums)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!aux) return CUBLAS_STATUS_SUCCESS;
  int64_t multiple = p->relu || p->drelu ? 128 : 8;
  if (!how->aux) return CUBLAS_STATUS_INVALID_VALUE;
  if (how->aux_ld < p->m || how->aux_ld % multiple) return CUBLAS_STATUS_INVALID_VALUE;
  if (p->d.batch > 1 && how->aux_step % multiple) return CUBLAS_STATUS_INVALID_VALUE;
  // A mask has no type; the documentation lets gelu's input have another only for fp8.
  if (how->aux_type != -1 && (p->relu || p->drelu || p->aux_type != p->d.type))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((uintptr_t)how->aux % AUX_ALIGN) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

static uint32_t mix(uint32_t hash, int64_t x) {
  return (hash ^ (uint32_t)x ^ (uint32_t)((uint64_t)x >> 32)) * 16777619u;
}

static cublasStatus_t check(Problem *p, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                            cublasLtMatrixLayout_t d) {
  if (!how || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
  *p = (Problem){.how = *(const Desc *)how,
                 .a = *(const Layout *)a,
                 .b = *(const Layout *)b,
                 .c = *(const Layout *)c,
                 .d = *(const Layout *)d};
  const Layout *all[] = {&p->a, &p->b, &p->c, &p->d};
  uint32_t hash = 2166136261u;
  for (int i = 0; i < 4; i++) {
    const Layout *l = all[i];
    cublasStatus_t s = check_layout(l);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    if (l->batch != p->d.batch) return CUBLAS_STATUS_INVALID_VALUE;
    hash = mix(mix(mix(mix(hash, l->type), l->order), (int64_t)l->rows), (int64_t)l->columns);
    hash = mix(mix(hash, l->ld), l->batch);
  }
  const Desc *h = &p->how;
  if (h->trans_a != CUBLAS_OP_N && h->trans_a != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (h->trans_b != CUBLAS_OP_N && h->trans_b != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (h->trans_c != CUBLAS_OP_N || h->fill != CUBLAS_FILL_MODE_FULL)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (h->pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
      h->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  bool ta = h->trans_a == CUBLAS_OP_T, tb = h->trans_b == CUBLAS_OP_T;
  p->m = (int64_t)p->d.rows;
  p->n = (int64_t)p->d.columns;
  p->k = (int64_t)(ta ? p->a.rows : p->a.columns);
  if ((int64_t)(ta ? p->a.columns : p->a.rows) != p->m ||
      (int64_t)(tb ? p->b.columns : p->b.rows) != p->k ||
      (int64_t)(tb ? p->b.rows : p->b.columns) != p->n || p->c.rows != p->d.rows ||
      p->c.columns != p->d.columns || p->c.order != p->d.order)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!in_table(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  hash = mix(mix(mix(mix(hash, h->compute), ta), tb), h->epilogue);
  p->hash = hash ? hash : 1;
  return check_epilogue(p);
}

// ---- Ways to do it

static size_t workspace_of(const Problem *p, const Algo *algo) {
  return algo->parts < 2 ? 0
                         : (size_t)(p->m * p->n * p->d.batch * algo->parts) *
                               (p->d.type == CUDA_R_64F ? sizeof(double) : sizeof(float));
}

static void make_algo(Algo *out, int id, const uint32_t *align, uint32_t problem) {
  *out = (Algo){.magic = MAGIC,
                .id = id,
                .parts = id + 1,
                .reduction =
                    id ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE,
                .problem = problem};
  for (int i = 0; i < 4; i++)
    out->align[i] = align[i] < ALIGN ? align[i] : ALIGN;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *out_n) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!preference || most < 1 || !out || !out_n) return CUBLAS_STATUS_INVALID_VALUE;
  *out_n = 0;
  Problem p;
  cublasStatus_t s = check(&p, how, a, b, c, d);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  const Preference *wish = (const Preference *)preference;
  const Layout *all[] = {&p.a, &p.b, &p.c, &p.d};
  for (int i = 0; i < 4; i++)
    if (wish->align[i] % (uint32_t)size_of(all[i]->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // The best is one that needs workspace, if it may.
  static const int order[N_ALGOS] = {1, 0, 2};
  for (int i = 0; i < N_ALGOS && *out_n < most; i++) {
    Algo algo;
    make_algo(&algo, order[i], wish->align, p.hash);
    if (workspace_of(&p, &algo) > wish->workspace || p.k < algo.parts) continue;
    if (algo.reduction && !(algo.reduction & wish->reductions)) continue;
    cublasLtMatmulHeuristicResult_t *r = &out[(*out_n)++];
    memset(r, 0, sizeof *r);
    memcpy(&r->algo, &algo, sizeof algo);
    r->workspaceSize = workspace_of(&p, &algo);
    r->state = CUBLAS_STATUS_SUCCESS;
    r->wavesCount = 1;
  }
  return *out_n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute,
                                        cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                        cudaDataType_t c, cudaDataType_t d, int most, int *out,
                                        int *out_n) {
  (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (most < 1 || !out || !out_n) return CUBLAS_STATUS_INVALID_VALUE;
  *out_n = most < N_ALGOS ? most : N_ALGOS;
  for (int i = 0; i < *out_n; i++)
    out[i] = i;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute,
                                      cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                      cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t *out) {
  (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!out || id < 0 || id >= N_ALGOS) return CUBLAS_STATUS_INVALID_VALUE;
  static const uint32_t align[] = {ALIGN, ALIGN, ALIGN, ALIGN};
  memset(out, 0, sizeof *out);
  make_algo((Algo *)out, id, align, 0);
  return CUBLAS_STATUS_SUCCESS;
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

static cublasStatus_t check_algo(const Problem *p, const Algo *algo) {
  if (algo->magic != MAGIC || algo->id < 0 || algo->id >= N_ALGOS || algo->parts < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo->problem && algo->problem != p->hash) return CUBLAS_STATUS_NOT_SUPPORTED;
  return algo->parts > p->k ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t how,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *out) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!algo || !out) return CUBLAS_STATUS_INVALID_VALUE;
  Problem p;
  Algo copy; // it may be that of the result
  memcpy(&copy, algo, sizeof copy);
  cublasStatus_t s = check(&p, how, a, b, c, d);
  if (s == CUBLAS_STATUS_SUCCESS) s = check_algo(&p, &copy);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  // As documented, only these are set.
  out->workspaceSize = workspace_of(&p, &copy);
  out->state = CUBLAS_STATUS_SUCCESS;
  out->wavesCount = 1;
  return s;
}

// ---- Doing it

typedef struct Product {
  EmulatedWork work;
  Problem p;
  int parts;
  double alpha, beta;
  const void *alpha_at, *beta_at; // of the gpu, in that pointer mode
  const char *a, *b, *c;
  char *d, *workspace;
  size_t workspace_bytes;
} Product;

static int64_t index_of(const Layout *l, int64_t row, int64_t column) {
  return l->order == CUBLASLT_ORDER_COL ? row + column * l->ld : row * l->ld + column;
}

static int64_t batch_elements(const Layout *l) {
  return index_of(l, (int64_t)l->rows - 1, (int64_t)l->columns - 1) + 1;
}

static size_t bytes_of(const Layout *l) {
  return (size_t)((l->batch - 1) * l->step + batch_elements(l)) * (size_t)size_of(l->type);
}

// op(matrix) as (rows, k) of float, each row's k side by side.
static float *pack(const char *at, const Layout *l, bool by_k, int64_t rows, int64_t k, bool tf32) {
  float *out = malloc((size_t)(rows * k) * sizeof *out);
  if (!out) emulated_abort("no memory");
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < k; j++) {
      float x = (float)element(at, l->type, by_k ? index_of(l, j, i) : index_of(l, i, j));
      out[i * k + j] = tf32 ? as_tf32(x) : x;
    }
  return out;
}

enum { TILE = 4, LANES = 8 };

// out (m, n) by rows = a (m, k) b (n, k)', from k0 to k1.  Sums are in several lanes, as on a gpu.
static void multiply(float *out, const float *a, const float *b, int64_t m, int64_t n, int64_t k,
                     int64_t k0, int64_t k1) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j0 = 0; j0 < n; j0 += TILE) {
      float sum[TILE][LANES] = {{0}};
      int64_t width = n - j0 < TILE ? n - j0 : TILE, at = k0;
      const float *x = a + i * k, *y[TILE];
      for (int64_t j = 0; j < TILE; j++)
        y[j] = b + (j0 + (j < width ? j : 0)) * k;
      for (; at + LANES <= k1; at += LANES)
        for (int j = 0; j < TILE; j++)
          for (int lane = 0; lane < LANES; lane++)
            sum[j][lane] += x[at + lane] * y[j][at + lane];
      for (; at < k1; at++)
        for (int j = 0; j < TILE; j++)
          sum[j][0] += x[at] * y[j][at];
      for (int64_t j = 0; j < width; j++) {
        float whole = 0;
        for (int lane = 0; lane < LANES; lane++)
          whole += sum[j][lane];
        out[i * n + j0 + j] = whole;
      }
    }
}

// Of one batch: (m, n) by rows, in double only because f64 fits then too.
static double *product_of(const Product *q, const char *a, const char *b) {
  const Problem *p = &q->p;
  bool ta = p->how.trans_a == CUBLAS_OP_T, tb = p->how.trans_b == CUBLAS_OP_T;
  double *out = malloc((size_t)(p->m * p->n) * sizeof *out);
  if (!out) emulated_abort("no memory");
  if (p->a.type == CUDA_R_64F) {
    for (int64_t i = 0; i < p->m; i++)
      for (int64_t j = 0; j < p->n; j++) {
        double sum = 0;
        for (int64_t l = 0; l < p->k; l++)
          sum += element(a, CUDA_R_64F, ta ? index_of(&p->a, l, i) : index_of(&p->a, i, l)) *
                 element(b, CUDA_R_64F, tb ? index_of(&p->b, j, l) : index_of(&p->b, l, j));
        out[i * p->n + j] = sum;
      }
    return out;
  }
  bool tf32 = p->how.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  float *x = pack(a, &p->a, ta, p->m, p->k, tf32), *y = pack(b, &p->b, !tb, p->n, p->k, tf32);
  float *sum = malloc((size_t)(p->m * p->n) * sizeof *sum);
  if (!sum) emulated_abort("no memory");
  memset(out, 0, (size_t)(p->m * p->n) * sizeof *out);
  for (int part = 0; part < q->parts; part++) {
    multiply(sum, x, y, p->m, p->n, p->k, p->k * part / q->parts, p->k * (part + 1) / q->parts);
    for (int64_t i = 0; i < p->m * p->n; i++)
      out[i] = (double)(float)(out[i] + (double)sum[i]);
  }
  free(x);
  free(y);
  free(sum);
  return out;
}

// 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), and its derivative.
static double gelu(double x) {
  return 0.5 * x * (1 + tanh(M_SQRT2 * M_2_SQRTPI / 2 * (x + 0.044715 * x * x * x)));
}

static double gelu_back(double x) {
  double scale = M_SQRT2 * M_2_SQRTPI / 2, t = tanh(scale * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

static bool bit_at(const uint8_t *mask, int64_t i) {
  return mask[i / 8] >> i % 8 & 1;
}

static void set_bit(uint8_t *mask, int64_t i, bool on) {
  mask[i / 8] = (uint8_t)((mask[i / 8] & ~(1u << i % 8)) | (unsigned)on << i % 8);
}

// The sums over k of op(A)'s rows, or of op(B)'s columns.
static void sum_input(const Product *q, const char *a, const char *b) {
  const Problem *p = &q->p;
  bool of_a = p->how.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  bool ta = p->how.trans_a == CUBLAS_OP_T, tb = p->how.trans_b == CUBLAS_OP_T;
  for (int64_t i = 0; i < p->bias_length; i++) {
    float sum = 0;
    for (int64_t l = 0; l < p->k; l++) {
      int64_t at = of_a ? ta ? index_of(&p->a, l, i) : index_of(&p->a, i, l)
                   : tb ? index_of(&p->b, i, l)
                        : index_of(&p->b, l, i);
      sum += (float)(of_a ? element(a, p->a.type, at) : element(b, p->b.type, at));
    }
    set_element(p->how.bias, p->bias_type, i, (double)sum);
  }
}

static void finish_batch(const Product *q, int64_t batch, const double *product) {
  const Problem *p = &q->p;
  const Desc *how = &p->how;
  const char *c = q->c + batch * p->c.step * size_of(p->c.type);
  char *d = q->d + batch * p->d.step * size_of(p->d.type);
  char *bias = how->bias, *aux = how->aux;
  if (bias) bias += batch * how->bias_step * size_of(p->bias_type);
  bool mask = p->relu || p->drelu;
  if (aux) aux += mask ? batch * how->aux_step / 8 : batch * how->aux_step * size_of(p->aux_type);
  bool sums = p->bias_out && (p->drelu || p->dgelu);
  for (int64_t i = 0; i < p->m; i++) {
    double sum = 0;
    for (int64_t j = 0; j < p->n; j++) {
      double x = q->alpha * product[i * p->n + j];
      if (q->beta != 0) x += q->beta * element(c, p->c.type, index_of(&p->c, i, j));
      if (p->bias_in) x += element(bias, p->bias_type, i);
      int64_t at = i + j * how->aux_ld;
      if (p->aux_out && mask) set_bit((uint8_t *)aux, at, x > 0);
      if (p->aux_out && !mask) set_element(aux, p->aux_type, at, x);
      if (p->relu) x = x > 0 || x != x ? x : 0;
      if (p->gelu) x = gelu(x);
      if (p->drelu) x = bit_at((const uint8_t *)aux, at) ? x : 0;
      if (p->dgelu) x *= gelu_back(element(aux, p->aux_type, at));
      set_element(d, p->d.type, index_of(&p->d, i, j), x);
      sum += x;
    }
    if (sums) set_element(bias, p->bias_type, i, sum);
  }
}

static bool run_product(EmulatedWork *w, bool again) {
  (void)again;
  Product *q = (Product *)w;
  const Problem *p = &q->p;
  if (q->alpha_at) {
    q->alpha = element(q->alpha_at, p->how.scale, 0);
    q->beta = element(q->beta_at, p->how.scale, 0);
  }
  if (q->workspace_bytes) memset(q->workspace, 0xff, q->workspace_bytes);
  for (int64_t batch = 0; batch < p->d.batch; batch++) {
    const char *a = q->a + batch * p->a.step * size_of(p->a.type);
    const char *b = q->b + batch * p->b.step * size_of(p->b.type);
    double *product = product_of(q, a, b);
    if (p->how.epilogue == CUBLASLT_EPILOGUE_BGRADA || p->how.epilogue == CUBLASLT_EPILOGUE_BGRADB)
      sum_input(q, a, b);
    finish_batch(q, batch, product);
    free(product);
  }
  return true;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  const char *x = a, *y = b;
  return x < y + b_bytes && y < x + a_bytes;
}

static void need_memory(const char *name, const void *at, size_t bytes) {
  if (!emulated_reachable(at, bytes))
    emulated_abort("cublasLtMatmul: %s, %zu bytes at %p, is not in the gpu's memory", name, bytes,
                   at);
}

static size_t aux_bytes(const Problem *p) {
  const Desc *how = &p->how;
  size_t elements = (size_t)((p->d.batch - 1) * how->aux_step + (p->n - 1) * how->aux_ld + p->m);
  return p->relu || p->drelu ? (elements + 7) / 8 : elements * (size_t)size_of(p->aux_type);
}

// What would be undefined behaviour of the real one.
static void check_addresses(const Product *q) {
  const Problem *p = &q->p;
  size_t d = bytes_of(&p->d), bias = (size_t)p->bias_length * (size_t)size_of(p->bias_type);
  need_memory("A", q->a, bytes_of(&p->a));
  need_memory("B", q->b, bytes_of(&p->b));
  need_memory("C", q->c, bytes_of(&p->c));
  need_memory("D", q->d, d);
  if (overlap(q->d, d, q->a, bytes_of(&p->a)) || overlap(q->d, d, q->b, bytes_of(&p->b)))
    emulated_abort("cublasLtMatmul: D overlaps A or B");
  if (q->c == q->d ? p->c.ld != p->d.ld || p->c.step != p->d.step
                   : overlap(q->d, d, q->c, bytes_of(&p->c)))
    emulated_abort("cublasLtMatmul: C is neither D nor apart from it");
  if (q->workspace_bytes) {
    need_memory("the workspace", q->workspace, q->workspace_bytes);
    const char *names[] = {"A", "B", "C", "D"};
    const void *at[] = {q->a, q->b, q->c, q->d};
    const Layout *l[] = {&p->a, &p->b, &p->c, &p->d};
    for (int i = 0; i < 4; i++)
      if (overlap(q->workspace, q->workspace_bytes, at[i], bytes_of(l[i])))
        emulated_abort("cublasLtMatmul: the workspace overlaps %s", names[i]);
  }
  if (p->bias_in || p->bias_out) {
    need_memory("the bias", p->how.bias,
                bias +
                    (size_t)((p->d.batch - 1) * p->how.bias_step) * (size_t)size_of(p->bias_type));
    if (overlap(p->how.bias, bias, q->d, d)) emulated_abort("cublasLtMatmul: the bias overlaps D");
  }
  if (p->aux_in || p->aux_out) {
    need_memory("aux", p->how.aux, aux_bytes(p));
    if (overlap(p->how.aux, aux_bytes(p), q->d, d))
      emulated_abort("cublasLtMatmul: aux overlaps D");
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!alpha || !beta || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
  int device;
  cudaGetDevice(&device);
  if (device != handle->device)
    emulated_abort("cublasLtMatmul: the handle is of gpu %d, the thread uses gpu %d",
                   handle->device, device);
  Product q = {.work = {"cublasLtMatmul", run_product, emulated_free},
               .a = a,
               .b = b,
               .c = c,
               .d = d,
               .workspace = workspace};
  cublasStatus_t s = check(&q.p, how, a_layout, b_layout, c_layout, d_layout);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  static const uint32_t align[] = {ALIGN, ALIGN, ALIGN, ALIGN};
  Algo chosen;
  if (algo)
    memcpy(&chosen, algo, sizeof chosen);
  else
    make_algo(&chosen, 0, align, 0); // asks the heuristic, which finds one that fits
  s = check_algo(&q.p, &chosen);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  q.parts = chosen.parts;
  q.workspace_bytes = workspace_of(&q.p, &chosen);
  if (q.workspace_bytes > workspace_bytes || (q.workspace_bytes && !workspace))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((uintptr_t)workspace % ALIGN) return CUBLAS_STATUS_INVALID_VALUE;
  const void *at[] = {a, b, c, d};
  for (int i = 0; algo && i < 4; i++)
    if ((uintptr_t)at[i] % chosen.align[i]) return CUBLAS_STATUS_INVALID_VALUE;
  bool sums =
      q.p.how.epilogue == CUBLASLT_EPILOGUE_BGRADA || q.p.how.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  if (q.p.how.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
    q.alpha = element(alpha, q.p.how.scale, 0);
    q.beta = element(beta, q.p.how.scale, 0);
    // Whether the sums are scaled too is not documented.
    if (sums && q.alpha != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  } else {
    if (sums) return CUBLAS_STATUS_NOT_SUPPORTED;
    q.alpha_at = alpha;
    q.beta_at = beta;
    need_memory("alpha", alpha, (size_t)size_of(q.p.how.scale));
    need_memory("beta", beta, (size_t)size_of(q.p.how.scale));
  }
  check_addresses(&q);
  Product *work = emulated_alloc(sizeof *work);
  *work = q;
  return emulated_enqueue(stream, &work->work, NULL) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
