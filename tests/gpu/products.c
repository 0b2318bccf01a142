// Products on a GPU against sums in double: layouts, epilogues, separate epilogue kernels, chunks
// of classifiers, and tune files.  kernels.c compares each row with its reference; this file tests
// the products below the rows and beside them.  Compiled with a CHUNK_BYTES so small that
// classifiers have several chunks.

#include <unistd.h>

#include "check.h"
#include "cuda/products.h"
#include "cuda/tune.h"

static const NnrtDtype types[] = {NNRT_f32, NNRT_bf16, NNRT_f16};

// op(A) op(B) of one matrix of the batch, in double; c is its D.
static void multiply(const NnrtGemmSpec *s, const void *a, const void *b, int64_t batch,
                     double *d) {
  for (int64_t i = 0; i < s->m; i++)
    for (int64_t j = 0; j < s->n; j++) {
      double sum = 0;
      for (int64_t l = 0; l < s->k; l++) {
        int64_t a_at = s->trans_a ? l * s->lda + i : i * s->lda + l;
        int64_t b_at = s->trans_b ? j * s->ldb + l : l * s->ldb + j;
        sum += element(a, s->in, batch * s->a_step + a_at) *
               element(b, s->in, batch * s->b_step + b_at);
      }
      d[i * s->n + j] = (double)s->alpha * sum;
    }
}

