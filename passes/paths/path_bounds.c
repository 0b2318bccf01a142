// See path_bounds.h.
//
// Three bounds: of the links between the groups (Crossing), of the bytes that a device must receive
// (bound_ahead inside of the last group), and of the bytes that a node lacks, which arrive through
// its adapters (Gate).  All assume the fastest link of the cluster, fully parallel.

#include "path_bounds.h"

#include <string.h>

#include "base/larger.h"
#include "base/vec.h"

// Lower bounds from the devices of the first group to those of the last.
typedef struct Crossing {
  bool owned;            // all of the last are in the first too, and may have their pieces
  double start;          // until a message has arrived
  double tensor;         // seconds for one copy of the tensor, over all links in parallel
  double byte_of_reader; // seconds per byte that every device of the last group receives
} Crossing;

// Lower bounds within one group: of a message, and per byte that a device receives, through one
// link, or through its link and the adapter in parallel.
typedef struct Least {
  double start, byte, byte_both;
} Least;

// A node of the last group, which receives missing pieces through its adapters.
typedef struct Gate {
  int nics;    // used by devices of either group
  int readers; // most devices of the last group that share one
  double want; // bytes of distinct pieces in the end; -1: no device of the last group
} Gate;

struct PathBounds {
  const PathRules *rules;
  const Path *path;
  Arena *arena;
  bool mixes;
  Crossing crossing;
  Least least;
  int64_t parts[PLACEMENT_DIMS]; // of the last state
  double whole, want;            // bytes of the tensor; of a device's piece in the end
  int shares;                    // in the end
  Vec(Gate) gates;               // if send/recv may follow other steps
  int *gate_at;                  // gate + 1, by node
  double *have;                  // [gates] scratch
  int *seen, n_seen;             // scratch: by gate and piece, the last visit
  bool has_sender;
  State sender;       // the state of sender_has
  double *sender_has; // [gates] bytes of distinct pieces in the gate's node; -1: it has no device
};

// The most devices of the group that share one adapter; and the number of adapters in use.
static int sharing(const Cluster *c, const Group *g, int *nics, Arena *scratch) {
  int most = 0, *users = arena_array(scratch, int, c->nodes * c->nics);
  *nics = 0;
  for (int x = 0; x < g->n; x++) {
    int n = ++users[cluster_nic(c, g->device[x])];
    most = n > most ? n : most;
    *nics += n == 1;
  }
  return most;
}

int devices_outside(const Path *p) {
  int n = 0;
  for (int x = 0; x < p->group[1].n; x++)
    n += p->group[0].position[p->group[1].device[x]] < 0;
  return n;
}

static Crossing crossing_of(const Cluster *c, const Path *p, Arena *scratch) {
  const Group *g = p->group;
  int nics[2], most = sharing(c, &g[1], &nics[1], scratch), n_outside = devices_outside(p);
  double bytes = state_bytes(&p->shape, &g[0], &(State){0}); // of the whole tensor
  Link inside = cluster_fastest_inside(c), across = cluster_fastest_across(c);
  sharing(c, &g[0], &nics[0], scratch);
  // Between groups without a common node, everything crosses the adapters.
  bool apart = true, *first = arena_array(scratch, bool, c->nodes);
  for (int x = 0; x < g[0].n; x++)
    first[cluster_node(c, g[0].device[x])] = true;
  for (int y = 0; y < g[1].n; y++)
    apart &= !first[cluster_node(c, g[1].device[y])];
  if (n_outside && apart)
    return (Crossing){false, c->start + across.alpha,
                      bytes * across.beta / smaller(nics[0], nics[1]), most * across.beta};
  // Otherwise a message may take the faster of both links.
  Crossing least = {n_outside == 0, c->start + smaller(inside.alpha, across.alpha), 0,
                    smaller(inside.beta, across.beta)};
  // Each byte takes one of the links, so the rate is at most the sum of all links'.
  if (n_outside && n_outside == g[1].n && least.byte_of_reader > 0) {
    double links = g[1].n / inside.beta + nics[1] / across.beta;
    least.tensor = bytes / links;
  }
  return least;
}

static int64_t rounded_down(double seconds) {
  int64_t n = picoseconds(seconds);
  return n > 0 ? n - 1 : 0;
}

// Each step is rounded separately.
static int64_t of_steps(double seconds) {
  int64_t n = picoseconds(seconds);
  return n > PATH_AXES ? n - PATH_AXES : 0;
}

static int shares_of(const Group *g, const State *s) {
  int shares = 1;
  for (int i = 0; i < g->n_axes; i++)
    if (s->label[i] == LABEL_P) shares *= g->size[i];
  return shares;
}

