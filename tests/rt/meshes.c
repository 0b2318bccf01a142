// A program of two stages, in the compiler's form, written by hand: h = x w + b on a mesh `first`,
// its error and the loss on a mesh `second`, and weights on others.  The row of mesh_programs.def
// with the program's name gives the ranks of these meshes: they may be disjoint, overlap, be in
// another order, or all be one rank.
//
//     first    h = x w + b                      dw, db from e; momentum
//     move           h ──┐                ┌── e
//     second             └─ e = h - label ┘     loss = mean e^2
//
// Besides, every step runs moves of random messages, of parts of all shapes, and compares each
// rank's result with the messages, one element after another.  An error makes the loss NaN; on CPUs
// it is reported at once.
//
// With `late`, a rank that only receives h requests it before it takes part in a sum of all ranks,
// and a rank that sends h does so after the sum.  The ranks deadlock if the sum is queued after the
// move.

#include <stdlib.h>
#include <string.h>

#include "nnrt_random.h"
#include "program_row.h"
#include "stages.h"

#ifndef TARGET
#define TARGET "cpu"
#endif

enum { MOST_RANKS = 4 };

typedef struct Ranks {
  int n, rank[MOST_RANKS];
} Ranks;

typedef struct Meshes {
  const char *name;
  int ranks;
  Ranks first, second, third; // ranks of the meshes
  bool late;
  int fail_step;      // the step, from 1, in which the last rank of `second` fails; 0: none
  int64_t more_bytes; // added to the slab's size on a rank of `second`
} Meshes;

static const Meshes programs[] = {
#define PROGRAM(program, ...) {.name = #program, __VA_ARGS__},
#include "mesh_programs.def"
};
static const Meshes *row; // the running program

enum { MICRO = 2, BATCH = 16 };
enum { ALL_mesh, FIRST_mesh, SECOND_mesh, THIRD_mesh, N_MESH };

#define N_OF(list) ((int)(sizeof(list) / sizeof *(list)))

static const int all_ranks[MOST_RANKS] = {0, 1, 2, 3}; // the first `ranks` of these
static NnrtMesh meshes[N_MESH];

static void make_meshes(void) {
  const Ranks *first = &row->first, *second = &row->second, *third = &row->third;
  meshes[ALL_mesh] =
      (NnrtMesh){"all", 2, {{"mb", MICRO, true}, {"dp", row->ranks, false}}, row->ranks, all_ranks};
  meshes[FIRST_mesh] =
      (NnrtMesh){"first", 2, {{"mb", MICRO, true}, {"dp", first->n, false}}, first->n, first->rank};
  meshes[SECOND_mesh] = (NnrtMesh){
      "second", 2, {{"mb", MICRO, true}, {"dp", second->n, false}}, second->n, second->rank};
  meshes[THIRD_mesh] = (NnrtMesh){"third", 1, {{"tp", third->n, false}}, third->n, third->rank};
}

enum { FIRST_group, SECOND_group, ALL_group, N_GROUPS };
static const NnrtGroup groups[] = {
    {FIRST_mesh, {1, -1}}, {SECOND_mesh, {1, -1}}, {ALL_mesh, {1, -1}}};

// The slab: sections of all meshes side by side, on every rank.
enum {
  AREA = 24576, // of a part of a random move
  AT_x = 0,
  AT_w = AT_x + 16 * N * 4,
  AT_b = AT_w + 512,
  AT_v = AT_b + 512,
  AT_lr = AT_v + 512,
  AT_lr2 = AT_lr + 512,
  AT_step = AT_lr2 + 512,
  AT_bad = AT_step + 512,
  AT_all_bad = AT_bad + 512,
  AT_g = AT_all_bad + 512, // f32[8]: gradients of w and b
  AT_h = AT_g + 512,
  AT_e = AT_h + 512,
  AT_norm = AT_e + 512,
  AT_h2 = AT_norm + 512,
  AT_e2 = AT_h2 + 512,
  AT_label = AT_e2 + 512,
  AT_squares = AT_label + 512,
  AT_sum = AT_squares + 512,
  AT_loss = AT_sum + 512,
  AT_far = AT_loss + 512,  // f32[24], sharded on `second`
  AT_near = AT_far + 512,  // f32[24,2], whole on `second`
  AT_cut = AT_near + 512,  // f32[4,12], columns sharded on `third`
  AT_wide = AT_cut + 512,  // f32[12], sharded on all
  AT_give = AT_wide + 512, // of random moves
  AT_got = AT_give + AREA,
  SLAB = AT_got + AREA,
};

