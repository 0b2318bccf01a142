// See path_search.h.
//
// A* over the states of both groups: where they have no device in common, all of the tensor has yet
// to cross while it is in the first one, and that takes some time (Crossing).  Seconds are counted
// in whole picoseconds, so that sums do not depend on their order; of equally cheap paths the one
// with fewer steps wins.  What is as dear as send/recv is never looked at, nor is what would be
// with all that a node still lacks, which comes in through its adapters (Gate).  That keeps most
// searches small; a bound on the number of edges keeps the others small too (Path.complete).
// Send/recv may also start where any path has led to, or lead to a state that one all_gather turns
// into the last one: between groups of which neither size divides the other there are no other
// primitives, and in small groups it is cheaper for some permutations.

#include "path_search.h"

#include "path_edges.h"

#include <math.h>
#include <string.h>

enum {
  MAX_EDGES = 400000,  // looked at in one search: below a second
  MAX_WORK = 20000000, // devices looked at for their costs
  MAX_ORDERS = 5,      // times these, of all searches for other orders together
  MAX_MIXED = 64,      // producers times consumers
};

// What searches have looked at.
typedef struct Looked {
  int64_t edges, work;
} Looked;

typedef struct Node {
  State state;
  int64_t picoseconds;
  int n_steps, from; // steps_of all on the way; node, or -1
  Edge edge;
  bool settled;
  int64_t lack; // picoseconds that it takes at least to bring nodes what they lack; -1: not known
} Node;

typedef struct HeapEntry {
  int64_t picoseconds; // to the end, at least
  int n_steps, node;
} HeapEntry;

// Costs of a collective over one set of axes: they grow evenly with the bytes.
typedef struct Rate {
  int64_t work;         // to find that; 0: it is not known yet
  Cost start, gigabyte; // of nothing; of 1e9 bytes more
} Rate;

// Those of a group's collectives, by mask and primitive: searches for other tensors ask for them,
// too.
typedef struct GroupRates {
  int n, n_axes, size[PATH_AXES];
  const int *device; // [n]
  Rate *rate;
  struct GroupRates *next;
} GroupRates;

// What it takes at least to get from the devices of the first group to those of the last.
typedef struct Crossing {
  bool owned;            // all of the last are in the first too, and may have what they want
  double start;          // until a message is there
  double tensor;         // seconds of one copy of the tensor, over all links at once
  double byte_of_reader; // seconds of a byte that every device of the last group gets
} Crossing;

// What it takes at least among the devices of one group: Least of a message, and of a byte that a
// device gets, by one link or by the one to its node and the adapter at the same time.
typedef struct Least {
  double start, byte, byte_both;
} Least;

// A node of the last group, which gets what it lacks through its adapters.
typedef struct Gate {
  int nics;    // that devices of either group use
  int readers; // devices of the last group that share one, at most
  double want; // bytes of different pieces in the end; -1: none are there
} Gate;

// What devices of a state's group have, for send/recv from there.
typedef struct Senders {
  Arena *arena;
  State state;
  const Producers *of;
  double *have; // [gates] bytes of different pieces in the gate's node, -1 where none of them is
} Senders;

typedef struct Search {
  const PathRules *rules;
  Arena *arena;
  Path *path;
  Vec(Node) nodes;
  Vec(HeapEntry) heap;
  int *table, table_size; // node + 1 by hash; a power of two
  int64_t bound;          // what is dearer is of no use
  bool mixes;             // send/recv may also come behind other steps
  Crossing crossing;
  Least least;
  int64_t parts[PLACEMENT_DIMS]; // of the last state
  double whole, want;            // bytes of the tensor, and of what a device has in the end
  int shares;                    // in the end
  int at;                        // the node whose edges are visited
  Looked looked;   // by this one and those before that have to make do with as much, together
  int searches;    // as much as for so many
  Vec(Gate) gates; // where send/recv may come behind other steps
  int *gate_at;    // gate + 1, by node
  double *have;    // [gates] scratch
  Senders senders;
  int *seen, n_seen; // scratch: by gate and piece, when it was met last
  Groups groups;     // scratch
  Rate *rate[2];     // of a group's collectives; see rate_of
  bool *asked[2];    // those that this search has asked for
} Search;

