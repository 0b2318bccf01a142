// See cost_comm.h.
//
// Prices are hashed by everything that they depend on (Key).  A new key is put on the links once:
// groups as a whole, a move parcel by parcel.  A move from stage 2 to 3 costs as much as that from
// stage 1 to 2, if its devices are those of other nodes: of such moves one is put on the links.

#include "cost_comm.h"

#include <math.h>
#include <string.h>

#include "collectives.h"
#include "ir/op.h"

// Everything that the cost of a collective depends on.  Types and layouts are interned, so pointer
// equality is equality.
typedef struct Key {
  OpKind kind;
  const Type *in, *out;
  const Layout *from, *to;
  const char *axis; // "" for a move
} Key;

typedef struct Known {
  Key key;
  CommPrice price;
  struct Known *next, *next_alike; // of the same bucket
} Known;

enum { BUCKETS = 1024 };

struct CommPrices {
  Arena *arena;
  const Cluster *cluster;
  Traffic *traffic;
  int n_devices, n;
  Known *bucket[BUCKETS];
  Known *alike[BUCKETS]; // moves, by the numbers that they share with moves of other devices
};

CommPrices *comm_prices_new(Arena *a, const Cluster *c) {
  CommPrices *p = arena_one(a, CommPrices);
  p->arena = a;
  p->cluster = c;
  p->traffic = traffic_new(a, c);
  p->n_devices = cluster_devices(c);
  return p;
}

// -- Keys ------------------------------------------------------------------------------------

static unsigned key_bucket(const Key *k) {
  uint64_t h = (uint64_t)k->kind;
  const void *const at[] = {k->in, k->out, k->from, k->to};
  for (int i = 0; i < 4; i++)
    h = (h ^ (uint64_t)(uintptr_t)at[i]) * 1099511628211u;
  for (const char *s = k->axis; *s; s++)
    h = (h ^ (uint8_t)*s) * 1099511628211u;
  return (unsigned)(h >> 32) % BUCKETS;
}

static unsigned alike_bucket(const Key *k) {
  uint64_t h = (uint64_t)(uintptr_t)k->in * 1099511628211u ^ (uint64_t)(uintptr_t)k->out;
  const Layout *const at[] = {k->from, k->to};
  for (int i = 0; i < 2; i++) {
    h = (h ^ (uint64_t)at[i]->mesh->n_devices) * 1099511628211u;
    for (int x = 0; x < at[i]->n_axes; x++)
      h = (h ^ (uint64_t)(at[i]->axis[x].kind * MAX_NDIM + at[i]->axis[x].dim)) * 1099511628211u;
  }
  return (unsigned)(h >> 32) % BUCKETS;
}

// Whether two layouts differ in their devices only, which those of `b` are plus *by.
static bool layout_shifted(const Layout *a, const Layout *b, int *by) {
  if (a->n_axes != b->n_axes) return false;
  for (int i = 0; i < a->n_axes; i++)
    if (a->axis[i].kind != b->axis[i].kind || a->axis[i].dim != b->axis[i].dim) return false;
  return mesh_shifted(a->mesh, b->mesh, by);
}

// A move with a price, between the same devices of other nodes, which are *by more here; or NULL.
static const Known *find_alike(const CommPrices *p, const Key *k, int *by) {
  int to_by;
  if (p->cluster->n_kinds) return NULL;
  for (const Known *x = p->alike[alike_bucket(k)]; x; x = x->next_alike)
    if (x->key.in == k->in && x->key.out == k->out && layout_shifted(x->key.from, k->from, by) &&
        *by % p->cluster->per_node == 0 && layout_shifted(x->key.to, k->to, &to_by) && to_by == *by)
      return x;
  return NULL;
}

// -- Prices ----------------------------------------------------------------------------------

static void add_once(int *list, int *n, bool *there, int device) {
  if (there[device]) return;
  there[device] = true;
  list[(*n)++] = device;
}

// The bytes that cross links for `bytes` of this type.
static double sent_bytes(const CommPrices *p, const Type *t, int64_t bytes) {
  return t->dtype == DT_f32 && p->cluster->half_comm ? (double)bytes / 2 : (double)bytes;
}

// The messages of a move, as they are put on the links.
typedef struct Parcels {
  CommPrices *prices;
  const Type *type; // of the move's result
  Parties *parties;
  bool *sends, *gets;
  int to;             // the current receiver; -1: none yet
  double *bytes_from; // to the current receiver, by sender
  int *from, n_from;  // the senders with any
} Parcels;

// The receiver's last message completes its parcels: one per sender, with all its boxes.
static void send_parcels(Parcels *x) {
  for (int k = 0; k < x->n_from; k++) {
    traffic_message(x->prices->traffic, x->from[k], x->to, x->bytes_from[x->from[k]]);
    x->bytes_from[x->from[k]] = 0;
  }
  x->n_from = 0;
}

