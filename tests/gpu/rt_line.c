// tests/rt/regression.c for GPUs: a program like the compiler's, written by hand, on axes dp and tp
// of ranks and an axis mb of micro-batches.  It covers the runtime: inputs, weights from the
// payload, filled and drawn, states, scalars, constants, collectives with checked results,
// evaluation, a model to export.
//
//     loss = mean over rows of (x w + b - label)^2 + noise(step, seed)
//
// The row of rt_line_programs.def with the program's name gives its shape and its fault.

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "program_row.h"
#include "rt_line.h"

typedef struct Line {
  const char *name;
  int ranks, tp, micro; // sizes of the axes; dp has ranks / tp
  int batch;
  int big;            // elements of a weight that only enlarges checkpoints and collectives
  bool ids;           // has an input of integers without a reader
  bool slow_disk;     // fsync takes 1.5 seconds
  bool allocates;     // a step has a call that cannot be captured
  int nan_step;       // the loss of this step, from 1, is NaN; 0: none
  int64_t slab_bytes; // that the program claims to need; 0: its real size
} Line;

// A row overrides these defaults.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
// clang-format off
#define PROGRAM(program, ...) {.name = #program, .tp = 1, .micro = 2, .batch = 16, \
    .big = 20000, __VA_ARGS__},
// clang-format on
static const Line lines[] = {
#include "rt_line_programs.def"
};
#pragma GCC diagnostic pop
static const Line *line; // the program that runs
static int dp;           // number of ranks on that axis

enum { PART = 600, MOST_RANKS = 36 };

// Offsets of the sections of a rank's slab, at multiples of 256 bytes.
static int64_t AT_x, AT_label, AT_w, AT_b, AT_big, AT_count, AT_v, AT_lr, AT_step, AT_seed, AT_loss,
    AT_norm, AT_g, AT_gall, AT_bigsum, AT_one, AT_mine, AT_half, AT_spread, AT_back, AT_bad,
    AT_wide, AT_part, AT_ids, AT_terms, AT_row, AT_sum, AT_cube, AT_turned, slab_bytes;

static int64_t section(int64_t bytes) {
  int64_t begin = slab_bytes;
  slab_bytes += (bytes + 255) / 256 * 256;
  return begin;
}

static void lay_out_slab(void) {
  int64_t batch = line->batch, ranks = line->ranks, tp = line->tp, big = line->big;
  AT_x = section(4 * N * batch); // f32[batch,5] {S(0), S(0)}, here [rows,5]
  AT_label = section(8 * batch); // i64[batch]
  AT_w = section(4 * N);         // f32[5]
  AT_b = section(4);             // f32[]
  AT_big = section(4 * big);     // f32[big]
  AT_count = section(8);         // i64[], a weight
  AT_v = section(4 * (N + 1));   // f32[6], state
  AT_lr = section(4);
  AT_step = section(8);
  AT_seed = section(8);
  AT_loss = section(4);
  AT_norm = section(4);
  AT_g = section(4 * 8);    // f32[8]: gradients of w and b, sum of squares; over all micro-batches
  AT_gall = section(4 * 8); // over all ranks
  AT_bigsum = section(4 * big); // f32[big]
  AT_one = section(8);
  AT_mine = section(4 * 4);               // f32[2,1,2]
  AT_half = section(4 * 4 * tp);          // f32[2,tp,2]
  AT_spread = section(4 * 4 * ranks);     // f32[2,ranks,2]
  AT_back = section(4 * 4);               // f32[2,1,2]
  AT_bad = section(8);                    // i64[]
  AT_wide = section(4 * ranks * big);     // f32[2,ranks * big / 2]
  AT_part = section(4 * 20);              // f32[20], sharded along dp
  AT_ids = section(4 * batch);            // i32[batch,1], without a reader
  AT_terms = section(8 * dp * tp * PART); // f32[2,dp,tp * PART]
  AT_row = section(8 * tp * PART);        // f32[2,1,tp * PART]
  AT_sum = section(8 * PART);             // f32[2,1,PART]
  AT_cube = section(4 * 6 * dp * dp);     // f32[dp,2 dp,3 dp], sharded along one of them
  AT_turned = section(4 * 6 * dp * dp);   // the same, along another
}

#define F(at) ((float *)(void *)(r->slab + (at)))
#define I(at) ((int64_t *)(void *)(r->slab + (at)))

enum { OP_rows, OP_reduce, OP_check, OP_update };
static const char *const ops[] = {"linear  line.onnx:/fc/Gemm", "all_reduce  grads of /fc",
                                  "cross_entropy  line.onnx:/loss", "sgd  line.onnx:/fc/w"};

