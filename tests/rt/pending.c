// Many jobs that are pending together: collectives of all kinds, sizes and groups, and moves in
// both queues, drawn by lot for every step.
//
//     rank 0   all_reduce {0,1}   all_gather {0,2}   move   …   wait, wait, …
//     rank 1   all_reduce {0,1}   …pause…  reduce_scatter {1,3}  …
//
// All ranks put their jobs in one order, but each pauses and waits at places of its own.  Every
// result is compared, bit by bit, with one that the rank computes alone: the elements of all ranks
// are functions of the job, and sums are added in the order of the group.
//
// SEED in the environment is the number of a sequence of steps; JOBS the jobs of a step.  With SUMS
// all of them are an all_reduce of so many elements over all ranks, and no rank pauses.

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm.h"
#include "nnrt_random.h"
#include "program_row.h"

enum { MOST_RANKS = 6, N_GROUPS = 3, BATCH = 12, N = 5 };

typedef struct Shape {
  const char *name;
  int a, b;
} Shape;

static const Shape programs[] = {
#define PROGRAM(program, a, b) {#program, a, b},
#include "pending_programs.def"
};
static int64_t seed, jobs, sums; // of the environment; sums < 0: not given

static const int all_ranks[MOST_RANKS] = {0, 1, 2, 3, 4, 5};
static const NnrtGroup groups[N_GROUPS] = {{0, {0, -1}}, {0, {1, -1}}, {0, {0, 1, -1}}};

enum {
  AT_x = 0,
  AT_labels = 512,
  AT_step = 1024,
  AT_loss = 1536,
  AT_w = 2048,
  AT_b = 2560,
  SLAB = 3072
};

static const NnrtTensor tensors[] = {
    {"x", NNRT_input, NNRT_f32, 2, {BATCH, N}, {{-1}, {-1}}, .offset = AT_x},
    {"labels", NNRT_input, NNRT_i64, 1, {BATCH}, {{-1}}, .offset = AT_labels},
    {"w", NNRT_weight, NNRT_f32, 1, {N}, {{-1}}, .offset = AT_w},
    {"b", NNRT_weight, NNRT_f32, 0, {0}, {{-1}}, .offset = AT_b, .init = NNRT_from_fill},
    {"step", NNRT_scalar, NNRT_i64, 0, {0}, {{-1}}, .offset = AT_step},
    {"loss", NNRT_output, NNRT_f32, 0, {0}, {{-1}}, .offset = AT_loss},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };
// The payload of add_payload.py: w, then a model with holes for w as f16 at 8 and b as f64 at 32.
static const NnrtHole holes[] = {{"w", NNRT_f16, 8, 10}, {"b", NNRT_f64, 32, 8}};
enum { OP_jobs, OP_loss };
static const char *const ops[] = {"all_reduce  pending.onnx:/jobs", "sub  pending.onnx:/loss"};
static const NnrtMove moves[] = {{.from = 0, .to = 0, .ndim = 1, .ahead = true}}; // two queues

// ---- jobs by lot, the same on all ranks

typedef struct Drawn {
  bool taken; // this rank is in it
  bool in_place;
  Job job;
  int64_t number; // of a move
  uint64_t key;   // of its elements
  char *x, *y;
} Drawn;

static uint64_t mix(uint64_t a, uint64_t b) {
  return nnrt_random_mix(a ^ nnrt_random_mix(b));
}

static int64_t draw(uint64_t *state, int64_t below) {
  *state = nnrt_random_mix(*state + 1);
  return (int64_t)(*state >> 33) % below;
}

static Drawn draw_job(const NnrtRank *r, int i) {
  static const int64_t sizes[] = {0, 1, 3, 511, 512, 513, 1023, 1024, 1025, 4000, 20000, 100000};
  uint64_t key = mix((uint64_t)seed, mix((uint64_t)r->step, (uint64_t)i)), state = key;
  Drawn d = {.key = key};
  if (sums >= 0) {
    d.job = (Job){JOB_all_reduce, &r->comm->group[N_GROUPS - 1], .n = sums, .dtype = NNRT_f32};
    d.taken = true;
    return d;
  }
  int group = (int)draw(&state, N_GROUPS), kind = (int)draw(&state, 10);
  // Mostly sums, mostly small.
  d.job.kind = kind < 4 ? JOB_all_reduce : (JobKind)(kind - 4) % N_JOB_KINDS;
  d.job.group = &r->comm->group[group];
  d.job.dtype = draw(&state, 2) ? NNRT_f32 : NNRT_i64;
  d.job.n = sizes[draw(&state, draw(&state, 8) ? 9 : 12)];
  d.job.everyone = draw(&state, 4) != 0;
  d.job.ahead = d.job.kind == JOB_move && draw(&state, 2) != 0;
  d.in_place = draw(&state, 2) != 0;
  // Of the groups along an axis, some have this job.
  d.taken = mix(key, (uint64_t)d.job.group->rank[0]) % 8 != 0;
  return d;
}

