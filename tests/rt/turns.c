// Random schedules: segments on some ranks each, moves between them, and an order for every rank
// that corresponds to a possible timing.
//
//     PROGRAM=3 ORDER=0    slice by slice, every move whole
//     PROGRAM=3 ORDER=7    the same numbers in another order, moves in two, and only as many places
//                          for several slices as that order needs
//
// Segment j reads the results of one or two segments before it: on its own ranks, or by moves.  Its
// result is a hash of its operands, of rows, and of the rank and slice, so any overwritten or
// missing value, or one of another slice, changes the loss, which is of the sum of all.
//
// The row of turns_programs.def with the program's name gives its number of ranks.

#include <stdlib.h>
#include <string.h>

#include "program_row.h"
#include "turns.h"

#ifndef TARGET
#define TARGET "cpu"
#endif

enum { SLICES = 6, BATCH = 12, ROWS = BATCH / SLICES, SEGMENTS = 8, MOVES = 12, MOST = 24 };

static const struct {
  const char *name;
  int ranks;
} programs[] = {
#define PROGRAM(program, ranks) {#program, ranks},
#include "turns_programs.def"
};
enum { MOST_RANKS = 4 };
static int ranks; // of the running program

// ---- the program

typedef struct Segment {
  bool on[MOST_RANKS];
  bool reads;        // rows
  bool meets;        // its ranks all-reduce their results
  int here, move[2]; // its operands: of a segment on the same ranks, by moves; -1: none
  NnrtTask part;
} Segment;

typedef struct Move {
  int from, to; // segments
  NnrtTask part;
} Move;

static Segment segment[SEGMENTS];
static Move move_of[MOVES];
static int n_moves;
static NnrtMessage message[MOVES][MOST];
static NnrtMove moves[MOVES];

enum { ALL_mesh, N_MESH = SEGMENTS + 1 };
static const int all_ranks[] = {0, 1, 2, 3}; // the first `ranks` of these
static int mesh_rank[SEGMENTS][MOST_RANKS];
static NnrtMesh meshes[N_MESH];
static NnrtGroup groups[SEGMENTS + 1]; // of each segment, and all

// Number of slices resident at once, for each of these.
static int slots_of_x = 1, slots_of_out[SEGMENTS], slots_of_got[MOVES];

enum {
  PLACE = 256, // bytes for PART elements
  AT_x = 0,
  AT_labels = AT_x + SLICES * PLACE,
  AT_out = AT_labels + SLICES * PLACE,
  AT_got = AT_out + SEGMENTS * SLICES * PLACE,
  AT_meet = AT_got + MOVES * SLICES * PLACE,
  AT_sum = AT_meet + PLACE,
  AT_all = AT_sum + PLACE,
  AT_loss = AT_all + PLACE,
  SLAB = AT_loss + PLACE,
};

static int64_t *place(NnrtRank *r, int at, int slots) {
  return (int64_t *)(void *)(r->slab + at + r->micro % slots * PLACE);
}

static int64_t *out_of(NnrtRank *r, int s) {
  return place(r, AT_out + s * SLICES * PLACE, slots_of_out[s]);
}

static int64_t *got_of(NnrtRank *r, int m) {
  return place(r, AT_got + m * SLICES * PLACE, slots_of_got[m]);
}

enum { OP_make, OP_move, OP_wait, OP_reduce, N_OPS };
static const char *const ops[] = {"make  turns", "move  turns", "wait  turns", "all_reduce  turns"};

// ---- work of segments

static void start_move(NnrtRank *r, int m) {
  int64_t *y = segment[move_of[m].to].on[r->rank] ? got_of(r, m) : NULL;
  const int64_t *x = segment[move_of[m].from].on[r->rank] ? out_of(r, move_of[m].from) : NULL;
  if (moves[m].sums)
    RUN(OP_move, nnrt_move_start_i64(y, x, r, m));
  else
    RUN(OP_move, nnrt_move_start_b8(y, x, r, m));
}

static void wait_move(NnrtRank *r, int m) {
  if (moves[m].sums)
    RUN(OP_wait, nnrt_move_wait_i64(got_of(r, m), r, m));
  else
    RUN(OP_wait, nnrt_move_wait_b8(got_of(r, m), r, m));
}

