// See reach.h.

#include "reach.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

enum { DEVICES = 8, DIMS = 3, ALL = 16 }; // ALL: devices of the cluster

// Binary subdivision: box 1 is a whole dimension, box i consists of boxes 2i and 2i + 1.
typedef struct Have {
  uint8_t box[DIMS];
  uint8_t shares; // a bit per share of the source placement
} Have;

typedef struct World {
  Have at[DEVICES]; // by position in the group; the rest is 0
  uint8_t side;     // 0: the producers' group, 1: the consumers'
  uint8_t zero[3];
} World;

typedef struct Side {
  int n, bits;
  const int *device;
} Side;

typedef struct Node {
  World world;
  double seconds;
  bool settled;
} Node;

typedef struct Waiting {
  double seconds;
  int node;
} Waiting;

// A map from `bits`-bit numbers to `to`-bit numbers, affine over GF(2).
typedef struct Affine {
  uint8_t of[DEVICES];
} Affine;

typedef Vec(Affine) Affines;

typedef struct Target {
  Have want[DEVICES];
  int share[DEVICES], n_shares; // a device's share of the sum; their number
} Target;

typedef struct Reach {
  Arena *arena;
  const Cluster *c;
  int ndim;
  double bytes; // of the tensor
  Side side[2]; // the second is empty if the devices are the same
  int all_shares;
  Affines affine[4][4]; // from bits, to bits: surjective maps
  Target *target;
  int n_targets;
  const double *limit;
  double *least, *mixed; // of each target
  double bound;          // worlds above this cost reach no target
  Vec(Node) nodes;
  Vec(Waiting) heap;
  int *table, table_size;
  double now; // seconds of the expanded world
} Reach;

// -- Traffic -------------------------------------------------------------------------------------

typedef struct Load {
  const Cluster *c;
  double out[ALL], in[ALL], nic_out[ALL], nic_in[ALL], waits_out[ALL], waits_in[ALL];
  double alpha;
  bool any;
} Load;

static bool is_near(const Cluster *c, int a, int b) {
  return cluster_node(c, a) == cluster_node(c, b);
}

static const Link *link_of(const Cluster *c, int device, bool near) {
  return near ? cluster_inside(c, device) : cluster_across(c, device);
}

static double alpha_between(const Cluster *c, int a, int b) {
  bool near = is_near(c, a, b);
  return fmax(link_of(c, a, near)->alpha, link_of(c, b, near)->alpha);
}

static void load_flow(Load *l, int src, int dst, double bytes) {
  if (src == dst) return;
  l->any = true;
  if (is_near(l->c, src, dst)) {
    l->out[src] += bytes * link_of(l->c, src, true)->beta;
    l->in[dst] += bytes * link_of(l->c, dst, true)->beta;
  } else {
    l->nic_out[cluster_nic(l->c, src)] += bytes * link_of(l->c, src, false)->beta;
    l->nic_in[cluster_nic(l->c, dst)] += bytes * link_of(l->c, dst, false)->beta;
  }
}

static void load_message(Load *l, int src, int dst, double bytes) {
  if (src == dst) return;
  load_flow(l, src, dst, bytes);
  l->waits_out[src] += alpha_between(l->c, src, dst);
  l->waits_in[dst] += alpha_between(l->c, src, dst);
}

static double load_seconds(const Load *l) {
  double busy = 0, alpha = l->alpha;
  for (int i = 0; i < ALL; i++) {
    busy = fmax(busy, fmax(fmax(l->out[i], l->in[i]), fmax(l->nic_out[i], l->nic_in[i])));
    alpha = fmax(alpha, fmax(l->waits_out[i], l->waits_in[i]));
  }
  return l->any ? l->c->start + alpha + busy : 0;
}

static void sort(int *x, int n) {
  for (int i = 1; i < n; i++)
    for (int k = i; k > 0 && x[k - 1] > x[k]; k--) {
      int y = x[k];
      x[k] = x[k - 1];
      x[k - 1] = y;
    }
}

