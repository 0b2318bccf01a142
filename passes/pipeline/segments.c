// See segments.h.
//
// Each find_ function walks the graph and fills an array by op id: depths and turns from front to
// back, then places, from readers to operands. From these come segments, which are sorted and get
// stages and names.
//
// From an operand to its reader neither place nor turn decreases. If both stay the same, so does
// the set, since a hop raises the place. So segments in order of place and turn wait for no later
// one.

#include "segments.h"

#include <limits.h>
#include <stdlib.h>

#include "base/vec.h"
#include "ir/analysis/place.h"
#include "ir/op.h"

typedef struct Finder {
  const Graph *g;
  Arena *arena;
  bool split;
  int pieces; // number of pieces with by_piece; else 0
  bool *back; // by op id: in backward
  Segments *out;
  int *turn;          // by op id: turn of its piece, from 1; 0: no pieces
  int *depth;         // by op id: the most hops on a path to it
  int *latest;        // by op id: the largest depth that does not delay the deepest op
  int *place;         // by op id: the depth of its segment
  bool *apart;        // by op id: serves one gradient of a weight only
  bool *anchor;       // by slot and depth: an op there determines a segment (find_anchors)
  bool *chained;      // by slot: its anchors are of ops without slack
  int deepest, *last; // largest depth: of all; by slot
} Finder;

static int set_of(const Finder *f, const Op *op) {
  return f->out->set_of[op_mesh(op)->id];
}

static bool loops(const Finder *f, const Op *op) {
  return op && f->out->looping[op->id];
}

static bool is_back(const Finder *f, const Op *op) {
  return f->back[op->id];
}

// -- Turns -------------------------------------------------------------------------------------

static bool same_part(const Finder *f, const Op *a, const Op *b) {
  return loops(f, b) && is_back(f, a) == is_back(f, b);
}

static void find_turns(Finder *f) {
  for_each_op(op, f->g)
    if (loops(f, op)) {
      // An op takes the turn of its piece, or a later turn of its operands; 0: it depends on no
      // piece.
      int turn = op->piece && is_back(f, op) ? f->pieces + 1 - op->piece : op->piece;
      for (int i = 0; i < op->n_in; i++) {
        const Op *made = op->in[i].value->def;
        if (same_part(f, op, made) && f->turn[made->id] > turn) turn = f->turn[made->id];
      }
      f->turn[op->id] = turn;
    }
  for (const Op *op = f->g->last; op; op = op->prev)
    if (loops(f, op) && !f->turn[op->id]) {
      // Other ops take the first turn of their readers, or the last turn without any.
      int turn = f->pieces;
      for (int i = 0; i < op->n_out; i++)
        for_each_use(u, op->out[i])
          if (same_part(f, op, u->user) && f->turn[u->user->id] < turn) turn = f->turn[u->user->id];
      f->turn[op->id] = turn;
    }
}

// -- Depths ------------------------------------------------------------------------------------

static void find_depths(Finder *f) {
  f->depth = arena_array(f->arena, int, f->g->n_ops);
  for_each_op(op, f->g)
    for (int i = 0; loops(f, op) && i < op->n_in; i++) {
      const Op *made = op->in[i].value->def;
      if (!loops(f, made)) continue;
      int depth = f->depth[made->id] + (set_of(f, made) != set_of(f, op));
      if (depth > f->depth[op->id]) f->depth[op->id] = depth;
      if (depth > f->deepest) f->deepest = depth;
    }
}

// The depth before which the readers leave no room for the op; `of`: the depth of each reader.
static int limit_of(const Finder *f, const Op *op, const int *of) {
  int limit = f->deepest;
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i]) {
      if (!loops(f, u->user)) continue;
      int at = of[u->user->id] - (set_of(f, u->user) != set_of(f, op));
      if (at < limit) limit = at;
    }
  return limit;
}

static void find_latest(Finder *f) {
  f->latest = arena_array(f->arena, int, f->g->n_ops);
  for (const Op *op = f->g->last; op; op = op->prev)
    if (loops(f, op)) f->latest[op->id] = limit_of(f, op, f->latest);
}

static bool others_get(const Finder *f, const Op *op) {
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i])
      if (loops(f, u->user) && set_of(f, u->user) != set_of(f, op)) return true;
  return false;
}

// The op's set, part and turn, as one index.
static int slot_of(const Finder *f, const Op *op) {
  return (2 * set_of(f, op) + is_back(f, op)) * (f->pieces + 1) + f->turn[op->id];
}

