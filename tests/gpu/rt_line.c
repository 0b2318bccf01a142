// tests/rt/regression.c for gpus: a program as the compiler would write it, by hand, on axes dp and
// tp of RANKS ranks and an axis mb of MICRO slices of time.  It has what the runtime handles:
// inputs, weights from the payload, filled and drawn, states, scalars, constants, collectives whose
// results are checked, evaluation, a model to export.
//
//     loss = mean over rows of (x w + b - label)^2 + noise(step, seed)

#include <time.h>
#include <unistd.h>

#include "rt_line.h"

#ifndef RANKS
#define RANKS 1
#endif
#ifndef TP
#define TP 1
#endif
#ifndef MICRO
#define MICRO 2
#endif
#ifndef BIG // elements of a weight that only fills checkpoints and collectives
#define BIG 20000
#endif
#ifndef BATCH
#define BATCH 16
#endif
#ifndef NAN_AT // a step
#define NAN_AT -1
#endif
#ifndef SLAB_BYTES
#define SLAB_BYTES SLAB
#endif

enum { ROWS = BATCH / RANKS / MICRO, BIG_BYTES = (4 * BIG + 255) / 256 * 256 };
enum { DP = RANKS / TP, PART = 600, PART_BYTES = (8 * PART + 255) / 256 * 256 };
enum { CUBE_BYTES = (4 * 6 * DP * DP + 255) / 256 * 256 };

enum {
  AT_x = 0,                      // f32[BATCH,5] {S(0), S(0)}, here [ROWS,5]
  AT_label = AT_x + 32 * BATCH,  // i64[BATCH]
  AT_w = AT_label + 16 * BATCH,  // f32[5]
  AT_b = AT_w + 256,             // f32[]
  AT_big = AT_b + 256,           // f32[BIG]
  AT_count = AT_big + BIG_BYTES, // i64[], a weight
  AT_v = AT_count + 256,         // f32[6], state
  AT_lr = AT_v + 256,
  AT_step = AT_lr + 256,
  AT_seed = AT_step + 256,
  AT_loss = AT_seed + 256,
  AT_norm = AT_loss + 256,
  AT_g = AT_norm + 256,      // f32[8]: gradients of w and b, sum of squares; over all micro-batches
  AT_gall = AT_g + 256,      // over all ranks
  AT_bigsum = AT_gall + 256, // f32[BIG]
  AT_one = AT_bigsum + BIG_BYTES,
  AT_mine = AT_one + 256,                   // f32[2,1,2]
  AT_half = AT_mine + 256,                  // f32[2,TP,2]
  AT_spread = AT_half + 256,                // f32[2,RANKS,2]
  AT_back = AT_spread + 256 * RANKS,        // f32[2,1,2]
  AT_bad = AT_back + 256,                   // i64[]
  AT_wide = AT_bad + 256,                   // f32[2,RANKS * BIG / 2]
  AT_part = AT_wide + RANKS * BIG_BYTES,    // f32[20], split along dp
  AT_ids = AT_part + 256,                   // i32[BATCH,1], which nothing reads
  AT_terms = AT_ids + 16 * BATCH,           // f32[2,DP,TP * PART]
  AT_row = AT_terms + DP * TP * PART_BYTES, // f32[2,1,TP * PART]
  AT_sum = AT_row + TP * PART_BYTES,        // f32[2,1,PART]
  AT_cube = AT_sum + PART_BYTES,            // f32[DP,2 DP,3 DP], cut along one of them
  AT_turned = AT_cube + CUBE_BYTES,         // the same, along another
  SLAB = AT_turned + CUBE_BYTES,
};

#define F(at) ((float *)(void *)(r->slab + (at)))
#define I(at) ((int64_t *)(void *)(r->slab + (at)))
// clang-format off
#define NO    {-1, -1, -1, -1}
#define WHOLE {NO, NO}
#define ROWWISE {{0, 1, 2, -1}, NO}
#define RANKWISE {{0, 1, -1, -1}, NO}

