// The assignment as a 0/1 program, for CBC or for a file. A budget of work limits CBC, so that it
// has the same answer on any machine; the clock limits it if the estimate of work is wrong.
//
//     minimise  t                                    of the slowest run, as a part of the start's
//     choose    sum over r of x(u, r) = 1            unit u is on one run of ranks
//     cover     sum over r with rank k of use(r) = 1 each rank is in one run
//     on        x(u, r) <= use(r)
//     work      sum over u of x(u, r) >= use(r)      a run that is used has a unit
//     count     sum over r of use(r) = n             if n stages are required
//     pair      sum over s of y(u, r, v, s) = x(u, r)    for each pair that a value joins, and so
//               sum over r of y(u, r, v, s) = x(v, s)    for the other end: the marginals
//     get       m(f, r, s) >= y(u, r, v, s)          flow f goes from r to s, for all readers
//     share     z(k, r) >= x(u, r)                   shared tensor k is on r
//     time      base(r) use(r) + sum seconds x + sum seconds m + sum seconds z <= t
//     memory    base(r) use(r) + sum bytes x + sum bytes m + sum bytes z + w(r) <= limit(r)
//     pass      w(r) >= passing(u) x(u, r)           bytes alive while unit u runs
//
// x and use are 0 or 1; the others follow from them. y exists only for runs in order, so no value
// goes back. If a flow has one reader, its m are the y.

#include "solver/program.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "base/vec.h"
#include "partition.h"
#include "solver/effort.h"
#include "solver/zero_one.h"

typedef struct Entry {
  int column;
  double value;
} Entry;

typedef Vec(Entry) Entries;

// Two units that a value joins.
typedef struct Joint {
  int from, to, first; // column of the first y; see joint_column
} Joint;

typedef struct Builder {
  Arena *arena;
  const Partition *p;
  bool names;
  double scale; // seconds of t = 1
  ProgramBuilder to;
  int use, t; // columns: use(0), t
  int *y;     // [n_runs * n_runs] the index of a pair's y, or -1
  int n_y;    // y per pair
  Vec(Joint) joints;
  Entries *time, *memory; // by run
} Builder;

#define name_of(b, ...) ((b)->names ? str_format((b)->arena, __VA_ARGS__) : NULL)

// "2_6": six ranks from rank 2 on.
static const char *run_name(const Builder *b, int run) {
  return str_format(b->arena, "%d_%d", b->p->run[run].first, b->p->run[run].n);
}

static int x_column(const Builder *b, int unit, int run) {
  return unit * b->p->n_runs + run;
}

static void load(Builder *b, int run, int column, double seconds, double bytes) {
  if (seconds != 0) vec_push(b->arena, &b->time[run], (Entry){column, seconds / b->scale});
  if (bytes != 0) vec_push(b->arena, &b->memory[run], (Entry){column, bytes});
}

// -- Columns -------------------------------------------------------------------------------------

static bool in_order(const Partition *p, int r, int s) {
  return r == s || p->run[s].first >= p->run[r].first + p->run[r].n;
}

static int joint_column(const Builder *b, const Joint *pair, int r, int s) {
  int i = b->y[r * b->p->n_runs + s];
  return i < 0 ? -1 : pair->first + i;
}

// Returns the columns of two units; adds them if there are none.
static const Joint *joint_of(Builder *b, int from, int to) {
  const Partition *p = b->p;
  for (int i = 0; i < b->joints.n; i++)
    if (b->joints.at[i].from == from && b->joints.at[i].to == to) return &b->joints.at[i];
  vec_push(b->arena, &b->joints, (Joint){from, to, b->to.costs.n});
  const Joint *pair = &b->joints.at[b->joints.n - 1];
  for (int r = 0; r < p->n_runs; r++)
    for (int s = 0; s < p->n_runs; s++)
      if (in_order(p, r, s))
        program_column(&b->to, 0,
                       name_of(b, "y%d_%s__%d_%s", from, run_name(b, r), to, run_name(b, s)));
  // The marginals of y at both ends are x.
  for (int end = 0; end < 2; end++)
    for (int r = 0; r < p->n_runs; r++) {
      int unit = end ? to : from;
      program_row(&b->to, name_of(b, "pair%d_%d_%d_%s", from, to, unit, run_name(b, r)), 0, 0);
      program_entry(&b->to, x_column(b, unit, r), -1);
      for (int s = 0; s < p->n_runs; s++) {
        int y = end ? joint_column(b, pair, s, r) : joint_column(b, pair, r, s);
        if (y >= 0) program_entry(&b->to, y, 1);
      }
    }
  return pair;
}

