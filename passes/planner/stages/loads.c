// The loads of units on devices: see loads.h.
//
// First a backward walk finds the users of each value, as a set of units. Then ops add their
// seconds and saved activations to tables of units by runs, values add flows, and weights add their
// bytes and updates. The work of held ops is summed by rank, as it is the same for all choices.

#include "loads.h"

#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "batch_letter.h"
#include "cost/cost.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "links.h"
#include "sharding/assign.h"

// Sets of units, as bits; the last bit is for held ops.
typedef uint64_t Word;
enum { WORD = 64 };

typedef struct Maker {
  const Sharding *s;
  int axis;
  const Units *units;
  const int *batch;
  Arena *arena;
  Loads *out;
  Partition *p;
  double slices; // time slices
  Links links;
  Device *device; // by run: the minimum over its devices
  int *class_of;  // by run
  int *unit_of;   // by value id
  int words;
  Word *users; // by value id
  bool trains;
  const double *in_flight; // by run, or NULL
  const bool *of_rows;     // with in_flight, by value id: it depends on data
} Maker;

// -- Parts ---------------------------------------------------------------------------------------

// Bytes of a shard of the value, along all axes but this one and time.
static double own_bytes(const Maker *m, const Value *v) {
  const Mesh *mesh = m->s->mesh;
  double parts = 1;
  for (int a = 0; a < mesh->n_axes; a++)
    if (a != m->axis && !mesh->axis[a].time && m->s->decisions.final[a] &&
        m->s->decisions.layout[v->id][a].kind == SBP_S)
      parts *= mesh->axis[a].size;
  return (double)type_bytes(v->type) / parts;
}

bool loads_split_batch(const Sharding *s, int axis, const Units *units, const int *batch, int n) {
  const Mesh *mesh = s->mesh;
  bool any = false;
  // Every op of the units with a batch must be divisible.
  for_each_op(op, s->g) {
    int letter =
        op_part(op) == PART_forward && units->of_op[op->id] >= 0 ? batch_letter(s, batch, op) : -1;
    if (letter < 0) continue;
    const Dims *dims = dims_of(s, op);
    int64_t parts = n;
    for (int a = 0; a < mesh->n_axes; a++)
      if (a != axis && (!s->decisions.final[a] || op->split[a] == dims->letter[letter].name))
        parts *= mesh->axis[a].size; // an undecided axis may split the batch, too
    if (dims->letter[letter].size % parts) return false;
    any = true;
  }
  return any || n == 1;
}

// Seconds per step; an op in the loop launches its kernels for each micro-batch.
static double seconds_of(const Maker *m, const Op *op, const Device *d, int n) {
  const Dims *dims = dims_of(m->s, op);
  OpWork w = op_work(op, dims);
  // The cut along inner axes, and of the batch over `n` ranks.
  Cut cut = op_cut(op, dims);
  int letter = n > 1 ? batch_letter(m->s, m->batch, op) : -1;
  if (letter >= 0 && cut.n != MAX_AXES) {
    cut.at[cut.n].letter = letter;
    cut.at[cut.n++].parts = n;
  }
  return work_seconds_in(d, &w, &cut, op_part(op) == PART_update ? 1 : m->slices);
}

// -- Users of values -----------------------------------------------------------------------------

static Word *users_of(const Maker *m, const Value *v) {
  return &m->users[(int64_t)v->id * m->words];
}

static bool has_user(const Word *set, int unit) {
  return set[unit / WORD] >> unit % WORD & 1;
}

// Finds the units with ops of the model that read a value, also through ops without a unit; held
// ops count as unit number n.
static void find_users(Maker *m) {
  const Graph *g = m->s->g;
  m->words = m->units->n / WORD + 1;
  m->users = arena_array(m->arena, Word, (int64_t)g->n_values * m->words);
  // Backward, as an op without a unit passes on the users of its results.
  for (const Op *op = g->last; op; op = op->prev) {
    if (op_part(op) != PART_forward) continue;
    int unit = m->units->of_op[op->id];
    for (int i = 0; i < op->n_in; i++) {
      Word *set = users_of(m, op->in[i].value);
      if (unit != UNIT_none) {
        int bit = unit == UNIT_held ? m->units->n : unit;
        set[bit / WORD] |= (Word)1 << bit % WORD;
        continue;
      }
      for (int k = 0; k < op->n_out; k++)
        for (int w = 0; w < m->words; w++)
          set[w] |= users_of(m, op->out[k])[w];
    }
  }
}