#define F(at) ((float *)(void *)(r->slab + (at)))
#define I(at) ((int64_t *)(void *)(r->slab + (at)))
// clang-format off
#define NO {-1, -1, -1, -1}

static const NnrtTensor train_tensors[] = {
    {"x", NNRT_input, NNRT_f32, 2, {BATCH, N}, {{0, 1, -1}, NO}, .mesh = FIRST_mesh, .offset = AT_x},
    {"labels", NNRT_input, NNRT_i64, 1, {BATCH}, {{0, 1, -1}}, .mesh = SECOND_mesh, .offset = AT_label},
    {"w", NNRT_weight, NNRT_f32, 1, {N}, {NO}, .mesh = FIRST_mesh, .offset = AT_w, .train = true},
    {"b", NNRT_weight, NNRT_f32, 0, {0}, {NO}, .mesh = FIRST_mesh, .offset = AT_b, .train = true,
     .init = NNRT_from_fill, .a = 0.5},
    {"far", NNRT_weight, NNRT_f32, 1, {24}, {{1, -1}}, .mesh = SECOND_mesh, .offset = AT_far,
     .train = true, .init = NNRT_from_uniform, .a = -1, .b = 1, .init_seed = 9},
    {"near", NNRT_weight, NNRT_f32, 2, {24, 2}, {NO, NO}, .mesh = SECOND_mesh, .offset = AT_near,
     .init = NNRT_from_normal, .b = 1},
    {"cut", NNRT_state, NNRT_f32, 2, {4, 12}, {NO, {0, -1}}, .mesh = THIRD_mesh, .offset = AT_cut,
     .init = NNRT_from_uniform, .b = 2, .init_seed = 5},
    {"wide", NNRT_weight, NNRT_f32, 1, {12}, {{1, -1}}, .mesh = ALL_mesh, .offset = AT_wide,
     .init = NNRT_from_normal, .b = 1},
    {"v", NNRT_state, NNRT_f32, 1, {N + 1}, {NO}, .mesh = FIRST_mesh, .offset = AT_v,
     .init = NNRT_from_fill},
    {"lr", NNRT_scalar, NNRT_f32, 0, {0}, {NO}, .mesh = FIRST_mesh, .offset = AT_lr},
    {"lr", NNRT_scalar, NNRT_f32, 0, {0}, {NO}, .mesh = SECOND_mesh, .offset = AT_lr2},
    {"step", NNRT_scalar, NNRT_i64, 0, {0}, {NO}, .mesh = ALL_mesh, .offset = AT_step},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, {NO}, .mesh = SECOND_mesh, .offset = AT_loss},
    {"grad_norm", NNRT_output, NNRT_f32, 0, {0}, {NO}, .mesh = FIRST_mesh, .offset = AT_norm},
};
static const NnrtTensor eval_tensors[] = {
    {"x", NNRT_input, NNRT_f32, 2, {BATCH, N}, {{0, 1, -1}, NO}, .mesh = FIRST_mesh, .offset = AT_x},
    {"labels", NNRT_input, NNRT_i64, 1, {BATCH}, {{0, 1, -1}}, .mesh = SECOND_mesh, .offset = AT_label},
    {"w", NNRT_weight, NNRT_f32, 1, {N}, {NO}, .mesh = FIRST_mesh, .offset = AT_w},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, {NO}, .mesh = SECOND_mesh, .offset = AT_loss},
};
// clang-format on

