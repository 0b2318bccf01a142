// A program as the compiler would write it, by hand: y = x w + b on an axis dp of RANKS devices and
// an axis mb of MICRO slices of time, trained with momentum.  It has one of everything the runtime
// handles: inputs that are floats, labels and tokens, weights from the payload, filled and drawn, a
// frozen one, an integer one, states, scalars, collectives, evaluation and a model to export.
//
//     loss = mean over rows of (x w + b - label)^2 + noise(step, seed)

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nnrt.h"
#include "nnrt_random.h"

#ifndef RANKS
#define RANKS 1
#endif
#ifndef MICRO
#define MICRO 2
#endif
#ifndef SCHEDULE
#define SCHEDULE "constant"
#endif
#ifndef OPTIMIZER
#define OPTIMIZER "sgd:momentum=0.9"
#endif
#ifndef PLAN
#define PLAN "dp"
#endif
#ifndef BIG // elements of a weight that only fills checkpoints and collectives
#define BIG 20000
#endif

#ifndef SLAB_BYTES
#define SLAB_BYTES SLAB
#endif
#ifndef OWES // 1: a step leaves its norm and the update of what is trained to the next one
#define OWES 0
#endif
#ifndef SPLIT_RANK // 1 + the only rank
#define SPLIT_RANK 0
#endif

#ifdef TOKENS // x is of integers
typedef int32_t X;
#define X_TYPE NNRT_i32
#else
typedef float X;
#define X_TYPE NNRT_f32
#endif

// Sections of the slab begin at multiples of 16 bytes.
enum { BIG_BYTES = (4 * BIG + 15) / 16 * 16 };
enum { BATCH = 16, N = 5, ROWS = BATCH / RANKS / MICRO };

// The slab of a rank.
enum {
  AT_x = 0,                      // f32[16,5] {S(0), S(0)}, here [ROWS,5]
  AT_label = AT_x + 16 * N * 4,  // i64[16]
  AT_w = AT_label + 16 * 8,      // f32[5]
  AT_b = AT_w + 32,              // f32[]
  AT_big = AT_b + 16,            // f32[BIG]
  AT_steps = AT_big + BIG_BYTES, // i64[], a weight
  AT_v = AT_steps + 16,          // f32[6], state
  AT_lr = AT_v + 32,
  AT_step = AT_lr + 16,
  AT_seed = AT_step + 16,
  AT_owed_lr = AT_seed + 16, // of the step whose update is owed
  AT_loss = AT_owed_lr + 16,
  AT_norm = AT_loss + 16,
  AT_g = AT_norm + 16,      // f32[8]: gradients of w and b, sum of squares; over all micro-batches
  AT_gall = AT_g + 32,      // over all ranks
  AT_bigsum = AT_gall + 32, // f32[BIG]
  AT_rows = AT_bigsum + BIG_BYTES,
  AT_spread = AT_rows + 16,          // f32[2,RANKS,2]
  AT_wpart = AT_spread + 16 * RANKS, // f32[20], split along dp
  SLAB = AT_wpart + 80,
};

#define F(at) ((float *)(void *)(r->slab + (at)))
#define I(at) ((int64_t *)(void *)(r->slab + (at)))
// clang-format off
#define NO      {-1, -1, -1, -1}
#define WHOLE   {NO, NO}
#define BY_ROWS {{0, 1, -1, -1}, NO}
#define BY_RANK {{0, -1, -1, -1}, NO}