static void add_flow(Builder *b, int flow) {
  const Partition *p = b->p;
  const Flow *f = &p->flow[flow];
  Joint *pair = arena_array(b->arena, Joint, f->n_readers);
  for (int i = 0; i < f->n_readers; i++)
    pair[i] = *joint_of(b, f->from, f->reader[i]);
  for (int r = 0; r < p->n_runs; r++)
    for (int s = 0; s < p->n_runs; s++) {
      if (r == s || !in_order(p, r, s)) continue;
      // With one reader the message is y itself.
      int column = joint_column(b, &pair[0], r, s);
      if (f->n_readers > 1)
        column = program_column(&b->to, 0,
                                name_of(b, "m%d_%s__%s", flow, run_name(b, r), run_name(b, s)));
      for (int i = 0; i < f->n_readers && f->n_readers > 1; i++) {
        program_row(&b->to, name_of(b, "get%d_%d_%s__%s", flow, i, run_name(b, r), run_name(b, s)),
                    0, 1);
        program_entry(&b->to, column, 1);
        program_entry(&b->to, joint_column(b, &pair[i], r, s), -1);
      }
      // Both ends take the seconds of a message.
      double seconds = flow_seconds(b->p, f, r, s);
      load(b, r, column, seconds, 0);
      load(b, s, column, seconds, flow_kept(b->p, f, s));
    }
}

static void add_shared(Builder *b, int shared) {
  const Shared *s = &b->p->shared[shared];
  for (int r = 0; r < b->p->n_runs; r++) {
    int z = program_column(&b->to, 0, name_of(b, "z%d_%s", shared, run_name(b, r)));
    load(b, r, z, s->seconds[r], s->bytes);
    for (int i = 0; i < s->n_units; i++) {
      program_row(&b->to, name_of(b, "share%d_%d_%s", shared, i, run_name(b, r)), 0, 1);
      program_entry(&b->to, z, 1);
      program_entry(&b->to, x_column(b, s->unit[i], r), -1);
    }
  }
}

// -- Rows ----------------------------------------------------------------------------------------

static void choice_rows(Builder *b) {
  const Partition *p = b->p;
  // A unit is on one run, and that run is a stage.
  for (int u = 0; u < p->n_units; u++) {
    program_row(&b->to, name_of(b, "choose%d", u), 1, 1);
    for (int r = 0; r < p->n_runs; r++)
      program_entry(&b->to, x_column(b, u, r), 1);
    for (int r = 0; r < p->n_runs; r++) {
      program_row(&b->to, name_of(b, "on%d_%s", u, run_name(b, r)), 0, 1);
      program_entry(&b->to, b->use + r, 1);
      program_entry(&b->to, x_column(b, u, r), -1);
    }
  }
  // A rank is in one run that is a stage.
  for (int k = 0; k < p->n_ranks; k++) {
    program_row(&b->to, name_of(b, "cover%d", k), 1, 1);
    for (int r = 0; r < p->n_runs; r++)
      if (p->run[r].first <= k && k < p->run[r].first + p->run[r].n)
        program_entry(&b->to, b->use + r, 1);
  }
  for (int r = 0; r < p->n_runs; r++) {
    // A stage has a unit.
    program_row(&b->to, name_of(b, "work_%s", run_name(b, r)), 0, p->n_units);
    program_entry(&b->to, b->use + r, -1);
    for (int u = 0; u < p->n_units; u++)
      program_entry(&b->to, x_column(b, u, r), 1);
  }
  if (!p->n_stages) return;
  program_row(&b->to, name_of(b, "count"), p->n_stages, p->n_stages);
  for (int r = 0; r < p->n_runs; r++)
    program_entry(&b->to, b->use + r, 1);
}