static void whole_move(NnrtRank *r, int m) {
  bool gives = segment[move_of[m].from].on[r->rank], gets = segment[move_of[m].to].on[r->rank];
  int64_t *y = gets ? got_of(r, m) : NULL;
  const int64_t *x = gives ? out_of(r, move_of[m].from) : NULL;
  if (!gives && !gets) return;
  if (moves[m].sums)
    RUN(OP_move, nnrt_move_i64(y, x, r, m));
  else
    RUN(OP_move, nnrt_move_b8(y, x, r, m));
}

static void run_segment(NnrtRank *r, int s) {
  const Segment *me = &segment[s];
  int64_t *out = out_of(r, s), *meet = (int64_t *)(void *)(r->slab + AT_meet);
  int64_t who = (s * ranks + r->rank) * SLICES + r->coord[ALL_mesh][0];
  const float *x = (const float *)place(r, AT_x, slots_of_x);
  RUN(OP_make, turn_make(out, me->reads ? x : NULL, place(r, AT_labels, slots_of_x), ROWS, who));
  if (me->here >= 0) RUN(OP_make, turn_mix(out, out_of(r, me->here)));
  for (int i = 0; i < 2; i++)
    if (me->move[i] >= 0) RUN(OP_make, turn_mix(out, got_of(r, me->move[i])));
  if (me->meets) {
    RUN(OP_reduce, nnrt_all_reduce_i64(meet, out, PART, r, s));
    RUN(OP_reduce, nnrt_wait(r, meet));
    RUN(OP_make, turn_mix(out, meet));
  }
  int64_t *sum = (int64_t *)(void *)(r->slab + AT_sum) + s;
  RUN(OP_make, turn_sum(sum, out, r->micro == 0));
}

static void start_segment(NnrtRank *r, int s) {
  for (int m = 0; m < n_moves; m++)
    if (move_of[m].from == s) start_move(r, m);
}

static void wait_segment(NnrtRank *r, int s) {
  for (int i = 0; i < 2; i++)
    if (segment[s].move[i] >= 0) wait_move(r, segment[s].move[i]);
}

static void run_slice(NnrtRank *r) {
  for (int s = 0; s < SEGMENTS; s++) {
    for (int i = 0; i < 2; i++)
      if (segment[s].move[i] >= 0) whole_move(r, segment[s].move[i]);
    if (segment[s].on[r->rank]) run_segment(r, s);
  }
}

static void update(NnrtRank *r) {
  int64_t *all = (int64_t *)(void *)(r->slab + AT_all);
  RUN(OP_reduce,
      nnrt_all_reduce_i64(all, (int64_t *)(void *)(r->slab + AT_sum), PART, r, SEGMENTS));
  RUN(OP_reduce, nnrt_wait(r, all));
  RUN(OP_make, turn_sum(all, all, true));
  RUN(OP_make, turn_loss((float *)(void *)(r->slab + AT_loss), all));
}

#define SEGMENT(s)                                                                                 \
  static void wait_##s(NnrtRank *r) {                                                              \
    wait_segment(r, s);                                                                            \
  }                                                                                                \
  static void run_##s(NnrtRank *r) {                                                               \
    run_segment(r, s);                                                                             \
  }                                                                                                \
  static void start_##s(NnrtRank *r) {                                                             \
    start_segment(r, s);                                                                           \
  }
#define MOVE(m)                                                                                    \
  static void get_##m(NnrtRank *r) {                                                               \
    start_move(r, m);                                                                              \
  }
// clang-format off
SEGMENT(0) SEGMENT(1) SEGMENT(2) SEGMENT(3) SEGMENT(4) SEGMENT(5) SEGMENT(6) SEGMENT(7)
MOVE(0) MOVE(1) MOVE(2) MOVE(3) MOVE(4) MOVE(5) MOVE(6) MOVE(7) MOVE(8) MOVE(9) MOVE(10) MOVE(11)

#define SEGMENT_PART(s) {"s" #s, wait_##s, run_##s, start_##s}
#define MOVE_PART(m) {"get " #m, NULL, NULL, get_##m}
static const NnrtTask segment_part[] = {
    SEGMENT_PART(0), SEGMENT_PART(1), SEGMENT_PART(2), SEGMENT_PART(3),
    SEGMENT_PART(4), SEGMENT_PART(5), SEGMENT_PART(6), SEGMENT_PART(7)};
static const NnrtTask move_part[] = {
    MOVE_PART(0), MOVE_PART(1), MOVE_PART(2), MOVE_PART(3), MOVE_PART(4), MOVE_PART(5),
    MOVE_PART(6), MOVE_PART(7), MOVE_PART(8), MOVE_PART(9), MOVE_PART(10), MOVE_PART(11)};