// From a state in the group of the last one.  A device must receive the missing part of its piece:
// two boxes of these sizes have at most the shorter length of each dimension in common.  Partial
// sums must be reduced: all_reduce and reduce_scatter send each device at least its result.  If the
// last state is a partial sum, too, the piece may be zeros.
static int64_t least_inside(const PathBounds *s, const State *at) {
  const Group *g = &s->path->group[at->group];
  double common = s->whole;
  for (int d = 0; d < s->path->shape.ndim; d++) {
    int64_t parts = state_parts(g, at, d);
    common /= (double)(parts > s->parts[d] ? parts : s->parts[d]);
  }
  double bytes = s->shares > 1 ? 0 : shares_of(g, at) > 1 ? s->want : s->want - common;
  // Without bytes, a label may still need a message to become the last one: all but slices and
  // zeros, which are local.
  bool sends = bytes > 0;
  for (int i = 0; i < g->n_axes && !sends; i++) {
    int label = at->label[i], last = s->path->last.label[i];
    sends = label != last && label != LABEL_B && !(label >= LABEL_DIM && last == LABEL_P);
  }
  if (!sends) return 0;
  return of_steps(0.999 * (s->least.start + bytes * s->least.byte_both));
}

int64_t bound_crossing(const PathBounds *s, const State *at) {
  const Crossing *c = &s->crossing;
  return at->group == 1 || c->owned ? 0 : rounded_down(c->start + c->tensor);
}

// -- Missing pieces of nodes -------------------------------------------------------------------

// By gate, bytes of the distinct pieces of its node's devices; -1 if the group has no device there.
// Shares of the same box are distinct.
static void node_bytes(PathBounds *s, const State *at, double *out) {
  const Group *g = &s->path->group[at->group];
  double piece = state_bytes(&s->path->shape, g, at);
  s->n_seen++;
  for (int i = 0; i < s->gates.n; i++)
    out[i] = -1;
  // A piece is marked as seen by the number of this visit, so that marks need no clearing.
  for (int x = 0; x < g->n; x++) {
    int gate = s->gate_at[cluster_node(s->rules->c, g->device[x])] - 1, number = 0;
    for (int i = 0; i < g->n_axes; i++)
      if (at->label[i] != LABEL_B) number = number * g->size[i] + x / g->stride[i] % g->size[i];
    int most = s->path->group[0].n + s->path->group[1].n, *seen = &s->seen[gate * most + number];
    if (out[gate] < 0) out[gate] = 0;
    if (*seen != s->n_seen) out[gate] += piece;
    *seen = s->n_seen;
  }
}

static Gate *gate_of(PathBounds *s, int node) {
  if (!s->gate_at[node]) {
    vec_push(s->arena, &s->gates, (Gate){0});
    s->gate_at[node] = s->gates.n;
  }
  return &s->gates.at[s->gate_at[node] - 1];
}

static void begin_gates(PathBounds *s) {
  const Path *p = s->path;
  const Cluster *c = s->rules->c;
  const Group *last = &p->group[p->last.group];
  int *users = arena_array(s->arena, int, c->nodes * c->nics), most = p->group[0].n + p->group[1].n;
  bool *used = arena_array(s->arena, bool, c->nodes * c->nics);
  s->gate_at = arena_array(s->arena, int, c->nodes);
  // Count the adapters that either group uses, and the readers of each.
  for (int i = 0; i < 2; i++)
    for (int x = 0; x < p->group[i].n; x++) {
      int device = p->group[i].device[x];
      gate_of(s, cluster_node(c, device))->nics += !used[cluster_nic(c, device)];
      used[cluster_nic(c, device)] = true;
    }
  for (int x = 0; x < last->n; x++) {
    Gate *gate = gate_of(s, cluster_node(c, last->device[x]));
    int n = ++users[cluster_nic(c, last->device[x])];
    gate->readers = n > gate->readers ? n : gate->readers;
  }
  // The pieces in the end.
  s->seen = arena_array(s->arena, int, most * s->gates.n);
  s->have = arena_array(s->arena, double, s->gates.n);
  s->sender_has = arena_array(s->arena, double, s->gates.n);
  node_bytes(s, &p->last, s->have);
  for (int i = 0; i < s->gates.n; i++)
    s->gates.at[i].want = s->have[i];
}

