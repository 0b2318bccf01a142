// A program in the compiler's form, written by hand: y = x w + b on an axis dp of ranks and an axis
// mb of micro-batches, trained with momentum.  It has one of everything the runtime handles: inputs
// that are floats, labels and tokens, weights from the payload, filled and random, a frozen one, an
// integer one, states, scalars, collectives, evaluation and a model to export.
//
//     loss = mean over rows of (x w + b - label)^2 + noise(step, seed)
//
// The row of line_programs.def with the program's name gives its number of ranks and its fault.

#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nnrt.h"
#include "nnrt_random.h"
#include "program_row.h"

typedef struct Line {
  const char *name;
  int ranks, micro, batch;
  int big; // elements of a weight that only fills checkpoints and collectives
  const char *plan, *optimizer, *schedule, *weights;
  bool tokens;        // x is integers
  int owes;           // 1: the norm and the update of the weights are deferred to the next step
  int split_rank;     // 1 + the only rank
  int sleep_us;       // in each micro-batch
  bool slow_disk;     // fsync takes 1.5 seconds
  int fail_step;      // the step, from 1, in which the last rank fails; 0: none
  int hang_step;      // the step, from 1, in which the last rank computes for ever; 0: none
  int crash_step;     // the step, from 1, in which the last rank crashes, as CRASH says; 0: none
  int nan_step;       // the loss of this step, from 1, is NaN; 0: none
  int64_t slab_bytes; // the declared size; 0: the real one
} Line;

enum { BATCH = 16, N = 5, MOST_RANKS = 4 };

// A row overrides the defaults here.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
// clang-format off
#define PROGRAM(program, ...) {.name = #program, .micro = 2, .batch = BATCH, .big = 20000, .plan = "dp", \
    .optimizer = "sgd:momentum=0.9", .schedule = "constant", .weights = "5ee1", __VA_ARGS__},
// clang-format on
static const Line lines[] = {
#include "line_programs.def"
};
#pragma GCC diagnostic pop
static const Line *line; // the running program

// Offsets of sections in the slab of a rank, multiples of 16 bytes.
static int64_t AT_x, AT_label, AT_w, AT_b, AT_big, AT_steps, AT_v, AT_lr, AT_step, AT_seed,
    AT_deferred_lr, AT_loss, AT_norm, AT_g, AT_gall, AT_bigsum, AT_rows, AT_spread, AT_wpart,
    slab_bytes;

static int64_t section(int64_t bytes) {
  int64_t begin = slab_bytes;
  slab_bytes += (bytes + 15) / 16 * 16;
  return begin;
}

static void lay_out_slab(void) {
  AT_x = section(BATCH * N * 4);   // f32[16,5] {S(0), S(0)}, here [rows,5]
  AT_label = section(BATCH * 8);   // i64[16]
  AT_w = section(N * 4);           // f32[5]
  AT_b = section(4);               // f32[]
  AT_big = section(4 * line->big); // f32[big]
  AT_steps = section(8);           // i64[], a weight
  AT_v = section(4 * (N + 1));     // f32[6], state
  AT_lr = section(4);
  AT_step = section(8);
  AT_seed = section(8);
  AT_deferred_lr = section(4); // of the step with the deferred update
  AT_loss = section(4);
  AT_norm = section(4);
  AT_g = section(4 * 8);    // f32[8]: gradients of w and b, sum of squares; over all micro-batches
  AT_gall = section(4 * 8); // over all ranks
  AT_bigsum = section(4 * line->big); // f32[big]
  AT_rows = section(8);
  AT_spread = section(4 * 2 * line->ranks * 2); // f32[2,ranks,2]
  AT_wpart = section(4 * 20);                   // f32[20], split along dp
}

#define F(at) ((float *)(void *)(r->slab + (at)))
#define I(at) ((int64_t *)(void *)(r->slab + (at)))

enum { OP_linear, OP_reduce, OP_check };
static const char *const ops[] = {"linear  line.onnx:/fc/Gemm", "all_reduce  grads of /fc",
                                  "cross_entropy  line.onnx:/loss"};