static const NnrtTensor train_tensors[] = {
    {"x", NNRT_input, X_TYPE, 2, {BATCH, N}, BY_ROWS, .offset = AT_x},
    {"labels", NNRT_input, NNRT_i64, 1, {BATCH}, BY_ROWS, .offset = AT_label},
    {"w", NNRT_weight, NNRT_f32, 1, {N}, WHOLE, .offset = AT_w, .train = true, .init = NNRT_from_payload},
    {"b \"quoted\"", NNRT_weight, NNRT_f32, 0, {0}, WHOLE, .offset = AT_b, .train = true, .init = NNRT_from_fill, .a = 0.5},
    {"big", NNRT_weight, NNRT_f32, 1, {BIG}, WHOLE, .offset = AT_big, .init = NNRT_from_normal, .b = 0.02, .init_seed = 3},
    {"count", NNRT_weight, NNRT_i64, 0, {0}, WHOLE, .offset = AT_steps, .init = NNRT_from_fill},
    {"part", NNRT_weight, NNRT_f32, 1, {20}, BY_RANK, .offset = AT_wpart, .train = true, .init = NNRT_from_uniform, .a = -1, .b = 1, .init_seed = 9},
    {"v", NNRT_state, NNRT_f32, 1, {N + 1}, WHOLE, .offset = AT_v, .init = NNRT_from_fill},
    {"lr", NNRT_scalar, NNRT_f32, 0, {0}, WHOLE, .offset = AT_lr},
    {"step", NNRT_scalar, NNRT_i64, 0, {0}, WHOLE, .offset = AT_step},
    {"seed", NNRT_scalar, NNRT_i64, 0, {0}, WHOLE, .offset = AT_seed},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_loss},
    {"grad_norm", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_norm, .owed = OWES},
};
static const NnrtTensor eval_tensors[] = {
    {"x", NNRT_input, X_TYPE, 2, {BATCH, N}, BY_ROWS, .offset = AT_x},
    {"labels", NNRT_input, NNRT_i64, 1, {BATCH}, BY_ROWS, .offset = AT_label},
    {"w", NNRT_weight, NNRT_f32, 1, {N}, WHOLE, .offset = AT_w, .train = true, .init = NNRT_from_payload},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_loss},
};
// clang-format on

enum { OP_linear, OP_reduce, OP_check };
static const char *const ops[] = {"linear  line.onnx:/fc/Gemm", "all_reduce  grads of /fc",
                                  "cross_entropy  line.onnx:/loss"};

#ifdef SLOW_DISK
int fsync(int fd) {
  nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
  return fdatasync(fd);
}
#endif

// Adds the gradients and squares of this micro-batch's rows to g.
static int rows(NnrtRank *r) {
  const X *x = (const X *)(void *)(r->slab + AT_x);
  const float *w = F(AT_w);
  const int64_t *label = I(AT_label);
  float *g = F(AT_g);
  if (r->micro == 0) memset(g, 0, 32);
  for (int i = 0; i < ROWS; i++) {
    if (label[i] < -100 || label[i] > 100)
      return nnrt_error(NNRT_INDEX, "label %lld is not in -100..100", (long long)label[i]);
    float e = F(AT_b)[0] - (float)label[i];
    for (int j = 0; j < N; j++)
      e += (float)x[i * N + j] * w[j];
    for (int j = 0; j < N; j++)
      g[j] += 2 * e * (float)x[i * N + j] / BATCH;
    g[N] += 2 * e / BATCH;
    g[N + 1] += e * e / BATCH;
  }
  return 0;
}

static void train_micro(NnrtRank *r) {
  nnrt_settle(r, OWES);
#ifdef SLEEP_US
  nanosleep(&(struct timespec){.tv_nsec = SLEEP_US * 1000L}, NULL);
#endif
  RUN(OP_linear, rows(r));
}

// What the ranks got must be what they were to get: 1 + 2 + … of everything, in order.
static int check_collectives(NnrtRank *r) {
  for (int i = 0; i < BIG; i++)
    if (F(AT_bigsum)[i] != (float)(RANKS * (RANKS + 1) / 2 * (i % 1000)))
      return nnrt_error(NNRT_COMM, "element %d of the sum is %g", i, (double)F(AT_bigsum)[i]);
  if (I(AT_rows)[0] != (int64_t)RANKS * ((int64_t)1 << 40))
    return nnrt_error(NNRT_COMM, "the sum of integers is %lld", (long long)I(AT_rows)[0]);
  for (int row = 0; row < 2; row++)
    for (int rank = 0; rank < RANKS; rank++)
      for (int j = 0; j < 2; j++)
        if (F(AT_spread)[(row * RANKS + rank) * 2 + j] != (float)(100 * rank + 10 * row + j))
          return nnrt_error(NNRT_COMM, "gathered [%d,%d,%d] wrongly", row, rank, j);
  float back[4];
  nnrt_local_slice_b4(back, F(AT_spread), 3, (int64_t[]){2, RANKS, 2}, 1, r, 0);
  for (int i = 0; i < 4; i++)
    if (back[i] != (float)(100 * r->rank + 10 * (i / 2) + i % 2))
      return nnrt_error(NNRT_COMM, "sliced [%d] wrongly", i);
  return 0;
}

