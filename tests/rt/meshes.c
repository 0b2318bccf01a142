// A program of two stages, as the compiler would write it, by hand: h = x w + b on a mesh `first`,
// its error and the loss on a mesh `second`, and weights on others.  Which ranks those have, the
// tests choose: they may be apart, overlap, come in another order, or all be one rank.
//
//     first    h = x w + b                      dw, db from e; momentum
//     move           h ──┐                ┌── e
//     second             └─ e = h - label ┘     loss = mean e^2
//
// Besides, every step runs moves of messages that are drawn by lot, of parts of all shapes, and
// compares what each rank gets with what the messages say, done one element after the other.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nnrt.h"
#include "nnrt_random.h"

#ifndef RANKS
#define RANKS 1
#endif
#ifndef FIRST // the ranks of the meshes
#define FIRST 0
#endif
#ifndef SECOND
#define SECOND 0
#endif
#ifndef THIRD // of three places
#define THIRD 0
#endif
#ifndef STOP_AT // a step in which the last rank of `second` fails
#define STOP_AT -1
#endif

enum { MICRO = 2, BATCH = 16, N = 5 };
enum { ALL_mesh, FIRST_mesh, SECOND_mesh, THIRD_mesh, N_MESH };

static const int all_ranks[] = {0, 1, 2, 3}; // the first RANKS of them
static const int first_ranks[] = {FIRST}, second_ranks[] = {SECOND}, third_ranks[] = {THIRD};
#define N_OF(list) ((int)(sizeof(list) / sizeof *(list)))
enum { N_FIRST = N_OF(first_ranks), N_SECOND = N_OF(second_ranks), N_THIRD = N_OF(third_ranks) };

static const NnrtMesh meshes[] = {
    {"all", 2, {{"mb", MICRO, true}, {"dp", RANKS, false}}, RANKS, all_ranks},
    {"first", 2, {{"mb", MICRO, true}, {"dp", N_FIRST, false}}, N_FIRST, first_ranks},
    {"second", 2, {{"mb", MICRO, true}, {"dp", N_SECOND, false}}, N_SECOND, second_ranks},
    {"third", 1, {{"tp", N_THIRD, false}}, N_THIRD, third_ranks},
};
enum { FIRST_group, SECOND_group };
static const NnrtGroup groups[] = {{FIRST_mesh, {1, -1}}, {SECOND_mesh, {1, -1}}};