// Messages are in the order of receivers.
static void add_message(void *context, const Message *m) {
  Parcels *x = context;
  if (m->to != x->to) send_parcels(x);
  x->to = m->to;
  if (m->from == m->to) return;
  if (x->bytes_from[m->from] == 0) x->from[x->n_from++] = m->from;
  x->bytes_from[m->from] += sent_bytes(x->prices, x->type, message_bytes(m, x->type));
  add_once(x->parties->sender, &x->parties->n_senders, x->sends, m->from);
  add_once(x->parties->receiver, &x->parties->n_receivers, x->gets, m->to);
}

static void price_move(CommPrices *p, const Op *move, CommPrice *out) {
  Arena *scratch = arena_new();
  Parties *parties = &out->parties;
  parties->sender = arena_array(p->arena, int, move->in[0].value->layout->mesh->n_devices);
  parties->receiver = arena_array(p->arena, int, op_mesh(move)->n_devices);
  Parcels x = {.prices = p,
               .type = move->out[0]->type,
               .parties = parties,
               .sends = arena_array(scratch, bool, p->n_devices),
               .gets = arena_array(scratch, bool, p->n_devices),
               .to = -1,
               .bytes_from = arena_array(scratch, double, p->n_devices),
               .from = arena_array(scratch, int, p->n_devices)};
  visit_messages(move, add_message, &x);
  send_parcels(&x);
  out->cost = traffic_cost(p->traffic);
  arena_free(scratch);
}

static int *shifted(Arena *a, const int *device, int n, int by) {
  int *out = arena_array(a, int, n);
  for (int i = 0; i < n; i++)
    out[i] = device[i] + by;
  return out;
}

// The price of a move, as that of one between the same devices of other nodes.
static void take_price(CommPrices *p, const Known *of, int by, CommPrice *out) {
  const Parties *from = &of->price.parties;
  out->cost = of->price.cost;
  out->parties = (Parties){.sender = shifted(p->arena, from->sender, from->n_senders, by),
                           .receiver = shifted(p->arena, from->receiver, from->n_receivers, by),
                           .n_senders = from->n_senders,
                           .n_receivers = from->n_receivers};
}

NcclChoice comm_nccl(CommPrices *p, const Op *op, int *nodes) {
  const Groups *g = &comm_price(p, op)->parties.groups;
  const Type *from = op->in[0].value->type, *to = op->out[0]->type;
  double in = sent_bytes(p, from, type_bytes(from)), out = sent_bytes(p, to, type_bytes(to));
  PathPrim prim = path_prim_of(op->kind);
  *nodes = groups_nodes(p->cluster, g);
  groups_cost(p->traffic, prim, g, in, out);
  return nccl_choose(p->cluster, prim, g->size, *nodes, fmax(in, out), traffic_carried(p->traffic));
}

const CommPrice *comm_price(CommPrices *p, const Op *op) {
  const Value *in = op->in[0].value, *out = op->out[0];
  const char *axis = op->kind == OP_move ? "" : attr_s(op, "axis");
  Key key = {op->kind, in->type, out->type, in->layout, out->layout, axis};
  Known **bucket = &p->bucket[key_bucket(&key)];
  for (Known *k = *bucket; k; k = k->next) {
    const Key *is = &k->key;
    if (is->kind == key.kind && is->in == key.in && is->out == key.out && is->from == key.from &&
        is->to == key.to && str_equal(is->axis, key.axis))
      return &k->price;
  }
  // A new key gets the next id.
  Known *k = arena_one(p->arena, Known);
  *k = (Known){.key = key, .price = {.id = p->n++}, .next = *bucket};
  *bucket = k;
  if (op->kind == OP_move) {
    int by;
    const Known *of = find_alike(p, &key, &by);
    if (of) {
      take_price(p, of, by, &k->price);
    } else {
      price_move(p, op, &k->price);
      Known **alike = &p->alike[alike_bucket(&key)];
      k->next_alike = *alike;
      *alike = k;
    }
  } else if (collective_size(op) != 1) {
    // Groups of a single device transfer nothing.  All others share the links.
    Groups *groups = &k->price.parties.groups;
    *groups = collective_groups(p->arena, op);
    k->price.cost = groups_cost(p->traffic, path_prim_of(op->kind), groups,
                                sent_bytes(p, in->type, type_bytes(in->type)),
                                sent_bytes(p, out->type, type_bytes(out->type)));
    int nodes;
    if (p->cluster->nccl && path_ring_rounds(path_prim_of(op->kind)))
      k->price.cost.seconds = comm_nccl(p, op, &nodes).seconds;
  }
  return &k->price;
}