static const NnrtTask slice_part = {"slice", NULL, run_slice, NULL};
// clang-format on

// ---- drawing a program

static int64_t draw(uint64_t *state, int64_t below) {
  *state = nnrt_random_mix(*state + 1);
  return (int64_t)(*state >> 33) % below;
}

static int by_receiver(const void *a, const void *b) {
  const NnrtMessage *x = a, *y = b;
  return x->to != y->to ? x->to - y->to : x->share - y->share;
}

// Draws boxes from ranks of one segment to ranks of another, which may be the same.
static void draw_messages(int m, uint64_t *state) {
  NnrtMove *k = &moves[m];
  const Segment *from = &segment[move_of[m].from], *to = &segment[move_of[m].to];
  *k = (NnrtMove){.from = 1 + move_of[m].from, .to = 1 + move_of[m].to, .ndim = 1};
  k->from_dim[0] = k->to_dim[0] = PART;
  k->sums = true; // else elements without a sender would be of an older slice
  k->message = message[m];
  for (int i = 0, n = 4 + (int)draw(state, MOST - 4); i < n; i++) {
    NnrtMessage *w = &message[m][k->n];
    *w = (NnrtMessage){.from = (int)draw(state, ranks), .to = (int)draw(state, ranks), .share = i};
    w->size[0] = 1 + draw(state, PART);
    w->at_from[0] = draw(state, PART - w->size[0] + 1);
    w->at_to[0] = draw(state, PART - w->size[0] + 1);
    k->n += from->on[w->from] && to->on[w->to];
  }
  qsort(message[m], (size_t)k->n, sizeof **message, by_receiver);
  // In one case of three, one rank sends its whole part to each receiver, which is no sum.
  if (draw(state, 3) > 0) return;
  int giver = 0;
  while (!from->on[giver])
    giver++;
  k->sums = false;
  k->n = 0;
  for (int rank = 0; rank < ranks; rank++)
    if (to->on[rank]) message[m][k->n++] = (NnrtMessage){.from = giver, .to = rank, .size = {PART}};
}

static void get_of(int s, int from, int which, uint64_t *state) {
  if (memcmp(segment[s].on, segment[from].on, sizeof segment[s].on) == 0) {
    segment[s].here = from;
    return;
  }
  if (n_moves == MOVES) return;
  move_of[n_moves] = (Move){.from = from, .to = s};
  segment[s].move[which] = n_moves++;
  draw_messages(segment[s].move[which], state);
}

static void draw_segment(int s, uint64_t *state) {
  Segment *me = &segment[s];
  *me = (Segment){.here = -1, .move = {-1, -1}};
  int n = 0;
  if (s > 0 && draw(state, 3) == 0) // on the ranks of another
    memcpy(me->on, segment[draw(state, s)].on, sizeof me->on);
  else
    for (int rank = 0; rank < ranks; rank++)
      me->on[rank] = draw(state, 3) == 0;
  for (int rank = 0; rank < ranks; rank++)
    n += me->on[rank];
  if (n == 0) me->on[draw(state, ranks)] = true;
  n = 0;
  for (int rank = 0; rank < ranks; rank++)
    if (me->on[rank]) mesh_rank[s][n++] = rank;
  meshes[1 + s] = (NnrtMesh){"s", 2, {{"mb", SLICES, true}, {"dp", n, false}}, n, mesh_rank[s]};
  groups[s] = (NnrtGroup){1 + s, {1, -1}};
  me->reads = draw(state, 2);
  me->meets = n > 1 && draw(state, 3) == 0;
  for (int i = 0; i < 2 && s > 0; i++)
    if (i == 0 || draw(state, 2)) get_of(s, (int)draw(state, s), i, state);
}

// ---- drawing an order

// The end of each segment in each slice, all at different times, and the order of their starts.
static int64_t end_of[SEGMENTS][SLICES];
static struct { int segment, slice; } started[SEGMENTS * SLICES];

static bool needs(int s, int from) {
  if (segment[s].here == from) return true;
  for (int i = 0; i < 2; i++)
    if (segment[s].move[i] >= 0 && move_of[segment[s].move[i]].from == from) return true;
  return false;
}

static bool is_ready(int s, const int *done) {
  if (done[s] == SLICES) return false;
  for (int from = 0; from < s; from++)
    if (needs(s, from) && done[from] <= done[s]) return false;
  return true;
}