static double gelu(double x) {
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) {
  double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

// Elements of a stored operand of a batch, including the gaps between rows and matrices.
static int64_t stored(int64_t batch, int64_t step, int64_t rows, int64_t ld) {
  return (batch - 1) * step + rows * ld;
}

// Runs s and compares all that it writes with the definition.
static void check_spec(const char *what, NnrtGemmSpec s) {
  int64_t in = size_of(s.in), out = size_of(s.out), mn = s.m * s.n;
  int64_t na = stored(s.batch, s.a_step, s.trans_a ? s.k : s.m, s.lda);
  int64_t nb = stored(s.batch, s.b_step, s.trans_b ? s.n : s.k, s.ldb);
  int64_t nd = stored(s.batch, s.d_step, s.m, s.ldd), n_bias = s.m > s.n ? s.m : s.n;
  bool sums = s.epilogue == NNRT_EPILOGUE_sum_a || s.epilogue == NNRT_EPILOGUE_sum_b;
  bool back = s.epilogue == NNRT_EPILOGUE_gelu_back;
  char *a = numbers(s.in, na, 1), *b = numbers(s.in, nb, 2), *c = numbers(s.out, nd, 3);
  char *bias = numbers(s.out, n_bias, 4), *aux = numbers(s.out, mn, 5);
  char *ga = gpu_put(a, na * in), *gb = gpu_put(b, nb * in);
  char *gd = s.beta == 0 ? gpu_new(nd * out) : gpu_put(c, nd * out);
  char *gbias = sums ? gpu_new(n_bias * out) : gpu_put(bias, n_bias * out);
  char *gaux = back ? gpu_put(aux, mn * out) : gpu_new(mn * out);
  NnrtGemm *g = nnrt_gemm_new(&s);
  CHECK(g, "%s: %s", what, "no product");
  if (!g) return;
  CHECK(!nnrt_gemm_run(g, gd, ga, gb, gbias, gaux, NULL), "%s: does not run", what);
  char *d = gpu_get(gd, nd * out);
  double *want = malloc((size_t)(mn + 1) * sizeof *want);
  double *pre = malloc((size_t)(mn + 1) * sizeof *pre);
  for (int64_t batch = 0; batch < s.batch; batch++) {
    multiply(&s, a, b, batch, want);
    char *got = malloc((size_t)((mn + 1) * out));
    for (int64_t i = 0; i < mn; i++) {
      int64_t at = batch * s.d_step + i / s.n * s.ldd + i % s.n;
      if (s.beta != 0) want[i] += element(c, s.out, at);
      memcpy(got + i * out, d + at * out, (size_t)out);
      if (s.epilogue == NNRT_EPILOGUE_bias || s.epilogue == NNRT_EPILOGUE_gelu_bias)
        want[i] += element(bias, s.out, i % s.n);
      pre[i] = want[i];
      if (s.epilogue == NNRT_EPILOGUE_gelu_bias) want[i] = gelu(want[i]);
      if (back) want[i] *= gelu_slope(element(aux, s.out, i));
    }
    double off = distance(got, s.out, want, mn);
    CHECK(off <= tolerance(s.out), "%s, %s to %s: off by %g", what, name_of(s.in), name_of(s.out),
          off);
    free(got);
  }
  if (s.epilogue == NNRT_EPILOGUE_gelu_bias)
    check_near("aux", gaux, s.out, pre, mn, tolerance(s.out));
  if (sums) {
    bool of_a = s.epilogue == NNRT_EPILOGUE_sum_a;
    int64_t n = of_a ? s.m : s.n, ld = of_a ? s.lda : s.ldb;
    double *sum = calloc((size_t)n, sizeof *sum);
    for (int64_t i = 0; i < s.k * n; i++)
      sum[i % n] += element(of_a ? a : b, s.in, i / n * ld + i % n);
    check_near("sums", gbias, s.out, sum, n, tolerance(s.out));
    free(sum);
  }
  nnrt_gemm_free(g);
  free(a), free(b), free(c), free(d), free(bias), free(aux), free(want), free(pre);
  gpu_free(ga), gpu_free(gb), gpu_free(gd), gpu_free(gbias), gpu_free(gaux);
}

static void layouts(void) {
  for (int t = 0; t < 3; t++)
    for (int wide = 0; wide < 2; wide++)
      for (int trans = 0; trans < 4; trans++) {
        NnrtDtype out = wide ? NNRT_f32 : types[t];
        NnrtGemmSpec s = nnrt_gemm_packed(types[t], out, 3, 16, 24, 40, trans & 1, trans & 2);
        check_spec("a batch", s);
        s = nnrt_gemm_packed(types[t], out, 1, 7, 5, 13, trans & 1, trans & 2);
        check_spec("odd sizes", s);
        s.beta = 1;
        s.alpha = 0.5f;
        check_spec("added to what is there", s);
        // As parts of larger matrices; all with the same B.
        s = nnrt_gemm_packed(types[t], out, 2, 16, 24, 32, trans & 1, trans & 2);
        s.lda += 8;
        s.ldb += 16;
        s.ldd += 24;
        s.a_step = 1024;
        s.b_step = 0;
        s.d_step = 1024;
        check_spec("apart", s);
      }
  check_spec("nothing to add up", nnrt_gemm_packed(NNRT_f32, NNRT_f32, 2, 5, 6, 0, false, false));
  check_spec("no rows", nnrt_gemm_packed(NNRT_f32, NNRT_f32, 1, 0, 6, 4, false, false));
}

static void all_epilogues(NnrtDtype t) {
  for (int64_t n = 40; n <= 43; n += 3)
    for (int e = NNRT_EPILOGUE_bias; e < NNRT_N_EPILOGUES; e++)
      for (int64_t k = 64; k >= 0; k -= 64) {
        bool a = e == NNRT_EPILOGUE_sum_a, b = e == NNRT_EPILOGUE_sum_b;
        NnrtGemmSpec s = nnrt_gemm_packed(t, a || b ? NNRT_f32 : t, 1, 24, n, k, a, !b);
        s.epilogue = (NnrtEpilogue)e;
        check_spec("an epilogue", s);
      }
}

static void epilogues(void) {
  for (int t = 0; t < 3; t++)
    all_epilogues(types[t]);
  // Sums of many rows, in parts
  NnrtGemmSpec s = nnrt_gemm_packed(NNRT_bf16, NNRT_f32, 1, 3, 43, 3000, true, false);
  s.epilogue = NNRT_EPILOGUE_sum_b;
  check_spec("a long sum", s);
  s = nnrt_gemm_packed(NNRT_bf16, NNRT_f32, 1, 43, 3, 3000, true, false);
  s.epilogue = NNRT_EPILOGUE_sum_a;
  check_spec("a long sum", s);
}

static void impossible(void) {
  NnrtGemmSpec s = nnrt_gemm_packed(NNRT_f64, NNRT_f64, 1, 2, 2, 2, false, false);
  CHECK(!nnrt_gemm_new(&s), "there are no products of f64");
  s = nnrt_gemm_packed(NNRT_f32, NNRT_f32, 2, 8, 8, 8, false, false);
  s.epilogue = NNRT_EPILOGUE_bias;
  CHECK(!nnrt_gemm_new(&s), "an epilogue is of one matrix");
  s = nnrt_gemm_packed(NNRT_f32, NNRT_f32, 1, 8, 8, 8, false, false);
  s.epilogue = NNRT_EPILOGUE_sum_a;
  CHECK(!nnrt_gemm_new(&s), "sums are over stored rows");
  s = nnrt_gemm_packed(NNRT_f32, NNRT_f32, 1, 8, 8, 8, false, false);
  NnrtGemm *g = nnrt_gemm_new(&s);
  float *x = gpu_new(65 * sizeof *x);
  CHECK(g && nnrt_gemm_run(g, x + 1, x, x, NULL, NULL, NULL) == NNRT_LIBRARY,
        "operands must lie where the product was told they do");
  nnrt_gemm_free(g);
  gpu_free(x);
}

// -- Rows

#define BY_TYPE(t, name, ...)                                                                      \
  ((t) == NNRT_f32    ? nnrt_##name##_f32(__VA_ARGS__)                                             \
   : (t) == NNRT_bf16 ? nnrt_##name##_bf16(__VA_ARGS__)                                            \
                      : nnrt_##name##_f16(__VA_ARGS__))

// dw += x' dy, or its transpose, and db = the sum of the rows of dy.
static void define_gradients(double *dw, double *db, const char *x, const char *dy, NnrtDtype t,
                             int64_t m, int64_t k, int64_t n, bool trans) {
  memset(db, 0, (size_t)n * sizeof *db);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double d = element(dy, t, i * n + j);
      db[j] += d;
      for (int64_t l = 0; l < k; l++)
        dw[trans ? j * k + l : l * n + j] += element(x, t, i * k + l) * d;
    }
}

// dw in both layouts, with db; the same bits twice.
static void weight_gradients(void) {
  int64_t m = 70, k = 24, n = 16;
  for (int t = 0; t < 3; t++)
    for (int trans = 0; trans < 2; trans++) {
      int64_t size = size_of(types[t]);
      char *x = numbers(types[t], m * k, 1), *dy = numbers(types[t], m * n, 2);
      void *gx = gpu_put(x, m * k * size), *gdy = gpu_put(dy, m * n * size);
      float *gdw = gpu_new(k * n * 4), *gdb = gpu_new(n * 4), *again = gpu_new(k * n * 4);
      NnrtPrep *p = BY_TYPE(types[t], linear_back_w_bias_prep, m, k, n, trans);
      NnrtPrep *q = BY_TYPE(types[t], linear_back_w_prep, m, k, n, trans);
      CHECK(p && q, "preparing");
      CHECK(!BY_TYPE(types[t], linear_back_w_bias, p, gdw, gdb, gx, gdy), "running");
      CHECK(!BY_TYPE(types[t], linear_back_w, q, again, gx, gdy), "running");
      double *dw = calloc((size_t)(k * n), sizeof *dw), *db = calloc((size_t)n, sizeof *db);
      define_gradients(dw, db, x, dy, types[t], m, k, n, trans);
      check_near("dw", gdw, NNRT_f32, dw, k * n, 1e-5);
      check_near("dw alone", again, NNRT_f32, dw, k * n, 1e-5);
      check_near("db", gdb, NNRT_f32, db, n, 1e-5);
      nnrt_prep_free(p), nnrt_prep_free(q);
      free(x), free(dy), free(dw), free(db);
      gpu_free(gx), gpu_free(gdy), gpu_free(gdw), gpu_free(gdb), gpu_free(again);
    }
}

enum { AROUND = 64 }; // floats before and after dw that must not change

// Micro-batches, one after the other, accumulate into dw, which is zero before; db is of the last
// one.
static void added_up_case(NnrtDtype t, int64_t m, int64_t k, int64_t n, bool trans) {
  int64_t size = size_of(t), all = k * n + 2 * AROUND;
  float *memory = gpu_new(all * 4), *other = gpu_new(all * 4), *gdb = gpu_new(n * 4);
  float *gdw = memory + AROUND, *alone = other + AROUND;
  MUST_CUDA(cudaMemset(gdw, 0, (size_t)(k * n * 4)));
  MUST_CUDA(cudaMemset(alone, 0, (size_t)(k * n * 4)));
  NnrtPrep *p = BY_TYPE(t, linear_back_w_bias_accumulate_prep, m, k, n, trans);
  NnrtPrep *q = BY_TYPE(t, linear_back_w_accumulate_prep, m, k, n, trans);
  CHECK(p && q, "preparing");
  double *dw = calloc((size_t)(k * n), sizeof *dw), *db = calloc((size_t)n, sizeof *db);
  for (int micro = 0; micro < 3; micro++) {
    char *x = numbers(t, m * k, 2 * micro + 1), *dy = numbers(t, m * n, 2 * micro + 2);
    void *gx = gpu_put(x, m * k * size), *gdy = gpu_put(dy, m * n * size);
    CHECK(!BY_TYPE(t, linear_back_w_bias_accumulate, p, gdw, gdb, gx, gdy), "running");
    CHECK(!BY_TYPE(t, linear_back_w_accumulate, q, alone, gx, gdy), "running");
    define_gradients(dw, db, x, dy, t, m, k, n, trans);
    check_near("the sum of dw", gdw, NNRT_f32, dw, k * n, 1e-5);
    check_near("the sum of dw alone", alone, NNRT_f32, dw, k * n, 1e-5);
    check_near("db of a micro-batch", gdb, NNRT_f32, db, n, 1e-5);
    free(x), free(dy);
    gpu_free(gx), gpu_free(gdy);
  }
  for (int i = 0; i < 2; i++) {
    uint32_t *bits = gpu_get(i ? other : memory, all * 4);
    bool kept = true;
    for (int64_t j = 0; j < AROUND; j++)
      kept &= bits[j] == UINT32_MAX && bits[all - 1 - j] == UINT32_MAX;
    CHECK(kept, "it writes beside dw");
    free(bits);
  }
  nnrt_prep_free(p), nnrt_prep_free(q);
  free(dw), free(db);
  gpu_free(memory), gpu_free(other), gpu_free(gdb);
}

static void added_up(void) {
  for (int t = 0; t < 3; t++)
    for (int trans = 0; trans < 2; trans++) {
      added_up_case(types[t], 70, 24, 16, trans);
      added_up_case(types[t], 9, 7, 5, trans);
    }
  added_up_case(NNRT_f32, 0, 7, 5, false); // nothing is accumulated
}

static void classifier_case(NnrtDtype t, int64_t m, int64_t n, bool trans, int64_t width) {
  int64_t k = 16, size = size_of(t), ignore = -100;
  char *x = numbers(t, m * k, 1), *w = numbers(t, k * n, 2);
  char *dloss = numbers(NNRT_f32, m, 3), *labels = malloc((size_t)(m * 8 + 8));
  for (int64_t i = 0; i < m; i++) {
    int64_t label = i % 7 == 3 ? ignore : (int64_t)(nnrt_random_mix((uint64_t)i) % (uint64_t)n);
    int32_t narrow = (int32_t)label;
    memcpy(labels + i * width, width == 8 ? (void *)&label : (void *)&narrow, (size_t)width);
  }
  void *gx = gpu_put(x, m * k * size), *gw = gpu_put(w, k * n * size);
  void *glabels = gpu_put(labels, m * width), *gdloss = gpu_put(dloss, m * 4);
  void *gdx = gpu_new(m * k * size);
  float *gloss = gpu_new(m * 4), *galone = gpu_new(m * 4), *gdw = gpu_new(k * n * 4);
  NnrtPrep *p = BY_TYPE(t, classifier_back_prep, m, k, n, trans, width, ignore);
  NnrtPrep *q = BY_TYPE(t, classifier_prep, m, k, n, trans, width, ignore);
  CHECK(p && q, "preparing");
  for (int i = 0; i < 2; i++) // the second run overwrites the result of the first
    CHECK(!BY_TYPE(t, classifier_back, p, gloss, gdx, gdw, gx, gw, glabels, gdloss), "running");
  CHECK(!BY_TYPE(t, classifier, q, galone, gx, gw, glabels), "running");
  double *loss = calloc((size_t)m, 8), *dx = calloc((size_t)(m * k), 8);
  double *dw = calloc((size_t)(k * n), 8), *z = calloc((size_t)n, 8);
  for (int64_t i = 0; i < m; i++) {
    int64_t label = width == 8 ? ((int64_t *)labels)[i] : ((int32_t *)labels)[i];
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
      z[j] = 0;
      for (int64_t l = 0; l < k; l++)
        z[j] += element(x, t, i * k + l) * element(w, t, trans ? j * k + l : l * n + j);
      sum += exp(z[j]);
    }
    if (label == ignore) continue;
    loss[i] = log(sum) - z[label];
    for (int64_t j = 0; j < n; j++) {
      double d = (exp(z[j]) / sum - (j == label)) * element(dloss, NNRT_f32, i);
      for (int64_t l = 0; l < k; l++) {
        int64_t at = trans ? j * k + l : l * n + j;
        dx[i * k + l] += d * element(w, t, at);
        dw[at] += d * element(x, t, i * k + l);
      }
    }
  }
  check_near("loss", gloss, NNRT_f32, loss, m, tolerance(t));
  check_near("loss alone", galone, NNRT_f32, loss, m, tolerance(t));
  check_near("dx", gdx, t, dx, m * k, 2 * tolerance(t));
  check_near("dw", gdw, NNRT_f32, dw, k * n, 2 * tolerance(t));
  nnrt_prep_free(p), nnrt_prep_free(q);
  free(x), free(w), free(dloss), free(labels), free(loss), free(dx), free(dw), free(z);
  gpu_free(gx), gpu_free(gw), gpu_free(glabels), gpu_free(gdloss), gpu_free(gdx);
  gpu_free(gloss), gpu_free(galone), gpu_free(gdw);
}