static const NnrtTensor train_tensors[] = {
    {"x", NNRT_input, NNRT_f32, 2, {BATCH, N}, ROWWISE, .offset = AT_x},
    {"labels", NNRT_input, NNRT_i64, 1, {BATCH}, ROWWISE, .offset = AT_label},
#ifdef IDS
    {"ids", NNRT_input, NNRT_i32, 2, {BATCH, 1}, ROWWISE, .offset = AT_ids},
#endif
    {"w", NNRT_weight, NNRT_f32, 1, {N}, WHOLE, .offset = AT_w, .train = true,
     .init = NNRT_from_payload},
    {"b \"quoted\"", NNRT_weight, NNRT_f32, 0, {0}, WHOLE, .offset = AT_b, .train = true,
     .init = NNRT_from_fill, .a = 0.5},
    {"big", NNRT_weight, NNRT_f32, 1, {BIG}, WHOLE, .offset = AT_big, .init = NNRT_from_normal,
     .b = 0.02, .init_seed = 3},
    {"count", NNRT_weight, NNRT_i64, 0, {0}, WHOLE, .offset = AT_count, .init = NNRT_from_fill},
    {"part", NNRT_weight, NNRT_f32, 1, {20}, RANKWISE, .offset = AT_part, .train = true,
     .init = NNRT_from_uniform, .a = -1, .b = 1, .init_seed = 9},
    {"v", NNRT_state, NNRT_f32, 1, {N + 1}, WHOLE, .offset = AT_v, .init = NNRT_from_fill},
    {"lr", NNRT_scalar, NNRT_f32, 0, {0}, WHOLE, .offset = AT_lr},
    {"step", NNRT_scalar, NNRT_i64, 0, {0}, WHOLE, .offset = AT_step},
    {"seed", NNRT_scalar, NNRT_i64, 0, {0}, WHOLE, .offset = AT_seed},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_loss},
    {"grad_norm", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_norm},
};
static const NnrtTensor eval_tensors[] = {
    {"x", NNRT_input, NNRT_f32, 2, {BATCH, N}, ROWWISE, .offset = AT_x},
    {"labels", NNRT_input, NNRT_i64, 1, {BATCH}, ROWWISE, .offset = AT_label},
    {"w", NNRT_weight, NNRT_f32, 1, {N}, WHOLE, .offset = AT_w, .train = true,
     .init = NNRT_from_payload},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_loss},
};
// clang-format on

enum { OP_rows, OP_reduce, OP_check, OP_update };
static const char *const ops[] = {"linear  line.onnx:/fc/Gemm", "all_reduce  grads of /fc",
                                  "cross_entropy  line.onnx:/loss", "sgd  line.onnx:/fc/w"};

static const float zeros[8];
static const NnrtConstant constants[] = {{zeros, sizeof zeros}};
#define C0 ((const float *)r->constant[0])

#ifdef SLOW_DISK
int fsync(int fd) {
  nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
  return fdatasync(fd);
}
#endif

static void micro(NnrtRank *r) {
  RUN(OP_rows,
      line_rows(F(AT_g), F(AT_x), I(AT_label), F(AT_w), F(AT_b), C0, ROWS, BATCH, r->micro == 0));
}

// Sums over both axes, the second when the first is done.
static void reduce(NnrtRank *r, int axis) {
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_bigsum), F(AT_bigsum), BIG, r, axis)); // in place
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_gall), axis == 0 ? F(AT_g) : F(AT_gall), 8, r, axis));
  RUN(OP_reduce, nnrt_all_reduce_i64(I(AT_one), I(AT_one), 1, r, axis));
}

static void wait(NnrtRank *r) {
  RUN(OP_reduce, nnrt_wait(r, F(AT_gall)));
  RUN(OP_reduce, nnrt_wait(r, F(AT_bigsum)));
  RUN(OP_reduce, nnrt_wait(r, I(AT_one)));
}

// A sum of which each rank keeps a part, along dp and then along tp; their dimensions have others
// before them.
static void scatter(NnrtRank *r) {
  RUN(OP_check, line_terms(F(AT_terms), 2 * DP * TP * PART, r->rank));
  RUN(OP_reduce,
      nnrt_reduce_scatter_f32(F(AT_row), F(AT_terms), 3, LIST(2, DP, TP * PART), 1, r, 0));
  RUN(OP_reduce, nnrt_reduce_scatter_f32(F(AT_sum), F(AT_row), 3, LIST(2, 1, TP * PART), 2, r, 1));
  RUN(OP_check, line_summed(I(AT_bad), F(AT_sum), PART, r->rank, DP, TP));
}

// One tensor cut along one dimension and then along others, as elements of 4, 2, 1 and 8 bytes.
static void turn(NnrtRank *r) {
  int64_t at = r->coord[0][0];
  RUN(OP_check, line_cube(F(AT_cube), DP, 0, at));
  RUN(OP_reduce,
      nnrt_all_to_all_b4(F(AT_turned), F(AT_cube), 3, LIST(1, 2 * DP, 3 * DP), 0, 2, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_turned), DP, 2, at));
  RUN(OP_reduce, nnrt_all_to_all_b4(F(AT_cube), F(AT_turned), 3, LIST(DP, 2 * DP, 3), 2, 1, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_cube), DP, 1, at));
  RUN(OP_reduce, nnrt_all_to_all_b2(F(AT_turned), F(AT_cube), 3, LIST(DP, 2, 6 * DP), 1, 0, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_turned), DP, 0, at));
  RUN(OP_reduce,
      nnrt_all_to_all_b1(F(AT_cube), F(AT_turned), 3, LIST(1, 2 * DP, 12 * DP), 0, 1, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_cube), DP, 1, at));
  // There and back, as pairs.
  RUN(OP_check, line_cube(F(AT_cube), DP, 0, at));
  RUN(OP_reduce, nnrt_all_to_all_b8(F(AT_turned), F(AT_cube), 2, LIST(1, 3 * DP * DP), 0, 1, r, 0));
  RUN(OP_reduce, nnrt_all_to_all_b8(F(AT_cube), F(AT_turned), 2, LIST(DP, 3 * DP), 1, 0, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_cube), DP, 0, at));
}

