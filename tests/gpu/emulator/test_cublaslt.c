// cuBLASLt: products in every layout and with every epilogue against an explicit sum over k, and
// refusals.

#include <cublasLt.h>

#include "emulator.h"
#include "test.h"

enum { MOST = 1 << 16 };
typedef union Matrix {
  float f[MOST];
  uint16_t h[MOST];
} Matrix;

typedef struct Case {
  int m, n, k, batch;
  cudaDataType_t in, out;
  bool trans_a, trans_b, row_a, row_d;
  cublasLtEpilogue_t epilogue;
  float beta;
  int algo; // index among the proposals
} Case;

static cublasLtHandle_t handle;
static Matrix *a, *b, *c, *d, *bias, *aux; // in GPU memory
static Matrix host_a, host_b, host_c, host_d, host_bias, host_aux;
static void *workspace;
enum { WORKSPACE = 1 << 20 };

static float bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static float at(const Matrix *m, cudaDataType_t type, int64_t i) {
  return type == CUDA_R_32F ? m->f[i] : bf16(m->h[i]);
}

// Numbers that bf16 represents exactly, so that only sums are rounded.
static void fill(Matrix *m, cudaDataType_t type, unsigned seed) {
  for (int i = 0; i < MOST / 4; i++) {
    seed = seed * 1664525u + 1013904223u;
    float x = (float)((int)(seed >> 24) - 128) / 64;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (type == CUDA_R_32F)
      m->f[i] = x;
    else
      m->h[i] = (uint16_t)(bits >> 16);
  }
}

static int ld_of(int lines) {
  return (lines + 7) / 8 * 8 + 8;
}

static int64_t index_of(bool row, int64_t i, int64_t j, int ld) {
  return row ? i * ld + j : i + j * ld;
}

static double gelu(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static cublasLtMatrixLayout_t layout(cudaDataType_t type, int rows, int columns, bool row, int ld,
                                     int batch, int64_t step) {
  cublasLtMatrixLayout_t l;
  int32_t order = CUBLASLT_ORDER_ROW;
  OK(cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, (uint64_t)columns, ld));
  if (row)
    OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
  OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
  OK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                      sizeof step));
  return l;
}

static void set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t what, const void *value,
                size_t bytes) {
  OK(cublasLtMatmulDescSetAttribute(how, what, value, bytes));
}

typedef struct Problem {
  cublasLtMatmulDesc_t how;
  cublasLtMatrixLayout_t a, b, d;
  int lda, ldb, ldd;
  int64_t a_step, b_step, d_step, aux_ld;
} Problem;