// One chunk, two, and many of which the last is shorter; rows that are not a multiple of 16 bytes.
static void classifiers(void) {
  for (int t = 0; t < 3; t++)
    for (int trans = 0; trans < 2; trans++) {
      classifier_case(types[t], 5, 40, trans, 8);
      classifier_case(types[t], 140, 37, trans, 4);
      classifier_case(types[t], 400, 33, trans, 8);
    }
}

// -- Tune files

static char path[64];

static char *read_all(int64_t *bytes) {
  FILE *f = fopen(path, "rb");
  char *text = calloc(1, 1 << 16);
  *bytes = f ? (int64_t)fread(text, 1, (1 << 16) - 1, f) : -1;
  if (f) fclose(f);
  return text;
}

static void write_all(const char *text, int64_t bytes) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(text, 1, (size_t)bytes, f) == (size_t)bytes, "writing");
  if (f) fclose(f);
}

// Rewrites the file with `from` replaced by `to`, and a valid checksum unless `damaged`.
static void rewrite(const char *from, const char *to, bool damaged) {
  int64_t bytes;
  char *text = read_all(&bytes), *at = strstr(text, from), *more = calloc(1, 1 << 17);
  CHECK(at, "'%s' is not in the file", from);
  if (at) {
    int n = sprintf(more, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    char *end = strstr(more, "\nend ") + 1;
    if (!damaged)
      sprintf(end, "end %016llx\n", (unsigned long long)nnrt_xxh64(more, end - more, 0));
    write_all(more, n);
  }
  free(text), free(more);
}

static bool contains(const char *words) {
  int64_t bytes;
  char *text = read_all(&bytes);
  bool yes = bytes >= 0 && strstr(text, words);
  free(text);
  return yes;
}

static void prepare(int64_t n) {
  NnrtGemmSpec s = nnrt_gemm_packed(NNRT_bf16, NNRT_bf16, 1, 32, n, 48, false, true);
  s.epilogue = NNRT_EPILOGUE_bias;
  NnrtGemm *g = nnrt_gemm_new(&s);
  CHECK(g, "preparing under --tune");
  nnrt_gemm_free(g);
}

// Replaces the time of the first measured product by an impossible one.
static void mark(void) {
  int64_t bytes;
  char *text = read_all(&bytes), *line = strstr(text, "PROBLEM\n");
  if (line) {
    line += strlen("PROBLEM\n");
    *strchr(line, ' ') = 0;
    char from[64], to[64];
    sprintf(from, "PROBLEM\n%s ", line);
    sprintf(to, "PROBLEM\n98765.0 ");
    rewrite(from, to, false);
  }
  free(text);
}

static void tune(void) {
  Why w;
  sprintf(path, "/tmp/nnaot-tune-%ld", (long)getpid());
  CHECK(nnrt_tune_open(path, &w), "a file to be made");
  prepare(64);
  CHECK(contains("bf16 bf16 1 32 64 48 n t"), "a measured product is in the file");
  // A product in the file is not measured again, and stays when others are added.
  mark();
  CHECK(nnrt_tune_open(path, &w), "a file that is there");
  prepare(64);
  prepare(72);
  CHECK(contains("98765.0") && contains("bf16 bf16 1 32 72 48 n t"), "one kept, one measured");
  check_spec("by a file", nnrt_gemm_packed(NNRT_bf16, NNRT_bf16, 1, 32, 64, 48, false, true));
  // Fused or separate, whichever is faster: measured, and then from the file.
  all_epilogues(NNRT_bf16);
  CHECK(nnrt_tune_open(path, &w), "a file that is there");
  all_epilogues(NNRT_bf16);
  // Damaged: warned of, and measured again.
  rewrite("sm ", "sn ", true);
  CHECK(nnrt_tune_open(path, &w), "a damaged file");
  prepare(64);
  CHECK(!contains("98765.0") && contains("bf16 bf16 1 32 64 48 n t"), "measured anew");
  // Truncated, even to its first line.
  int64_t bytes;
  char *text = read_all(&bytes);
  for (int64_t n = (int64_t)strlen("nnaot tune 1\n"); n < bytes; n += bytes / 9) {
    write_all(text, n);
    CHECK(nnrt_tune_open(path, &w), "a file that was cut short");
  }
  write_all(text, bytes);
  free(text);
  // For another cuBLASLt.
  mark();
  rewrite("cublaslt 1", "cublaslt 9", false);
  CHECK(nnrt_tune_open(path, &w), "a file of another version");
  prepare(64);
  CHECK(!contains("98765.0") && !contains("cublaslt 9"), "measured anew");
  // A choice that cuBLASLt refuses.
  mark();
  text = read_all(&bytes);
  char *line = strstr(text, "98765.0 "), *algo = strchr(line + 8, ' ') + 1,
       from[2 * NNRT_ALGO_BYTES + 1];
  snprintf(from, sizeof from, "%s", algo);
  char to[sizeof from];
  memset(to, 'f', sizeof to - 1);
  to[sizeof to - 1] = 0;
  rewrite(from, to, false);
  free(text);
  CHECK(nnrt_tune_open(path, &w), "a file with a choice of nothing");
  prepare(64);
  CHECK(!contains("98765.0"), "what is refused is measured");
  // A file of another format stays as it is.
  write_all("my thesis", 9);
  CHECK(!nnrt_tune_open(path, &w) && strstr(w.text, "no file of measured choices"),
        "a file of another kind is an error");
  CHECK(contains("my thesis"), "and stays as it is");
  CHECK(!nnrt_tune_open("/nowhere/tune", &w), "a file that cannot be made is an error");
  CHECK(nnrt_tune_open(NULL, &w) && !nnrt_tune_on(), "no file");
  unlink(path);
}

// Without a GPU a prepared product only stores its spec.
static void planning(void) {
  gpu.planning = "{}";
  NnrtPrep *p = nnrt_linear_gelu_tanh_prep_bf16(1 << 20, 768, 3072, true);
  NnrtPrep *q = nnrt_classifier_back_prep_bf16(1 << 16, 768, 50257, true, 8, -100);
  CHECK(p && q, "preparing while planning");
  nnrt_prep_free(p), nnrt_prep_free(q);
  gpu.planning = NULL;
}

int main(void) {
  gpu_open();
  layouts();
  epilogues();
  impossible();
  weight_gradients();
  added_up();
  classifiers();
  tune();
  planning();
  nnrt_gpu_blas_free(&gpu);
  return gpu_close();
}