enum { OP_linear, OP_move, OP_error, OP_reduce, OP_update, OP_lots, N_OPS };
static const char *const ops[] = {"linear  line.onnx:/fc/Gemm", "move  h",
                                  "sub  line.onnx:/loss",       "all_reduce  grads of /fc",
                                  "sgd  line.onnx:/fc/w",       "move  by lot"};

// ---- moves: those of the stages, then random ones

enum { TO_SECOND, TO_FIRST, N_STAGES, N_LOTS = 60, N_MOVES = N_STAGES + N_LOTS, MOST = 40 };

static NnrtMessage message[N_MOVES][MOST];
static NnrtMove moves[N_MOVES];
static const NnrtConstant constants[] = {{message, sizeof message}};

// Makes a move of rows that are evenly sharded over the ranks of one mesh, to those of another.
static void make_rows(int move, int from_mesh, int to_mesh) {
  const NnrtMesh *a = &meshes[from_mesh], *b = &meshes[to_mesh];
  int rows = BATCH / MICRO, each = rows / a->n_ranks, wanted = rows / b->n_ranks;
  NnrtMove *m = &moves[move];
  *m = (NnrtMove){.from = from_mesh, .to = to_mesh, .ndim = 1, .message = message[move]};
  m->from_dim[0] = each;
  m->to_dim[0] = wanted;
  for (int to = 0; to < b->n_ranks; to++)
    for (int from = 0; from < a->n_ranks; from++) {
      int first = from * each > to * wanted ? from * each : to * wanted;
      int end = (from + 1) * each < (to + 1) * wanted ? (from + 1) * each : (to + 1) * wanted;
      if (end <= first) continue;
      message[move][m->n++] = (NnrtMessage){.from = a->rank[from],
                                            .to = b->rank[to],
                                            .size = {end - first},
                                            .at_from = {first - from * each},
                                            .at_to = {first - to * wanted}};
    }
}

static int64_t draw(uint64_t *state, int64_t below) {
  *state = nnrt_random_mix(*state + 1);
  return (int64_t)(*state >> 33) % below;
}

static int by_receiver(const void *a, const void *b) {
  const NnrtMessage *x = a, *y = b;
  return x->to != y->to ? x->to - y->to : x->share - y->share;
}

// Makes a move of messages between random ranks; some messages are empty, some ranks have no part.
static void make_lot(int move, uint64_t *state) {
  NnrtMove *m = &moves[move];
  *m = (NnrtMove){.ndim = (int)draw(state, 5), .sums = move % 3 == 0, .message = message[move]};
  m->n = (int)draw(state, move % 4 == 0 ? MOST : 6);
  // Some are large, but none larger than AREA.
  static const int64_t large[] = {1, 3000, 50, 12, 5};
  int64_t most = move % 7 == 0 ? large[m->ndim] : 5;
  for (int d = 0; d < m->ndim; d++) {
    m->from_dim[d] = 1 + draw(state, most);
    m->to_dim[d] = 1 + draw(state, most);
  }
  for (int i = 0; i < m->n; i++) {
    NnrtMessage *message_i = &message[move][i];
    *message_i = (NnrtMessage){
        .from = (int)draw(state, row->ranks), .to = (int)draw(state, row->ranks), .share = i};
    for (int d = 0; d < m->ndim; d++) {
      int64_t fits = m->from_dim[d] < m->to_dim[d] ? m->from_dim[d] : m->to_dim[d];
      message_i->size[d] = draw(state, 12) == 0 ? 0 : 1 + draw(state, fits);
      message_i->at_from[d] = draw(state, m->from_dim[d] - message_i->size[d] + 1);
      message_i->at_to[d] = draw(state, m->to_dim[d] - message_i->size[d] + 1);
    }
  }
  qsort(message[move], (size_t)m->n, sizeof **message, by_receiver);
}

static void make_moves(void) {
  const char *seed = getenv("LOTS");
  uint64_t state = seed ? (uint64_t)atoll(seed) : 1;
  make_rows(TO_SECOND, FIRST_mesh, SECOND_mesh);
  moves[TO_SECOND].ahead = row->late;
  make_rows(TO_FIRST, SECOND_mesh, FIRST_mesh);
  for (int i = N_STAGES; i < N_MOVES; i++)
    make_lot(i, &state);
}