static Problem describe(const Case *t) {
  Problem p;
  int32_t op = CUBLAS_OP_T;
  uint32_t epilogue = t->epilogue;
  bool mask = t->epilogue & (CUBLASLT_EPILOGUE_RELU | 8);
  OK(cublasLtMatmulDescCreate(&p.how, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  if (t->trans_a) set(p.how, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op);
  if (t->trans_b) set(p.how, CUBLASLT_MATMUL_DESC_TRANSB, &op, sizeof op);
  set(p.how, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  set(p.how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  p.aux_ld = mask ? (t->m + 127) / 128 * 128 : ld_of(t->m);
  if (t->epilogue & 128) {
    set(p.how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
    set(p.how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p.aux_ld, sizeof p.aux_ld);
  }
  int rows_a = t->trans_a ? t->k : t->m, columns_a = t->trans_a ? t->m : t->k;
  int rows_b = t->trans_b ? t->n : t->k, columns_b = t->trans_b ? t->k : t->n;
  p.lda = ld_of(t->row_a ? columns_a : rows_a);
  p.ldb = ld_of(rows_b);
  p.ldd = ld_of(t->row_d ? t->n : t->m);
  p.a_step = (int64_t)p.lda * (t->row_a ? rows_a : columns_a);
  p.b_step = (int64_t)p.ldb * columns_b;
  p.d_step = (int64_t)p.ldd * (t->row_d ? t->m : t->n);
  p.a = layout(t->in, rows_a, columns_a, t->row_a, p.lda, t->batch, p.a_step);
  p.b = layout(t->in, rows_b, columns_b, false, p.ldb, t->batch, p.b_step);
  p.d = layout(t->out, t->m, t->n, t->row_d, p.ldd, t->batch, p.d_step);
  return p;
}

static void forget(Problem *p) {
  OK(cublasLtMatmulDescDestroy(p->how));
  OK(cublasLtMatrixLayoutDestroy(p->a));
  OK(cublasLtMatrixLayoutDestroy(p->b));
  OK(cublasLtMatrixLayoutDestroy(p->d));
}

static cublasStatus_t propose(const Problem *p, cublasLtMatmulHeuristicResult_t *out, int *n) {
  cublasLtMatmulPreference_t wish;
  uint64_t bytes = WORKSPACE;
  OK(cublasLtMatmulPreferenceCreate(&wish));
  OK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                          sizeof bytes));
  cublasStatus_t s =
      cublasLtMatmulAlgoGetHeuristic(handle, p->how, p->a, p->b, p->d, p->d, wish, 4, out, n);
  OK(cublasLtMatmulPreferenceDestroy(wish));
  return s;
}

static void near_to(double got, double wanted, cudaDataType_t type) {
  double tolerance = type == CUDA_R_32F ? 1e-5 : 1.0 / 128;
  if (fabs(got - wanted) <= tolerance * (1 + fabs(wanted))) return;
  fprintf(stderr, "%g, not %g\n", got, wanted);
  exit(1);
}

static double product_at(const Case *t, const Problem *p, int batch, int i, int j) {
  double sum = 0;
  for (int l = 0; l < t->k; l++) {
    int64_t x = index_of(t->row_a, t->trans_a ? l : i, t->trans_a ? i : l, p->lda);
    int64_t y = index_of(false, t->trans_b ? j : l, t->trans_b ? l : j, p->ldb);
    sum += (double)at(&host_a, t->in, batch * p->a_step + x) *
           (double)at(&host_b, t->in, batch * p->b_step + y);
  }
  return sum;
}

// The epilogue of the sum over k; `before`: the value before its last step.
static double finish(const Case *t, const Problem *p, double x, int i, int j, double *before) {
  int64_t mask_at = i + j * p->aux_ld;
  if (t->epilogue & CUBLASLT_EPILOGUE_BIAS) x += (double)at(&host_bias, t->out, i);
  *before = x;
  if (t->epilogue & CUBLASLT_EPILOGUE_RELU) return x > 0 ? x : 0;
  if (t->epilogue & CUBLASLT_EPILOGUE_GELU) return gelu(x);
  const uint8_t *mask = (const uint8_t *)host_aux.h;
  if ((t->epilogue & ~16u) == CUBLASLT_EPILOGUE_DRELU)
    return mask[mask_at / 8] >> mask_at % 8 & 1 ? x : 0;
  if ((t->epilogue & ~16u) == CUBLASLT_EPILOGUE_DGELU) {
    double u = (double)at(&host_aux, t->out, mask_at), h = 1e-4;
    return x * (gelu(u + h) - gelu(u - h)) / (2 * h);
  }
  return x;
}

static void fetch(Matrix *to, const Matrix *from) {
  OK(cudaMemcpy(to, from, sizeof *to, cudaMemcpyDeviceToHost));
}

static void check_sums(const Case *t, const Problem *p, const double *row_sum) {
  Matrix *got = &host_bias;
  fetch(got, bias);
  if (t->epilogue & 16)
    for (int i = 0; i < t->m; i++)
      near_to((double)at(got, t->out, i), row_sum[i], t->out);
  bool of_a = t->epilogue == CUBLASLT_EPILOGUE_BGRADA;
  if (!of_a && t->epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
  for (int i = 0; i < (of_a ? t->m : t->n); i++) {
    double sum = 0;
    for (int l = 0; l < t->k; l++)
      sum += of_a ? (double)at(&host_a, t->in,
                               index_of(t->row_a, t->trans_a ? l : i, t->trans_a ? i : l, p->lda))
                  : (double)at(&host_b, t->in,
                               index_of(false, t->trans_b ? i : l, t->trans_b ? l : i, p->ldb));
    near_to((double)at(got, t->out, i), sum, t->out);
  }
}

static void try_case(const Case *t) {
  Problem p = describe(t);
  fill(&host_a, t->in, 1);
  fill(&host_b, t->in, 2);
  fill(&host_c, t->out, 3);
  fill(&host_bias, t->out, 4);
  fill(&host_aux, t->out, 5);
  OK(cudaMemcpy(a, &host_a, sizeof *a, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(b, &host_b, sizeof *b, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(c, &host_c, sizeof *c, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(bias, &host_bias, sizeof *bias, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(aux, &host_aux, sizeof *aux, cudaMemcpyHostToDevice));
  OK(cudaMemset(d, 0xff, sizeof *d));
  cublasLtMatmulHeuristicResult_t way[4];
  int n;
  OK(propose(&p, way, &n));
  CHECK(n == 3);
  float alpha = t->epilogue & 0x300 ? 1 : 0.5f;
  OK(cublasLtMatmul(handle, p.how, &alpha, a, p.a, b, p.b, &t->beta, c, p.d, d, p.d,
                    &way[t->algo].algo, workspace, way[t->algo].workspaceSize, NULL));
  OK(cudaDeviceSynchronize());
  fetch(&host_d, d);
  Matrix *new_aux = malloc(sizeof *new_aux);
  CHECK(new_aux);
  fetch(new_aux, aux);
  double row_sum[256] = {0};
  bool writes_aux = t->epilogue & 128 && t->epilogue & (CUBLASLT_EPILOGUE_RELU | 32);
  for (int batch = 0; batch < t->batch; batch++)
    for (int i = 0; i < t->m; i++)
      for (int j = 0; j < t->n; j++) {
        int64_t where = batch * p.d_step + index_of(t->row_d, i, j, p.ldd);
        double x = (double)alpha * product_at(t, &p, batch, i, j), before;
        if (t->beta != 0) x += (double)t->beta * (double)at(&host_c, t->out, where);
        double wanted = finish(t, &p, x, i, j, &before);
        near_to((double)at(&host_d, t->out, where), wanted, t->out);
        row_sum[i] += wanted;
        int64_t mask = i + j * p.aux_ld;
        if (writes_aux && t->epilogue & CUBLASLT_EPILOGUE_RELU)
          CHECK((((const uint8_t *)new_aux->h)[mask / 8] >> mask % 8 & 1) == (before > 0));
        else if (writes_aux)
          near_to((double)at(new_aux, t->out, mask), before, t->out);
      }
  check_sums(t, &p, row_sum);
  free(new_aux);
  forget(&p);
}

// ---- Refusals

static const Case plain = {
    8, 16, 24, 1, CUDA_R_16BF, CUDA_R_16BF, 0, 0, 0, 0, CUBLASLT_EPILOGUE_DEFAULT, 0, 0};

static void refused(const Case *t, cublasStatus_t wanted) {
  Problem p = describe(t);
  cublasLtMatmulHeuristicResult_t way[4];
  int n;
  CHECK_IS(propose(&p, way, &n), wanted);
  CHECK(n == 0);
  forget(&p);
}

static void test_refusals(void) {
  Case t = plain;
  t.out = CUDA_R_16F; // bf16 in, f16 out
  refused(&t, CUBLAS_STATUS_NOT_SUPPORTED);
  t = plain;
  t.epilogue = CUBLASLT_EPILOGUE_BIAS;
  t.row_d = true;
  refused(&t, CUBLAS_STATUS_NOT_SUPPORTED);
  t = plain;
  t.epilogue = (cublasLtEpilogue_t)3;
  refused(&t, CUBLAS_STATUS_INVALID_VALUE);

  // Changes that make the descriptors of a good case invalid.
  struct {
    cublasLtMatmulDescAttributes_t what;
    int64_t value;
    size_t bytes;
    cublasLtEpilogue_t epilogue;
    cublasStatus_t status;
  } bad[] = {
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12, 8, CUBLASLT_EPILOGUE_GELU_AUX,
       CUBLAS_STATUS_INVALID_VALUE},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0, 8, CUBLASLT_EPILOGUE_DGELU,
       CUBLAS_STATUS_INVALID_VALUE},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 64, 8, CUBLASLT_EPILOGUE_RELU_AUX,
       CUBLAS_STATUS_INVALID_VALUE},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 0, 8, CUBLASLT_EPILOGUE_DGELU_BGRAD,
       CUBLAS_STATUS_INVALID_VALUE},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 8, 8, CUBLASLT_EPILOGUE_DGELU,
       CUBLAS_STATUS_NOT_SUPPORTED},
      {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, CUDA_R_32F, 4, CUBLASLT_EPILOGUE_GELU_AUX,
       CUBLAS_STATUS_INVALID_VALUE},
      {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 0, 8, CUBLASLT_EPILOGUE_BIAS,
       CUBLAS_STATUS_INVALID_VALUE},
      {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F, 4, CUBLASLT_EPILOGUE_BIAS,
       CUBLAS_STATUS_NOT_SUPPORTED},
      {CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUDA_R_16BF, 4, CUBLASLT_EPILOGUE_DEFAULT,
       CUBLAS_STATUS_NOT_SUPPORTED},
      {CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32, 4,
       CUBLASLT_EPILOGUE_DEFAULT, CUBLAS_STATUS_NOT_SUPPORTED},
      {CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_C, 4, CUBLASLT_EPILOGUE_DEFAULT,
       CUBLAS_STATUS_NOT_SUPPORTED},
  };
  cublasLtMatmulHeuristicResult_t way[4];
  int n;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    t = plain;
    t.epilogue = bad[i].epilogue;
    Problem p = describe(&t);
    OK(propose(&p, way, &n));
    set(p.how, bad[i].what, &bad[i].value, bad[i].bytes);
    CHECK_IS(propose(&p, way, &n), bad[i].status);
    forget(&p);
  }
  Problem p = describe(&plain);
  int32_t four = 4;
  CHECK_IS(cublasLtMatmulDescSetAttribute(p.how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &four,
                                          sizeof four),
           CUBLAS_STATUS_INVALID_VALUE);
  int64_t ld = 7; // 8 rows
  OK(cublasLtMatrixLayoutSetAttribute(p.a, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld));
  CHECK_IS(propose(&p, way, &n), CUBLAS_STATUS_INVALID_VALUE);
  forget(&p);
}

static cublasStatus_t multiply(const Problem *p, const void *to, const cublasLtMatmulAlgo_t *algo,
                               size_t bytes) {
  float one = 1, zero = 0;
  void *out = (void *)(uintptr_t)to;
  return cublasLtMatmul(handle, p->how, &one, a, p->a, b, p->b, &zero, out, p->d, out, p->d, algo,
                        workspace, bytes, NULL);
}

static void test_algorithms(void) {
  Problem p = describe(&plain), other;
  Case bigger = plain;
  bigger.n *= 2;
  other = describe(&bigger);
  cublasLtMatmulHeuristicResult_t way[4], checked;
  int n;
  OK(propose(&p, way, &n));
  CHECK(way[0].workspaceSize > 0);
  OK(cublasLtMatmulAlgoCheck(handle, p.how, p.a, p.b, p.d, p.d, &way[0].algo, &checked));
  CHECK(checked.workspaceSize == way[0].workspaceSize);
  CHECK_IS(cublasLtMatmulAlgoCheck(handle, other.how, other.a, other.b, other.d, other.d,
                                   &way[0].algo, &checked),
           CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK_IS(multiply(&p, d, &way[0].algo, way[0].workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_IS(multiply(&p, (char *)d + 8, &way[0].algo, WORKSPACE), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_IS(multiply(&other, d, &way[0].algo, WORKSPACE), CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatmulAlgo_t none;
  memset(&none, 0, sizeof none);
  CHECK_IS(multiply(&p, d, &none, WORKSPACE), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_IS(multiply(&p, NULL, &way[0].algo, WORKSPACE), CUBLAS_STATUS_INVALID_VALUE);
  forget(&p);
  forget(&other);
}

// An error that the real one does not detect.
static void into_host(void) {
  Problem p = describe(&plain);
  multiply(&p, &host_d, NULL, 0);
}
static void into_operand(void) {
  Problem p = describe(&plain);
  multiply(&p, b, NULL, 0);
}

int main(void) {
  OK(cublasLtCreate(&handle));
  Matrix **all[] = {&a, &b, &c, &d, &bias, &aux};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    OK(cudaMalloc((void **)all[i], sizeof(Matrix)));
  OK(cudaMalloc(&workspace, WORKSPACE));
  CHECK(cublasLtGetVersion() == CUBLAS_VERSION);
  for (int i = 0; i < 64; i++) {
    Case t = {9 + i % 7,
              5 + i % 11,
              30 + i,
              1 + i % 3,
              CUDA_R_32F,
              CUDA_R_32F,
              i & 1,
              i & 2,
              i & 4,
              i & 8,
              CUBLASLT_EPILOGUE_DEFAULT,
              i & 16 ? 0.25f : 0,
              i % 3};
    if (i & 32) t.in = t.out = CUDA_R_16BF;
    if (i % 5 == 0) t.in = CUDA_R_16BF, t.out = CUDA_R_32F;
    try_case(&t);
  }
  static const cublasLtEpilogue_t epilogues[] = {
      CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU,
      CUBLASLT_EPILOGUE_RELU_BIAS,     CUBLASLT_EPILOGUE_RELU_AUX,
      CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU,
      CUBLASLT_EPILOGUE_GELU_BIAS,     CUBLASLT_EPILOGUE_GELU_AUX,
      CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,
      CUBLASLT_EPILOGUE_DRELU_BGRAD,   CUBLASLT_EPILOGUE_DGELU,
      CUBLASLT_EPILOGUE_DGELU_BGRAD,   CUBLASLT_EPILOGUE_BGRADA,
      CUBLASLT_EPILOGUE_BGRADB,
  };
  for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
    for (int types = 0; types < 3; types++) {
      Case t = {16,
                24,
                40,
                1,
                types ? CUDA_R_16BF : CUDA_R_32F,
                types == 2 ? CUDA_R_16BF : CUDA_R_32F,
                i & 1,
                i & 2,
                false,
                false,
                epilogues[i],
                types ? 0 : 0.25f,
                types};
      try_case(&t);
    }
  test_refusals();
  test_algorithms();
  check_dies(into_host, "cublasLtMatmul: C, ");
  check_dies(into_operand, "cublasLtMatmul: D overlaps A or B");
  OK(cublasLtDestroy(handle));
}
