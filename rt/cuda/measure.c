// Measures algorithms for a product.  See measure.h.

#include "measure.h"

#include <stdlib.h>
#include <string.h>

#include "tune.h"

enum { WARM = 2, REPEATS = 7 };

// Random operands in memory of their own.
typedef struct Trial {
  char *memory, *a, *b, *d, *bias, *aux, *workspace;
} Trial;

// The elements from the first of the first matrix to the last of the last.
static int64_t extent(int64_t batch, int64_t step, int64_t rows, int64_t columns, int64_t ld) {
  return (batch - 1) * step + (rows - 1) * ld + columns;
}

static int trial_new(Trial *t, const NnrtGemmSpec *s) {
  int64_t in = nnrt_dtype_size(s->in), out = nnrt_dtype_size(s->out), batch = s->batch;
  int64_t a = extent(batch, s->a_step, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->lda);
  int64_t b = extent(batch, s->b_step, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->ldb);
  int64_t d = extent(batch, s->d_step, s->m, s->n, s->ldd);
  int64_t bias = s->m > s->n ? s->m : s->n,
          aux = nnrt_epilogue_has_aux(s->epilogue) ? s->m * s->n : 0;
  // One allocation, with room for any operand that the epilogue may need.
  int64_t bytes = round_256(a * in) + round_256(b * in) + round_256(d * out) +
                  round_256(bias * out) + round_256(aux * out) + NNRT_GEMM_WORKSPACE;
  int code = nnrt_cuda(cudaMalloc((void **)&t->memory, (size_t)bytes), "memory to measure in");
  if (code) return code;
  // In the order of their sizes above.
  t->a = t->memory;
  t->b = t->a + round_256(a * in);
  t->d = t->b + round_256(b * in);
  t->bias = t->d + round_256(d * out);
  t->aux = t->bias + round_256(bias * out);
  t->workspace = t->aux + round_256(aux * out);
  code = nnrt_fill_random(s->in, t->a, a, 1);
  if (!code) code = nnrt_fill_random(s->in, t->b, b, 2);
  if (!code) code = nnrt_fill_random(s->out, t->d, d, 3);
  if (!code) code = nnrt_fill_random(s->out, t->bias, bias, 4);
  return code ? code : nnrt_fill_random(s->out, t->aux, aux, 5);
}

static int compare_us(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

// The median of some runs, after warm-up runs.
static int measure(NnrtGemm *g, const Trial *t, cudaEvent_t from, cudaEvent_t to, float *out_us) {
  float us[REPEATS];
  int code = NNRT_OK;
  // Each run is timed alone.
  for (int i = -WARM; !code && i < REPEATS; i++) {
    cudaStream_t stream = nnrt_gpu()->stream;
    code = nnrt_cuda(cudaEventRecord(from, stream), "measuring");
    if (!code) code = nnrt_gemm_run(g, t->d, t->a, t->b, t->bias, t->aux, t->workspace);
    if (!code) code = nnrt_cuda(cudaEventRecord(to, stream), "measuring");
    if (!code) code = nnrt_cuda(cudaEventSynchronize(to), "measuring");
    float ms = 0;
    if (!code) code = nnrt_cuda(cudaEventElapsedTime(&ms, from, to), "measuring");
    if (i >= 0) us[i] = ms * 1000;
  }
  if (code) return code;
  qsort(us, REPEATS, sizeof *us, compare_us);
  *out_us = us[REPEATS / 2];
  return NNRT_OK;
}

// Returns the fastest algorithm; *out_us is 0 if none could be measured.
static int find_fastest(NnrtGemm *g, const NnrtGemmSpec *s, const GemmAlgo *algo, int n,
                        float *out_us) {
  Trial t = {0};
  cudaEvent_t from = NULL, to = NULL;
  int fastest = 0, code = trial_new(&t, s);
  *out_us = 0;
  if (!code) code = nnrt_cuda(cudaEventCreate(&from), "measuring");
  if (!code) code = nnrt_cuda(cudaEventCreate(&to), "measuring");
  for (int i = 0; !code && i < n; i++) {
    float us;
    // An algorithm that fails is skipped.
    if (nnrt_gemm_take(g, algo + i) || measure(g, &t, from, to, &us)) continue;
    if (*out_us > 0 && us >= *out_us) continue;
    *out_us = us;
    fastest = i;
  }
  // The memory may be in use until the last run is complete.
  cudaStreamSynchronize(nnrt_gpu()->stream);
  if (from) cudaEventDestroy(from);
  if (to) cudaEventDestroy(to);
  cudaFree(t.memory);
  cudaGetLastError(); // a failure here does not end the job
  return fastest;
}

// Finds the file's choice for this product, if cuBLASLt still accepts it.
static bool find_tuned(NnrtGemm *g, const NnrtGemmSpec *s, const char *problem, GemmAlgo *out) {
  NnrtChoice c;
  if (!nnrt_tune_find(problem, &c)) return false;
  *out = (GemmAlgo){.inside = c.apart ? NNRT_EPILOGUE_none : s->epilogue};
  memcpy(&out->algo, c.algo, sizeof out->algo);
  return nnrt_gemm_accepts(g, out);
}

GemmAlgo nnrt_fastest_algo(NnrtGemm *g, const NnrtGemmSpec *s, const char *problem,
                           const GemmAlgo *algo, int n) {
  GemmAlgo chosen;
  _Static_assert(sizeof chosen.algo == NNRT_ALGO_BYTES, "what a tune file keeps");
  nnrt_tune_begin(cublasLtGetVersion(), nnrt_gpu()->sm, nnrt_gpu()->processors);
  // One rank of the process measures at a time; the others then find its choice.
  if (!find_tuned(g, s, problem, &chosen)) {
    float us;
    chosen = algo[find_fastest(g, s, algo, n, &us)];
    NnrtChoice c = {.us = us, .apart = chosen.inside != s->epilogue};
    memcpy(c.algo, &chosen.algo, sizeof c.algo);
    if (us > 0)
      nnrt_tune_keep(problem, &c);
    else
      nnrt_say_warning("--tune: a product could not be measured: %s: %s", problem,
                       nnrt_error_detail());
  }
  nnrt_tune_end();
  return chosen;
}