// Replaces the C library's.
int fsync(int fd) {
  if (line->slow_disk) nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
  return (int)syscall(SYS_fsync, fd);
}

static float x_at(const NnrtRank *r, int i) {
  const void *x = r->slab + AT_x;
  return line->tokens ? (float)((const int32_t *)x)[i] : ((const float *)x)[i];
}

// Adds the gradients and squares of this micro-batch's rows to g.
static int rows(NnrtRank *r) {
  int n_rows = line->batch / line->ranks / line->micro;
  const float *w = F(AT_w);
  const int64_t *label = I(AT_label);
  float *g = F(AT_g);
  if (r->micro == 0) memset(g, 0, 32);
  for (int i = 0; i < n_rows; i++) {
    if (label[i] < -100 || label[i] > 100)
      return nnrt_error(NNRT_INDEX, "label %lld is not in -100..100", (long long)label[i]);
    float e = F(AT_b)[0] - (float)label[i];
    for (int j = 0; j < N; j++)
      e += x_at(r, i * N + j) * w[j];
    for (int j = 0; j < N; j++)
      g[j] += 2 * e * x_at(r, i * N + j) / line->batch;
    g[N] += 2 * e / line->batch;
    g[N + 1] += e * e / line->batch;
  }
  return 0;
}

static void train_micro(NnrtRank *r) {
  nnrt_flush_deferred(r, line->owes);
  if (line->sleep_us) nanosleep(&(struct timespec){.tv_nsec = line->sleep_us * 1000L}, NULL);
  RUN(OP_linear, rows(r));
}

static int hang(void) {
  while (pause() != 0)
    continue;
  return 0;
}

// Recurses until the stack is full.
__attribute__((noinline)) static int overflow(volatile const char *before) {
  volatile char here[1024];
  here[0] = before ? (char)(before[0] + 1) : 0;
  return getppid() > 0 ? overflow(here) + here[0] : 0;
}

// Returns a page of a file, beyond its end.
static volatile char *beyond_end(int fd) {
  struct stat st;
  enum { PAGE = 4096 };
  if (fd < 0 || fstat(fd, &st) != 0) return NULL;
  int64_t end = (st.st_size + PAGE - 1) / PAGE * PAGE;
  char *at = mmap(NULL, (size_t)end + PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
  return at == MAP_FAILED ? NULL : at + end;
}

static int crash(void) {
  const char *how = getenv("CRASH");
  volatile char *none = NULL;
  volatile int zero = 0;
  if (!how) return nnrt_error(NNRT_LIBRARY, "CRASH is not set");
  if (strcmp(how, "stack") == 0) return overflow(NULL);
  if (strcmp(how, "openmp") == 0) {
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1) overflow(NULL);
  }
  if (strcmp(how, "null") == 0) return *none;
  if (strcmp(how, "divide") == 0) return 7 / zero;
  if (strcmp(how, "abort") == 0) abort();
  if (strcmp(how, "bus") == 0) return raise(SIGBUS);
  if (strcmp(how, "memory") == 0) return *beyond_end(memfd_create("records", 0));
  if (strcmp(how, "program") == 0) return *beyond_end(open("/proc/self/exe", O_RDONLY));
  return *beyond_end(open(how, O_RDONLY));
}