// Lists the units among the users, in order.
static const int *list_users(const Maker *m, const Value *v, int but, int *n) {
  const Word *set = users_of(m, v);
  int *unit = arena_array(m->arena, int, m->units->n);
  *n = 0;
  for (int u = 0; u < m->units->n; u++)
    if (u != but && has_user(set, u)) unit[(*n)++] = u;
  return unit;
}

static bool held_uses(const Maker *m, const Value *v) {
  return has_user(users_of(m, v), m->units->n);
}

// -- Loads of units ------------------------------------------------------------------------------

static bool read_back(const Value *v) {
  for_each_use(u, v)
    if (u->user && op_part(u->user) == PART_backward) return true;
  return false;
}

// Whether backward reads the value or a view of it.
static bool view_read_back(const Value *v) {
  for_each_use(u, v) {
    if (!u->user) continue;
    if (op_part(u->user) == PART_backward) return true;
    if (op_part(u->user) == PART_forward && op_is_view(u->user) && view_read_back(u->user->out[0]))
      return true;
  }
  return false;
}

// Whether the op makes a copy of a weight in another type, which lasts as long as the weight.
static bool is_cast_weight(const Op *op) {
  const Value *of = op->kind == OP_cast ? op->in[0].value : NULL;
  return of && !of->def && of->role == ROLE_weight;
}

// The number of the list of ops with offloaded results that the value may be among, or a view of it
// or a move to another stage: that of its op, or of a forward reader, as fused ops and moves may be
// in the list of their readers. 0: none.
static int swap_list(const Value *v) {
  if (is_cast_weight(v->def)) return 0;
  while (op_is_view(v->def) && v->def->in[0].value->def)
    v = v->def->in[0].value;
  int list = op_swap_list(v->def);
  for (const Use *u = v->uses; u && !list; u = u->next)
    if (u->user && op_part(u->user) == PART_forward) list = op_swap_list(u->user);
  return list;
}

// The bytes of an op's result that a run of `n` ranks keeps; `flying`: its micro-batches in flight.
static double kept_bytes(const Maker *m, const Value *v, int n, double flying) {
  if (op_is_pin(v->def) && m->batch[v->id] < 0) return own_bytes(m, v); // a gathered weight
  if (swap_list(v)) return 0;
  if (!m->in_flight)
    return read_back(v) ? own_bytes(m, v) / (m->batch[v->id] >= 0 ? n : 1) / m->slices : 0;
  if (op_is_view(v->def) || is_cast_weight(v->def) || !view_read_back(v)) return 0;
  if (!m->of_rows[v->id]) return own_bytes(m, v);
  return flying * own_bytes(m, v) / (m->batch[v->id] >= 0 ? n : 1) / m->slices;
}

static StageBytes *bytes_at(Maker *m, int unit, int run) {
  return &m->out->of_unit[unit * m->p->n_runs + run];
}