static const float zeros[8];
static const NnrtConstant constants[] = {{zeros, sizeof zeros}};
#define C0 ((const float *)r->constant[0])

// Replaces the C library's.
int fsync(int fd) {
  if (line->slow_disk) nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
  return (int)syscall(SYS_fsync, fd);
}

static void micro(NnrtRank *r) {
  int n_rows = line->batch / dp / line->tp / line->micro;
  RUN(OP_rows, line_rows(F(AT_g), F(AT_x), I(AT_label), F(AT_w), F(AT_b), C0, n_rows, line->batch,
                         r->micro == 0));
}

// Sums over both axes, the second after the first.
static void reduce(NnrtRank *r, int axis) {
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_bigsum), F(AT_bigsum), line->big, r, axis)); // in place
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_gall), axis == 0 ? F(AT_g) : F(AT_gall), 8, r, axis));
  RUN(OP_reduce, nnrt_all_reduce_i64(I(AT_one), I(AT_one), 1, r, axis));
}

static void wait(NnrtRank *r) {
  RUN(OP_reduce, nnrt_wait(r, F(AT_gall)));
  RUN(OP_reduce, nnrt_wait(r, F(AT_bigsum)));
  RUN(OP_reduce, nnrt_wait(r, I(AT_one)));
}

// A reduce-scatter along dp and then along tp; the scattered dimensions are not the first.
static void scatter(NnrtRank *r) {
  int tp = line->tp;
  RUN(OP_check, line_terms(F(AT_terms), 2 * dp * tp * PART, r->rank));
  RUN(OP_reduce,
      nnrt_reduce_scatter_f32(F(AT_row), F(AT_terms), 3, LIST(2, dp, tp * PART), 1, r, 0));
  RUN(OP_reduce, nnrt_reduce_scatter_f32(F(AT_sum), F(AT_row), 3, LIST(2, 1, tp * PART), 2, r, 1));
  RUN(OP_check, line_summed(I(AT_bad), F(AT_sum), PART, r->rank, dp, tp));
}

// A tensor sharded along one dimension and then along others, as elements of 4, 2, 1 and 8 bytes.
static void turn(NnrtRank *r) {
  int64_t at = r->coord[0][0];
  RUN(OP_check, line_cube(F(AT_cube), dp, 0, at));
  RUN(OP_reduce,
      nnrt_all_to_all_b4(F(AT_turned), F(AT_cube), 3, LIST(1, 2 * dp, 3 * dp), 0, 2, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_turned), dp, 2, at));
  RUN(OP_reduce, nnrt_all_to_all_b4(F(AT_cube), F(AT_turned), 3, LIST(dp, 2 * dp, 3), 2, 1, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_cube), dp, 1, at));
  RUN(OP_reduce, nnrt_all_to_all_b2(F(AT_turned), F(AT_cube), 3, LIST(dp, 2, 6 * dp), 1, 0, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_turned), dp, 0, at));
  RUN(OP_reduce,
      nnrt_all_to_all_b1(F(AT_cube), F(AT_turned), 3, LIST(1, 2 * dp, 12 * dp), 0, 1, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_cube), dp, 1, at));
  // There and back, in pairs.
  RUN(OP_check, line_cube(F(AT_cube), dp, 0, at));
  RUN(OP_reduce, nnrt_all_to_all_b8(F(AT_turned), F(AT_cube), 2, LIST(1, 3 * dp * dp), 0, 1, r, 0));
  RUN(OP_reduce, nnrt_all_to_all_b8(F(AT_cube), F(AT_turned), 2, LIST(dp, 3 * dp), 1, 0, r, 0));
  RUN(OP_check, line_cubed(I(AT_bad), F(AT_cube), dp, 0, at));
}

static void train_update(NnrtRank *r) {
  RUN(OP_check, line_given(F(AT_bigsum), line->big, F(AT_mine), I(AT_one), r->rank));
  reduce(r, 0);
  RUN(OP_reduce, nnrt_all_gather_b4(F(AT_half), F(AT_mine), 3, LIST(2, 1, 2), 1, r, 1));
  RUN(OP_reduce, nnrt_all_gather_b4(F(AT_spread), F(AT_half), 3, LIST(2, line->tp, 2), 1, r, 0));
  RUN(OP_reduce,
      nnrt_local_slice_b4(F(AT_half), F(AT_spread), 3, LIST(2, line->ranks, 2), 1, r, 0));
  RUN(OP_reduce, nnrt_local_slice_b4(F(AT_back), F(AT_half), 3, LIST(2, line->tp, 2), 1, r, 1));
  wait(r);
  if (line->allocates) RUN(OP_check, line_allocates());
  reduce(r, 1);
  wait(r);
  RUN(OP_check, line_taken(I(AT_bad), F(AT_bigsum), line->big, F(AT_spread), F(AT_back), I(AT_one),
                           r->rank, line->ranks));
  scatter(r);
  turn(r);
  RUN(OP_update, line_update(F(AT_w), F(AT_b), F(AT_v), F(AT_part), 20 / line->ranks, I(AT_count),
                             F(AT_loss), F(AT_norm), F(AT_gall), F(AT_lr), I(AT_step), I(AT_seed),
                             I(AT_bad), line->nan_step - 1));
}