// Adds a ring in ascending order: `rounds` times p - 1 hops.
static void load_ring(Load *l, int *device, int p, int rounds, double whole) {
  sort(device, p);
  for (int i = 0; i < p; i++) {
    int next = device[(i + 1) % p];
    load_flow(l, device[i], next, rounds * whole * (p - 1) / p);
    l->alpha = fmax(l->alpha, rounds * (p - 1) * alpha_between(l->c, device[i], next));
  }
}

static void load_pairs(Load *l, const int *device, int p, double piece) {
  for (int i = 0; i < p; i++)
    for (int k = 0; k < p; k++) {
      load_flow(l, device[i], device[k], piece / p);
      if (i != k) l->alpha = fmax(l->alpha, (p - 1) * alpha_between(l->c, device[i], device[k]));
    }
}

// Adds a chain from the root to the others, the near ones first; or back.
static void load_chain(Load *l, int root, const int *other, int n, bool back, double bytes) {
  int order[DEVICES], at = root;
  double alpha = 0, inside = 0;
  bool crosses = false;
  memcpy(order, other, sizeof(int) * (size_t)n);
  sort(order, n);
  for (int far = 0; far < 2; far++)
    for (int i = 0; i < n; i++) {
      if (is_near(l->c, order[i], root) == far || order[i] == root) continue;
      load_flow(l, back ? order[i] : at, back ? at : order[i], bytes);
      alpha += alpha_between(l->c, at, order[i]);
      if (is_near(l->c, at, order[i]))
        inside = fmax(inside, bytes * fmax(link_of(l->c, at, true)->beta,
                                           link_of(l->c, order[i], true)->beta));
      else
        crosses = true;
      at = order[i];
    }
  l->alpha = fmax(l->alpha, alpha + (crosses ? inside : 0));
}

// -- Boxes of devices ----------------------------------------------------------------------------

static int level(int box) {
  int n = 0;
  for (; box > 1; box /= 2)
    n++;
  return n;
}

static double volume(const Have *h) {
  double part = 1;
  for (int d = 0; d < DIMS; d++)
    part /= 1 << level(h->box[d]);
  return part;
}

static bool same(const Have *a, const Have *b) {
  return !memcmp(a, b, sizeof *a);
}

static bool box_covers(int outer, int inner) {
  int steps = level(inner) - level(outer);
  return steps >= 0 && inner >> steps == outer;
}

static bool covers(const Have *outer, const Have *inner) {
  for (int d = 0; d < DIMS; d++)
    if (!box_covers(outer->box[d], inner->box[d])) return false;
  return true;
}

static bool apart(const Have *a, const Have *b) {
  for (int d = 0; d < DIMS; d++)
    if (!box_covers(a->box[d], b->box[d]) && !box_covers(b->box[d], a->box[d])) return true;
  return false;
}

static int common_box(int a, int b) {
  while (a != b)
    *(a > b ? &a : &b) /= 2;
  return a;
}

typedef struct Sum {
  Have have;
  bool gathers; // the parts are all different, with equal shares
  bool nothing; // all parts are the same
} Sum;

// Combines the members' boxes and shares, copies counted once; returns false if the result is not a
// box with all its shares.
static bool add_up(const Have *const *member, int n, Sum *out) {
  const Have *kind[DEVICES];
  int n_kinds = 0;
  double volumes = 0;
  *out = (Sum){.have = *member[0], .gathers = true};
  for (int i = 0; i < n; i++) {
    bool known = false;
    for (int k = 0; k < n_kinds; k++) {
      if (same(kind[k], member[i]))
        known = true;
      else if (!apart(kind[k], member[i]) && (kind[k]->shares & member[i]->shares))
        return false;
    }
    if (known) continue;
    kind[n_kinds++] = member[i];
    volumes += volume(member[i]) * __builtin_popcount(member[i]->shares);
    for (int d = 0; d < DIMS; d++)
      out->have.box[d] = (uint8_t)common_box(out->have.box[d], member[i]->box[d]);
    out->gathers &= member[i]->shares == member[0]->shares;
    out->have.shares |= member[i]->shares;
  }
  out->gathers &= n_kinds == n;
  out->nothing = n_kinds == 1;
  return volumes == volume(&out->have) * __builtin_popcount(out->have.shares);
}

