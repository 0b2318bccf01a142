// The emulated cuBLASLt: checks of a product's descriptors, and its algorithms.
//
// Descriptors are checked like those of the real one: types by the documentation's table, leading
// dimensions, batches, requirements of epilogues.  The heuristic proposes some algorithms, which
// differ in the number of parts of the sum over k (split-k), which needs workspace.

#include <string.h>

#include "cublaslt_internal.h"

enum { AUX_ALIGN = 16 };

// ---- Checks of descriptors

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

cublasStatus_t cublaslt_check(Problem *p, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
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

// ---- Algorithms

#define MAGIC UINT64_C(0x656d756c61746564)

size_t cublaslt_workspace_of(const Problem *p, const Algo *algo) {
  return algo->parts < 2 ? 0
                         : (size_t)(p->m * p->n * p->d.batch * algo->parts) *
                               (p->d.type == CUDA_R_64F ? sizeof(double) : sizeof(float));
}

void cublaslt_make_algo(Algo *out, int id, const uint32_t *align, uint32_t problem) {
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
  cublasStatus_t s = cublaslt_check(&p, how, a, b, c, d);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  const Preference *wish = (const Preference *)preference;
  const Layout *all[] = {&p.a, &p.b, &p.c, &p.d};
  for (int i = 0; i < 4; i++)
    if (wish->align[i] % (uint32_t)size_of(all[i]->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // The best one needs workspace, if it is available.
  static const int order[N_ALGOS] = {1, 0, 2};
  for (int i = 0; i < N_ALGOS && *out_n < most; i++) {
    Algo algo;
    cublaslt_make_algo(&algo, order[i], wish->align, p.hash);
    if (cublaslt_workspace_of(&p, &algo) > wish->workspace || p.k < algo.parts) continue;
    if (algo.reduction && !(algo.reduction & wish->reductions)) continue;
    cublasLtMatmulHeuristicResult_t *r = &out[(*out_n)++];
    memset(r, 0, sizeof *r);
    memcpy(&r->algo, &algo, sizeof algo);
    r->workspaceSize = cublaslt_workspace_of(&p, &algo);
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
  cublaslt_make_algo((Algo *)out, id, align, 0);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublaslt_check_algo(const Problem *p, const Algo *algo) {
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
  Algo copy; // `algo` may be that of the result
  memcpy(&copy, algo, sizeof copy);
  cublasStatus_t s = cublaslt_check(&p, how, a, b, c, d);
  if (s == CUBLAS_STATUS_SUCCESS) s = cublaslt_check_algo(&p, &copy);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  // As documented, only these are set.
  out->workspaceSize = cublaslt_workspace_of(&p, &copy);
  out->state = CUBLAS_STATUS_SUCCESS;
  out->wavesCount = 1;
  return s;
}