// Element i of the x of a rank, as bits of its type.  Floats of many sizes: another order of
// additions has other bits.
static void element(const Drawn *d, int rank, int64_t i, void *out) {
  uint64_t bits = mix(d->key, (uint64_t)rank << 40 | (uint64_t)i);
  if (d->job.dtype == NNRT_i64) {
    bits >>= 4; // a sum over all ranks does not overflow
    memcpy(out, &bits, sizeof bits);
    return;
  }
  float value = (float)((double)(bits >> 40) * 0x1p-24 - 0.5);
  value = ldexpf(value, (int)(bits & 15));
  memcpy(out, &value, sizeof value);
}

static void add(NnrtDtype t, void *sum, const void *term) {
  if (t == NNRT_f32) {
    float a, b;
    memcpy(&a, sum, sizeof a);
    memcpy(&b, term, sizeof b);
    a += b;
    memcpy(sum, &a, sizeof a);
    return;
  }
  uint64_t a, b;
  memcpy(&a, sum, sizeof a);
  memcpy(&b, term, sizeof b);
  a += b;
  memcpy(sum, &a, sizeof a);
}

static _Noreturn void differs(const NnrtRank *r, int i, int64_t at) {
  nnrt_fail((NnrtRank *)(uintptr_t)r, OP_jobs,
            nnrt_error(NNRT_LIBRARY, "job %d of step %lld differs at element %lld", i,
                       (long long)r->step, (long long)at));
}

// ---- collectives

static void start(NnrtRank *r, Drawn *d) {
  const JobShape *shape = &nnrt_job_shape[d->job.kind];
  int p = d->job.group->n, me = d->job.group->rank[d->job.group->me];
  int64_t size = nnrt_dtype_size(d->job.dtype);
  int64_t x = d->job.n * (shape->x_parts ? p : 1), y = d->job.n * (shape->y_parts ? p : 1);
  // A group of one rank copies x at once, which only an all_reduce is given.
  if (p == 1) d->job.kind = JOB_all_reduce, x = y = d->job.n;
  if (d->job.kind != JOB_all_gather) d->job.everyone = true;
  d->in_place &= d->job.kind == JOB_all_reduce;
  d->x = malloc((size_t)(x * size) + 1);
  d->y = d->in_place ? d->x : malloc((size_t)(y * size) + 1);
  for (int64_t i = 0; i < x; i++)
    element(d, me, i, d->x + i * size);
  if (!d->in_place) memset(d->y, 0x5a, (size_t)(y * size));
  d->job.x = d->x;
  d->job.y = d->y;
  int code = nnrt_comm_start(r->comm, d->job);
  if (code) nnrt_fail(r, OP_jobs, code);
}

// The result at element i, of `part`.
static void expected(const Drawn *d, int part, int64_t i, void *out) {
  const Group *g = d->job.group;
  int64_t n = d->job.n;
  char term[8];
  switch (d->job.kind) {
  case JOB_all_gather: element(d, g->rank[part], i, out); return;
  case JOB_all_to_all: element(d, g->rank[part], g->me * n + i, out); return;
  default: break;
  }
  int64_t at = d->job.kind == JOB_reduce_scatter ? g->me * n + i : i;
  element(d, g->rank[0], at, out);
  for (int k = 1; k < g->n; k++) {
    element(d, g->rank[k], at, term);
    add(d->job.dtype, out, term);
  }
}

static void finish(NnrtRank *r, Drawn *d, int number) {
  int64_t size = nnrt_dtype_size(d->job.dtype);
  const Group *g = d->job.group;
  int parts = nnrt_job_shape[d->job.kind].y_parts ? g->n : 1;
  int code = nnrt_comm_wait(r->comm, d->y);
  if (code) nnrt_fail(r, OP_jobs, code);
  if (!d->job.everyone && g->me != 0) parts = 0;
  for (int part = 0; part < parts; part++)
    for (int64_t i = 0; i < d->job.n; i++) {
      char want[8];
      expected(d, part, i, want);
      if (memcmp(want, d->y + (part * d->job.n + i) * size, (size_t)size) != 0)
        differs(r, number, part * d->job.n + i);
    }
  if (!d->in_place) free(d->y);
  free(d->x);
}

// ---- moves: a parcel from some ranks to some others

static int64_t parcel_bytes(const Drawn *d, int from, int to) {
  uint64_t bits = mix(d->key, (uint64_t)(from * MOST_RANKS + to));
  if (from == to || bits % 3 == 0) return 0;
  return bits % 16 == 1 ? 300000 : 1 + (int64_t)(bits >> 8) % 5000;
}

static char parcel_byte(const Drawn *d, int from, int to, int64_t i) {
  return (char)mix(d->key + (uint64_t)(from * MOST_RANKS + to), (uint64_t)i / 8 * 8);
}