// Marks the depths of ops with readers on other devices: of those without slack, if the slot has
// any.
static void find_anchors(Finder *f) {
  int n = 2 * f->out->n_sets * (f->pieces + 1);
  f->anchor = arena_array(f->arena, bool, n *(f->deepest + 1));
  f->chained = arena_array(f->arena, bool, n);
  f->last = arena_array(f->arena, int, n);
  for_each_op(op, f->g) {
    if (!loops(f, op)) continue;
    int slot = slot_of(f, op), depth = f->depth[op->id];
    f->chained[slot] |= others_get(f, op) && depth == f->latest[op->id];
    if (depth > f->last[slot]) f->last[slot] = depth;
  }
  for_each_op(op, f->g) {
    if (!loops(f, op) || !others_get(f, op)) continue;
    int slot = slot_of(f, op), depth = f->depth[op->id];
    if (f->chained[slot] && depth != f->latest[op->id]) continue;
    f->anchor[slot * (f->deepest + 1) + depth] = true;
  }
}

static int next_anchor(const Finder *f, const Op *op) {
  int slot = slot_of(f, op);
  for (int depth = f->depth[op->id]; depth <= f->deepest; depth++)
    if (f->anchor[slot * (f->deepest + 1) + depth]) return depth;
  return f->last[slot];
}

// The anchor of an op with readers on other devices: the last one before its readers in forward, so
// that its result is saved for a short time, and the next one in backward, so that its operands
// are; its own depth if there is none.
static int anchor_of(const Finder *f, const Op *op) {
  int slot = slot_of(f, op), own = f->depth[op->id], best = own;
  if (!f->chained[slot]) return own;
  const bool *anchor = &f->anchor[slot * (f->deepest + 1)];
  for (int depth = own, limit = limit_of(f, op, f->place); depth <= limit; depth++) {
    if (!anchor[depth]) continue;
    best = depth;
    if (is_back(f, op)) break;
  }
  return best;
}

static void find_places(Finder *f) {
  // From the last op to the first, so that readers have a place before their operands.
  f->place = arena_array(f->arena, int, f->g->n_ops);
  for (const Op *op = f->g->last; op; op = op->prev) {
    if (!loops(f, op)) continue;
    f->place[op->id] = f->depth[op->id];
    if (others_get(f, op)) {
      f->place[op->id] = anchor_of(f, op);
      continue;
    }
    // An op is with its first reader of the same part, unless other devices get its result.
    int first = INT_MAX;
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i])
        if (loops(f, u->user) && is_back(f, u->user) == is_back(f, op) &&
            f->place[u->user->id] < first)
          first = f->place[u->user->id];
    f->place[op->id] = first < INT_MAX ? first : next_anchor(f, op);
  }
}

// -- Gradients of weights ----------------------------------------------------------------------

enum { NO_SUM = -1, MANY = -2 };

// The only sum over time that depends on the op, by id; or MANY.  A product of the gradients of a
// weight and of its bias has one for each: it counts as that of the bias.
static int sum_of(const Finder *f, const Op *op, const int *sum) {
  int only = NO_SUM;
  if (op_info[op->kind].traits & ACCUMULATES) return (int)op->id;
  for (int i = 0; i < op->n_out; i++) {
    if (op->kind == OP_linear_back_w_bias && i == 1) only = NO_SUM;
    for_each_use(u, op->out[i]) {
      if (!loops(f, u->user) || set_of(f, u->user) != set_of(f, op)) return MANY;
      int own = sum[u->user->id];
      if (own == MANY || (only != NO_SUM && only != own)) return MANY;
      only = own;
    }
  }
  return only == NO_SUM ? MANY : only;
}

static void find_apart(Finder *f) {
  int *sum = arena_array(f->arena, int, f->g->n_ops);
  f->apart = arena_array(f->arena, bool, f->g->n_ops);
  if (!f->split) return;
  for (const Op *op = f->g->last; op; op = op->prev)
    sum[op->id] = loops(f, op) ? sum_of(f, op, sum) : MANY;
  // An `accumulate` stays with the op that produces its operand.
  for_each_op(op, f->g) {
    const Op *made = op->n_in ? op->in[0].value->def : NULL;
    f->apart[op->id] = loops(f, op) && is_back(f, op) && sum[op->id] != MANY &&
                       (op->kind != OP_accumulate || (loops(f, made) && f->apart[made->id]));
  }
}

// -- Segments ----------------------------------------------------------------------------------

static WorkKind kind_of(const Finder *f, const Op *op) {
  return !is_back(f, op) ? WORK_F : f->apart[op->id] ? WORK_W : WORK_B;
}