static float term(int rank, int i) {
  return 1 / (float)(1 + rank + i % 1000);
}

// Each rank gets its part of the middle dimension of what the ranks add up, in their order: the
// terms are such that another order has other bits.
static int check_reduce_scatter(NnrtRank *r) {
  enum { PART = 3000, ALL = 2 * RANKS * PART };
  static const int64_t dims[] = {2, RANKS, PART};
  float *x = malloc(sizeof(float) * (ALL + 2 * PART)), *y = x + ALL;
  for (int i = 0; i < ALL; i++)
    x[i] = term(r->rank, i);
  int code = nnrt_reduce_scatter_f32(y, x, 3, dims, 1, r, 0);
  for (int i = 0; i < 2 * PART && !code; i++) {
    int at = (i / PART * RANKS + r->rank) * PART + i % PART;
    float sum = term(0, at);
    for (int k = 1; k < RANKS; k++)
      sum += term(k, at);
    if (y[i] != sum)
      code = nnrt_error(NNRT_COMM, "element %d of the scattered sum is %g", i, (double)y[i]);
  }
  free(x);
  int64_t given[RANKS], got;
  for (int k = 0; k < RANKS; k++)
    given[k] = ((int64_t)(r->rank + 1) << 33) + k;
  if (!code) code = nnrt_reduce_scatter_i64(&got, given, 1, (int64_t[]){RANKS}, 0, r, 0);
  if (!code && got != ((int64_t)(RANKS * (RANKS + 1) / 2) << 33) + RANKS * r->rank)
    code = nnrt_error(NNRT_COMM, "the scattered sum of integers is %lld", (long long)got);
  return code;
}

typedef int AllToAll(void *y, const void *x, int64_t rank, const int64_t *dims, int64_t from,
                     int64_t to, NnrtRank *r, int axis);

enum { CUBE = RANKS * 2 * RANKS * 3 * RANKS };

// Rank `rank`'s part along `cut` of a tensor of [RANKS,2 RANKS,3 RANKS] elements of `size` bytes,
// all different; returns how many elements it has.
static int part_of(char *out, int64_t *dims, int cut, int rank, int size) {
  int64_t first[3] = {0};
  for (int d = 0; d < 3; d++)
    dims[d] = (d + 1) * (d == cut ? 1 : RANKS);
  first[cut] = dims[cut] * rank;
  int n = 0;
  for (int64_t i = 0; i < dims[0]; i++)
    for (int64_t j = 0; j < dims[1]; j++)
      for (int64_t k = 0; k < dims[2]; k++, n++) {
        int64_t at = ((i + first[0]) * 2 * RANKS + j + first[1]) * 3 * RANKS + k + first[2];
        uint64_t element = (uint64_t)at * 0x9e3779b97f4a7c15;
        memcpy(out + n * size, (char *)&element + 8 - size, (size_t)size);
      }
  return n;
}

// From every dimension to every other.
static int check_all_to_all(NnrtRank *r) {
  static AllToAll *const kernels[] = {nnrt_all_to_all_b1, nnrt_all_to_all_b2, nnrt_all_to_all_b4,
                                      nnrt_all_to_all_b8};
  char x[8 * CUBE], y[8 * CUBE], expected[8 * CUBE];
  for (int test = 0; test < 4 * 9; test++) {
    int from = test % 3, to = test / 3 % 3, size = 1 << test / 9;
    int64_t dims[3], after[3];
    if (from == to) continue;
    int n = part_of(expected, after, to, r->rank, size);
    part_of(x, dims, from, r->rank, size);
    int code = kernels[test / 9](y, x, 3, dims, from, to, r, 0);
    if (code) return code;
    if (memcmp(y, expected, (size_t)(n * size)) != 0)
      return nnrt_error(NNRT_COMM, "%d bytes from %d to %d: wrong", size, from, to);
  }
  return 0;
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
  for (int j = 0; j < 20 / RANKS; j++)
    F(AT_wpart)[j] -= lr * F(AT_wpart)[j];
}

#if OWES
static void train_owed_0(NnrtRank *r) {
  update_weights(r, F(AT_owed_lr)[0]);
}
static void (*const train_owed[])(NnrtRank *r) = {train_owed_0};
#endif