// Checks the results of the collectives: 1 + 2 + … of everything, in order.
static int check_collectives(NnrtRank *r) {
  int ranks = line->ranks;
  for (int i = 0; i < line->big; i++)
    if (F(AT_bigsum)[i] != (float)(ranks * (ranks + 1) / 2 * (i % 1000)))
      return nnrt_error(NNRT_COMM, "element %d of the sum is %g", i, (double)F(AT_bigsum)[i]);
  if (I(AT_rows)[0] != (int64_t)ranks * ((int64_t)1 << 40))
    return nnrt_error(NNRT_COMM, "the sum of integers is %lld", (long long)I(AT_rows)[0]);
  for (int row = 0; row < 2; row++)
    for (int rank = 0; rank < ranks; rank++)
      for (int j = 0; j < 2; j++)
        if (F(AT_spread)[(row * ranks + rank) * 2 + j] != (float)(100 * rank + 10 * row + j))
          return nnrt_error(NNRT_COMM, "gathered [%d,%d,%d] wrongly", row, rank, j);
  float back[4];
  nnrt_local_slice_b4(back, F(AT_spread), 3, LIST(2, ranks, 2), 1, r, 0);
  for (int i = 0; i < 4; i++)
    if (back[i] != (float)(100 * r->rank + 10 * (i / 2) + i % 2))
      return nnrt_error(NNRT_COMM, "sliced [%d] wrongly", i);
  return 0;
}

static float term(int rank, int i) {
  return 1 / (float)(1 + rank + i % 1000);
}

// Checks that each rank gets its shard of the middle dimension of a sum in rank order: with these
// terms another order gives other bits.
static int check_reduce_scatter(NnrtRank *r) {
  enum { PART = 3000 };
  int ranks = line->ranks, all = 2 * ranks * PART;
  float *x = malloc(sizeof(float) * (size_t)(all + 2 * PART)), *y = x + all;
  for (int i = 0; i < all; i++)
    x[i] = term(r->rank, i);
  int code = nnrt_reduce_scatter_f32(y, x, 3, LIST(2, ranks, PART), 1, r, 0);
  if (!code) code = nnrt_wait(r, y);
  for (int i = 0; i < 2 * PART && !code; i++) {
    int at = (i / PART * ranks + r->rank) * PART + i % PART;
    float sum = term(0, at);
    for (int k = 1; k < ranks; k++)
      sum += term(k, at);
    if (y[i] != sum)
      code = nnrt_error(NNRT_COMM, "element %d of the scattered sum is %g", i, (double)y[i]);
  }
  free(x);
  int64_t given[MOST_RANKS], got;
  for (int k = 0; k < ranks; k++)
    given[k] = ((int64_t)(r->rank + 1) << 33) + k;
  if (!code) code = nnrt_reduce_scatter_i64(&got, given, 1, LIST(ranks), 0, r, 0);
  if (!code) code = nnrt_wait(r, &got);
  if (!code && got != ((int64_t)(ranks * (ranks + 1) / 2) << 33) + ranks * r->rank)
    code = nnrt_error(NNRT_COMM, "the scattered sum of integers is %lld", (long long)got);
  return code;
}

typedef int AllToAll(void *y, const void *x, int64_t ndim, const int64_t *dims, int64_t from,
                     int64_t to, NnrtRank *r, int axis);

enum { MOST_CUBE = MOST_RANKS * 2 * MOST_RANKS * 3 * MOST_RANKS };

// Fills rank `rank`'s shard along `cut` of a tensor of [ranks,2 ranks,3 ranks] elements of `size`
// bytes, all different; returns its number of elements.
static int part_of(char *out, int64_t *dims, int cut, int rank, int size) {
  int ranks = line->ranks;
  int64_t first[3] = {0};
  for (int d = 0; d < 3; d++)
    dims[d] = (d + 1) * (d == cut ? 1 : ranks);
  first[cut] = dims[cut] * rank;
  int n = 0;
  for (int64_t i = 0; i < dims[0]; i++)
    for (int64_t j = 0; j < dims[1]; j++)
      for (int64_t k = 0; k < dims[2]; k++, n++) {
        int64_t at = ((i + first[0]) * 2 * ranks + j + first[1]) * 3 * ranks + k + first[2];
        uint64_t element = (uint64_t)at * 0x9e3779b97f4a7c15;
        memcpy(out + n * size, (char *)&element + 8 - size, (size_t)size);
      }
  return n;
}