static int carry(void *y, const void *x, NnrtRank *r, int move, int width) {
  if (moves[move].sums)
    return width == 4 ? nnrt_move_f32(y, x, r, move) : nnrt_move_i64(y, x, r, move);
  switch (width) {
  case 1: return nnrt_move_b1(y, x, r, move);
  case 2: return nnrt_move_b2(y, x, r, move);
  case 4: return nnrt_move_b4(y, x, r, move);
  }
  return nnrt_move_b8(y, x, r, move);
}

static void run_lot(NnrtRank *r, int move) {
  static const int widths[] = {1, 2, 4, 8};
  const NnrtMove *m = &moves[move];
  const NnrtMessage *messages = (const NnrtMessage *)r->constant[0] + move * MOST;
  Lot lot = {
      .move = move, .rank = r->rank, .width = m->sums ? (move % 2 ? 4 : 8) : widths[move % 4]};
  lot.m = *m;
  bool gives = false;
  for (int i = 0; i < m->n; i++) {
    gives |= m->message[i].from == r->rank;
    lot.gets |= m->message[i].to == r->rank;
  }
  lot.gets |= m->sums && r->rank % 2; // a part without a sender
  void *x = r->slab + AT_give, *y = r->slab + AT_got;
  RUN(OP_lots, lot_give(x, y, I(AT_step), lot));
  if (gives || lot.gets)
    RUN(OP_lots, carry(lot.gets ? y : NULL, gives ? x : NULL, r, move, lot.width));
  RUN(OP_lots, lot_check(I(AT_bad), y, messages, I(AT_step), lot));
}

// ---- the stages

static bool on(const NnrtRank *r, int mesh) {
  return r->coord[mesh][meshes[mesh].axis[0].time] >= 0;
}

static int stop(const NnrtRank *r) {
  if (r->step + 1 != row->fail_step || r->rank != row->second.rank[row->second.n - 1]) return 0;
  return nnrt_error(NNRT_LIBRARY, "made to fail");
}

static void move_late(NnrtRank *r, bool first, bool second) {
  float *x = first ? F(AT_h) : NULL, *y = second ? F(AT_h2) : NULL;
  if (second && !first) RUN(OP_move, nnrt_move_start_b4(y, x, r, TO_SECOND));
  RUN(OP_reduce, nnrt_all_reduce_i64(I(AT_all_bad), I(AT_bad), 1, r, ALL_group));
  RUN(OP_reduce, nnrt_wait(r, I(AT_all_bad)));
  if (first) RUN(OP_move, nnrt_move_start_b4(y, x, r, TO_SECOND));
  if (second) RUN(OP_move, nnrt_move_wait_b4(y, r, TO_SECOND));
}

static void micro(NnrtRank *r, bool first, bool second) {
  Rows rows1 = {BATCH / row->first.n / MICRO, BATCH, r->micro == 0};
  Rows rows2 = {BATCH / row->second.n / MICRO, BATCH, r->micro == 0};
  if (first) RUN(OP_linear, stage_forward(F(AT_h), F(AT_g), F(AT_x), F(AT_w), F(AT_b), rows1));
  if (row->late)
    move_late(r, first, second);
  else if (first || second)
    RUN(OP_move, nnrt_move_b4(second ? F(AT_h2) : NULL, first ? F(AT_h) : NULL, r, TO_SECOND));
  if (second) RUN(OP_error, stop(r));
  if (second) RUN(OP_error, stage_error(F(AT_e2), F(AT_squares), F(AT_h2), I(AT_label), rows2));
  if (first || second)
    RUN(OP_move, nnrt_move_f32(first ? F(AT_e) : NULL, second ? F(AT_e2) : NULL, r, TO_FIRST));
  if (first) RUN(OP_linear, stage_backward(F(AT_g), F(AT_e), F(AT_x), rows1));
}

