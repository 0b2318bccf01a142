// The emulated cuBLASLt: runs products, by plain loops.
//
// Addresses are checked before: the whole matrix is in GPU memory, with the alignment that the
// heuristic was given, and D overlaps no forbidden operand.  Workspace is overwritten with NaN,
// since its contents are undefined afterwards.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cublaslt_internal.h"
#include "emulator.h"

// ---- Elements

__extension__ typedef _Float16 Half;

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

// ---- Products

typedef struct Product {
  EmulatedWork work;
  Problem p;
  int parts;
  double alpha, beta;
  const void *alpha_at, *beta_at; // in GPU memory, in that pointer mode
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

// op(matrix) as (rows, k) of float, contiguous along k.
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

// out (m, n) by rows = a (m, k) b (n, k)', from k0 to k1.  Sums have several lanes, as on a GPU.
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

// One matrix of the batch: (m, n) by rows, in double only because f64 then fits, too.
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

// ---- Addresses

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

// Checks for undefined behaviour of the real one.
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

// ---- The call

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
  cublasStatus_t s = cublaslt_check(&q.p, how, a_layout, b_layout, c_layout, d_layout);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  static const uint32_t align[] = {ALIGN, ALIGN, ALIGN, ALIGN};
  Algo chosen;
  if (algo)
    memcpy(&chosen, algo, sizeof chosen);
  else
    cublaslt_make_algo(&chosen, 0, align, 0); // uses the heuristic's algorithm that fits
  s = cublaslt_check_algo(&q.p, &chosen);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  q.parts = chosen.parts;
  q.workspace_bytes = cublaslt_workspace_of(&q.p, &chosen);
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
    // The documentation does not tell whether the sums are scaled, too.
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