static int by_order(const void *x, const void *y) {
  const Segment *a = x, *b = y;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->depth != b->depth) return a->depth < b->depth ? -1 : 1;
  if (a->turn != b->turn) return a->turn < b->turn ? -1 : 1;
  return a->first->id < b->first->id ? -1 : 1;
}

static int segment_of(const Finder *f, const Op *op) {
  for (int i = 0; i < f->out->n; i++) {
    const Segment *s = &f->out->at[i];
    if (s->kind == kind_of(f, op) && s->depth == f->place[op->id] && s->set == set_of(f, op) &&
        s->turn == f->turn[op->id])
      return i;
  }
  return -1;
}

static void make_segments(Finder *f) {
  Vec(Segment) all = {0};
  Segments *out = f->out;
  out->of = arena_array(f->arena, int, f->g->n_ops);
  for_each_op(op, f->g) {
    if (!loops(f, op) || segment_of(f, op) >= 0) continue;
    // The first op of a segment defines it.
    Segment s = {.kind = kind_of(f, op), .depth = f->place[op->id], .set = set_of(f, op)};
    s.turn = f->turn[op->id];
    s.piece = f->pieces && is_back(f, op) ? f->pieces + 1 - s.turn : s.turn;
    s.mesh = op_mesh(op);
    s.first = op;
    vec_push(f->arena, &all, s);
    out->at = all.at;
    out->n = all.n;
  }
  // Segments have the order in which they can run.
  if (out->n) qsort(out->at, (size_t)out->n, sizeof *out->at, by_order);
  for_each_op(op, f->g)
    if (loops(f, op)) out->of[op->id] = segment_of(f, op) + 1;
}

// -- Stages ------------------------------------------------------------------------------------

static bool is_like(const Segment *a, const Segment *b) {
  return a->kind == b->kind && a->set == b->set && a->turn == b->turn;
}

// Finds forwards of moves only on devices that have others, too.
static void find_relays(const Finder *f) {
  Segments *s = f->out;
  bool *computes = arena_array(f->arena, bool, s->n);
  for_each_op(op, f->g)
    if (s->of[op->id] && !(op_info[op->kind].traits & (COMM | VIEW)))
      computes[s->of[op->id] - 1] = true;
  for (int i = 0; i < s->n; i++)
    for (int k = 0; k < s->n && s->at[i].kind == WORK_F && !computes[i]; k++)
      s->at[i].is_relay |= computes[k] && is_like(&s->at[k], &s->at[i]);
}

// Gives the other forwards the numbers of stages, and relays that of the next on their devices, or
// else of the last.
static void number_stages(const Finder *f) {
  Segments *s = f->out;
  for (int i = 0; i < s->n; i++)
    if (s->at[i].kind == WORK_F && !s->at[i].is_relay) s->at[i].stage = s->n_stages++;
  for (int i = 0; i < s->n; i++)
    for (int k = 0; k < s->n && s->at[i].is_relay; k++) {
      if (s->at[k].is_relay || !is_like(&s->at[k], &s->at[i])) continue;
      s->at[i].stage = s->at[k].stage;
      if (k > i) break;
    }
}

// Whether ops compute something of weights alone, by op id. Such values belong to no forward:
// models that use a weight in several forwards may cast it once, in the first of them.
static bool *ops_of_weights(const Graph *g, Arena *a) {
  bool *of = arena_array(a, bool, g->n_ops);
  for_each_op(op, g) {
    of[op->id] = op->n_in > 0;
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      of[op->id] &= v->def ? of[v->def->id] : value_lasts(v);
    }
  }
  return of;
}

// Counts by backward segment and stage, at [segment * n_stages + stage], on the same devices and in
// the same piece.  Values of weights alone tie to no stage.
typedef struct Ties {
  int *gradients; // ops of the segment that are gradients of ops of the stage
  int *reads;     // forward values of the stage that it reads
} Ties;

static void count_tie(const Finder *f, const Op *op, const Op *forward, int *count) {
  const Segments *s = f->out;
  const Segment *to = &s->at[s->of[op->id] - 1], *from = &s->at[s->of[forward->id] - 1];
  if (from->kind == WORK_F && from->set == to->set && from->piece == to->piece)
    count[(to - s->at) * s->n_stages + from->stage]++;
}