static void add_ops(Maker *m, double *held) {
  for_each_op(op, m->s->g) {
    int unit = m->units->of_op[op->id];
    if (op_part(op) == PART_update || unit == UNIT_none) continue;
    // Seconds on every run; those of a held op, on its ranks.
    const Ranks *ranks = m->s->decisions.ranks[op->id][m->axis];
    int n_held = ranks ? ranks->n : m->p->n_ranks;
    if (unit >= 0) {
      double seconds = 0;
      for (int r = 0; r < m->p->n_runs; r++) {
        if (!r || m->class_of[r] != m->class_of[r - 1])
          seconds = seconds_of(m, op, &m->device[r], m->p->run[r].n);
        m->p->seconds[unit * m->p->n_runs + r] += seconds;
      }
    } else {
      Device least = cluster_least(m->s->env.cluster);
      double seconds = seconds_of(m, op, &least, 1);
      for (int i = 0; i < n_held; i++)
        held[ranks ? ranks->at[i] : i] += seconds;
    }
    if (op_part(op) != PART_forward) continue;
    // Saved activations, of one micro-batch.
    for (int i = 0; i < op->n_out; i++) {
      const Value *v = op->out[i];
      for (int r = 0; r < m->p->n_runs && unit >= 0; r++)
        bytes_at(m, unit, r)->kept +=
            kept_bytes(m, v, m->p->run[r].n, m->in_flight ? m->in_flight[r] : 1);
      if (unit >= 0 || !read_back(v) || swap_list(v)) continue;
      Sbp sbp = split_gives(op, dims_of(m->s, op), i, m->axis);
      double bytes = own_bytes(m, v) / (sbp.kind == SBP_S ? n_held : 1) / m->slices;
      for (int k = 0; k < n_held; k++)
        m->out->of_rank[ranks ? ranks->at[k] : k].kept += bytes;
    }
  }
}

// -- Passing values ------------------------------------------------------------------------------

static bool is_elementwise(const Op *op) {
  return op_info[op->kind].reference == elementwise_ref || op->kind == OP_broadcast;
}

bool loads_is_fused(const Value *v) {
  const Use *u = v->uses;
  if (op_is_view(v->def) || !u) return true;
  bool reads = u->user && (is_elementwise(u->user) || u->user->kind == OP_reduce_sum);
  return is_elementwise(v->def) && reads && !u->next;
}

// The last op of forward and backward that reads the value, also through views and fused ops; NULL:
// none, or the update reads it, too.
static const Op *last_reader(const Value *v, const int *time) {
  const Op *last = NULL;
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || op_part(op) == PART_update) return NULL;
    if (loads_is_fused(op->out[0])) {
      const Op *later = last_reader(op->out[0], time);
      if (later) op = later;
    }
    if (!last || time[op->id] > time[last->id]) last = op;
  }
  return last;
}