static ZeroOne *build(Arena *a, const Partition *p, double scale, bool names) {
  Builder b = {.arena = a, .p = p, .to = {.arena = a}, .scale = scale, .names = names};
  b.time = arena_array(a, Entries, p->n_runs);
  b.memory = arena_array(a, Entries, p->n_runs);
  // The columns x, use and t.
  for (int u = 0; u < p->n_units; u++)
    for (int r = 0; r < p->n_runs; r++) {
      int x = program_column(&b.to, 0, name_of(&b, "x%d_%s", u, run_name(&b, r)));
      load(&b, r, x, unit_seconds(p, u, r), unit_bytes(p, u, r));
    }
  b.use = b.to.costs.n;
  for (int r = 0; r < p->n_runs; r++) {
    int use = program_column(&b.to, 0, name_of(&b, "use_%s", run_name(&b, r)));
    load(&b, r, use, p->base_seconds[r], p->base_bytes[r]);
  }
  b.t = b.to.costs.n;
  program_column(&b.to, 1, name_of(&b, "t"));
  // A pair of units has a y for each two runs in order.
  b.y = arena_array(a, int, p->n_runs * p->n_runs);
  for (int r = 0; r < p->n_runs; r++)
    for (int s = 0; s < p->n_runs; s++)
      b.y[r * p->n_runs + s] = in_order(p, r, s) ? b.n_y++ : -1;
  for (int i = 0; i < p->n_flows; i++)
    add_flow(&b, i);
  for (int i = 0; i < p->n_shared; i++)
    add_shared(&b, i);
  choice_rows(&b);
  // The limit is 1 in rows of seconds and of bytes, so that both have about the same scale.
  for (int r = 0; r < p->n_runs; r++) {
    program_row(&b.to, name_of(&b, "time_%s", run_name(&b, r)), -INFINITY, 0);
    for (int i = 0; i < b.time[r].n; i++)
      program_entry(&b.to, b.time[r].at[i].column, b.time[r].at[i].value);
    program_entry(&b.to, b.t, -1);
    if (isinf(p->limit[r])) continue;
    double unit = p->limit[r] > 0 ? p->limit[r] : 1;
    program_row(&b.to, name_of(&b, "memory_%s", run_name(&b, r)), -INFINITY, p->limit[r] / unit);
    for (int i = 0; i < b.memory[r].n; i++)
      program_entry(&b.to, b.memory[r].at[i].column, b.memory[r].at[i].value / unit);
    if (!p->passing) continue;
    int most = program_column(&b.to, 0, name_of(&b, "w_%s", run_name(&b, r)));
    program_entry(&b.to, most, 1);
    for (int u = 0; u < p->n_units; u++) {
      program_row(&b.to, name_of(&b, "pass%d_%s", u, run_name(&b, r)), 0, INFINITY);
      program_entry(&b.to, most, 1);
      program_entry(&b.to, x_column(&b, u, r), -unit_passing(p, u) / p->run[r].n / unit);
    }
  }
  return program_end(
      &b.to, b.t, 0,
      "x: a unit on a run of ranks, by its first and how many; use: that run is a stage; "
      "y: two units on their runs; m: a value from run to run; z: what is shared on a run; "
      "w: what passes on a run");
}

// -- Asking --------------------------------------------------------------------------------------

static bool read_runs(const Partition *p, const double *value, int *run_of) {
  for (int u = 0; u < p->n_units; u++) {
    run_of[u] = -1;
    for (int r = 0; r < p->n_runs; r++)
      if (value[u * p->n_runs + r] > 0.5) run_of[u] = r;
    if (run_of[u] < 0) return false;
  }
  return partition_legal(p, run_of);
}