static Ties find_ties(const Finder *f) {
  const Graph *g = f->g;
  size_t n = (size_t)f->out->n * (size_t)(f->out->n_stages + 1);
  Ties t = {arena_array(f->arena, int, n), arena_array(f->arena, int, n)};
  const bool *of_weights = ops_of_weights(g, f->arena);
  // The forward ops of each number of the model: several may replace one.
  int n_numbers = 0;
  for_each_op(op, g)
    if (op->of > n_numbers) n_numbers = op->of;
  const Op **first = arena_array(f->arena, const Op *, n_numbers + 1);
  const Op **next = arena_array(f->arena, const Op *, g->n_ops);
  for_each_op(op, g) {
    if (!loops(f, op) || is_back(f, op) || !op->of || of_weights[op->id]) continue;
    next[op->id] = first[op->of];
    first[op->of] = op;
  }
  for_each_op(op, g) {
    if (!loops(f, op)) continue;
    for (int i = 0; i < op->n_in; i++) {
      const Op *made = op->in[i].value->def;
      if (loops(f, made) && !of_weights[made->id]) count_tie(f, op, made, t.reads);
    }
    for (const Op *k = is_back(f, op) && op->of ? first[op->of] : NULL; k; k = next[k->id])
      count_tie(f, op, k, t.gradients);
  }
  return t;
}

// The stage with the most gradients in a segment; without any, the one that it reads most; without
// reads, the last stage on its devices, or the last.
static int stage_of(const Segments *s, int segment, const Ties *ties) {
  int best = s->n_stages ? s->n_stages - 1 : 0;
  for (int i = 0; i < s->n; i++)
    if (s->at[i].kind == WORK_F && s->at[i].set == s->at[segment].set &&
        s->at[i].piece == s->at[segment].piece)
      best = s->at[i].stage;
  const int *gradients = &ties->gradients[segment * s->n_stages];
  const int *reads = &ties->reads[segment * s->n_stages];
  for (int i = 0, most = 0, most_reads = 0; i < s->n_stages; i++) {
    if (gradients[i] < most || (gradients[i] == most && reads[i] <= most_reads)) continue;
    most = gradients[i];
    most_reads = reads[i];
    best = i;
  }
  return best;
}

// Whether a backward segment but `except` is of the stage.
static bool has_backward(const Segments *s, int stage, int except) {
  for (int i = 0; i < s->n; i++)
    if (i != except && s->at[i].kind == WORK_B && s->at[i].stage == stage) return true;
  return false;
}

// Gives backwards the numbers of stages.
static void number_backwards(const Finder *f) {
  Segments *s = f->out;
  const Ties ties = find_ties(f);
  for (int i = 0; i < s->n; i++)
    if (s->at[i].kind != WORK_F) s->at[i].stage = stage_of(s, i, &ties);
  // A later stage may leave gradients to the backward of an earlier one, even most of those there.
  // A stage without a backward has the last one with gradients of it that its own stage can spare.
  for (int stage = 0; stage < s->n_stages; stage++) {
    int i = s->n - 1;
    while (i >= 0 &&
           (s->at[i].kind != WORK_B || s->at[i].stage <= stage ||
            !ties.gradients[i * s->n_stages + stage] || !has_backward(s, s->at[i].stage, i)))
      i--;
    if (i < 0 || has_backward(s, stage, -1)) continue;
    // Gradients of its weights are apart, at the same depth.
    int from = s->at[i].stage;
    for (int k = 0; k < s->n; k++)
      if (s->at[k].kind != WORK_F && s->at[k].stage == from && s->at[k].set == s->at[i].set &&
          s->at[k].depth == s->at[i].depth && s->at[k].turn == s->at[i].turn)
        s->at[k].stage = stage;
  }
}

bool *segments_reads(const Segments *s, const Graph *g, Arena *a) {
  bool *reads = arena_array(a, bool, s->n * s->n);
  for_each_op(op, g)
    for (int i = 0; s->of[op->id] && i < op->n_in; i++) {
      const Op *made = op->in[i].value->def;
      if (made && s->of[made->id] && s->of[made->id] != s->of[op->id])
        reads[(s->of[op->id] - 1) * s->n + s->of[made->id] - 1] = true;
    }
  return reads;
}

// Whether the work is sharded over the stages, as that of a table sharded over all of them.
static bool is_shared_out(const Finder *f, int segment) {
  for_each_op(op, f->g) {
    const Mesh *mesh = op_mesh(op);
    if (f->out->of[op->id] != segment + 1) continue;
    for (int i = 0; i < f->out->n; i++) {
      const Mesh *stage = f->out->at[i].mesh;
      if (!mesh_covers(mesh, stage)) continue;
      // A segment that begins with a move may have a mesh with other axes of its devices.
      for (int a = 0; a < mesh->n_axes && a < stage->n_axes; a++)
        if (op->split[a] && str_equal(mesh->axis[a].name, stage->axis[a].name) &&
            mesh->axis[a].size > stage->axis[a].size)
          return true;
    }
  }
  return false;
}