// Finds the values that depend on data.
static const bool *find_rows(const Maker *m) {
  const Graph *g = m->s->g;
  bool *of_rows = arena_array(m->arena, bool, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    of_rows[g->params[i]->id] = g->params[i]->role == ROLE_input;
  for_each_op(op, g)
    for (int i = 0; i < op->n_in; i++)
      for (int k = 0; k < op->n_out; k++)
        of_rows[op->out[k]->id] |= of_rows[op->in[i].value->id];
  return of_rows;
}

// The bytes of offloaded saved activations on the device while an op runs, by list of the op: those
// of its list and of the list before or after it (swap.c).
static const double *find_swapped(const Maker *m) {
  int n = 0;
  for_each_op(op, m->s->g)
    n = op_part(op) == PART_forward && op_swap_list(op) > n ? op_swap_list(op) : n;
  double *bytes = arena_array(m->arena, double, n + 2);
  double *swapped = arena_array(m->arena, double, n + 1);
  for_each_op(op, m->s->g) {
    if (op_part(op) != PART_forward || op_is_view(op) || is_cast_weight(op)) continue;
    for (int i = 0; i < op->n_out; i++) {
      const Value *v = op->out[i];
      int list = view_read_back(v) ? swap_list(v) : 0;
      if (list) bytes[list] += own_bytes(m, v) / (m->of_rows[v->id] ? m->slices : 1);
    }
  }
  for (int k = 1; k <= n; k++)
    swapped[k] = bytes[k] + fmax(bytes[k - 1], bytes[k + 1]);
  return swapped;
}

// The most bytes of values that are neither saved nor gradients of weights, by unit, while its ops
// or their gradients run; and of saved ones on their way to host memory or back.
static const double *find_passing(const Maker *m) {
  const Graph *g = m->s->g;
  int n = 0;
  int *time = arena_array(m->arena, int, g->n_ops);
  for_each_op(op, g)
    time[op->id] = n++;
  // The bytes that begin and end at each op; a result may take the memory of an operand that ends.
  double *change = arena_array(m->arena, double, n + 1);
  for_each_op(op, g) {
    if (op_part(op) == PART_update) continue;
    for (int i = 0; i < op->n_out; i++) {
      const Value *v = op->out[i];
      bool kept = op_part(op) == PART_forward && view_read_back(v);
      if (loads_is_fused(v) || kept || is_cast_weight(op)) continue;
      const Op *last = last_reader(v, time);
      if (!last) continue;
      double bytes = own_bytes(m, v) / (m->of_rows[v->id] ? m->slices : 1);
      change[time[op->id]] += bytes;
      change[time[last->id] + !(op_traits(last) & INPLACE)] -= bytes;
    }
  }
  double *passing = arena_array(m->arena, double, m->units->n), now = 0;
  const double *swapped = find_swapped(m);
  for_each_op(op, g) {
    now += change[time[op->id]];
    int unit = m->units->of_op[op->id];
    if (unit < 0 || op_part(op) == PART_update) continue;
    double copied = op_part(op) == PART_forward ? swapped[op_swap_list(op)] : 0;
    passing[unit] = fmax(passing[unit], now + copied);
  }
  return passing;
}

// -- Weights -------------------------------------------------------------------------------------

typedef struct Weight {
  StageBytes bytes;
  double gradient; // bytes, on the device or in host memory; 0: it has none
  double *seconds; // of its update, by run
} Weight;

// Adds the bytes and updates of a weight on the ranks of the held ops that read it.
static void add_held_weight(Maker *m, const Value *v, const Weight *w, double *held) {
  int n_ranks = m->p->n_ranks;
  Device least = cluster_least(m->s->env.cluster);
  double update = 0;
  for_each_use(u, v)
    if (u->user && op_part(u->user) == PART_update) update += seconds_of(m, u->user, &least, 1);
  // The largest part of the weight that held ops want on each rank.
  double *part = arena_array(m->arena, double, n_ranks);
  for_each_use(u, v) {
    const Op *op = u->user;
    if (!op || op_part(op) != PART_forward || m->units->of_op[op->id] != UNIT_held) continue;
    const Ranks *ranks = m->s->decisions.ranks[op->id][m->axis];
    int n = ranks ? ranks->n : n_ranks;
    Sbp want = split_wants(op, dims_of(m->s, op), u->index, m->axis, (Sbp){.kind = SBP_B});
    for (int i = 0; i < n; i++) {
      double *at = &part[ranks ? ranks->at[i] : i];
      *at = fmax(*at, want.kind == SBP_S ? 1.0 / n : 1);
    }
  }
  // A rank keeps and updates its part.
  for (int i = 0; i < n_ranks; i++) {
    if (part[i] == 0) continue;
    stage_bytes_add(&m->out->of_rank[i], &w->bytes, part[i], 1);
    held[i] += update * part[i];
  }
}

static double sum_seconds(const Maker *m, const Weight *w, int run) {
  const Rate *rate = &m->links.reduce[run];
  return w->gradient > 0 ? rate->start + w->gradient * rate->byte : 0;
}

typedef Vec(Shared) SharedList;
typedef Vec(Flow) Flows;

static void add_weight(Maker *m, const Value *v, SharedList *shared, Flows *flows, double *held) {
  // Its bytes, those of its gradient and states, and the seconds of its update.
  Weight w = {.bytes.weights = own_bytes(m, v)};
  w.seconds = arena_array(m->arena, double, m->p->n_runs);
  if (m->trains && v->role == ROLE_weight && v->train) w.gradient = own_bytes(m, v);
  if (!v->host_gradient) w.bytes.gradients = w.gradient;
  for_each_use(u, v) {
    const Op *op = u->user;
    bool copies = m->in_flight && op && op_part(op) == PART_forward && is_cast_weight(op);
    if (copies) w.bytes.weights += own_bytes(m, op->out[0]);
    if (!op || op_part(op) != PART_update) continue;
    double seconds = 0;
    for (int r = 0; r < m->p->n_runs; r++) {
      if (!r || m->class_of[r] != m->class_of[r - 1]) seconds = seconds_of(m, op, &m->device[r], 1);
      w.seconds[r] += seconds;
    }
    for (int i = 0; i < op->n_in; i++) {
      const Value *state = op->in[i].value;
      if (!state->def && state->role == ROLE_state && !state->host)
        w.bytes.states += own_bytes(m, state);
    }
  }
  // One unit alone keeps and updates it.
  int n;
  const int *unit = list_users(m, v, -1, &n);
  if (held_uses(m, v)) add_held_weight(m, v, &w, held);
  if (n == 1) {
    m->unit_of[v->id] = *unit;
    for (int r = 0; r < m->p->n_runs; r++) {
      stage_bytes_add(bytes_at(m, *unit, r), &w.bytes, 1, 1);
      m->p->seconds[*unit * m->p->n_runs + r] += w.seconds[r] + sum_seconds(m, &w, r);
    }
    return;
  }
  if (n == 0) return;
  // Every run with such a unit keeps it, if there are several.
  Shared s = {n, unit, stage_bytes_sum(&w.bytes), arena_array(m->arena, double, m->p->n_runs)};
  for (int r = 0; r < m->p->n_runs; r++)
    s.seconds[r] = w.seconds[r] + sum_seconds(m, &w, r);
  m->unit_of[v->id] = -3 - shared->n;
  m->out->of_shared[shared->n] = w.bytes;
  m->out->shared_gradient[shared->n] = w.gradient;
  vec_push(m->arena, shared, s);
  // Two messages: the partial gradient of each run, and the sum.
  if (w.gradient > 0)
    vec_push(m->arena, flows, (Flow){unit[0], n - 1, unit + 1, true, 2, 2 * w.gradient, 0});
}

// -- Values --------------------------------------------------------------------------------------

static void add_held_end(Maker *m, int unit, double bytes, double messages) {
  for (int r = 0; r < m->p->n_runs; r++) {
    const Run *run = &m->p->run[r];
    double once = links_held(&m->links, run, bytes / run->n / messages);
    m->p->seconds[unit * m->p->n_runs + r] += messages * once;
  }
}

static void add_values(Maker *m, Flows *flows) {
  for_each_op(op, m->s->g) {
    if (op_part(op) != PART_forward || m->units->of_op[op->id] == UNIT_none) continue;
    for (int i = 0; i < op->n_out; i++) {
      // A value is a flow from its unit to the units that read it.
      const Value *v = op->out[i];
      int from = m->units->of_op[v->def->id], n;
      // The gradient comes back the same way.
      bool differentiable =
          op_info[v->def->kind].grad != zero_grad && dtype_class[v->type->dtype] == 'F';
      double times = m->trains && differentiable ? 2 : 1, bytes = times * own_bytes(m, v);
      const int *reader = list_users(m, v, from, &n);
      // Held ops are on all ranks, or on their own: a message at the other end only.
      if (from == UNIT_held) {
        for (int k = 0; k < n; k++)
          add_held_end(m, reader[k], bytes, times * m->slices);
        continue;
      }
      if (held_uses(m, v)) add_held_end(m, from, bytes, times * m->slices);
      // The start values of the next forward go back to the first stages; they cost the same under
      // all choices.
      while (n && reader[0] < from) {
        reader++;
        n--;
      }
      bool whole = m->batch[v->id] < 0;
      double kept = read_back(v) && !swap_list(v) ? own_bytes(m, v) / m->slices : 0;
      if (n)
        vec_push(m->arena, flows, (Flow){from, n, reader, whole, times * m->slices, bytes, kept});
    }
  }
}

// Joins the flows between the same units, so that the 0/1 program has fewer columns.
static void join_flows(Flows *flows) {
  int n = 0;
  for (int i = 0; i < flows->n; i++) {
    // An earlier flow from the same unit to the same readers.
    Flow *f = &flows->at[i], *same = NULL;
    for (int k = 0; k < n && !same; k++) {
      Flow *g = &flows->at[k];
      bool alike = g->from == f->from && g->n_readers == f->n_readers && g->whole == f->whole;
      if (alike && !memcmp(g->reader, f->reader, (size_t)f->n_readers * sizeof *f->reader))
        same = g;
    }
    if (same) {
      same->messages += f->messages;
      same->bytes += f->bytes;
      same->kept += f->kept;
    } else
      flows->at[n++] = *f;
  }
  flows->n = n;
}

// -- All together --------------------------------------------------------------------------------

Loads *loads_new(const Sharding *s, int axis, const Units *units, const int *batch, const Run *run,
                 int n_runs, const double *in_flight, Arena *a) {
  Loads *out = arena_one(a, Loads);
  Partition *p = &out->p;
  Maker m = {.s = s, .axis = axis, .units = units, .batch = batch, .arena = a, .out = out, .p = p};
  out->batch = batch;
  *p = (Partition){.n_units = units->n, .n_ranks = s->mesh->axis[axis].size};
  p->run = run;
  p->n_runs = n_runs;
  for_each_op(op, s->g)
    m.trains |= op_part(op) == PART_backward;
  m.slices = 1;
  for (int k = 0; k < s->mesh->n_axes; k++)
    m.slices *= s->mesh->axis[k].time ? s->mesh->axis[k].size : 1;
  m.links = links_price(s, axis, p, a);
  // Tables of units by runs, and of ranks.
  p->seconds = arena_array(a, double, p->n_units *n_runs);
  p->bytes = arena_array(a, double, p->n_units *n_runs);
  p->base_seconds = arena_array(a, double, n_runs);
  p->base_bytes = arena_array(a, double, n_runs);
  p->limit = arena_array(a, double, n_runs);
  out->of_unit = arena_array(a, StageBytes, p->n_units * n_runs);
  out->of_rank = arena_array(a, StageBytes, p->n_ranks);
  out->of_shared = arena_array(a, StageBytes, s->g->n_params);
  out->shared_gradient = arena_array(a, double, s->g->n_params);
  m.device = arena_array(a, Device, n_runs);
  m.class_of = arena_array(a, int, n_runs);
  m.unit_of = arena_array(a, int, s->g->n_values);
  for (uint32_t i = 0; i < s->g->n_values; i++)
    m.unit_of[i] = UNIT_none;
  out->device = m.device;
  out->class_of = m.class_of;
  out->unit_of = m.unit_of;
  for (int r = 0; r < n_runs; r++) {
    m.device[r] = links_least(&m.links, &run[r]);
    p->limit[r] = s->env.limited && m.device[r].memory > 0 ? m.device[r].memory : INFINITY;
    // Runs alike are priced once.
    bool alike =
        r && run[r].n == run[r - 1].n && !memcmp(&m.device[r], &m.device[r - 1], sizeof *m.device);
    m.class_of[r] = r ? m.class_of[r - 1] + !alike : 0;
  }
  // Ops, values and weights add to them.
  find_users(&m);
  m.in_flight = p->in_flight = in_flight;
  if (in_flight) {
    m.of_rows = find_rows(&m);
    p->passing = find_passing(&m);
  }
  SharedList shared = {0};
  Flows flows = {0};
  double *held = arena_array(a, double, p->n_ranks);
  add_ops(&m, held);
  add_values(&m, &flows);
  for (int i = 0; i < s->g->n_params; i++)
    if (s->g->params[i]->role == ROLE_weight)
      add_weight(&m, s->g->params[i], &shared, &flows, held);
  join_flows(&flows);
  // Sums over all uses of memory; a run has the work of the rank with the most held ops.
  for (int u = 0; u < p->n_units; u++)
    for (int r = 0; r < n_runs; r++)
      p->bytes[u * n_runs + r] = stage_bytes_sum(bytes_at(&m, u, r));
  for (int r = 0; r < n_runs; r++)
    for (int k = run[r].first; k < run[r].first + run[r].n; k++) {
      p->base_seconds[r] = fmax(p->base_seconds[r], held[k]);
      p->base_bytes[r] = fmax(p->base_bytes[r], stage_bytes_sum(&out->of_rank[k]));
    }
  p->flow = flows.at;
  p->n_flows = flows.n;
  p->shared = shared.at;
  p->n_shared = shared.n;
  return out;
}