static void train_update(NnrtRank *r) {
  float *g = F(AT_gall), *big = F(AT_bigsum), mine[4];
  for (int i = 0; i < BIG; i++)
    big[i] = (float)((r->rank + 1) * (i % 1000));
  for (int i = 0; i < 4; i++)
    mine[i] = (float)(100 * r->rank + 10 * (i / 2) + i % 2);
  I(AT_rows)[0] = (int64_t)1 << 40;
  RUN(OP_reduce, nnrt_all_reduce_f32(big, big, BIG, r, 0)); // in place
  RUN(OP_reduce, nnrt_all_reduce_f32(g, F(AT_g), 8, r, 0));
  RUN(OP_reduce, nnrt_all_reduce_i64(I(AT_rows), I(AT_rows), 1, r, 0));
  RUN(OP_reduce, nnrt_all_gather_b4(F(AT_spread), mine, 3, (int64_t[]){2, 1, 2}, 1, r, 0));
  RUN(OP_reduce, nnrt_wait(r, g));
  RUN(OP_reduce, nnrt_wait(r, big));
  RUN(OP_reduce, nnrt_wait(r, I(AT_rows)));
  RUN(OP_check, check_collectives(r));
  RUN(OP_reduce, check_reduce_scatter(r));
  RUN(OP_reduce, check_all_to_all(r));
  F(AT_loss)[0] = g[N + 1] + (float)nnrt_random_uniform(I(AT_seed)[0], I(AT_step)[0], 1, 0) * 0.01f;
#ifdef NAN_AT
  if (I(AT_step)[0] == NAN_AT) F(AT_loss)[0] = NAN;
#endif
#ifdef FAIL_AT
  if (I(AT_step)[0] == FAIL_AT && r->rank == RANKS - 1)
    RUN(OP_check, nnrt_error(NNRT_LIBRARY, "made to fail"));
#endif
  I(AT_steps)[0]++;
#if OWES
  F(AT_owed_lr)[0] = F(AT_lr)[0]; // the next step has another
#else
  update_weights(r, F(AT_lr)[0]);
#endif
}

static void eval_update(NnrtRank *r) {
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_gall), F(AT_g), 8, r, 0));
  RUN(OP_reduce, nnrt_wait(r, F(AT_gall)));
  F(AT_loss)[0] = F(AT_gall)[N + 1];
}

static void init(NnrtRank *r) {
  (void)r;
}

// The payload: w, then a "model" of 64 bytes less the holes for w as f16 at 8 and b as f64 at 32.
static const NnrtHole holes[] = {{"w", NNRT_f16, 8, 10}, {"b \"quoted\"", NNRT_f64, 32, 8}};

static const int all_ranks[] = {0, 1, 2, 3}; // the first RANKS of them
static const NnrtMesh mesh = {
    "all", 2, {{"dp", RANKS, false}, {"mb", MICRO, true}}, RANKS, all_ranks};
static const NnrtGroup group = {0, {0, -1}};
static const NnrtPart loop = {"micro", NULL, train_micro, NULL};
static const NnrtCode code = {
    init, {NULL, 1, &loop, NULL, train_update}, {NULL, 1, &loop, NULL, eval_update}, SLAB_BYTES, 0};

const NnrtProgram nnrt_program = {
    .model = "line.onnx",
    .plan = PLAN,
    .target = "cpu",
    .version = "test",
    .describe = "{\"optimizer\": \"" OPTIMIZER "\"}",
    .mesh = &mesh,
    .n_mesh = 1,
    .group = &group,
    .n_groups = 1,
    .code = &code,
    .n_codes = 1,
    .ranks = RANKS,
    .micro_batches = MICRO,
    .batch = BATCH,
    .train = {train_tensors, sizeof train_tensors / sizeof *train_tensors, ops, 3},
    .eval = {eval_tensors, sizeof eval_tensors / sizeof *eval_tensors, ops, 3},
    .split_rank = SPLIT_RANK,
#if OWES
    .owed = train_owed,
    .n_owed = OWES,
#endif
    .payload_bytes = 64 + 64 - 10 - 8,
    .lr = 0.01,
    .lr_schedule = SCHEDULE,
    .seed = 1,
    .skeleton = 64,
    .skeleton_bytes = 64,
    .holes = holes,
    .n_holes = 2,
};