// -- States that were met ---------------------------------------------------------------------

static void grow(Search *s) {
  s->table_size = s->table_size ? 2 * s->table_size : 1024;
  s->table = arena_array(s->arena, int, s->table_size);
  for (int i = 0; i < s->nodes.n; i++) {
    uint64_t h = path_hash(14695981039346656037u, &s->nodes.at[i].state, sizeof(State));
    while (s->table[h & (uint64_t)(s->table_size - 1)])
      h++;
    s->table[h & (uint64_t)(s->table_size - 1)] = i + 1;
  }
}

static int node_of(Search *s, const State *state) {
  if (2 * (s->nodes.n + 1) > s->table_size) grow(s);
  uint64_t h = path_hash(14695981039346656037u, state, sizeof *state);
  for (;; h++) {
    int *slot = &s->table[h & (uint64_t)(s->table_size - 1)];
    if (!*slot) {
      vec_push(s->arena, &s->nodes, (Node){*state, INT64_MAX, 0, -1, {0}, false, -1});
      return (*slot = s->nodes.n) - 1;
    }
    if (!memcmp(&s->nodes.at[*slot - 1].state, state, sizeof *state)) return *slot - 1;
  }
}

// -- The queue -------------------------------------------------------------------------------

static bool sooner(const HeapEntry *a, const HeapEntry *b) {
  if (a->picoseconds != b->picoseconds) return a->picoseconds < b->picoseconds;
  return a->n_steps != b->n_steps ? a->n_steps < b->n_steps : a->node < b->node;
}