static void draw_times(uint64_t *state) {
  int done[SEGMENTS] = {0};
  int64_t idle_at[MOST_RANKS] = {0};
  for (int i = 0; i < SEGMENTS * SLICES; i++) {
    int s;
    do
      s = (int)draw(state, SEGMENTS);
    while (!is_ready(s, done));
    int slice = done[s]++;
    int64_t start = draw(state, 4);
    for (int rank = 0; rank < ranks; rank++)
      if (segment[s].on[rank] && idle_at[rank] > start) start = idle_at[rank];
    for (int from = 0; from < s; from++)
      if (needs(s, from) && end_of[from][slice] / 1000 >= start)
        start = end_of[from][slice] / 1000 + 1;
    int64_t end = start + 1 + draw(state, 20);
    for (int rank = 0; rank < ranks; rank++)
      if (segment[s].on[rank]) idle_at[rank] = end + draw(state, 3);
    end_of[s][slice] = 1000 * end + i;
    started[i].segment = s;
    started[i].slice = slice;
  }
}

typedef struct Turn { // of a segment, or of a move to receive
  int segment, move, slice;
  int64_t time; // its end; of a move, the end of the segment that sends
} Turn;

enum { TURNS = (SEGMENTS + MOVES) * SLICES };
typedef struct Order {
  Turn turn[TURNS];
  int n;
} Order;
static Order order_of[MOST_RANKS];

static bool only_gets(int rank, int m) {
  return segment[move_of[m].to].on[rank] && !segment[move_of[m].from].on[rank];
}

static int by_time(const void *a, const void *b) {
  const Turn *x = a, *y = b;
  return x->time != y->time ? (x->time > y->time) - (x->time < y->time) : x->move - y->move;
}

// A receive comes before the first segment that ends after the end of its sender.
static void order_rank(int rank) {
  Order *o = &order_of[rank];
  for (int i = 0; i < SEGMENTS * SLICES; i++) {
    int s = started[i].segment, slice = started[i].slice;
    if (segment[s].on[rank]) o->turn[o->n++] = (Turn){s, -1, slice, end_of[s][slice]};
    for (int m = 0; m < n_moves; m++)
      if (move_of[m].from == s && only_gets(rank, m))
        o->turn[o->n++] = (Turn){-1, m, slice, end_of[s][slice]};
  }
  qsort(o->turn, (size_t)o->n, sizeof *o->turn, by_time);
}

// ---- live ranges

// The live range, in turns of a rank, of a value of each slice.
typedef struct Lives {
  int from[SLICES], to[SLICES];
} Lives;

static void extend(Lives *l, int slice, int turn) {
  if (l->from[slice] < 0) l->from[slice] = turn;
  l->to[slice] = turn;
}

static bool collide(const Lives *l, int slots) {
  for (int a = 0; a < SLICES; a++)
    for (int b = a + slots; b < SLICES; b += slots)
      if (l->from[a] >= 0 && l->from[b] >= 0 && l->from[b] <= l->to[a]) return true;
  return false;
}

// Whether a turn writes or reads a value: rows, results of segments, results of moves.
static bool touches_out(const Turn *t, int s) {
  return t->segment == s || (t->segment >= 0 && segment[t->segment].here == s);
}

static bool touches_got(const Turn *t, int m, int rank) {
  if (t->segment < 0) return t->move == m;
  bool starts = move_of[m].from == t->segment && segment[move_of[m].to].on[rank];
  return starts || move_of[m].to == t->segment;
}

static int fewest_slots(bool (*touches)(const Turn *t, int what, int rank), int what) {
  int slots = 1;
  for (int rank = 0; rank < ranks; rank++) {
    Lives l;
    memset(&l, -1, sizeof l);
    for (int i = 0; i < order_of[rank].n; i++)
      if (touches(&order_of[rank].turn[i], what, rank)) extend(&l, order_of[rank].turn[i].slice, i);
    while (collide(&l, slots))
      slots++;
  }
  return slots;
}

static bool rows_touch(const Turn *t, int what, int rank) {
  (void)what;
  (void)rank;
  return t->segment >= 0; // rows are copied before the first
}

static bool out_touches(const Turn *t, int what, int rank) {
  (void)rank;
  return touches_out(t, what);
}

// ---- tables

static NnrtTask parts[MOST_RANKS][SEGMENTS + MOVES];
static int orders[MOST_RANKS][TURNS];
static NnrtRankProgram codes[MOST_RANKS];
static int code_of[MOST_RANKS];