// The slab: what the meshes have is side by side, though no rank need have all of it.
enum {
  ROWS_1 = BATCH / N_FIRST / MICRO,
  ROWS_2 = BATCH / N_SECOND / MICRO,
  AT_x = 0,
  AT_w = AT_x + 16 * N * 4,
  AT_b = AT_w + 32,
  AT_v = AT_b + 16,
  AT_lr = AT_v + 32,
  AT_lr2 = AT_lr + 16,
  AT_g = AT_lr2 + 16, // f32[8]: gradients of w and b
  AT_h = AT_g + 32,
  AT_e = AT_h + 64,
  AT_norm = AT_e + 64,
  AT_h2 = AT_norm + 16,
  AT_e2 = AT_h2 + 64,
  AT_label = AT_e2 + 64,
  AT_squares = AT_label + 16 * 8,
  AT_loss = AT_squares + 16,
  AT_far = AT_loss + 16,  // f32[24], cut on `second`
  AT_near = AT_far + 96,  // f32[24,2], whole on `second`
  AT_cut = AT_near + 192, // f32[4,12], columns cut on `third`
  AT_wide = AT_cut + 192, // f32[12], cut on all
  SLAB = AT_wide + 64,
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

enum { OP_linear, OP_move, OP_error, OP_reduce, OP_lots, N_OPS };
static const char *const ops[] = {"linear  line.onnx:/fc/Gemm", "move  h", "sub  line.onnx:/loss",
                                  "all_reduce  grads of /fc", "move  by lot"};

// ---- moves: those of the stages, then those drawn by lot

enum { TO_SECOND, TO_FIRST, N_STAGES, N_LOTS = 60, N_MOVES = N_STAGES + N_LOTS, MOST = 40 };

static NnrtMessage message[N_MOVES][MOST];
static NnrtMove moves[N_MOVES];

// Rows that are cut evenly over the ranks of one list, to those of another.
static void make_rows(int move, int from_mesh, int to_mesh) {
  const NnrtMesh *a = &meshes[from_mesh], *b = &meshes[to_mesh];
  int rows = BATCH / MICRO, each = rows / a->n_ranks, wanted = rows / b->n_ranks;
  NnrtMove *m = &moves[move];
  *m = (NnrtMove){.from = from_mesh, .to = to_mesh, .rank = 1, .message = message[move]};
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

// Messages from anybody to anybody; some have nothing in them, some ranks no part.
static void make_lot(int move, uint64_t *state) {
  NnrtMove *m = &moves[move];
  *m = (NnrtMove){.rank = (int)draw(state, 5), .sums = move % 3 == 0, .message = message[move]};
  m->n = (int)draw(state, move % 4 == 0 ? MOST : 6);
  for (int d = 0; d < m->rank; d++) {
    m->from_dim[d] = 1 + draw(state, move % 7 == 0 ? 20 : 5);
    m->to_dim[d] = 1 + draw(state, move % 7 == 0 ? 20 : 5);
  }
  for (int i = 0; i < m->n; i++) {
    NnrtMessage *message_i = &message[move][i];
    *message_i =
        (NnrtMessage){.from = (int)draw(state, RANKS), .to = (int)draw(state, RANKS), .share = i};
    for (int d = 0; d < m->rank; d++) {
      int64_t most = m->from_dim[d] < m->to_dim[d] ? m->from_dim[d] : m->to_dim[d];
      message_i->size[d] = draw(state, 12) == 0 ? 0 : 1 + draw(state, most);
      message_i->at_from[d] = draw(state, m->from_dim[d] - message_i->size[d] + 1);
      message_i->at_to[d] = draw(state, m->to_dim[d] - message_i->size[d] + 1);
    }
  }
  qsort(message[move], (size_t)m->n, sizeof **message, by_receiver);
}

__attribute__((constructor)) static void make_moves(void) {
  const char *seed = getenv("LOTS");
  uint64_t state = seed ? (uint64_t)atoll(seed) : 1;
  make_rows(TO_SECOND, FIRST_mesh, SECOND_mesh);
  make_rows(TO_FIRST, SECOND_mesh, FIRST_mesh);
  for (int i = N_STAGES; i < N_MOVES; i++)
    make_lot(i, &state);
}

static int64_t count(const NnrtMove *m, const int64_t *dim) {
  int64_t n = 1;
  for (int d = 0; d < m->rank; d++)
    n *= dim[d];
  return n;
}

// Element i of rank's part before, of a move in a step; in sums the order of adding has other bits.
static double element(const NnrtRank *r, int move, int rank, int64_t i) {
  if (moves[move].sums) return 1.0 / (double)(1 + rank + (i + r->step) % 1000);
  return (double)(nnrt_random_mix((uint64_t)(i * RANKS + rank + 1000 * (r->step + move))) >> 40);
}

static void set(void *at, int64_t i, int width, bool sums, double x) {
  float f = (float)x;
  int64_t integer = sums ? (int64_t)(1e9 * x) : (int64_t)x;
  memcpy((char *)at + i * width, sums && width == 4 ? (void *)&f : (void *)&integer, (size_t)width);
}

static void add(void *y, int64_t i, const void *x, int64_t j, int width) {
  if (width == 4)
    ((float *)y)[i] += ((const float *)x)[j];
  else
    ((int64_t *)y)[i] += ((const int64_t *)x)[j];
}

// y += or = the box of one message, one element after the other.
static void deliver(void *y, const void *x, int move, const NnrtMessage *what, int width) {
  const NnrtMove *m = &moves[move];
  for (int64_t k = 0, n = count(m, what->size); k < n; k++) {
    int64_t from = 0, to = 0, rest = k, from_stride = 1, to_stride = 1;
    for (int d = m->rank - 1; d >= 0; d--) {
      int64_t at = rest % what->size[d];
      rest /= what->size[d];
      from += (what->at_from[d] + at) * from_stride;
      to += (what->at_to[d] + at) * to_stride;
      from_stride *= m->from_dim[d];
      to_stride *= m->to_dim[d];
    }
    if (m->sums)
      add(y, to, x, from, width);
    else
      memcpy((char *)y + to * width, (const char *)x + from * width, (size_t)width);
  }
}

static void fill(void *x, const NnrtRank *r, int move, int rank, int width) {
  for (int64_t i = 0, n = count(&moves[move], moves[move].from_dim); i < n; i++)
    set(x, i, width, moves[move].sums, element(r, move, rank, i));
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

static int check_lot(NnrtRank *r, int move) {
  static const int widths[] = {1, 2, 4, 8};
  const NnrtMove *m = &moves[move];
  int width = m->sums ? (move % 2 ? 4 : 8) : widths[move % 4];
  size_t bytes = (size_t)(count(m, m->to_dim) * width);
  size_t from_bytes = (size_t)(count(m, m->from_dim) * width);
  bool gives = false, gets = false;
  for (int i = 0; i < m->n; i++) {
    gives |= m->message[i].from == r->rank;
    gets |= m->message[i].to == r->rank;
  }
  gets |= m->sums && r->rank % 2; // a part that nobody sends to
  char *y = malloc(bytes), *expected = malloc(bytes), *x = malloc(from_bytes);
  memset(y, 77, bytes);
  memset(expected, m->sums && gets ? 0 : 77, bytes);
  for (int i = 0; i < m->n; i++)
    if (m->message[i].to == r->rank) {
      fill(x, r, move, m->message[i].from, width);
      deliver(expected, x, move, &m->message[i], width);
    }
  fill(x, r, move, r->rank, width);
  int code = gives || gets ? carry(gets ? y : NULL, gives ? x : NULL, r, move, width) : 0;
  memset(x, 55, from_bytes); // what was given is the giver's again
  if (!code && memcmp(y, expected, bytes) != 0)
    code = nnrt_error(NNRT_COMM, "rank %d: move %d of elements of %d bytes: wrong", r->rank, move,
                      width);
  free(y);
  free(expected);
  free(x);
  return code;
}

// ---- the stages

static int forward(NnrtRank *r) {
  if (r->micro == 0) memset(F(AT_g), 0, 32);
  for (int i = 0; i < ROWS_1; i++) {
    F(AT_h)[i] = F(AT_b)[0];
    for (int j = 0; j < N; j++)
      F(AT_h)[i] += F(AT_x)[i * N + j] * F(AT_w)[j];
  }
  return 0;
}

static int error(NnrtRank *r) {
  if (r->micro == 0) F(AT_squares)[0] = 0;
  for (int i = 0; i < ROWS_2; i++) {
    float e = F(AT_e2)[i] = F(AT_h2)[i] - (float)I(AT_label)[i];
    F(AT_squares)[0] += e * e / BATCH;
  }
  if (r->step == STOP_AT && r->rank == second_ranks[N_SECOND - 1])
    return nnrt_error(NNRT_LIBRARY, "made to fail");
  return 0;
}

static int backward(NnrtRank *r) {
  for (int i = 0; i < ROWS_1; i++)
    for (int j = 0; j <= N; j++)
      F(AT_g)[j] += 2 * F(AT_e)[i] * (j < N ? F(AT_x)[i * N + j] : 1) / BATCH;
  return 0;
}

static bool on(const NnrtRank *r, int mesh) {
  return r->coord[mesh][meshes[mesh].axis[0].time] >= 0;
}

static void micro(NnrtRank *r, bool first, bool second) {
  if (first) RUN(OP_linear, forward(r));
  if (first || second)
    RUN(OP_move, nnrt_move_b4(second ? F(AT_h2) : NULL, first ? F(AT_h) : NULL, r, TO_SECOND));
  if (second) RUN(OP_error, error(r));
  if (first || second)
    RUN(OP_move, nnrt_move_f32(first ? F(AT_e) : NULL, second ? F(AT_e2) : NULL, r, TO_FIRST));
  if (first) RUN(OP_linear, backward(r));
}

static void update_first(NnrtRank *r) {
  float *g = F(AT_g), *v = F(AT_v), squares = 0;
  RUN(OP_reduce, nnrt_all_reduce_f32(g, g, 8, r, FIRST_group));
  RUN(OP_reduce, nnrt_wait(r, g));
  for (int j = 0; j <= N; j++) {
    squares += g[j] * g[j];
    v[j] = 0.9f * v[j] + g[j];
    *(j < N ? &F(AT_w)[j] : F(AT_b)) -= F(AT_lr)[0] * v[j];
  }
  F(AT_norm)[0] = sqrtf(squares);
}

static void loss(NnrtRank *r) {
  RUN(OP_reduce, nnrt_all_reduce_f32(F(AT_loss), F(AT_squares), 1, r, SECOND_group));
  RUN(OP_reduce, nnrt_wait(r, F(AT_loss)));
}

static void update(NnrtRank *r, bool first, bool second) {
  for (int i = N_STAGES; i < N_MOVES; i++)
    RUN(OP_lots, check_lot(r, i));
  if (second) loss(r);
  for (int j = 0; second && j < 24 / N_SECOND; j++)
    F(AT_far)[j] -= F(AT_lr2)[0] * F(AT_far)[j];
  if (first) update_first(r);
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
  }
CODE(neither, false, false)
CODE(only_first, true, false)
CODE(only_second, false, true)
CODE(both, true, true)

#define ROW(name)                                                                                  \
  { name##_init, name##_micro, name##_update, name##_micro, name##_eval, SLAB }
static const NnrtCode codes[] = {ROW(neither), ROW(only_first), ROW(only_second), ROW(both)};
static int code_of[RANKS];

__attribute__((constructor)) static void choose_codes(void) {
  for (int i = 0; i < N_FIRST; i++)
    code_of[first_ranks[i]] |= 1;
  for (int i = 0; i < N_SECOND; i++)
    code_of[second_ranks[i]] |= 2;
}

// The payload of add_payload.py: w, then a model with holes for w as f16 at 8 and b as f64 at 32.
static const NnrtHole holes[] = {{"w", NNRT_f16, 8, 10}, {"b", NNRT_f64, 32, 8}};

const NnrtProgram nnrt_program = {
    .model = "stages.onnx",
    .plan = "stages",
    .target = "cpu",
    .version = "test",
    .mesh = meshes,
    .n_mesh = N_MESH,
    .group = groups,
    .n_groups = 2,
    .move = moves,
    .n_moves = N_MOVES,
    .code = codes,
    .n_codes = 4,
    .code_of = code_of,
    .ranks = RANKS,
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
};