// The gather needs more scratch than training, which was captured with less.
static void eval_update(NnrtRank *r) {
  RUN(OP_reduce, nnrt_all_gather_b4(F(AT_wide), F(AT_bigsum), 2, LIST(2, line->big / 2), 1, r, 0));
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

static const NnrtGroup groups[] = {{0, {0, -1}}, {0, {1, -1}}}; // along dp, along tp
static const NnrtTask loop = {"micro", NULL, micro, NULL};

#define N_OF(list) ((int)(sizeof(list) / sizeof *(list)))
// clang-format off
#define NO    {-1, -1, -1, -1}
#define WHOLE {NO, NO}
#define ROWWISE {{0, 1, 2, -1}, NO}
#define RANKWISE {{0, 1, -1, -1}, NO}
// clang-format on

int main(int argc, char **argv) {
  line = &lines[program_row(argv[0], lines, N_OF(lines), sizeof *lines)];
  dp = line->ranks / line->tp;
  lay_out_slab();
  // clang-format off
  const NnrtTensor train_tensors[] = { // "ids" is the last, since most programs lack it
      {"x", NNRT_input, NNRT_f32, 2, {line->batch, N}, ROWWISE, .offset = AT_x},
      {"labels", NNRT_input, NNRT_i64, 1, {line->batch}, ROWWISE, .offset = AT_label},
      {"w", NNRT_weight, NNRT_f32, 1, {N}, WHOLE, .offset = AT_w, .train = true,
       .init = NNRT_from_payload},
      {"b \"quoted\"", NNRT_weight, NNRT_f32, 0, {0}, WHOLE, .offset = AT_b, .train = true,
       .init = NNRT_from_fill, .a = 0.5},
      {"big", NNRT_weight, NNRT_f32, 1, {line->big}, WHOLE, .offset = AT_big, .init = NNRT_from_normal,
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
      {"ids", NNRT_input, NNRT_i32, 2, {line->batch, 1}, ROWWISE, .offset = AT_ids},
  };
  const NnrtTensor eval_tensors[] = {
      {"x", NNRT_input, NNRT_f32, 2, {line->batch, N}, ROWWISE, .offset = AT_x},
      {"labels", NNRT_input, NNRT_i64, 1, {line->batch}, ROWWISE, .offset = AT_label},
      {"w", NNRT_weight, NNRT_f32, 1, {N}, WHOLE, .offset = AT_w, .train = true,
       .init = NNRT_from_payload},
      {"loss", NNRT_output, NNRT_f32, 0, {0}, WHOLE, .offset = AT_loss},
  };
  // clang-format on
  int all_ranks[MOST_RANKS];
  for (int i = 0; i < line->ranks; i++)
    all_ranks[i] = i;
  const NnrtMesh mesh = {"all",
                         3,
                         {{"dp", dp, false}, {"tp", line->tp, false}, {"mb", line->micro, true}},
                         line->ranks,
                         all_ranks};
  const NnrtRankProgram code = {init,
                                {NULL, 1, &loop, NULL, train_update},
                                {NULL, 1, &loop, NULL, eval_update},
                                line->slab_bytes ? line->slab_bytes : slab_bytes,
                                0};
  const NnrtProgram program = {
      .model = "line.onnx",
      .plan = "dp",
      .target = "cuda:sm_90",
      .version = "test",
      .mesh = &mesh,
      .n_mesh = 1,
      .group = groups,
      .n_groups = N_OF(groups),
      .code = &code,
      .n_codes = 1,
      .ranks = line->ranks,
      .micro_batches = line->micro,
      .batch = line->batch,
      .train = {train_tensors, N_OF(train_tensors) - !line->ids, ops, N_OF(ops)},
      .eval = {eval_tensors, N_OF(eval_tensors), ops, N_OF(ops)},
      .payload_bytes = 64 + 64 - 10 - 8,
      .lr = 0.01,
      .lr_schedule = "constant",
      .seed = 1,
      .skeleton = 64,
      .skeleton_bytes = 64,
      .holes = holes,
      .n_holes = N_OF(holes),
      .constants = constants,
      .n_constants = N_OF(constants),
  };
  return nnrt_main(argc, argv, &program);
}