// The number of other forwards on devices of the segment.
static int count_covered(const Segments *s, const Segment *k) {
  int n = 0;
  for (int j = 0; j < s->n; j++)
    n += s->at[j].kind == WORK_F && !s->at[j].is_relay && s->at[j].set != k->set &&
         mesh_covers(k->mesh, s->at[j].mesh);
  return n;
}

static bool has_forward(const Segments *s, int set) {
  for (int i = 0; i < s->n; i++)
    if (s->at[i].kind == WORK_F && s->at[i].set == set) return true;
  return false;
}

static void find_common(const Finder *f) {
  Segments *s = f->out;
  const bool *reads = segments_reads(s, f->g, f->arena);
  for (int i = 0; i < s->n; i++) {
    Segment *k = &s->at[i];
    // A backward of no forward, such as the gradient of a weight that several stages read.
    if (k->kind != WORK_F && !has_forward(s, k->set))
      k->is_common = count_covered(s, k) > 1 && !is_shared_out(f, i);
    if (k->kind != WORK_F) continue;
    // A forward whose devices contain those of several others is common to them.
    k->is_common = count_covered(s, k) > 1 && !is_shared_out(f, i);
    // A common forward reads only common ones.
    for (int from = 0; from < s->n; from++)
      k->is_common &= !reads[i * s->n + from] || s->at[from].is_common;
    // So is its backward.
    for (int b = 0; b < s->n; b++)
      if (s->at[b].kind != WORK_F && s->at[b].stage == k->stage && s->at[b].set == k->set)
        s->at[b].is_common = k->is_common;
  }
}

static void name_segments(const Finder *f) {
  Segments *s = f->out;
  for (int i = 0; i < s->n; i++) {
    int same = 1;
    // A relay's number follows that of its stage.
    for (int k = 0; k < s->n; k++) {
      bool before = s->at[k].is_relay == s->at[i].is_relay ? k < i : s->at[i].is_relay;
      same += before && s->at[k].kind == s->at[i].kind && s->at[k].stage == s->at[i].stage;
    }
    const char *name = str_format(f->arena, "%s%d", work_kind_name[s->at[i].kind], s->at[i].stage);
    s->at[i].name = same > 1 ? str_format(f->arena, "%s.%d", name, same) : name;
  }
}

Segments segments_find(const Graph *g, bool split, bool by_piece, Arena *a) {
  Segments out = {0};
  Finder f = {.g = g, .arena = a, .split = split, .out = &out};
  // Meshes with the same devices are one set.
  const Module *m = g->module;
  out.set_of = arena_array(a, int, module_n_meshes(m));
  for_each_mesh(mesh, m) {
    int set = -1;
    for (const Mesh *k = m->meshes; k != mesh && set < 0; k = k->next)
      if (mesh_same_devices(k, mesh)) set = out.set_of[k->id];
    out.set_of[mesh->id] = set >= 0 ? set : out.n_sets++;
  }
  // Ops of the loop run for every micro-batch.
  const PartOps part = graph_part_ops(g, a);
  out.looping = arena_array(a, bool, g->n_ops);
  for_each_op(op, g)
    out.looping[op->id] = !part.begin[op->id] && !part.update[op->id];
  // An op that forward reads is in forward, even if it was combined with an op of backward.
  f.back = arena_array(a, bool, g->n_ops);
  for (const Op *op = g->last; op; op = op->prev) {
    f.back[op->id] = op->part != PART_forward;
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i])
        if (loops(&f, u->user) && !f.back[u->user->id]) f.back[op->id] = false;
  }
  f.turn = arena_array(a, int, g->n_ops);
  if (by_piece) {
    for_each_op(op, g)
      if (loops(&f, op) && op->piece > f.pieces) f.pieces = op->piece;
    find_turns(&f);
  }
  // Every op of the loop gets a place, and with it a segment.
  find_depths(&f);
  find_latest(&f);
  find_anchors(&f);
  find_places(&f);
  find_apart(&f);
  make_segments(&f);
  // Forwards define the stages, which backwards join.
  find_relays(&f);
  number_stages(&f);
  number_backwards(&f);
  find_common(&f);
  name_segments(&f);
  return out;
}