static void init(NnrtRank *r) {
  (void)r;
}

static NnrtTask part_of_segment(int rank, int s) {
  NnrtTask part = segment_part[s];
  bool starts = false;
  for (int m = 0; m < n_moves; m++)
    starts |= move_of[m].from == s;
  if (!starts) part.start = NULL;
  if (segment[s].move[0] < 0 && segment[s].move[1] < 0) part.wait = NULL;
  (void)rank;
  return part;
}

static void list_turns(int rank, NnrtSchedule *steps) {
  int number[SEGMENTS + MOVES];
  memset(number, -1, sizeof number);
  for (int i = 0; i < order_of[rank].n; i++) {
    const Turn *t = &order_of[rank].turn[i];
    int what = t->segment >= 0 ? t->segment : SEGMENTS + t->move;
    if (number[what] < 0) {
      number[what] = steps->n_parts++;
      parts[rank][number[what]] =
          t->segment >= 0 ? part_of_segment(rank, t->segment) : move_part[t->move];
    }
    orders[rank][i] = number[what];
  }
  steps->part = parts[rank];
  steps->order = orders[rank];
}

static NnrtTensor tensors[] = {
    {"x",
     NNRT_input,
     NNRT_f32,
     2,
     {BATCH, COLUMNS},
     {{0, -1}, {-1}},
     .offset = AT_x,
     .stride = PLACE},
    {"labels", NNRT_input, NNRT_i64, 1, {BATCH}, {{0, -1}}, .offset = AT_labels, .stride = PLACE},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, {{-1}}, .offset = AT_loss},
};

static uint64_t number_of(const char *name) {
  const char *text = getenv(name);
  return text ? (uint64_t)atoll(text) : 0;
}

static void make(void) {
  uint64_t program = 1000 * number_of("PROGRAM"), order = number_of("ORDER"), state = 77 * order;
  meshes[ALL_mesh] =
      (NnrtMesh){"all", 2, {{"mb", SLICES, true}, {"dp", ranks, false}}, ranks, all_ranks};
  for (int s = 0; s < SEGMENTS; s++)
    draw_segment(s, &program);
  groups[SEGMENTS] = (NnrtGroup){ALL_mesh, {1, -1}};
  for (int i = 0; i < SEGMENTS; i++)
    slots_of_out[i] = 1;
  for (int m = 0; m < MOVES; m++)
    slots_of_got[m] = 1;
  for (int m = 0; m < n_moves; m++)
    moves[m].ahead = order != 0;
  if (order) {
    draw_times(&state);
    for (int rank = 0; rank < ranks; rank++)
      order_rank(rank);
    for (int s = 0; s < SEGMENTS; s++)
      slots_of_out[s] = fewest_slots(out_touches, s);
    for (int m = 0; m < n_moves; m++)
      slots_of_got[m] = fewest_slots(touches_got, m);
    slots_of_x = fewest_slots(rows_touch, 0);
  }
  for (int i = 0; i < 2 && slots_of_x > 1; i++)
    tensors[i].slots = slots_of_x;
  for (int rank = 0; rank < ranks; rank++) {
    NnrtSchedule steps = {.update = update};
    if (order)
      list_turns(rank, &steps);
    else {
      steps.n_parts = 1;
      steps.part = &slice_part;
    }
    codes[rank] = (NnrtRankProgram){init, steps, steps, SLAB, 0};
    code_of[rank] = rank;
  }
}

int main(int argc, char **argv) {
  int n = sizeof programs / sizeof *programs;
  ranks = programs[program_row(argv[0], programs, n, sizeof *programs)].ranks;
  make();
  const NnrtProgram program = {
      .model = "turns.onnx",
      .plan = "turns",
      .target = TARGET,
      .version = "test",
      .mesh = meshes,
      .n_mesh = N_MESH,
      .group = groups,
      .n_groups = SEGMENTS + 1,
      .move = moves,
      .n_moves = MOVES,
      .code = codes,
      .n_codes = ranks,
      .code_of = code_of,
      .ranks = ranks,
      .micro_batches = SLICES,
      .batch = BATCH,
      .train = {tensors, 3, ops, N_OPS},
      .eval = {tensors, 3, ops, N_OPS},
      .payload_bytes = 64 + 64 - 10 - 8,
      .lr = 0.01,
      .lr_schedule = "constant",
      .seed = 1,
  };
  return nnrt_main(argc, argv, &program);
}