static void train_update(NnrtRank *r) {
  RUN(OP_check, line_given(F(AT_bigsum), BIG, F(AT_mine), I(AT_one), r->rank));
  reduce(r, 0);
  RUN(OP_reduce, nnrt_all_gather_b4(F(AT_half), F(AT_mine), 3, LIST(2, 1, 2), 1, r, 1));
  RUN(OP_reduce, nnrt_all_gather_b4(F(AT_spread), F(AT_half), 3, LIST(2, TP, 2), 1, r, 0));
  RUN(OP_reduce, nnrt_local_slice_b4(F(AT_half), F(AT_spread), 3, LIST(2, RANKS, 2), 1, r, 0));
  RUN(OP_reduce, nnrt_local_slice_b4(F(AT_back), F(AT_half), 3, LIST(2, TP, 2), 1, r, 1));
  wait(r);
#ifdef ALLOCATES
  RUN(OP_check, line_allocates());
#endif
  reduce(r, 1);
  wait(r);
  RUN(OP_check, line_taken(I(AT_bad), F(AT_bigsum), BIG, F(AT_spread), F(AT_back), I(AT_one),
                           r->rank, RANKS));
  scatter(r);
  turn(r);
  RUN(OP_update,
      line_update(F(AT_w), F(AT_b), F(AT_v), F(AT_part), 20 / RANKS, I(AT_count), F(AT_loss),
                  F(AT_norm), F(AT_gall), F(AT_lr), I(AT_step), I(AT_seed), I(AT_bad), NAN_AT));
}

// The gather needs more scratch than training, whose steps were recorded with less.
static void eval_update(NnrtRank *r) {
  RUN(OP_reduce, nnrt_all_gather_b4(F(AT_wide), F(AT_bigsum), 2, LIST(2, BIG / 2), 1, r, 0));
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_gall), F(AT_g), 8, r, 0));
  RUN(OP_reduce, nnrt_wait(r, F(AT_gall)));
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_gall), F(AT_gall), 8, r, 1));
  RUN(OP_reduce, nnrt_wait(r, F(AT_gall)));
  RUN(OP_update, line_loss(F(AT_loss), F(AT_gall)));
}

static void init(NnrtRank *r) {
  (void)r;
}

// The payload of tests/rt/add_payload.py.
static const NnrtHole holes[] = {{"w", NNRT_f16, 8, 10}, {"b \"quoted\"", NNRT_f64, 32, 8}};

static const int all_ranks[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                                26, 27, 28, 29, 30, 31, 32, 33, 34, 35}; // the first RANKS of them
static const NnrtMesh mesh = {"all",
                              3,
                              {{"dp", RANKS / TP, false}, {"tp", TP, false}, {"mb", MICRO, true}},
                              RANKS,
                              all_ranks};
static const NnrtGroup groups[] = {{0, {0, -1}}, {0, {1, -1}}}; // along dp, along tp
static const NnrtPart loop = {"micro", NULL, micro, NULL};
static const NnrtCode code = {
    init, {NULL, 1, &loop, NULL, train_update}, {NULL, 1, &loop, NULL, eval_update}, SLAB_BYTES, 0};

const NnrtProgram nnrt_program = {
    .model = "line.onnx",
    .plan = "dp",
    .target = "cuda:sm_90",
    .version = "test",
    .mesh = &mesh,
    .n_mesh = 1,
    .group = groups,
    .n_groups = 2,
    .code = &code,
    .n_codes = 1,
    .ranks = RANKS,
    .micro_batches = MICRO,
    .batch = BATCH,
    .train = {train_tensors, sizeof train_tensors / sizeof *train_tensors, ops, 4},
    .eval = {eval_tensors, sizeof eval_tensors / sizeof *eval_tensors, ops, 4},
    .payload_bytes = 64 + 64 - 10 - 8,
    .lr = 0.01,
    .lr_schedule = "constant",
    .seed = 1,
    .skeleton = 64,
    .skeleton_bytes = 64,
    .holes = holes,
    .n_holes = 2,
    .constants = constants,
    .n_constants = 1,
};