// Checks all_to_all from every dimension to every other.
static int check_all_to_all(NnrtRank *r) {
  static AllToAll *const kernels[] = {nnrt_all_to_all_b1, nnrt_all_to_all_b2, nnrt_all_to_all_b4,
                                      nnrt_all_to_all_b8};
  char x[8 * MOST_CUBE], y[8 * MOST_CUBE], expected[8 * MOST_CUBE];
  for (int test = 0; test < 4 * 9; test++) {
    int from = test % 3, to = test / 3 % 3, size = 1 << test / 9;
    int64_t dims[3], after[3];
    if (from == to) continue;
    int n = part_of(expected, after, to, r->rank, size);
    part_of(x, dims, from, r->rank, size);
    int code = kernels[test / 9](y, x, 3, dims, from, to, r, 0);
    if (!code) code = nnrt_wait(r, y);
    if (code) return code;
    if (memcmp(y, expected, (size_t)(n * size)) != 0)
      return nnrt_error(NNRT_COMM, "%d bytes from %d to %d: wrong", size, from, to);
  }
  return 0;
}

// Checks collectives of all kinds in flight together, split along dimensions that are not the
// first, with waits in another order.  Their operands are small, and overwritten as soon as each
// has started.
static int check_in_flight(NnrtRank *r) {
  enum { TIMES = 3, PART = 5 };
  int ranks = line->ranks, bad = 0;
  float sums[TIMES][2 * PART], rows[TIMES][2 * MOST_RANKS * 2], x[2 * MOST_RANKS * PART];
  char cube[TIMES][8 * MOST_CUBE], given[8 * MOST_CUBE], expected[8 * MOST_CUBE];
  int64_t dims[3], after[3];
  int n = part_of(expected, after, 2, r->rank, 4), code = 0;
  for (int k = 0; k < TIMES && !code; k++) {
    for (int i = 0; i < 2 * ranks * PART; i++)
      x[i] = (float)k + term(r->rank, i);
    code = nnrt_reduce_scatter_f32(sums[k], x, 3, LIST(2, ranks, PART), 1, r, 0);
    for (int i = 0; i < 4; i++)
      x[i] = (float)(1000 * k + 100 * r->rank + i);
    if (!code) code = nnrt_all_gather_b4(rows[k], x, 3, LIST(2, 1, 2), 1, r, 0);
    part_of(given, dims, 0, r->rank, 4);
    if (!code) code = nnrt_all_to_all_b4(cube[k], given, 3, dims, 0, 2, r, 0);
    memset(x, 0xff, sizeof x);
    memset(given, 0xff, sizeof given);
  }
  for (int k = TIMES - 1; k >= 0 && !code; k--) {
    code = nnrt_wait(r, cube[k]);
    if (!code) code = nnrt_wait(r, sums[k]);
    if (!code) code = nnrt_wait(r, rows[k]);
    for (int i = 0; i < 2 * PART && !code; i++) {
      float sum = 0;
      for (int rank = 0; rank < ranks; rank++) {
        float one = (float)k + term(rank, (i / PART * ranks + r->rank) * PART + i % PART);
        sum = rank ? sum + one : one;
      }
      bad += sums[k][i] != sum;
    }
    for (int i = 0; i < 4 * ranks && !code; i++)
      bad += rows[k][i] != (float)(1000 * k + 100 * (i / 2 % ranks) + i / (2 * ranks) * 2 + i % 2);
    bad += !code && memcmp(cube[k], expected, (size_t)(n * 4)) != 0;
  }
  return code || !bad ? code : nnrt_error(NNRT_COMM, "%d results in flight are wrong", bad);
}

static void update_weights(NnrtRank *r, float lr) {
  float *g = F(AT_gall), *w = F(AT_w), *v = F(AT_v), squares = 0;
  for (int j = 0; j <= N; j++)
    squares += g[j] * g[j];
  F(AT_norm)[0] = sqrtf(squares);
  for (int j = 0; j <= N; j++) {
    v[j] = 0.9f * v[j] + g[j];
    *(j < N ? &w[j] : F(AT_b)) -= lr * v[j];
  }
  for (int j = 0; j < 20 / line->ranks; j++)
    F(AT_wpart)[j] -= lr * F(AT_wpart)[j];
}

