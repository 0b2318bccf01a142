// Matrix products by cuBLASLt.  See products.h.

#include "products.h"

#include <cublasLt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "epilogue.h"
#include "measure.h"
#include "tune.h"

struct NnrtGemm {
  NnrtGemmSpec spec;
  NnrtEpilogue after; // the epilogue that own kernels run after the product
  bool nothing;       // planning, or an empty product: cuBLASLt is not used
  cublasLtMatmulDesc_t how;
  cublasLtMatrixLayout_t a, b, d; // for our matrices: cuBLASLt's "A" is b
  cublasLtMatmulAlgo_t algo;
  int64_t workspace;
};

static int blas(cublasStatus_t status, const char *what) {
  if (status == CUBLAS_STATUS_SUCCESS) return NNRT_OK;
  return nnrt_error(status == CUBLAS_STATUS_ALLOC_FAILED ? NNRT_MEMORY : NNRT_LIBRARY,
                    "cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

// The rank's handle, created on first use.
static cublasLtHandle_t handle(void) {
  NnrtGpu *gpu = nnrt_gpu();
  if (!gpu->blas && blas(cublasLtCreate(&gpu->blas), "creating a handle")) return NULL;
  return gpu->blas;
}

void nnrt_gpu_blas_free(NnrtGpu *gpu) {
  if (gpu->blas) cublasLtDestroy(gpu->blas);
  gpu->blas = NULL;
}

// -- TF32

static bool tf32_wanted;

void nnrt_gpu_tf32_set(bool on) {
  tf32_wanted = on;
}

bool nnrt_gpu_tf32(void) {
  const char *override = getenv("NVIDIA_TF32_OVERRIDE");
  return tf32_wanted && !(override && !strcmp(override, "0"));
}

// -- Describing a product

static cudaDataType_t type_of(NnrtDtype t) {
  return t == NNRT_f32 ? CUDA_R_32F : t == NNRT_bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

NnrtGemmSpec nnrt_gemm_packed(NnrtDtype in, NnrtDtype out, int64_t batch, int64_t m, int64_t n,
                              int64_t k, bool trans_a, bool trans_b) {
  // Rows without gaps, matrices of the batch one after the other.
  return (NnrtGemmSpec){
      .batch = batch,
      .m = m,
      .n = n,
      .k = k,
      .trans_a = trans_a,
      .trans_b = trans_b,
      .in = in,
      .out = out,
      .lda = trans_a ? m : k,
      .ldb = trans_b ? k : n,
      .ldd = n,
      .a_step = m * k,
      .b_step = k * n,
      .d_step = m * n,
      .alpha = 1,
      .align = 16,
  };
}

static const char *const epilogue_name[NNRT_N_EPILOGUES] = {
    "none", "bias", "gelu_bias", "gelu_back", "sum_a", "sum_b",
};

// The text that identifies a product in a tune file.
typedef struct Problem {
  char text[384];
} Problem;

static Problem problem_of(const NnrtGemmSpec *s) {
  Problem p;
  // Everything that the choice of an algorithm depends on.
  snprintf(p.text, sizeof p.text,
           "%s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s %s %" PRId64 " %" PRId64
           " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %g %g %s %d",
           s->in == NNRT_f32 && nnrt_gpu_tf32() ? "tf32" : nnrt_dtype_name(s->in),
           nnrt_dtype_name(s->out), s->batch, s->m, s->n, s->k, s->trans_a ? "t" : "n",
           s->trans_b ? "t" : "n", s->lda, s->ldb, s->ldd, s->a_step, s->b_step, s->d_step,
           (double)s->alpha, (double)s->beta, epilogue_name[s->epilogue], s->align);
  return p;
}

static int check_spec(const NnrtGemmSpec *s) {
  bool floats = s->in == NNRT_f32 || s->in == NNRT_bf16 || s->in == NNRT_f16;
  bool types = floats && (s->out == s->in || s->out == NNRT_f32);
  bool single = s->epilogue == NNRT_EPILOGUE_none || s->batch <= 1;
  bool gelu = s->epilogue == NNRT_EPILOGUE_gelu_bias || s->epilogue == NNRT_EPILOGUE_gelu_back;
  // Sums are over the stored rows, and are not accumulated; gelu has no accumulation and no
  // padding.
  bool sums = (s->epilogue != NNRT_EPILOGUE_sum_a || s->trans_a) &&
              (s->epilogue != NNRT_EPILOGUE_sum_b || !s->trans_b);
  bool plain = s->beta == 0 && s->ldd == s->n;
  if (types && single && sums && (!gelu || plain)) return NNRT_OK;
  return nnrt_error(NNRT_UNSUPPORTED, "there is no such product: %s", problem_of(s).text);
}

// The epilogues in cuBLASLt's terms, in which our b is A.  Its gelu is the tanh form.
static cublasLtEpilogue_t epilogue_of(NnrtEpilogue e) {
  switch (e) {
  case NNRT_EPILOGUE_bias: return CUBLASLT_EPILOGUE_BIAS;
  case NNRT_EPILOGUE_gelu_bias: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  case NNRT_EPILOGUE_gelu_back: return CUBLASLT_EPILOGUE_DGELU;
  case NNRT_EPILOGUE_sum_a: return CUBLASLT_EPILOGUE_BGRADB;
  case NNRT_EPILOGUE_sum_b: return CUBLASLT_EPILOGUE_BGRADA;
  case NNRT_EPILOGUE_none:
  case NNRT_N_EPILOGUES: break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

static bool has_bias(NnrtEpilogue e) {
  return e != NNRT_EPILOGUE_none && e != NNRT_EPILOGUE_gelu_back;
}

static cublasStatus_t set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t what,
                          const void *value, size_t bytes) {
  return cublasLtMatmulDescSetAttribute(how, what, value, bytes);
}

static cublasStatus_t set_pointers(NnrtGemm *g, NnrtEpilogue e, void *bias, void *aux) {
  cublasStatus_t ok = CUBLAS_STATUS_SUCCESS;
  // The operands of an epilogue are part of the description.
  if (has_bias(e)) ok = set(g->how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  if (ok == CUBLAS_STATUS_SUCCESS && nnrt_epilogue_has_aux(e))
    ok = set(g->how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
  return ok;
}

static int new_layout(cublasLtMatrixLayout_t *out, NnrtDtype t, int64_t rows, int64_t columns,
                      int64_t ld, int64_t batch, int64_t step) {
  // Rows and columns of the row-major matrix; cuBLASLt exchanges them.
  cublasStatus_t ok =
      cublasLtMatrixLayoutCreate(out, type_of(t), (uint64_t)columns, (uint64_t)rows, ld);
  if (ok == CUBLAS_STATUS_SUCCESS && batch > 1) {
    // A batch of matrices, `step` elements apart.
    int32_t count = (int32_t)batch;
    ok = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                          sizeof count);
    if (ok == CUBLAS_STATUS_SUCCESS)
      ok = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &step, sizeof step);
  }
  return blas(ok, "describing a matrix");
}

static int describe(NnrtGemm *g) {
  const NnrtGemmSpec *s = &g->spec;
  int64_t batch = s->batch;
  cublasComputeType_t compute =
      s->in == NNRT_f32 && nnrt_gpu_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  int code = blas(cublasLtMatmulDescCreate(&g->how, compute, CUDA_R_32F), "describing a product");
  if (code) return code;
  // cuBLASLt's A is our b.
  int32_t a = s->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, b = s->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasStatus_t ok = set(g->how, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a);
  if (ok == CUBLAS_STATUS_SUCCESS) ok = set(g->how, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b);
  if ((code = blas(ok, "describing a product"))) return code;
  // Layouts are of the matrices as stored.
  if ((code = new_layout(&g->a, s->in, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->lda,
                         batch, s->a_step)))
    return code;
  if ((code = new_layout(&g->b, s->in, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->ldb,
                         batch, s->b_step)))
    return code;
  return new_layout(&g->d, s->out, s->m, s->n, s->ldd, batch, s->d_step);
}

static int describe_epilogue(NnrtGemm *g, NnrtEpilogue e) {
  uint32_t value = epilogue_of(e);
  int32_t type = type_of(g->spec.out);
  int64_t ld = g->spec.n;
  cublasStatus_t ok = set(g->how, CUBLASLT_MATMUL_DESC_EPILOGUE, &value, sizeof value);
  if (ok == CUBLAS_STATUS_SUCCESS && has_bias(e))
    ok = set(g->how, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  if (ok == CUBLAS_STATUS_SUCCESS && nnrt_epilogue_has_aux(e))
    ok = set(g->how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
  // The heuristics do not read the data, but check the alignment of the addresses.
  void *aligned = (void *)(uintptr_t)g->spec.align;
  if (ok == CUBLAS_STATUS_SUCCESS) ok = set_pointers(g, e, aligned, aligned);
  return blas(ok, "describing what is done to a product");
}

// -- Choosing an algorithm

enum { PROPOSALS = 16 };

// Appends cuBLASLt's proposals, best first; none if it does not support the product.
static int propose(NnrtGemm *g, NnrtEpilogue inside, int most, GemmAlgo *algo, int *n_algos) {
  cublasLtHandle_t blas_handle = handle();
  cublasLtMatmulPreference_t wish = NULL;
  cublasLtMatmulHeuristicResult_t proposal[PROPOSALS];
  if (!blas_handle) return NNRT_LIBRARY;
  int code = describe_epilogue(g, inside);
  if (!code) code = blas(cublasLtMatmulPreferenceCreate(&wish), "describing a wish");
  if (code) return code;
  uint64_t workspace = NNRT_GEMM_WORKSPACE;
  // With split-k, the parts of a sum are kept in f32 and added by a separate kernel: neither the
  // order nor the rounding depends on which part is complete first.
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, align = (uint32_t)g->spec.align;
  // Elements are aligned to their size in any case.
  uint32_t element = g->spec.out == NNRT_f32 ? 4 : 2, align_d = align > element ? align : element;
  struct {
    cublasLtMatmulPreferenceAttributes_t what;
    const void *value;
    size_t bytes;
  } wishes[] = {
      {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_d, sizeof align_d},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_d, sizeof align_d},
  };
  for (size_t i = 0; !code && i < sizeof wishes / sizeof *wishes; i++)
    code = blas(cublasLtMatmulPreferenceSetAttribute(wish, wishes[i].what, wishes[i].value,
                                                     wishes[i].bytes),
                "describing a wish");
  if (!code) {
    // A product that cuBLASLt does not support has no proposals; that is no error.
    int n = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(blas_handle, g->how, g->b, g->a, g->d,
                                                           g->d, wish, most, proposal, &n);
    bool cannot = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    if (!cannot) code = blas(status, "asking how to do a product");
    for (int i = 0; !cannot && i < n; i++)
      if (proposal[i].state == CUBLAS_STATUS_SUCCESS)
        algo[(*n_algos)++] =
            (GemmAlgo){proposal[i].algo, (int64_t)proposal[i].workspaceSize, inside};
  }
  cublasLtMatmulPreferenceDestroy(wish);
  return code;
}

// Runs the epilogue that cuBLASLt has not fused.
static int finish(const NnrtGemm *g, void *d, const void *a, const void *b, void *bias, void *aux,
                  void *scratch) {
  const NnrtGemmSpec *s = &g->spec;
  switch (g->after) {
  case NNRT_EPILOGUE_bias: return nnrt_add_bias(s->out, d, s->ldd, bias, s->m, s->n);
  case NNRT_EPILOGUE_gelu_bias: return nnrt_add_bias_gelu(s->out, d, s->ldd, aux, bias, s->m, s->n);
  case NNRT_EPILOGUE_gelu_back: return nnrt_mul_gelu_back(s->out, d, s->ldd, aux, s->m, s->n);
  // Sums are of the stored rows, which the spec promises.
  case NNRT_EPILOGUE_sum_a:
    return nnrt_column_sums(s->out, bias, s->in, a, s->lda, s->k, s->m, scratch);
  case NNRT_EPILOGUE_sum_b:
    return nnrt_column_sums(s->out, bias, s->in, b, s->ldb, s->k, s->n, scratch);
  case NNRT_EPILOGUE_none:
  case NNRT_N_EPILOGUES: break;
  }
  return NNRT_OK;
}

int nnrt_gemm_take(NnrtGemm *g, const GemmAlgo *algo) {
  g->algo = algo->algo;
  g->workspace = algo->workspace;
  g->after = algo->inside == g->spec.epilogue ? NNRT_EPILOGUE_none : g->spec.epilogue;
  return describe_epilogue(g, algo->inside);
}

bool nnrt_gemm_accepts(NnrtGemm *g, GemmAlgo *algo) {
  cublasLtMatmulHeuristicResult_t result;
  if (describe_epilogue(g, algo->inside) ||
      cublasLtMatmulAlgoCheck(handle(), g->how, g->b, g->a, g->d, g->d, &algo->algo, &result) !=
          CUBLAS_STATUS_SUCCESS)
    return false;
  algo->workspace = (int64_t)result.workspaceSize;
  return algo->workspace <= NNRT_GEMM_WORKSPACE;
}

static int choose(NnrtGemm *g) {
  const NnrtGemmSpec *s = &g->spec;
  GemmAlgo algo[2 * PROPOSALS];
  int n = 0, code = NNRT_OK, most = nnrt_tune_on() ? PROPOSALS : 1;
  // Rows of aux must begin at multiples of 8 elements.
  bool fits = !nnrt_epilogue_has_aux(s->epilogue) || s->n % 8 == 0;
  if (s->epilogue != NNRT_EPILOGUE_none && fits) code = propose(g, s->epilogue, most, algo, &n);
  // Without a fused epilogue, if there is no other way, or to measure which is faster.
  if (!code && (n == 0 || nnrt_tune_on())) code = propose(g, NNRT_EPILOGUE_none, most, algo, &n);
  if (code) return code;
  if (n == 0)
    return nnrt_error(NNRT_UNSUPPORTED, "cuBLASLt knows no way to do the product %s",
                      problem_of(s).text);
  GemmAlgo chosen = nnrt_tune_on() ? nnrt_fastest_algo(g, s, problem_of(s).text, algo, n) : algo[0];
  return nnrt_gemm_take(g, &chosen);
}

// -- Lifetime of a product

static int prepare(NnrtGemm *g) {
  const NnrtGemmSpec *s = &g->spec;
  int code = check_spec(s);
  if (code) return code;
  g->after = s->epilogue;
  // Planning for another GPU, or an empty product, needs no algorithm.
  g->nothing = nnrt_gpu()->planning || s->batch * s->m * s->n * s->k == 0;
  if (g->nothing) return NNRT_OK;
  code = describe(g);
  if (!code) code = choose(g);
  if (code) return code;
  // Scratch must have its size before a step is captured.
  int64_t scratch = nnrt_gemm_scratch(g);
  return scratch == 0 || nnrt_gpu_scratch(scratch) ? NNRT_OK : NNRT_MEMORY;
}

NnrtGemm *nnrt_gemm_new(const NnrtGemmSpec *s) {
  NnrtGemm *g = nnrt_must_alloc(sizeof *g);
  g->spec = *s;
  if (!prepare(g)) return g;
  nnrt_gemm_free(g);
  return NULL;
}

void nnrt_gemm_free(NnrtGemm *g) {
  if (!g) return;
  if (g->how) cublasLtMatmulDescDestroy(g->how);
  if (g->a) cublasLtMatrixLayoutDestroy(g->a);
  if (g->b) cublasLtMatrixLayoutDestroy(g->b);
  if (g->d) cublasLtMatrixLayoutDestroy(g->d);
  free(g);
}

int64_t nnrt_gemm_scratch(const NnrtGemm *g) {
  const NnrtGemmSpec *s = &g->spec;
  // A separate sum of columns needs room for its parts.
  int64_t sums = 0;
  if (g->after == NNRT_EPILOGUE_sum_a) sums = nnrt_column_sums_scratch(s->k, s->m);
  if (g->after == NNRT_EPILOGUE_sum_b) sums = nnrt_column_sums_scratch(s->k, s->n);
  return sums > g->workspace ? sums : g->workspace;
}

int nnrt_gemm_run(NnrtGemm *g, void *d, const void *a, const void *b, void *bias, void *aux,
                  void *scratch) {
  const NnrtGemmSpec *s = &g->spec;
  int64_t need = nnrt_gemm_scratch(g), size = nnrt_dtype_size(s->out);
  if (!scratch && need > 0 && !(scratch = nnrt_gpu_scratch(need))) return NNRT_MEMORY;
  uintptr_t addresses = (uintptr_t)d | (uintptr_t)a | (uintptr_t)b | (uintptr_t)bias;
  if ((addresses | (uintptr_t)aux) % (uintptr_t)s->align)
    return nnrt_error(NNRT_LIBRARY, "an operand of a product is not at a multiple of %d bytes",
                      s->align);
  // A separate gelu reads the plain product from aux.
  NnrtEpilogue inside = g->after == NNRT_EPILOGUE_none ? s->epilogue : NNRT_EPILOGUE_none;
  void *to = g->after == NNRT_EPILOGUE_gelu_bias ? aux : d;
  int code = NNRT_OK;
  if (!g->nothing) {
    code = blas(set_pointers(g, inside, bias, aux), "setting pointers");
    if (code) return code;
    cublasLtHandle_t blas_handle = handle();
    if (!blas_handle) return NNRT_LIBRARY;
    code =
        blas(cublasLtMatmul(blas_handle, g->how, &s->alpha, b, g->b, a, g->a, &s->beta, to, g->d,
                            to, g->d, &g->algo, scratch, (size_t)g->workspace, nnrt_gpu()->stream),
             "multiplying");
  } else if (s->beta == 0) {
    // An empty sum is 0; rows may have gaps between them.
    for (int64_t i = 0; i < s->batch; i++)
      for (int64_t row = 0; !code && row < s->m; row++)
        code = nnrt_zero((char *)to + (i * s->d_step + row * s->ldd) * size, s->n * size);
  }
  return code ? code : finish(g, d, a, b, bias, aux, scratch);
}