// For any steps, each node receives through its adapters the pieces that its devices need in the
// end and none of them has.  All shares of a sum may be in the node; zeros are made there.
int64_t bound_lack(PathBounds *s, const State *at) {
  if (!s->mixes) return 0;
  double seconds = 0, beta = cluster_fastest_across(s->rules->c).beta;
  bool sums = shares_of(&s->path->group[at->group], at) > 1;
  if (s->shares > 1) return 0;
  node_bytes(s, at, s->have);
  for (int i = 0; i < s->gates.n; i++) {
    const Gate *gate = &s->gates.at[i];
    double have = s->have[i], bytes = gate->want - fmax(have, 0);
    if (bytes > 0 && (have < 0 || !sums)) seconds = fmax(seconds, bytes * beta / gate->nics);
  }
  return seconds > 0 ? of_steps(0.999 * (s->least.start + seconds)) : 0;
}

// Every device receives its piece of each share that its own sums up, except for its own part.
// Pieces that no device of its node has come through the adapter, for one reader after the other.
static int64_t least_of_send_recv(PathBounds *s, const State *from, const State *to) {
  const Group *g[] = {&s->path->group[from->group], &s->path->group[to->group]};
  const Crossing *c = &s->crossing;
  bool inside = from->group == to->group, owns = inside || c->owned;
  double have = owns ? state_bytes(&s->path->shape, g[0], from) : 0;
  int shares = shares_of(g[0], from) / shares_of(g[1], to);
  double all = state_bytes(&s->path->shape, g[1], to) * shares;
  double bytes = all - smaller(all, have);
  if (bytes <= 0) return 0;
  Link across = cluster_fastest_across(s->rules->c);
  // Messages of one device follow each other; so do the bytes of readers that share an adapter.
  double start = inside ? s->least.start : c->start, alpha = start - s->rules->c->start;
  double n = shares;
  for (int d = 0; d < s->path->shape.ndim; d++) {
    double ratio = (double)state_parts(g[0], from, d) / (double)state_parts(g[1], to, d);
    n *= ratio > 1 ? ceil(ratio) : 1;
  }
  double seconds = bytes * (inside ? s->least.byte_both : c->byte_of_reader);
  if (n > 2) alpha *= n - 1;
  // The nodes' pieces are cached: the state is also that of the next edges.
  if (!s->has_sender || memcmp(&s->sender, from, sizeof *from) != 0) {
    s->has_sender = true;
    s->sender = *from;
    node_bytes(s, from, s->sender_has);
  }
  for (int i = 0; i < s->gates.n; i++) {
    double near = s->sender_has[i], lacks = all - fmax(near, 0);
    if (!s->gates.at[i].readers) continue;
    if (near < 0) alpha = fmax(alpha, n * across.alpha);
    seconds = fmax(seconds, lacks * s->gates.at[i].readers * across.beta);
  }
  return rounded_down(0.999 * (s->rules->c->start + alpha + seconds));
}

int64_t bound_edge(PathBounds *s, const State *from, const State *to, const Edge *e) {
  if (e->prim == PATH_send_recv) return least_of_send_recv(s, from, to);
  // A device whose labels change lacks its piece.
  if (e->prim == PATH_permute)
    return rounded_down(s->least.start +
                        state_bytes(&s->path->shape, &s->path->group[from->group], from) *
                            s->least.byte);
  // Moves to the devices that already have the pieces are free.
  bool may_be_free = e->prim <= PATH_pad_sum || e->prim == PATH_move;
  return may_be_free ? 0 : picoseconds(s->rules->c->start);
}

// -- The interface -----------------------------------------------------------------------------

int64_t bound_ahead(const PathBounds *s, const State *at) {
  return at->group == s->path->last.group ? least_inside(s, at) : bound_crossing(s, at);
}

PathBounds *path_bounds_new(Arena *a, const PathRules *rules, const Path *p, bool mixes) {
  PathBounds *s = arena_one(a, PathBounds);
  *s = (PathBounds){.rules = rules, .path = p, .arena = a, .mixes = mixes};
  s->crossing = crossing_of(rules->c, p, a);
  // The fastest links of the cluster, whatever devices use them.
  Link inside = cluster_fastest_inside(rules->c), across = cluster_fastest_across(rules->c);
  double in = inside.beta, out = across.beta;
  s->least = (Least){rules->c->start + smaller(inside.alpha, across.alpha), smaller(in, out),
                     in > 0 && out > 0 ? 1 / (1 / in + 1 / out) : 0};
  // The last state.
  const Group *last = &p->group[p->last.group];
  for (int d = 0; d < p->shape.ndim; d++)
    s->parts[d] = state_parts(last, &p->last, d);
  s->whole = state_bytes(&p->shape, last, &(State){0});
  s->want = state_bytes(&p->shape, last, &p->last);
  s->shares = shares_of(last, &p->last);
  if (mixes) begin_gates(s);
  return s;
}