static void train_deferred_0(NnrtRank *r) {
  update_weights(r, F(AT_deferred_lr)[0]);
}
static void (*const train_deferred[])(NnrtRank *r) = {train_deferred_0};

static void train_update(NnrtRank *r) {
  float *g = F(AT_gall), *big = F(AT_bigsum), mine[4];
  for (int i = 0; i < line->big; i++)
    big[i] = (float)((r->rank + 1) * (i % 1000));
  for (int i = 0; i < 4; i++)
    mine[i] = (float)(100 * r->rank + 10 * (i / 2) + i % 2);
  I(AT_rows)[0] = (int64_t)1 << 40;
  RUN(OP_reduce, nnrt_all_reduce_f32(big, big, line->big, r, 0)); // in place
  RUN(OP_reduce, nnrt_all_reduce_f32(g, F(AT_g), 8, r, 0));
  RUN(OP_reduce, nnrt_all_reduce_i64(I(AT_rows), I(AT_rows), 1, r, 0));
  RUN(OP_reduce, nnrt_all_gather_b4(F(AT_spread), mine, 3, LIST(2, 1, 2), 1, r, 0));
  RUN(OP_reduce, nnrt_wait(r, g));
  RUN(OP_reduce, nnrt_wait(r, big));
  RUN(OP_reduce, nnrt_wait(r, I(AT_rows)));
  RUN(OP_reduce, nnrt_wait(r, F(AT_spread)));
  RUN(OP_check, check_collectives(r));
  RUN(OP_reduce, check_reduce_scatter(r));
  RUN(OP_reduce, check_all_to_all(r));
  RUN(OP_reduce, check_in_flight(r));
  F(AT_loss)[0] = g[N + 1] + (float)nnrt_random_uniform(I(AT_seed)[0], I(AT_step)[0], 1, 0) * 0.01f;
  if (I(AT_step)[0] + 1 == line->nan_step) F(AT_loss)[0] = NAN;
  if (I(AT_step)[0] + 1 == line->hang_step && r->rank == line->ranks - 1) RUN(OP_check, hang());
  if (I(AT_step)[0] + 1 == line->crash_step && r->rank == line->ranks - 1) RUN(OP_check, crash());
  if (I(AT_step)[0] + 1 == line->fail_step && r->rank == line->ranks - 1)
    RUN(OP_check, nnrt_error(NNRT_LIBRARY, "made to fail"));
  I(AT_steps)[0]++;
  if (line->owes)
    F(AT_deferred_lr)[0] = F(AT_lr)[0]; // the next step overwrites it
  else
    update_weights(r, F(AT_lr)[0]);
}

static void eval_update(NnrtRank *r) {
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_gall), F(AT_g), 8, r, 0));
  RUN(OP_reduce, nnrt_wait(r, F(AT_gall)));
  F(AT_loss)[0] = F(AT_gall)[N + 1];
}

static void init(NnrtRank *r) {
  (void)r;
}

// The payload: w, then a "model" of 64 bytes without the holes for w as f16 at 8 and b as f64 at
// 32.
static const NnrtHole holes[] = {{"w", NNRT_f16, 8, 10}, {"b \"quoted\"", NNRT_f64, 32, 8}};

static const int all_ranks[] = {0, 1, 2, 3}; // the first `ranks` of these
static const NnrtGroup group = {0, {0, -1}};
static const NnrtTask loop = {"micro", NULL, train_micro, NULL};

#define N_OF(list) ((int)(sizeof(list) / sizeof *(list)))
// clang-format off
#define NO      {-1, -1, -1, -1}
#define WHOLE   {NO, NO}
#define BY_ROWS {{0, 1, -1, -1}, NO}
#define BY_RANK {{0, -1, -1, -1}, NO}
// clang-format on