static void start_move(NnrtRank *r, Drawn *d) {
  int n = r->ranks, to = 0, from = 0;
  for (int k = 1; k < n; k++) {
    to += parcel_bytes(d, r->rank, (r->rank + k) % n) > 0;
    from += parcel_bytes(d, (r->rank + n - k) % n, r->rank) > 0;
  }
  if (!to && !from) return;
  Exchange *e = nnrt_exchange_new(to, from);
  to = from = 0;
  for (int k = 1; k < n; k++) {
    // The order of an exchange: by distance, each way.
    int next = (r->rank + k) % n, last = (r->rank + n - k) % n;
    int64_t out = parcel_bytes(d, r->rank, next), in = parcel_bytes(d, last, r->rank);
    if (out > 0) e->to[to] = nnrt_parcel_new(next, out);
    for (int64_t i = 0; i < out; i++)
      e->to[to].at[i] = parcel_byte(d, r->rank, next, i);
    to += out > 0;
    if (in > 0) e->from[from++] = (Parcel){.peer = last, .bytes = in};
  }
  d->job.exchange = from ? e : NULL; // the queue owns one without receives
  int code = nnrt_comm_move_start(r->comm, e, d->job.ahead, (TraceOf){0}, &d->number);
  if (code) nnrt_fail(r, OP_jobs, code);
}

static void finish_move(NnrtRank *r, Drawn *d, int number) {
  Exchange *e = d->job.exchange;
  if (!e) return;
  int code = nnrt_comm_move_wait(r->comm, d->job.ahead, d->number);
  if (code) nnrt_fail(r, OP_jobs, code);
  for (int k = 0; k < e->n_from; k++)
    for (int64_t i = 0; i < e->from[k].bytes; i++)
      if (e->from[k].at[i] != parcel_byte(d, e->from[k].peer, r->rank, i)) differs(r, number, i);
  nnrt_exchange_free(e);
}

// ---- a step

static void finish_any(NnrtRank *r, Drawn *d, int number) {
  if (!d->taken) return;
  d->taken = false;
  if (d->job.kind == JOB_move)
    finish_move(r, d, number);
  else
    finish(r, d, number);
}

static int run_all(NnrtRank *r) {
  Drawn *d = nnrt_must_alloc((size_t)jobs * sizeof *d);
  // Pauses and waits are the rank's own.
  uint64_t own = mix((uint64_t)r->rank + 1000, mix((uint64_t)seed, (uint64_t)r->step));
  bool hasty = sums >= 0 || draw(&own, 3) == 0; // waits for nothing before the end
  for (int i = 0; i < (int)jobs; i++) {
    d[i] = draw_job(r, i);
    if (!hasty && draw(&own, 16) == 0)
      nanosleep(&(struct timespec){.tv_nsec = draw(&own, 2000000)}, NULL);
    if (d[i].job.kind == JOB_move) {
      d[i].taken = true;
      start_move(r, &d[i]);
    } else if (d[i].taken) {
      start(r, &d[i]);
    }
    int past = (int)draw(&own, i + 1);
    if (!hasty && draw(&own, 8) == 0) finish_any(r, &d[past], past);
  }
  // The rest in another order.
  int first = (int)draw(&own, jobs);
  for (int i = 0; i < (int)jobs; i++)
    finish_any(r, &d[(first + i) % jobs], (int)((first + i) % jobs));
  free(d);
  return 0;
}

static int set_loss(NnrtRank *r) {
  *(float *)(void *)(r->slab + AT_loss) = 1;
  return 0;
}

static void init(NnrtRank *r) {
  (void)r;
}

static void update(NnrtRank *r) {
  RUN(OP_jobs, run_all(r));
  RUN(OP_loss, set_loss(r));
}

static void micro(NnrtRank *r) {
  (void)r;
}

static int64_t variable(const char *name, int64_t usual) {
  const char *text = getenv(name);
  return text ? atoll(text) : usual;
}

int main(int argc, char **argv) {
  int n = (int)(sizeof programs / sizeof *programs);
  const Shape *row = &programs[program_row(argv[0], programs, n, sizeof *programs)];
  seed = variable("SEED", 1);
  jobs = variable("JOBS", 60);
  sums = variable("SUMS", -1);
  int ranks = row->a * row->b, code_of[MOST_RANKS] = {0};
  const NnrtMesh mesh = {
      "", 3, {{"a", row->a, false}, {"b", row->b, false}, {"mb", 1, true}}, ranks, all_ranks};
  static const NnrtTask loop = {"micro", NULL, micro, NULL};
  const NnrtRankProgram code = {
      init, {NULL, 1, &loop, NULL, update}, {NULL, 1, &loop, NULL, update}, SLAB, 0};
  const NnrtProgram program = {
      .model = "pending.onnx",
      .plan = "pending",
      .target = "cpu",
      .version = "test",
      .mesh = &mesh,
      .n_mesh = 1,
      .group = groups,
      .n_groups = N_GROUPS,
      .move = moves,
      .n_moves = 1,
      .code = &code,
      .n_codes = 1,
      .code_of = code_of,
      .ranks = ranks,
      .micro_batches = 1,
      .batch = BATCH,
      .train = {tensors, N_TENSORS, ops, 2},
      .eval = {tensors, N_TENSORS, ops, 2},
      .payload_bytes = 64 + 64 - 10 - 8,
      .lr = 0.01,
      .lr_schedule = "constant",
      .seed = 1,
      .skeleton = 64,
      .skeleton_bytes = 64,
      .holes = holes,
      .n_holes = 2,
  };
  return nnrt_main(argc, argv, &program);
}