// -- The search ----------------------------------------------------------------------------------

static uint64_t hash(const World *w) {
  uint64_t h = w->side;
  for (int i = 0; i < DEVICES; i += 2) {
    uint64_t two;
    memcpy(&two, &w->at[i], sizeof two);
    h = (h ^ two) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return h;
}

static int *slot_of(Reach *r, const World *w) {
  for (uint64_t h = hash(w);; h++) {
    int *slot = &r->table[h & (uint64_t)(r->table_size - 1)];
    if (!*slot || !memcmp(&r->nodes.at[*slot - 1].world, w, sizeof *w)) return slot;
  }
}

static int node_of(Reach *r, const World *w) {
  if (2 * (r->nodes.n + 1) > r->table_size) {
    r->table_size = r->table_size ? 2 * r->table_size : 1024;
    r->table = arena_array(r->arena, int, r->table_size);
    for (int i = 0; i < r->nodes.n; i++)
      *slot_of(r, &r->nodes.at[i].world) = i + 1;
  }
  int *slot = slot_of(r, w);
  if (!*slot) {
    vec_push(r->arena, &r->nodes, (Node){*w, INFINITY, false});
    *slot = r->nodes.n;
  }
  return *slot - 1;
}

static void push(Reach *r, Waiting w) {
  vec_push(r->arena, &r->heap, w);
  int i = r->heap.n - 1;
  for (; i > 0 && w.seconds < r->heap.at[(i - 1) / 2].seconds; i = (i - 1) / 2)
    r->heap.at[i] = r->heap.at[(i - 1) / 2];
  r->heap.at[i] = w;
}

static Waiting pop(Reach *r) {
  Waiting top = r->heap.at[0], last = r->heap.at[--r->heap.n];
  int i = 0;
  for (int k; (k = 2 * i + 1) < r->heap.n; i = k) {
    if (k + 1 < r->heap.n && r->heap.at[k + 1].seconds < r->heap.at[k].seconds) k++;
    if (r->heap.at[k].seconds >= last.seconds) break;
    r->heap.at[i] = r->heap.at[k];
  }
  if (r->heap.n) r->heap.at[i] = last;
  return top;
}

static void found(Reach *r, const World *w, double seconds) {
  double all = r->now + seconds;
  if (all > r->bound) return;
  int i = node_of(r, w);
  if (all >= r->nodes.at[i].seconds) return;
  r->nodes.at[i].seconds = all;
  push(r, (Waiting){all, i});
}

// -- Neighbours ----------------------------------------------------------------------------------

// Subdivisions into 2^bits parts: the dimension that each bit splits, most significant first.
typedef struct Cut {
  int dim[3];
} Cut;

static int cuts_of(const Reach *r, int bits, Cut *out) {
  int n = 0;
  for (int a = 0; a < r->ndim; a++)
    for (int b = bits > 1 ? a : r->ndim - 1; b < r->ndim; b++)
      for (int c = bits > 2 ? b : r->ndim - 1; c < r->ndim; c++)
        out[n++] = (Cut){{a, b, c}};
  return n;
}

static bool part_of(const Have *whole, int part, int bits, const Cut *cut, Have *out) {
  *out = *whole;
  for (int i = 0; i < bits; i++) {
    uint8_t *box = &out->box[cut->dim[i]];
    *box = (uint8_t)(2 * *box + (part >> (bits - 1 - i) & 1));
    if (*box >= 16) return false;
  }
  return true;
}

static bool is_complete(const Reach *r, const World *w) {
  const Have *member[DEVICES];
  Sum all;
  for (int x = 0; x < r->side[w->side].n; x++)
    member[x] = &w->at[x];
  return add_up(member, r->side[w->side].n, &all) && all.have.shares == r->all_shares &&
         volume(&all.have) == 1;
}

static void list_slices(Reach *r, const World *w) {
  const Side *s = &r->side[w->side];
  for (int dim = 0; dim < r->ndim; dim++)
    for (int i = 0; i < r->affine[s->bits][1].n; i++) {
      World after = *w;
      bool fits = true;
      for (int x = 0; x < s->n; x++)
        fits &=
            part_of(&w->at[x], r->affine[s->bits][1].at[i].of[x], 1, &(Cut){{dim}}, &after.at[x]);
      if (fits && is_complete(r, &after)) found(r, &after, 0);
    }
}

// A partition into groups: the positions of group i are at[i * size].
typedef struct Partition {
  uint32_t subgroup; // bit x: x is in it
  int size, bits, n, at[DEVICES];
} Partition;

static bool partition_of(const Side *s, uint32_t subgroup, Partition *out) {
  *out = (Partition){.subgroup = subgroup};
  for (int x = 0; x < s->n; x++)
    for (int y = 0; y < s->n; y++)
      if ((subgroup >> x & 1) && (subgroup >> y & 1) && !(subgroup >> (x ^ y) & 1)) return false;
  out->size = __builtin_popcount(subgroup);
  out->bits = level(out->size);
  out->n = s->n / out->size;
  int n = 0;
  for (int x = 0; x < s->n; x++) {
    bool first = true; // of its group
    for (int y = 0; y < x; y++)
      first &= !(subgroup >> (x ^ y) & 1);
    for (int y = x; y < s->n && first; y++)
      if (subgroup >> (x ^ y) & 1) out->at[n++] = y;
  }
  return true;
}

typedef enum Collective { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL } Collective;

static double collective_seconds(const Reach *r, const Side *s, const Partition *p, Collective kind,
                                 double bytes) {
  Load l = {.c = r->c};
  for (int g = 0; g < p->n; g++) {
    int device[DEVICES];
    for (int i = 0; i < p->size; i++)
      device[i] = s->device[p->at[g * p->size + i]];
    if (kind == ALL_TO_ALL)
      load_pairs(&l, device, p->size, bytes);
    else
      load_ring(&l, device, p->size, kind == ALL_REDUCE ? 2 : 1, bytes);
  }
  return load_seconds(&l);
}

// Whether the devices of a group have different numbers under the map.
static bool tells_apart(const Affine *f, const Partition *p) {
  for (int x = 1; x < DEVICES; x++)
    if ((p->subgroup >> x & 1) && f->of[x] == f->of[0]) return false;
  return true;
}

// Every device of a group gets a part of the group's box: by reduce_scatter, or by all_to_all, if
// all pairs of devices exchange equal volumes.
static void list_scattered(Reach *r, const World *w, const Partition *p, const Sum *sum,
                           bool gathers) {
  const Side *s = &r->side[w->side];
  double whole = r->bytes * volume(&sum[0].have), piece = r->bytes * volume(&w->at[0]);
  double scatter = collective_seconds(r, s, p, REDUCE_SCATTER, whole);
  double exchange = gathers ? collective_seconds(r, s, p, ALL_TO_ALL, piece) : INFINITY;
  if (r->now + fmin(scatter, exchange) > r->bound) return;
  Cut cut[10];
  int n_cuts = cuts_of(r, p->bits, cut);
  for (int c = 0; c < n_cuts; c++)
    for (int i = 0; i < r->affine[s->bits][p->bits].n; i++) {
      const Affine *f = &r->affine[s->bits][p->bits].at[i];
      World after = *w;
      bool fits = tells_apart(f, p), even = gathers;
      for (int k = 0; k < s->n && fits; k++)
        fits =
            part_of(&sum[k / p->size].have, f->of[p->at[k]], p->bits, &cut[c], &after.at[p->at[k]]);
      for (int k = 0; k < s->n && fits && even; k++)
        for (int j = k / p->size * p->size; j < (k / p->size + 1) * p->size; j++) {
          const Have *a = &w->at[p->at[k]], *b = &after.at[p->at[j]];
          double both = 1;
          for (int d = 0; d < DIMS; d++)
            both *= box_covers(a->box[d], b->box[d])   ? 1.0 / (1 << level(b->box[d]))
                    : box_covers(b->box[d], a->box[d]) ? 1.0 / (1 << level(a->box[d]))
                                                       : 0;
          even &= both == volume(a) / p->size;
        }
      if (fits) found(r, &after, even ? fmin(exchange, scatter) : scatter);
    }
}

static void list_collectives(Reach *r, const World *w) {
  const Side *s = &r->side[w->side];
  for (uint32_t subgroup = 3; subgroup < 1u << s->n; subgroup += 2) {
    Partition p;
    Sum sum[DEVICES];
    if (!partition_of(s, subgroup, &p)) continue;
    bool ok = true, gathers = true;
    World after = *w;
    for (int g = 0; g < p.n && ok; g++) {
      const Have *member[DEVICES];
      for (int i = 0; i < p.size; i++)
        member[i] = &w->at[p.at[g * p.size + i]];
      ok = add_up(member, p.size, &sum[g]) && !sum[g].nothing &&
           volume(&sum[g].have) == volume(&sum[0].have);
      gathers &= sum[g].gathers;
      for (int i = 0; i < p.size; i++)
        after.at[p.at[g * p.size + i]] = sum[g].have;
    }
    if (!ok) continue;
    double whole = r->bytes * volume(&sum[0].have);
    found(r, &after, collective_seconds(r, s, &p, gathers ? ALL_GATHER : ALL_REDUCE, whole));
    list_scattered(r, w, &p, sum, gathers);
  }
}

static void list_permutes(Reach *r, const World *w) {
  const Side *s = &r->side[w->side];
  double bytes = r->bytes * volume(&w->at[0]);
  Link inside = cluster_fastest_inside(r->c), across = cluster_fastest_across(r->c);
  if (r->now + r->c->start + inside.alpha + bytes * inside.beta > r->bound &&
      r->now + r->c->start + across.alpha + bytes * across.beta > r->bound)
    return;
  for (int i = 0; i < r->affine[s->bits][s->bits].n; i++) {
    const Affine *f = &r->affine[s->bits][s->bits].at[i];
    Load l = {.c = r->c};
    World after = *w;
    for (int x = 0; x < s->n; x++) {
      after.at[x] = w->at[f->of[x]];
      if (!same(&after.at[x], &w->at[x]))
        load_message(&l, s->device[f->of[x]], s->device[x], bytes);
    }
    if (l.any) found(r, &after, load_seconds(&l));
  }
}

// -- To the other group --------------------------------------------------------------------------

static const Have *own_of(const Reach *r, const World *w, int device) {
  for (int x = 0; x < r->side[0].n; x++)
    if (r->side[0].device[x] == device) return &w->at[x];
  return NULL;
}

// To a group of at least the same size: device y gets the box of device f(y), or a part of it.
static void list_spread(Reach *r, const World *w, const Affine *f) {
  const Side *a = &r->side[0], *b = &r->side[1];
  int q = b->n / a->n;
  double bytes = r->bytes * volume(&w->at[0]);
  World after = {.side = 1};
  Load l = {.c = r->c};
  for (int y = 0; y < b->n; y++)
    after.at[y] = w->at[f->of[y]];
  for (int x = 0; x < a->n; x++) {
    int reader[DEVICES], n = 0;
    for (int y = 0; y < b->n; y++)
      if (f->of[y] == x) reader[n++] = b->device[y];
    const Have *own = own_of(r, w, reader[0]);
    if (q > 1)
      load_chain(&l, a->device[x], reader, n, false, bytes);
    else if (!own || !same(own, &w->at[x]))
      load_message(&l, a->device[x], reader[0], bytes);
  }
  found(r, &after, load_seconds(&l));
  if (q == 1) return;
  l = (Load){.c = r->c};
  for (int y = 0; y < b->n; y++)
    load_message(&l, a->device[f->of[y]], b->device[y], bytes / q);
  double seconds = load_seconds(&l);
  if (r->now + seconds > r->bound) return;
  Cut cut[10];
  int bits = b->bits - a->bits, n_cuts = cuts_of(r, bits, cut);
  for (int c = 0; c < n_cuts; c++)
    for (int i = 0; i < r->affine[b->bits][bits].n; i++) {
      const Affine *part = &r->affine[b->bits][bits].at[i];
      bool fits = true;
      for (int y = 0; y < b->n; y++)
        for (int z = 0; z < y; z++)
          fits &= f->of[y] != f->of[z] || part->of[y] != part->of[z];
      for (int y = 0; y < b->n && fits; y++)
        fits = part_of(&w->at[f->of[y]], part->of[y], bits, &cut[c], &after.at[y]);
      if (fits) found(r, &after, seconds);
    }
}

// Returns the least seconds over all choices of one copy for each reader.
static double choose_copies(const Reach *r, const World *w, int (*source)[DEVICES], int q) {
  const Side *b = &r->side[1];
  double best = INFINITY, bytes = r->bytes * volume(&w->at[0]);
  for (int choice = 0; choice < 1 << (level(q) * b->n); choice++) {
    Load l = {.c = r->c};
    for (int y = 0; y < b->n; y++) {
      int src = source[y][choice >> (level(q) * y) & (q - 1)];
      const Have *own = own_of(r, w, b->device[y]);
      if (!own || !same(own, &w->at[src]))
        load_message(&l, r->side[0].device[src], b->device[y], bytes);
    }
    best = fmin(best, load_seconds(&l));
  }
  return best;
}

// To a smaller group: device y gets the combined boxes of all devices that f maps to y.
static void list_joined(Reach *r, const World *w, const Affine *f) {
  const Side *a = &r->side[0], *b = &r->side[1];
  int q = a->n / b->n, source[DEVICES][DEVICES];
  bool gathers = true, copies = true;
  World after = {.side = 1};
  Sum sum[DEVICES];
  for (int y = 0; y < b->n; y++) {
    const Have *member[DEVICES];
    int n = 0;
    for (int x = 0; x < a->n; x++)
      if (f->of[x] == y) member[n] = &w->at[x], source[y][n++] = x;
    if (!add_up(member, q, &sum[y])) return;
    gathers &= sum[y].gathers;
    copies &= sum[y].nothing;
    after.at[y] = sum[y].have;
    if (volume(&after.at[y]) != volume(&after.at[0])) return;
  }
  if (copies) {
    found(r, &after, choose_copies(r, w, source, q));
    return;
  }
  Load l = {.c = r->c};
  for (int y = 0; y < b->n; y++) {
    int device[DEVICES];
    for (int i = 0; i < q; i++) {
      device[i] = a->device[source[y][i]];
      if (gathers) load_message(&l, device[i], b->device[y], r->bytes * volume(&w->at[0]));
    }
    if (!gathers) load_chain(&l, b->device[y], device, q, true, r->bytes * volume(&after.at[0]));
  }
  found(r, &after, load_seconds(&l));
}

static void list_crossings(Reach *r, const World *w) {
  const Side *a = &r->side[0], *b = &r->side[1];
  if (w->side == 1 || !b->n) return;
  bool spreads = b->n >= a->n;
  const Affines *f = spreads ? &r->affine[b->bits][a->bits] : &r->affine[a->bits][b->bits];
  for (int i = 0; i < f->n; i++)
    spreads ? list_spread(r, w, &f->at[i]) : list_joined(r, w, &f->at[i]);
}

// -- Targets -------------------------------------------------------------------------------------

// Returns the common shares of the cell on all devices that want this share of the box `want`; 0 if
// they differ.
static int shares_of_class(const World *w, const Target *t, int n, const Have *want, int share,
                           const Have *cell) {
  int shares = -1;
  for (int x = 0; x < n; x++) {
    if (!same(&t->want[x], want) || t->share[x] != share) continue;
    int own = covers(&w->at[x], cell) ? w->at[x].shares : 0;
    if (shares >= 0 && shares != own) return 0;
    shares = own;
  }
  return shares > 0 ? shares : 0;
}

// Whether the classes of devices that want the box hold every share of the cell exactly once, if
// some classes drop theirs.
static bool cell_is_there(const Reach *r, const World *w, const Target *t, int n, const Have *want,
                          const Have *cell) {
  int all = 0, known[DEVICES], n_known = 0;
  for (int share = 0; share < t->n_shares; share++) {
    int shares = shares_of_class(w, t, n, want, share, cell);
    bool again = !shares;
    for (int i = 0; i < n_known; i++)
      again |= known[i] == shares;
    if (again) continue;
    if (all & shares) return false;
    all |= known[n_known++] = shares;
  }
  return all == r->all_shares;
}

// Checks every cell of the box, at the finest subdivision of all devices.
static bool box_is_there(const Reach *r, const World *w, const Target *t, int n, const Have *want) {
  int from[DIMS] = {1, 1, 1}, count[DIMS] = {1, 1, 1};
  for (int d = 0; d < r->ndim; d++) {
    int deeper = level(w->at[0].box[d]) - level(want->box[d]);
    if (deeper < 0) deeper = 0;
    from[d] = want->box[d] << deeper;
    count[d] = 1 << deeper;
  }
  for (int i = 0; i < count[0] * count[1] * count[2]; i++) {
    Have cell = {{(uint8_t)(from[0] + i % count[0]), (uint8_t)(from[1] + i / count[0] % count[1]),
                  (uint8_t)(from[2] + i / count[0] / count[1])},
                 0};
    if (!cell_is_there(r, w, t, n, want, &cell)) return false;
  }
  return true;
}

static bool is_there(const Reach *r, const World *w, const Target *t) {
  int n = r->side[w->side].n;
  for (int x = 0; x < n; x++)
    if (!box_is_there(r, w, t, n, &t->want[x])) return false;
  return true;
}

// Returns the seconds of send/recv of intersections, as in path_p2p.h; the target has no shares.
static double send_recv_seconds(const Reach *r, const World *w, const Target *t) {
  const Side *a = &r->side[w->side], *b = r->side[1].n ? &r->side[1] : a;
  Load l = {.c = r->c};
  for (int y = 0; y < b->n; y++)
    for (int x = 0; x < a->n; x++) {
      const Have *h = &w->at[x];
      bool first = true;
      for (int z = 0; z < x; z++)
        first &= !same(&w->at[z], h);
      if (!first || apart(h, &t->want[y])) continue;
      int best = -1, best_far = 3;
      double best_busy = 0;
      for (int z = x; z < a->n; z++) {
        if (!same(&w->at[z], h)) continue;
        int src = a->device[z], dst = b->device[y];
        int far = src == dst ? 0 : is_near(r->c, src, dst) ? 1 : 2;
        double busy = far == 2 ? l.nic_out[cluster_nic(r->c, src)] : l.out[src];
        if (far > best_far || (far == best_far && busy >= best_busy)) continue;
        best = src;
        best_far = far;
        best_busy = busy;
      }
      double part = r->bytes;
      for (int d = 0; d < DIMS; d++)
        part /= 1 << (int)fmax(level(h->box[d]), level(t->want[y].box[d]));
      load_message(&l, best, b->device[y], part);
    }
  return load_seconds(&l);
}

static void look_for_targets(Reach *r, const World *w) {
  bool arrived = w->side == 1 || !r->side[1].n;
  r->bound = 0;
  for (int i = 0; i < r->n_targets; i++) {
    double open = fmin(r->least[i], r->limit[i]);
    const Target *t = &r->target[i];
    if (r->now < open && arrived && is_there(r, w, t)) open = r->least[i] = r->now;
    if (r->now < fmin(r->mixed[i], open) && t->n_shares == 1)
      r->mixed[i] = fmin(r->mixed[i], r->now + send_recv_seconds(r, w, t));
    if (open > r->now) r->bound = fmax(r->bound, open);
  }
}

// -- Beginning -----------------------------------------------------------------------------------

static void list_affine(Reach *r, int bits, int to) {
  for (int code = 0; code < 1 << (to * (bits + 1)); code++) {
    Affine f = {{0}};
    uint32_t onto = 0;
    for (int x = 0; x < 1 << bits; x++) {
      f.of[x] = (uint8_t)(code & ((1 << to) - 1));
      for (int i = 0; i < bits; i++)
        if (x >> i & 1) f.of[x] ^= code >> (to * (i + 1)) & ((1 << to) - 1);
      onto |= 1u << f.of[x];
    }
    if (onto == (1u << (1 << to)) - 1) vec_push(r->arena, &r->affine[bits][to], f);
  }
}

// Computes the box and the share of the i-th device of the placement's list, from its coordinates:
// R, V, and a part of each dimension.
static void have_of(const Reach *r, const Placement *p, int i, Have *out, int *share) {
  *out = (Have){{1, 1, 1}, 0};
  for (int d = r->ndim - 1; d >= 0; d--) {
    out->box[d] = (uint8_t)(p->part[d] + i % p->part[d]);
    i /= p->part[d];
  }
  *share = i % p->shares;
}

static bool same_devices(const Placement *a, const Placement *b) {
  int found = 0;
  for (int i = 0; i < a->n; i++)
    for (int k = 0; k < b->n; k++)
      found += a->device[i] == b->device[k];
  return a->n == b->n && found == a->n;
}

static Side side_of(Arena *a, const Placement *p) {
  Side s = {p->n, level(p->n), NULL};
  int *device = arena_copy(a, p->device, sizeof(int) * (size_t)p->n);
  sort(device, p->n);
  s.device = device;
  assert(1 << s.bits == p->n && p->n <= DEVICES);
  return s;
}

static int position_of(const Side *s, int device) {
  int x = 0;
  while (s->device[x] != device)
    x++;
  return x;
}

static void begin(Reach *r, const TensorShape *shape, const Placement *from, const Placement *to) {
  r->side[0] = side_of(r->arena, from);
  if (!same_devices(from, to)) r->side[1] = side_of(r->arena, to);
  r->ndim = shape->ndim;
  r->bytes = shape->bytes;
  for (int d = 0; d < r->ndim; d++)
    r->bytes *= (double)shape->dim[d];
  for (int bits = 1; bits <= 3; bits++)
    for (int part = 1; part <= bits; part++)
      list_affine(r, bits, part);
  r->all_shares = (1 << from->shares) - 1;
  World first = {.side = 0};
  for (int i = 0; i < from->n; i++) {
    int share, x = position_of(&r->side[0], from->device[i]);
    have_of(r, from, i, &first.at[x], &share);
    first.at[x].shares = (uint8_t)(1 << share);
  }
  found(r, &first, 0);
}

static void set_targets(Reach *r, const Placement *to, int n) {
  const Side *s = r->side[1].n ? &r->side[1] : &r->side[0];
  r->target = arena_array(r->arena, Target, n);
  for (int k = 0; k < n; k++) {
    r->target[k].n_shares = to[k].shares;
    for (int i = 0; i < to[k].n; i++) {
      int x = position_of(s, to[k].device[i]);
      have_of(r, &to[k], i, &r->target[k].want[x], &r->target[k].share[x]);
    }
  }
}

void reach(const Cluster *c, const TensorShape *shape, const Placement *from, const Placement *to,
           int n_targets, const double *limit, double *least, double *mixed) {
  assert(cluster_devices(c) <= ALL);
  Reach r = {.arena = arena_new(),
             .c = c,
             .n_targets = n_targets,
             .limit = limit,
             .least = least,
             .mixed = mixed,
             .bound = INFINITY};
  begin(&r, shape, from, to);
  set_targets(&r, to, n_targets);
  for (int i = 0; i < n_targets; i++)
    least[i] = mixed[i] = INFINITY;
  while (r.heap.n) {
    Waiting top = pop(&r);
    if (r.nodes.at[top.node].settled) continue;
    r.nodes.at[top.node].settled = true;
    r.now = top.seconds;
    World w = r.nodes.at[top.node].world; // a copy: adding nodes moves the array
    look_for_targets(&r, &w);
    if (r.now > r.bound) break;
    list_slices(&r, &w);
    list_collectives(&r, &w);
    list_permutes(&r, &w);
    list_crossings(&r, &w);
  }
  arena_free(r.arena);
}