int main(int argc, char **argv) {
  line = &lines[program_row(argv[0], lines, N_OF(lines), sizeof *lines)];
  lay_out_slab();
  NnrtDtype x_type = line->tokens ? NNRT_i32 : NNRT_f32;
  char describe[1024];
  snprintf(describe, sizeof describe,
           "{\"source\": \"%s\", \"optimizer\": \"%s\", \"weights\": \"%s\"}", argv[0],
           line->optimizer, line->weights);
  // clang-format off
  const NnrtTensor train_tensors[] = {
      {"x", NNRT_input, x_type, 2, {line->batch, N}, BY_ROWS, .offset = AT_x},
      {"labels", NNRT_input, NNRT_i64, 1, {line->batch}, BY_ROWS, .offset = AT_label},
      {"w", NNRT_weight, NNRT_f32, 1, {N}, WHOLE, .offset = AT_w, .train = true, .init = NNRT_from_payload},
      {"b \"quoted\"", NNRT_weight, NNRT_f32, 0, {0}, WHOLE, .offset = AT_b, .train = true, .init = NNRT_from_fill, .a = 0.5},
      {"big", NNRT_weight, NNRT_f32, 1, {line->big}, WHOLE, .offset = AT_big, .init = NNRT_from_normal, .b = 0.02, .init_seed = 3},
      {"count", NNRT_weight, NNRT_i64, 0, {0}, WHOLE, .offset = AT_steps, .init = NNRT_from_fill},
      {"part", NNRT_weight, NNRT_f32, 1, {20}, BY_RANK, .offset = AT_wpart, .train = true, .init = NNRT_from_uniform, .a = -1, .b = 1, .init_seed = 9},
      {"v", NNRT_state, NNRT_f32, 1, {N + 1}, WHOLE, .offset = AT_v, .init = NNRT_from_fill},
      {"lr", NNRT_scalar, NNRT_f32, 0, {0}, WHOLE, .offset = AT_lr},
      {"step", NNRT_scalar, NNRT_i64, 0, {0}, WHOLE, .offset = AT_step},
      {"seed", NNRT_scalar, NNRT_i64, 0, {0}, WHOLE, .offset = AT_seed},
      {"loss", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_loss},
      {"grad_norm", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_norm, .deferred = line->owes},
  };
  const NnrtTensor eval_tensors[] = {
      {"x", NNRT_input, x_type, 2, {line->batch, N}, BY_ROWS, .offset = AT_x},
      {"labels", NNRT_input, NNRT_i64, 1, {line->batch}, BY_ROWS, .offset = AT_label},
      {"w", NNRT_weight, NNRT_f32, 1, {N}, WHOLE, .offset = AT_w, .train = true, .init = NNRT_from_payload},
      {"loss", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_loss},
  };
  // clang-format on
  const NnrtMesh mesh = {
      "all", 2, {{"dp", line->ranks, false}, {"mb", line->micro, true}}, line->ranks, all_ranks};
  const NnrtRankProgram code = {init,
                                {NULL, 1, &loop, NULL, train_update},
                                {NULL, 1, &loop, NULL, eval_update},
                                line->slab_bytes ? line->slab_bytes : slab_bytes,
                                0};
  const NnrtProgram program = {
      .model = "line.onnx",
      .plan = line->plan,
      .target = "cpu",
      .version = "test",
      .describe = describe,
      .mesh = &mesh,
      .n_mesh = 1,
      .group = &group,
      .n_groups = 1,
      .code = &code,
      .n_codes = 1,
      .ranks = line->ranks,
      .micro_batches = line->micro,
      .batch = line->batch,
      .train = {train_tensors, N_OF(train_tensors), ops, N_OF(ops)},
      .eval = {eval_tensors, N_OF(eval_tensors), ops, N_OF(ops)},
      .split_rank = line->split_rank,
      .deferred = train_deferred,
      .n_deferred = line->owes,
      .payload_bytes = 64 + 64 - 10 - 8,
      .lr = 0.01,
      .lr_schedule = line->schedule,
      .seed = 1,
      .skeleton = 64,
      .skeleton_bytes = 64,
      .holes = holes,
      .n_holes = N_OF(holes),
  };
  return nnrt_main(argc, argv, &program);
}