static void loss(NnrtRank *r) {
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_sum), F(AT_squares), 1, r, SECOND_group));
  RUN(OP_reduce, nnrt_wait(r, F(AT_sum)));
  RUN(OP_error, stage_loss(F(AT_loss), F(AT_sum), I(AT_all_bad)));
}

static void update(NnrtRank *r, bool first, bool second) {
  for (int i = N_STAGES; i < N_MOVES; i++)
    run_lot(r, i);
  RUN(OP_reduce, nnrt_all_reduce_i64(I(AT_all_bad), I(AT_bad), 1, r, ALL_group));
  RUN(OP_reduce, nnrt_wait(r, I(AT_all_bad)));
  if (second) loss(r);
  if (second) RUN(OP_update, stage_decay(F(AT_far), 24 / row->second.n, F(AT_lr2)));
  if (!first) return;
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_g), F(AT_g), 8, r, FIRST_group));
  RUN(OP_reduce, nnrt_wait(r, F(AT_g)));
  RUN(OP_update, stage_update(F(AT_w), F(AT_b), F(AT_v), F(AT_norm), F(AT_g), F(AT_lr)));
}

// Each class of ranks has functions of its own.
#define CODE(name, first, second)                                                                  \
  static void name##_init(NnrtRank *r) {                                                           \
    if (on(r, FIRST_mesh) != (first) || on(r, SECOND_mesh) != (second))                            \
      nnrt_fail(r, OP_linear, nnrt_error(NNRT_LIBRARY, "the code of other ranks"));                \
  }                                                                                                \
  static void name##_micro(NnrtRank *r) {                                                          \
    micro(r, first, second);                                                                       \
  }                                                                                                \
  static void name##_update(NnrtRank *r) {                                                         \
    update(r, first, second);                                                                      \
  }                                                                                                \
  static void name##_eval(NnrtRank *r) {                                                           \
    if (second) loss(r);                                                                           \
  }                                                                                                \
  static const NnrtTask name##_loop = {"micro", NULL, name##_micro, NULL};
CODE(neither, false, false)
CODE(only_first, true, false)
CODE(only_second, false, true)
CODE(both, true, true)

#define CODE_OF(name, more)                                                                        \
  {                                                                                                \
    name##_init, {NULL, 1, &name##_loop, NULL, name##_update},                                     \
        {NULL, 1, &name##_loop, NULL, name##_eval}, SLAB + (more), 0                               \
  }

// The payload of add_payload.py: w, then a model with holes for w as f16 at 8 and b as f64 at 32.
static const NnrtHole holes[] = {{"w", NNRT_f16, 8, 10}, {"b", NNRT_f64, 32, 8}};

int main(int argc, char **argv) {
  row = &programs[program_row(argv[0], programs, N_OF(programs), sizeof *programs)];
  make_meshes();
  make_moves();
  const NnrtRankProgram codes[] = {CODE_OF(neither, 0), CODE_OF(only_first, 0),
                                   CODE_OF(only_second, row->more_bytes),
                                   CODE_OF(both, row->more_bytes)};
  int code_of[MOST_RANKS] = {0};
  for (int i = 0; i < row->first.n; i++)
    code_of[row->first.rank[i]] |= 1;
  for (int i = 0; i < row->second.n; i++)
    code_of[row->second.rank[i]] |= 2;
  const NnrtProgram program = {
      .model = "stages.onnx",
      .plan = "stages",
      .target = TARGET,
      .version = "test",
      .mesh = meshes,
      .n_mesh = N_MESH,
      .group = groups,
      .n_groups = N_GROUPS,
      .move = moves,
      .n_moves = N_MOVES,
      .code = codes,
      .n_codes = N_OF(codes),
      .code_of = code_of,
      .ranks = row->ranks,
      .micro_batches = MICRO,
      .batch = BATCH,
      .train = {train_tensors, N_OF(train_tensors), ops, N_OPS},
      .eval = {eval_tensors, N_OF(eval_tensors), ops, N_OPS},
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
  return nnrt_main(argc, argv, &program);
}