// The scale without a start: all units in sequence on one rank.
static double most_seconds(const Partition *p) {
  double sum = 0;
  for (int u = 0; u < p->n_units; u++) {
    double most = 0;
    for (int r = 0; r < p->n_runs; r++)
      most = fmax(most, unit_seconds(p, u, r));
    sum += most;
  }
  for (int r = 0; r < p->n_runs; r++)
    sum += p->base_seconds[r];
  for (int i = 0; i < p->n_shared; i++)
    for (int r = 0; r < p->n_runs; r++)
      sum += p->shared[i].seconds[r];
  // Each message at both of its ends.
  for (int i = 0; i < p->n_flows; i++) {
    double most = 0;
    for (int r = 0; r < p->n_runs; r++)
      for (int s = 0; s < p->n_runs; s++)
        most = fmax(most, flow_seconds(p, &p->flow[i], r, s));
    sum += p->flow[i].n_readers * 2 * most;
  }
  return sum > 0 ? sum : 1;
}

// Work of CBC (solver/effort.h) for each entry: before its first node, and at each node.
enum { MAX_COLUMNS = 2000, OF_ROOT = 150000, OF_NODE = 30000 };
static const double most_work = 2e9; // a little over three seconds

static double work_of(const ZeroOne *z, double nodes) {
  double entries = 1;
  for (int r = 0; r < z->n_rows; r++)
    entries += z->row[r].n;
  return entries * (OF_ROOT + OF_NODE * nodes);
}

bool partition_write(const Partition *p, const char *lp) {
  Arena *scratch = arena_new();
  bool ok = program_write(build(scratch, p, most_seconds(p), true), lp);
  arena_free(scratch);
  return ok;
}

PartitionStatus partition_ask(const Partition *p, double seconds, const int *start, int *run_of,
                              PartitionResult *out) {
  // About the number of columns: x, z, y and m.
  double n = p->n_runs, n_y = 0, n_columns = (p->n_units + p->n_shared) * n;
  for (int r = 0; r < p->n_runs; r++)
    for (int s = 0; s < p->n_runs; s++)
      n_y += in_order(p, r, s);
  for (int i = 0; i < p->n_flows; i++)
    n_columns += (p->flow[i].n_readers + (p->flow[i].n_readers > 1)) * n_y;
  if (n_columns > MAX_COLUMNS) return PARTITION_unknown;
  Arena *scratch = arena_new();
  // The objective is a part of the start's.
  double scale = start ? partition_load(scratch, p, start).slowest : most_seconds(p);
  if (!(scale > 0)) scale = 1;
  const ZeroOne *z = build(scratch, p, scale, false);
  Effort effort = effort_new(&(SolverOptions){.seconds = seconds, .work = most_work});
  // As many nodes as the budget allows, at least one.
  double root = work_of(z, 0), nodes = (most_work - root) / (work_of(z, 1) - root);
  int most_nodes = nodes > 1 ? (int)nodes : 1;
  ZeroOneAsk ask = {.cutoff = INFINITY, .end = effort.end, .most_nodes = most_nodes};
  // The start as values of x and use.
  double *start_value = arena_array(scratch, double, z->n_columns);
  for (int u = 0; u < p->n_units && start; u++) {
    start_value[u * p->n_runs + start[u]] = 1;
    start_value[p->n_units * p->n_runs + start[u]] = 1;
  }
  if (start) ask.start = start_value;
  double *value = arena_array(scratch, double, z->n_columns);
  ZeroOneAnswer x = zero_one_ask(z, &ask, value);
  out->n_columns = z->n_columns;
  effort.work += work_of(z, x.nodes);
  out->out_of_time = effort_over(&effort) && effort.ended == SOLVER_late;
  // An answer within CBC's tolerances may exceed a limit.
  bool has = x.has && read_runs(p, value, run_of);
  if (has) has = partition_load(scratch, p, run_of).fits;
  if (isfinite(x.bound)) out->bound = fmax(out->bound, x.bound * scale * (1 - 1e-6));
  PartitionStatus status = PARTITION_unknown;
  if (has) status = x.proven ? PARTITION_proved : PARTITION_found;
  if (!has && x.proven && !start) status = PARTITION_infeasible;
  arena_free(scratch);
  return status;
}