static void heap_push(Search *s, HeapEntry e) {
  vec_push(s->arena, &s->heap, e);
  int i = s->heap.n - 1;
  for (; i > 0 && sooner(&e, &s->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
    s->heap.at[i] = s->heap.at[(i - 1) / 2];
  s->heap.at[i] = e;
}

static HeapEntry heap_pop(Search *s) {
  HeapEntry top = s->heap.at[0], last = s->heap.at[--s->heap.n];
  int i = 0;
  for (int child; (child = 2 * i + 1) < s->heap.n; i = child) {
    if (child + 1 < s->heap.n && sooner(&s->heap.at[child + 1], &s->heap.at[child])) child++;
    if (!sooner(&s->heap.at[child], &last)) break;
    s->heap.at[i] = s->heap.at[child];
  }
  if (s->heap.n) s->heap.at[i] = last;
  return top;
}

// -- Costs -----------------------------------------------------------------------------------

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t picoseconds(double seconds) {
  return seconds < 1e6 ? llround(seconds * 1e12) : (int64_t)1e18;
}

static void senders_open(Search *s, const State *state) {
  if (s->senders.arena && !memcmp(&s->senders.state, state, sizeof *state)) return;
  if (s->senders.arena) arena_free(s->senders.arena);
  s->senders = (Senders){.arena = arena_new(), .state = *state};
}

static void senders_close(Search *s) {
  if (s->senders.arena) arena_free(s->senders.arena);
}

static Cost send_recv_cost(Search *s, const State *before, const State *after, double limit,
                           Sends *out) {
  const Group *group = s->path->group;
  s->looked.work += (int64_t)group[before->group].n * group[after->group].n;
  senders_open(s, before);
  Senders *from = &s->senders;
  if (!from->of)
    from->of = p2p_producers(from->arena, &s->path->shape, &group[before->group], before);
  P2p q = {s->arena, s->rules->traffic, s->rules->c, &s->path->shape, limit};
  return p2p_cost(&q, from->of, &group[after->group], after, out);
}

static bool is_collective(PathPrim prim) {
  return prim >= PATH_all_reduce && prim <= PATH_all_to_all;
}

static Rate *rates_of(const PathRules *rules, const Group *g) {
  size_t axes = (size_t)g->n_axes * sizeof *g->size, devices = (size_t)g->n * sizeof *g->device;
  for (GroupRates *r = *rules->rates; r; r = r->next)
    if (r->n == g->n && r->n_axes == g->n_axes && !memcmp(r->size, g->size, axes) &&
        !memcmp(r->device, g->device, devices))
      return r->rate;
  GroupRates *r = arena_one(rules->arena, GroupRates);
  *r = (GroupRates){.n = g->n, .n_axes = g->n_axes, .next = *rules->rates};
  memcpy(r->size, g->size, axes);
  r->device = arena_copy(rules->arena, g->device, devices);
  r->rate = arena_array(rules->arena, Rate, 4 << g->n_axes);
  *rules->rates = r;
  return r->rate;
}

static void find_rate(Search *s, const State *before, const State *after, const Edge *e, Rate *r) {
  edge_groups(&s->path->shape, s->path->group, before, after, e, s->rules->c, &s->groups);
  Cost all = groups_cost(s->rules->traffic, e->prim, &s->groups, 1e9, 1e9);
  r->start = groups_cost(s->rules->traffic, e->prim, &s->groups, 0, 0);
  r->gigabyte = (Cost){all.seconds - r->start.seconds, all.bytes, all.crossing};
  int64_t n = s->path->group[before->group].n;
  r->work = 2 * n * (e->prim == PATH_all_to_all ? s->groups.size : 1);
}

// What it takes to find is counted where it is known as well: how far a search goes does not depend
// on those before.
static const Rate *rate_of(Search *s, const State *before, const State *after, const Edge *e) {
  const Group *g = &s->path->group[before->group];
  int index = (int)(e->mask * 4) + (int)(e->prim - PATH_all_reduce);
  if (!s->rate[before->group]) {
    s->rate[before->group] = rates_of(s->rules, g);
    s->asked[before->group] = arena_array(s->arena, bool, 4 << g->n_axes);
  }
  Rate *r = &s->rate[before->group][index];
  bool *asked = &s->asked[before->group][index];
  if (!*asked && !r->work) find_rate(s, before, after, e, r);
  if (!*asked) s->looked.work += r->work;
  *asked = true;
  return r;
}

// More than the limit, but too little, where a send/recv exceeds that.
static Cost edge_cost(Search *s, const State *before, const State *after, const Edge *e,
                      double limit) {
  const Path *p = s->path;
  double old = state_bytes(&p->shape, &p->group[before->group], before);
  double new = state_bytes(&p->shape, &p->group[after->group], after);
  if (e->prim <= PATH_pad_sum) return (Cost){0};
  if (e->prim == PATH_send_recv) return send_recv_cost(s, before, after, limit, NULL);
  if (is_collective(e->prim)) {
    const Rate *r = rate_of(s, before, after, e);
    double n = (e->prim == PATH_all_gather ? new : old) / 1e9;
    return (Cost){r->start.seconds + n * r->gigabyte.seconds, n * r->gigabyte.bytes,
                  n * r->gigabyte.crossing};
  }
  edge_groups(&p->shape, p->group, before, after, e, s->rules->c, &s->groups);
  s->looked.work += 4 * (int64_t)(p->group[before->group].n + p->group[after->group].n);
  return groups_cost(s->rules->traffic, e->prim, &s->groups, old, new);
}

// -- What is to come, at least -----------------------------------------------------------------

static double smaller(double a, double b) {
  return a < b ? a : b;
}

// Devices of the group that use one adapter, at most; and how many adapters they use.
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

static bool apart(const Cluster *c, const Group *g, Arena *scratch) {
  bool *first = arena_array(scratch, bool, c->nodes);
  for (int x = 0; x < g[0].n; x++)
    first[cluster_node(c, g[0].device[x])] = true;
  for (int y = 0; y < g[1].n; y++)
    if (first[cluster_node(c, g[1].device[y])]) return false;
  return true;
}

// Devices of the second group that are not in the first.
static int outside(const Path *p) {
  int n = 0;
  for (int x = 0; x < p->group[1].n; x++)
    n += p->group[0].position[p->group[1].device[x]] < 0;
  return n;
}

static Crossing crossing_of(const Cluster *c, const Path *p, Arena *scratch) {
  const Group *g = p->group;
  int nics[2], most = sharing(c, &g[1], &nics[1], scratch), n_outside = outside(p);
  double bytes = state_bytes(&p->shape, &g[0], &(State){0}); // of all
  Link inside = cluster_fastest_inside(c), across = cluster_fastest_across(c);
  sharing(c, &g[0], &nics[0], scratch);
  if (n_outside && apart(c, g, scratch))
    return (Crossing){false, c->start + across.alpha,
                      bytes * across.beta / smaller(nics[0], nics[1]), most * across.beta};
  Crossing least = {n_outside == 0, c->start + smaller(inside.alpha, across.alpha), 0,
                    smaller(inside.beta, across.beta)};
  // Each byte takes one of the links, so all are no faster than all the links together.
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

// Steps are rounded one by one.
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

static Least least_of_cluster(const Cluster *c) {
  Link inside = cluster_fastest_inside(c), across = cluster_fastest_across(c);
  double in = inside.beta, out = across.beta;
  return (Least){c->start + smaller(inside.alpha, across.alpha), smaller(in, out),
                 in > 0 && out > 0 ? 1 / (1 / in + 1 / out) : 0};
}

static void begin_bounds(Search *s) {
  const Path *p = s->path;
  const Group *last = &p->group[p->last.group];
  s->crossing = crossing_of(s->rules->c, p, s->arena);
  s->least = least_of_cluster(s->rules->c);
  for (int d = 0; d < p->shape.rank; d++)
    s->parts[d] = state_parts(last, &p->last, d);
  s->whole = state_bytes(&p->shape, last, &(State){0});
  s->want = state_bytes(&p->shape, last, &p->last);
  s->shares = shares_of(last, &p->last);
}

// Whether something must be sent before the label is the last one: slices and zeros are free.
static bool must_send(int label, int last) {
  return label != last && label != LABEL_B && !(label >= LABEL_DIM && last == LABEL_P);
}

// From a state in the group of the last one.  A device must get what it wants and has not: of boxes
// as long as these two no more than the shorter length of each dimension can be in common.  Sums
// must be added up: all_reduce and reduce_scatter send each device at least what it has afterwards.
// Where there is a sum in the end, too, what is wanted may as well be zeros.
static int64_t least_inside(const Search *s, const State *at) {
  const Group *g = &s->path->group[at->group];
  double common = s->whole;
  for (int d = 0; d < s->path->shape.rank; d++) {
    int64_t parts = state_parts(g, at, d);
    common /= (double)(parts > s->parts[d] ? parts : s->parts[d]);
  }
  double bytes = s->shares > 1 ? 0 : shares_of(g, at) > 1 ? s->want : s->want - common;
  bool sends = bytes > 0;
  for (int i = 0; i < g->n_axes && !sends; i++)
    sends = must_send(at->label[i], s->path->last.label[i]);
  if (!sends) return 0;
  return of_steps(0.999 * (s->least.start + bytes * s->least.byte_both));
}

static int64_t to_come(const Search *s, const State *at) {
  const Crossing *c = &s->crossing;
  return at->group == 1 || c->owned ? 0 : rounded_down(c->start + c->tensor);
}

// -- What nodes lack ---------------------------------------------------------------------------

// By gate, bytes of the different pieces that devices of its node have; -1 where there is none of
// the group.  Shares of the same box are different.
static void node_bytes(Search *s, const State *at, double *out) {
  const Group *g = &s->path->group[at->group];
  double piece = state_bytes(&s->path->shape, g, at);
  s->n_seen++;
  for (int i = 0; i < s->gates.n; i++)
    out[i] = -1;
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

static Gate *gate_of(Search *s, int node) {
  if (!s->gate_at[node]) {
    vec_push(s->arena, &s->gates, (Gate){0});
    s->gate_at[node] = s->gates.n;
  }
  return &s->gates.at[s->gate_at[node] - 1];
}

static void begin_gates(Search *s) {
  const Path *p = s->path;
  const Cluster *c = s->rules->c;
  const Group *last = &p->group[p->last.group];
  int *users = arena_array(s->arena, int, c->nodes * c->nics), most = p->group[0].n + p->group[1].n;
  bool *used = arena_array(s->arena, bool, c->nodes * c->nics);
  s->gate_at = arena_array(s->arena, int, c->nodes);
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
  s->seen = arena_array(s->arena, int, most * s->gates.n);
  s->have = arena_array(s->arena, double, s->gates.n);
  node_bytes(s, &p->last, s->have);
  for (int i = 0; i < s->gates.n; i++)
    s->gates.at[i].want = s->have[i];
}

// Whatever the steps are, each node gets through its adapters what its devices want in the end and
// none of them has.  Of a sum all shares may be in the node; zeros are made there.
static int64_t find_lack(Search *s, const State *at) {
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

static int64_t lack_of(Search *s, int node, const State *at) {
  if (!s->mixes) return 0;
  if (s->nodes.at[node].lack < 0) s->nodes.at[node].lack = find_lack(s, at);
  return s->nodes.at[node].lack;
}

static int64_t least_ahead(Search *s, int node, const State *at) {
  int64_t least = at->group == s->path->last.group ? least_inside(s, at) : to_come(s, at);
  int64_t lack = lack_of(s, node, at);
  return lack > least ? lack : least;
}

// Into how many messages it comes that a device wants, at least.
static double messages_of(const Search *s, const Group *const g[2], const State *from,
                          const State *to) {
  double n = shares_of(g[0], from) / shares_of(g[1], to);
  for (int d = 0; d < s->path->shape.rank; d++) {
    double ratio = (double)state_parts(g[0], from, d) / (double)state_parts(g[1], to, d);
    n *= ratio > 1 ? ceil(ratio) : 1;
  }
  return n;
}

// Every device gets its piece of each share that goes into its own, but what it has.  What no
// device of its node has comes through the adapter, for one reader after the other.
static int64_t least_of_send_recv(Search *s, const State *from, const State *to) {
  const Group *g[] = {&s->path->group[from->group], &s->path->group[to->group]};
  const Crossing *c = &s->crossing;
  bool inside = from->group == to->group, owns = inside || c->owned;
  double have = owns ? state_bytes(&s->path->shape, g[0], from) : 0;
  double all =
      state_bytes(&s->path->shape, g[1], to) * (shares_of(g[0], from) / shares_of(g[1], to));
  double bytes = all - smaller(all, have);
  if (bytes <= 0) return 0;
  Link across = cluster_fastest_across(s->rules->c);
  double start = inside ? s->least.start : c->start;
  double alpha = start - s->rules->c->start, n = messages_of(s, g, from, to);
  double seconds = bytes * (inside ? s->least.byte_both : c->byte_of_reader);
  if (n > 2) alpha *= n - 1;
  senders_open(s, from);
  if (!s->senders.have) {
    s->senders.have = arena_array(s->senders.arena, double, s->gates.n);
    node_bytes(s, from, s->senders.have);
  }
  for (int i = 0; i < s->gates.n; i++) {
    double near = s->senders.have[i], lacks = all - fmax(near, 0);
    if (!s->gates.at[i].readers) continue;
    if (near < 0) alpha = fmax(alpha, n * across.alpha);
    seconds = fmax(seconds, lacks * s->gates.at[i].readers * across.beta);
  }
  return rounded_down(0.999 * (s->rules->c->start + alpha + seconds));
}

// -- The search ------------------------------------------------------------------------------

static bool is_enough(const Looked *l, int64_t searches) {
  return l->edges > searches * MAX_EDGES || l->work > searches * MAX_WORK;
}

// Of equally cheap ones: single messages only where there is nothing else.
static int steps_of(const Edge *e) {
  return e->prim == PATH_send_recv ? 2 * PATH_AXES : 1;
}

static int64_t least_of(Search *s, const State *from, const State *to, const Edge *e) {
  if (e->prim == PATH_send_recv) return least_of_send_recv(s, from, to);
  // Whose labels change places does not have what it is to have.
  if (e->prim == PATH_permute)
    return rounded_down(s->least.start +
                        state_bytes(&s->path->shape, &s->path->group[from->group], from) *
                            s->least.byte);
  bool may_be_free = e->prim <= PATH_pad_sum || e->prim == PATH_move;
  return may_be_free ? 0 : picoseconds(s->rules->c->start);
}

static bool visit(void *context, const Edge *e, const State *after) {
  Search *s = context;
  int to = node_of(s, after);
  const Node *from = &s->nodes.at[s->at];
  s->looked.edges++;
  if (is_enough(&s->looked, s->searches)) return false;
  if (s->nodes.at[to].settled) return true;
  if (s->nodes.at[to].picoseconds <= from->picoseconds &&
      s->nodes.at[to].n_steps <= from->n_steps + steps_of(e))
    return true;
  // Most edges come too late whatever flows over them.
  int64_t ahead = least_ahead(s, to, after),
          soonest = from->picoseconds + least_of(s, &from->state, after, e);
  if (soonest + ahead > s->bound || soonest > s->nodes.at[to].picoseconds) return true;
  int64_t most = least(s->bound - ahead, s->nodes.at[to].picoseconds) - from->picoseconds;
  double seconds = edge_cost(s, &from->state, after, e, 1e-12 * (double)most + 2e-12).seconds;
  int64_t cost = from->picoseconds + picoseconds(seconds);
  int n_steps = from->n_steps + steps_of(e);
  Node *n = &s->nodes.at[to];
  if (cost + ahead > s->bound || cost > n->picoseconds) return true;
  if (cost == n->picoseconds && n_steps >= n->n_steps) return true;
  *n = (Node){*after, cost, n_steps, s->at, *e, false, n->lack};
  if (!memcmp(after, &s->path->last, sizeof *after)) s->bound = cost;
  heap_push(s, (HeapEntry){cost + to_come(s, after), n_steps, to});
  return true;
}

static bool same_devices(const Group *a, const Group *b) {
  for (int x = 0; x < b->n; x++)
    if (a->position[b->device[x]] < 0) return false;
  return a->n == b->n || !b->n;
}

// Whether send/recv may come behind other steps: where there is no other way to the other group,
// and where the groups are small enough to look at all of that.
static bool may_mix(const Path *p) {
  int n = p->group[0].n, m = p->group[1].n;
  return m ? n * m <= MAX_MIXED || (n % m && m % n) : n * n <= MAX_MIXED;
}

// Send/recv from here to the last state, and to those from which one all_gather leads there.
static bool visit_send_recv(Search *s) {
  const Path *p = s->path;
  const Group *to = &p->group[p->last.group];
  Edge e = {.prim = PATH_send_recv};
  if (!visit(s, &e, &p->last)) return false;
  for (uint32_t mask = 1; mask < 1u << to->n_axes; mask++)
    for (int dim = 0; dim < p->shape.rank; dim++) {
      State after = p->last;
      bool copies = true;
      for (int i = 0; i < to->n_axes && copies; i++) {
        if (!(mask >> i & 1)) continue;
        copies = after.label[i] == LABEL_B;
        after.label[i] = (uint8_t)label_of(dim, state_places(to, &after, dim));
      }
      if (!copies || !state_fits(&p->shape, to, &after)) continue;
      if (!visit(s, &e, &after)) return false;
    }
  return true;
}

static bool search(Search *s) {
  const Path *p = s->path;
  int first = node_of(s, &p->first);
  s->nodes.at[first].picoseconds = 0;
  heap_push(s, (HeapEntry){0, 0, first});
  while (s->heap.n) {
    HeapEntry top = heap_pop(s);
    if (s->nodes.at[top.node].settled) continue;
    s->nodes.at[top.node].settled = true;
    State state = s->nodes.at[top.node].state; // nodes move when there are more
    if (!memcmp(&state, &p->last, sizeof state)) return true;
    if (s->nodes.at[top.node].picoseconds + least_ahead(s, top.node, &state) > s->bound) continue;
    s->at = top.node;
    if (!path_edges(&p->shape, p->group, &state, visit, s)) return false;
    if (s->mixes && !visit_send_recv(s)) return false;
  }
  return true;
}

// -- The result ------------------------------------------------------------------------------

static void add_cost(Cost *sum, const Cost *c) {
  sum->seconds += c->seconds;
  sum->bytes += c->bytes;
  sum->crossing += c->crossing;
}

static void fill_step(Search *s, PathStep *step, const Node *from, const Node *to) {
  Arena *a = s->rules->arena;
  const Group *group = s->path->group;
  *step = (PathStep){.edge = to->edge, .before = from->state, .after = to->state};
  if (step->edge.prim == PATH_send_recv) {
    Sends messages = {0};
    step->cost = send_recv_cost(s, &from->state, &to->state, INFINITY, &messages);
    step->groups = (Groups){messages.n, 2, arena_array(a, int, 2 * messages.n)};
    for (int i = 0; i < messages.n; i++) {
      step->groups.device[2 * i] = messages.at[i].src;
      step->groups.device[2 * i + 1] = messages.at[i].dst;
    }
    return;
  }
  step->cost = edge_cost(s, &from->state, &to->state, &to->edge, INFINITY);
  step->groups.device = arena_array(a, int, 2 * (group[0].n + group[1].n));
  edge_groups(&s->path->shape, group, &from->state, &to->state, &to->edge, s->rules->c,
              &step->groups);
  if (step->edge.prim == PATH_move && same_devices(&group[0], &group[1]))
    step->edge.prim = PATH_permute;
}

// What devices do alone is one step, and renumbering their shares is none.
static bool is_nothing(const PathStep *s) {
  return s->edge.prim == PATH_permute && s->groups.n == 0;
}

static bool joins(PathStep *last, const PathStep *next) {
  if (next->edge.prim > PATH_pad_sum || last->edge.prim != next->edge.prim) return false;
  last->after = next->after;
  last->edge.mask |= next->edge.mask;
  return true;
}

static void fill_path(Search *s, int last) {
  Path *p = s->path;
  int n = 0;
  for (int node = last; s->nodes.at[node].from >= 0; node = s->nodes.at[node].from)
    n++;
  PathStep *step = arena_array(s->rules->arena, PathStep, n);
  for (int i = n - 1, node = last; i >= 0; i--, node = s->nodes.at[node].from)
    fill_step(s, &step[i], &s->nodes.at[s->nodes.at[node].from], &s->nodes.at[node]);
  p->step = step;
  p->n_steps = 0;
  for (int i = 0; i < n; i++)
    if (!is_nothing(&step[i]) && (!p->n_steps || !joins(&step[p->n_steps - 1], &step[i])))
      step[p->n_steps++] = step[i];
  p->total = (Cost){0};
  for (int i = 0; i < p->n_steps; i++)
    add_cost(&p->total, &p->step[i].cost);
}

static void send_recv_only(Search *s) {
  Node from = {.state = s->path->first}, to = {.state = s->path->last};
  to.edge.prim = PATH_send_recv;
  s->path->n_steps = 1;
  s->path->step = arena_one(s->rules->arena, PathStep);
  fill_step(s, s->path->step, &from, &to);
  s->path->total = s->path->step->cost;
}

static void set_whole(State *s, uint32_t mask) {
  for (int i = 0; i < PATH_AXES; i++)
    if (mask >> i & 1) s->label[i] = LABEL_B;
}

// What it costs to add up all shares, then to gather all parts: after that there is only to forget.
static int64_t replicating(Search *s) {
  const Group *g = &s->path->group[0];
  State whole = s->path->first, sum;
  Edge reduce = {.prim = PATH_all_reduce}, gather = {.prim = PATH_all_gather};
  for (int i = 0; i < g->n_axes; i++) {
    if (whole.label[i] == LABEL_P) reduce.mask |= 1u << i;
    if (whole.label[i] >= LABEL_DIM) gather.mask |= 1u << i;
  }
  sum = whole;
  set_whole(&sum, reduce.mask);
  whole = sum;
  set_whole(&whole, gather.mask);
  double seconds = reduce.mask ? edge_cost(s, &s->path->first, &sum, &reduce, INFINITY).seconds : 0;
  if (gather.mask) seconds += edge_cost(s, &sum, &whole, &gather, INFINITY).seconds;
  return picoseconds(seconds) + 2; // each is rounded by itself
}

// NULL where nothing is cheaper than the limit.
static Path *find_once(const PathRules *rules, const TensorShape *shape, const Placement *from,
                       const Placement *to, int64_t limit, Looked *looked) {
  Path *p = arena_one(rules->arena, Path);
  p->shape = *shape;
  path_groups(rules->arena, rules->c, shape, from, to, p->group, &p->first, &p->last);
  Search s = {.rules = rules,
              .arena = arena_new(),
              .path = p,
              .looked = *looked,
              .searches = limit == INT64_MAX ? 1 : MAX_ORDERS};
  s.groups.device = arena_array(s.arena, int, 2 * (from->n + to->n));
  bool inside = same_devices(&p->group[0], &p->group[1]);
  bool sends = !rules->only_collectives || !inside;
  if (sends || from->n * to->n <= MAX_MIXED)
    p->p2p = send_recv_cost(&s, &p->first, &p->last, INFINITY, NULL);
  s.bound = sends ? picoseconds(p->p2p.seconds) : INT64_MAX - 1;
  if (inside) s.bound = least(s.bound, replicating(&s));
  s.bound = least(s.bound, limit - 1);
  s.mixes = sends && may_mix(p);
  begin_bounds(&s);
  if (s.mixes) begin_gates(&s);
  p->complete = search(&s);
  *looked = s.looked;
  int last = node_of(&s, &p->last);
  bool found = s.nodes.at[last].from >= 0 || last == 0;
  if (found)
    fill_path(&s, last);
  else if (limit == INT64_MAX && sends)
    send_recv_only(&s);
  else if (limit == INT64_MAX) // given up: no steps, at a price that there is always a way for
    p->total.seconds = (double)replicating(&s) * 1e-12;
  senders_close(&s);
  arena_free(s.arena);
  return found || limit == INT64_MAX ? p : NULL;
}

static int turned(int i, int n, int k) {
  return (n & (n - 1)) == 0 ? i ^ k : (i + k) % n;
}

// In how many orders the copies and the shares of a placement are counted.
static int orders_of(const Placement *p) {
  int n = p->copies * p->shares;
  return n < p->n ? n * n : n;
}

// The k-th: every part's begin elsewhere, and those of every other part elsewhere again.
static Placement recounted(Arena *a, const Placement *p, int k) {
  Placement q = *p;
  int n = p->copies * p->shares, each = p->n / n, *device = arena_array(a, int, p->n);
  for (int i = 0; i < p->n; i++) {
    int part = i % each, copy = i / each / p->shares, share = i / each % p->shares;
    for (int turn = k % n, left = part & 1 ? 2 : 1; left > 0; turn = k / n, left--) {
      copy = turned(copy, p->copies, turn / p->shares);
      share = turned(share, p->shares, turn % p->shares);
    }
    device[i] = p->device[(copy * p->shares + share) * each + part];
  }
  q.device = device;
  return q;
}

// Copies and shares have no order, but positions do, and it matters which part of a copy or of a
// sum a device keeps where others are near that want it, or where it wants that itself.  So between
// small groups several orders are tried, and both ends' together where the groups overlap, until
// that was enough.
const Path *path_search(const PathRules *rules, const TensorShape *shape, const Placement *from,
                        const Placement *to) {
  Looked looked = {0};
  Path *best = find_once(rules, shape, from, to, INT64_MAX, &looked);
  if (!best->group[1].n || from->n * to->n > MAX_MIXED) return best;
  bool together = outside(best) < best->group[1].n, complete = best->complete;
  looked = (Looked){0};
  for (int i = 0; i < orders_of(from); i++)
    for (int k = 0; k < orders_of(to) && !is_enough(&looked, MAX_ORDERS); k++) {
      if (i + k == 0 || (i && k && !together)) continue;
      Placement a = recounted(rules->arena, from, i), b = recounted(rules->arena, to, k);
      Path *p = find_once(rules, shape, &a, &b, picoseconds(best->total.seconds), &looked);
      if (!p) continue;
      p->p2p = best->p2p; // of the order that was asked for
      best = p;
    }
  best->complete = complete && !is_enough(&looked, MAX_ORDERS);
  return best;
}
