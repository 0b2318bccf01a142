// Devices and costs of the primitives: see path_cost.h.

#include "path_cost.h"

#include <assert.h>
#include <string.h>

#include "base/larger.h"

const char *const path_prim_name[PATH_send_recv + 1] = {
    "slice",   "split_sum", "pad_sum",
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) #op,
#include "rt/collectives.def"
    "permute", "move",      "broadcast", "rd_scatter", "rd_gather", "reduce", "send_recv",
};

// The ops of primitives, with the layouts before and after (kinds of Sbp); 0: not one op.
static const struct {
  OpKind op;
  int from, to;
} op_of_prim[PATH_send_recv + 1] = {
    [PATH_slice] = {OP_local_slice, SBP_B, SBP_S},
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl)                                           \
  [PATH_##op] = {OP_##op, SBP_##from, SBP_##to},
#include "rt/collectives.def"
};

bool path_is_collective(PathPrim prim) {
  return op_of_prim[prim].op != 0 && prim != PATH_slice;
}

OpKind path_op(PathPrim prim) {
  return op_of_prim[prim].op;
}

PathPrim path_prim_of(OpKind op) {
  for (int prim = 0; prim <= PATH_send_recv; prim++)
    if (path_is_collective((PathPrim)prim) && op_of_prim[prim].op == op) return (PathPrim)prim;
  return PATH_slice;
}

int path_ring_rounds(PathPrim prim) {
  int from = op_of_prim[prim].from, to = op_of_prim[prim].to;
  if (from == SBP_S && to == SBP_S) return 0;
  return from == SBP_P && to == SBP_B ? 2 : 1;
}

bool path_grows(PathPrim prim) {
  return op_of_prim[prim].from == SBP_S && op_of_prim[prim].to == SBP_B;
}

// -- Traffic ---------------------------------------------------------------------------------

struct Traffic {
  const Cluster *c;
  double *out, *in;         // seconds, of a device's link inside its node
  double *nic_out, *nic_in; // per adapter
  double *waits;            // per device: alphas of its sends; of its receives
  int *in_node;             // devices of a group per node; 0 between uses
  int *touched, n_touched;  // devices
  bool *is_touched;
  double bytes, crossing, alpha; // alpha: a lower bound of the latency
  double carried;                // of the last cost
};

Traffic *traffic_new(Arena *a, const Cluster *c) {
  int n = cluster_devices(c), n_nics = c->nodes * c->nics;
  Traffic *t = arena_one(a, Traffic);
  t->c = c;
  t->out = arena_array(a, double, n);
  t->in = arena_array(a, double, n);
  t->nic_out = arena_array(a, double, n_nics);
  t->nic_in = arena_array(a, double, n_nics);
  t->waits = arena_array(a, double, 2 * n);
  t->in_node = arena_array(a, int, c->nodes);
  t->touched = arena_array(a, int, n);
  t->is_touched = arena_array(a, bool, n);
  return t;
}

static void touch(Traffic *t, int device) {
  if (t->is_touched[device]) return;
  t->is_touched[device] = true;
  t->touched[t->n_touched++] = device;
}

static bool is_near(const Cluster *c, int src, int dst) {
  return cluster_node(c, src) == cluster_node(c, dst);
}

// A hop is as slow as its slower end.
static Link link_between(const Cluster *c, int src, int dst) {
  bool near = is_near(c, src, dst);
  const Link *out = near ? cluster_inside(c, src) : cluster_across(c, src);
  const Link *in = near ? cluster_inside(c, dst) : cluster_across(c, dst);
  return (Link){larger(out->alpha, in->alpha), larger(out->beta, in->beta)};
}

// Adds bytes without the latency of a message, as in a ring.
static void flow(Traffic *t, int src, int dst, double bytes) {
  if (src == dst) return;
  touch(t, src);
  touch(t, dst);
  // Within a node over the devices' own links, between nodes over the adapters.
  t->bytes += bytes;
  if (is_near(t->c, src, dst)) {
    t->out[src] += bytes * cluster_inside(t->c, src)->beta;
    t->in[dst] += bytes * cluster_inside(t->c, dst)->beta;
  } else {
    t->crossing += bytes;
    t->nic_out[cluster_nic(t->c, src)] += bytes * cluster_across(t->c, src)->beta;
    t->nic_in[cluster_nic(t->c, dst)] += bytes * cluster_across(t->c, dst)->beta;
  }
}

void traffic_message(Traffic *t, int src, int dst, double bytes) {
  if (src == dst) return;
  double alpha = link_between(t->c, src, dst).alpha;
  flow(t, src, dst, bytes);
  t->waits[2 * src] += alpha;
  t->waits[2 * dst + 1] += alpha;
}

double traffic_out(const Traffic *t, int src, int dst) {
  return is_near(t->c, src, dst) ? t->out[src] : t->nic_out[cluster_nic(t->c, src)];
}

bool traffic_exceeds(const Traffic *t, int src, int dst, double seconds) {
  if (src == dst) return false;
  // A lower bound of traffic_cost, by the two ends of this link.
  bool near = is_near(t->c, src, dst);
  double out = near ? t->out[src] : t->nic_out[cluster_nic(t->c, src)];
  double in = near ? t->in[dst] : t->nic_in[cluster_nic(t->c, dst)];
  double waits = larger(t->waits[2 * src], t->waits[2 * dst + 1]);
  return t->c->start + waits + larger(out, in) > seconds;
}

Cost traffic_cost(Traffic *t) {
  // Links work in parallel, in both directions: the busiest one decides.
  double busiest = 0, alpha = t->alpha;
  for (int i = 0; i < t->n_touched; i++) {
    int device = t->touched[i], nic = cluster_nic(t->c, device);
    busiest = larger(busiest, larger(t->out[device], t->in[device]));
    busiest = larger(busiest, larger(t->nic_out[nic], t->nic_in[nic]));
    alpha = larger(alpha, larger(t->waits[2 * device], t->waits[2 * device + 1]));
  }
  t->carried = busiest;
  Cost cost = {t->n_touched ? t->c->start + alpha + busiest : 0, t->bytes, t->crossing};
  // Back to zero, for the next use.
  for (int i = 0; i < t->n_touched; i++) {
    int device = t->touched[i], nic = cluster_nic(t->c, device);
    t->out[device] = t->in[device] = t->nic_out[nic] = t->nic_in[nic] = 0;
    t->waits[2 * device] = t->waits[2 * device + 1] = 0;
    t->is_touched[device] = false;
  }
  t->n_touched = 0;
  t->bytes = t->crossing = t->alpha = 0;
  return cost;
}

double traffic_carried(const Traffic *t) {
  return t->carried;
}

// -- Cost ------------------------------------------------------------------------------------

static void sort_devices(int *device, int n) {
  for (int i = 1; i < n; i++) {
    int x = device[i], k = i;
    for (; k > 0 && device[k - 1] > x; k--)
      device[k] = device[k - 1];
    device[k] = x;
  }
}

// A ring over sorted devices: those of a node are adjacent, so it leaves every node once.  `steps`
// times the slowest hop.
static void ring(Traffic *t, int *device, int n, int steps, double bytes) {
  double alpha = 0;
  sort_devices(device, n);
  for (int i = 0; i < n; i++) {
    int next = device[(i + 1) % n];
    flow(t, device[i], next, bytes);
    alpha = larger(alpha, link_between(t->c, device[i], next).alpha);
  }
  t->alpha = larger(t->alpha, steps * alpha);
}

// All-to-all traffic: only the number of peers inside and outside of the node matters, except for
// alpha: each waits for the slowest.
static void all_pairs(Traffic *t, const int *device, int n, double bytes) {
  const Cluster *c = t->c;
  double alpha = 0;
  for (int i = 0; i < n; i++)
    t->in_node[cluster_node(c, device[i])]++;
  for (int i = 0; i < n && n > 1; i++) {
    int x = device[i], near = t->in_node[cluster_node(c, x)] - 1, far = n - 1 - near;
    double inside = near * bytes, across = far * bytes;
    touch(t, x);
    t->bytes += inside + across;
    t->crossing += across;
    t->out[x] += inside * cluster_inside(c, x)->beta;
    t->in[x] += inside * cluster_inside(c, x)->beta;
    t->nic_out[cluster_nic(c, x)] += across * cluster_across(c, x)->beta;
    t->nic_in[cluster_nic(c, x)] += across * cluster_across(c, x)->beta;
    if (near) alpha = larger(alpha, cluster_inside(c, x)->alpha);
    if (far) alpha = larger(alpha, cluster_across(c, x)->alpha);
  }
  // Back to zero, for the next use.
  for (int i = 0; i < n; i++)
    t->in_node[cluster_node(c, device[i])] = 0;
  t->alpha = larger(t->alpha, (n - 1) * alpha);
}

Cost groups_cost(Traffic *t, PathPrim prim, const Groups *g, double before, double after) {
  int p = g->size, rounds = path_ring_rounds(prim);
  for (int i = 0; i < g->n; i++) {
    int *device = g->device + i * p;
    // All groups add to the same links; traffic_cost then finds the busiest.
    switch (prim) {
    case PATH_slice:
    case PATH_split_sum:
    case PATH_pad_sum: break;
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) case PATH_##op:
#include "rt/collectives.def"
      if (rounds)
        ring(t, device, p, rounds * (p - 1), rounds * larger(before, after) * (p - 1) / p);
      else
        all_pairs(t, device, p, before / p);
      break;
    case PATH_permute:
    case PATH_move: traffic_message(t, device[0], device[1], before); break;
    case PATH_broadcast:
    case PATH_rd_scatter:
      for (int k = 1; k < p; k++)
        traffic_message(t, device[0], device[k], after);
      break;
    case PATH_reduce:
    case PATH_rd_gather:
      for (int k = 0; k < p - 1; k++)
        traffic_message(t, device[k], device[p - 1], before);
      break;
    case PATH_send_recv: assert(!"its messages are of different sizes"); break;
    }
  }
  return traffic_cost(t);
}

// -- Groups ----------------------------------------------------------------------------------

static int digit(const Group *g, int axis, int position) {
  return position / g->stride[axis] % g->size[axis];
}

// The number of positions that differ in the digits of the mask only.
static int mask_size(const Group *g, uint32_t mask) {
  int size = 1;
  for (int i = 0; i < g->n_axes; i++)
    if (mask >> i & 1) size *= g->size[i];
  return size;
}

// Whether x is the first of these positions.
static bool is_first(const Group *g, uint32_t mask, int x) {
  for (int i = 0; i < g->n_axes; i++)
    if ((mask >> i & 1) && digit(g, i, x) != 0) return false;
  return true;
}

// The k-th of the positions of which x is the first.
static int mask_member(const Group *g, uint32_t mask, int x, int k) {
  for (int i = g->n_axes - 1; i >= 0; i--) {
    if (!(mask >> i & 1)) continue;
    x += k % g->size[i] * g->stride[i];
    k /= g->size[i];
  }
  return x;
}

// Groups of the positions that differ in the digits of the mask only.
static void mask_groups(const Group *g, uint32_t mask, Groups *out) {
  int *to = out->device;
  out->size = mask_size(g, mask);
  out->n = 0;
  for (int x = 0; x < g->n; x++) {
    if (!is_first(g, mask, x)) continue;
    out->n++;
    for (int k = 0; k < out->size; k++)
      *to++ = g->device[mask_member(g, mask, x, k)];
  }
}

// The position in `large` with the digits of position x of `small` on the mapped axes, and the
// digits of `extra` on the others.
static int mapped(const Group *small, const Group *large, const uint8_t *map, int x, int extra) {
  int y = 0;
  // Digits of mapped axes, then those of `extra`.
  uint32_t taken = 0;
  for (int i = 0; i < small->n_axes; i++) {
    y += digit(small, i, x) * large->stride[map[i]];
    taken |= 1u << map[i];
  }
  for (int i = large->n_axes - 1; i >= 0; i--) {
    if (taken >> i & 1) continue;
    y += extra % large->size[i] * large->stride[i];
    extra /= large->size[i];
  }
  return y;
}

// Whether no transfer is needed: all devices have the right boxes, and shares of a sum may be
// renumbered, if equal ones stay together.
static bool renumbers(const TensorShape *shape, const Group *from, const State *before,
                      const Group *to, const State *after, int *scratch) {
  int *number = scratch, *back = scratch + to->n; // of shares: wanted to present, present to wanted
  for (int x = 0; x < 2 * to->n; x++)
    scratch[x] = -1;
  for (int x = 0; x < to->n; x++) {
    int y = from->position[to->device[x]];
    if (y < 0) return false;
    // Shares may change their numbers, if it is the same change everywhere.
    Piece have = state_piece(shape, from, before, y), want = state_piece(shape, to, after, x);
    if (number[want.share] < 0 && back[have.share] < 0) {
      number[want.share] = have.share;
      back[have.share] = want.share;
    }
    if (number[want.share] != have.share || back[have.share] != want.share) return false;
    have.share = want.share = 0;
    if (!piece_equal(&have, &want)) return false;
  }
  return true;
}

// Pairs of a permute, or of a move between groups of one size, or from one copy of a larger group.
static void pairs(const TensorShape *shape, const Group *from, const State *before, const Group *to,
                  const State *after, const Edge *e, const Cluster *c, Groups *out) {
  out->n = 0;
  out->size = 2;
  if (from->n == to->n && renumbers(shape, from, before, to, after, out->device)) return;
  int q = from->n / to->n;
  for (int x = 0; x < to->n; x++) {
    int device = to->device[x], src = -1;
    int own = from == to ? x : from->position[device];
    if (q > 1) { // copies: one in the reader's node, else spread over readers
      for (int k = 0; k < q && src < 0; k++) {
        int y = mapped(to, from, e->map, x, k);
        if (cluster_node(c, from->device[y]) == cluster_node(c, device)) src = y;
      }
      if (src < 0) src = mapped(to, from, e->map, x, x % q);
    } else {
      src = 0;
      // Of several copies, the one with the reader's own digits, for the fewest transfers.
      for (int i = 0; i < from->n_axes; i++) {
        bool any = from == to && before->label[i] == LABEL_B;
        src += digit(to, any ? i : e->map[i], x) * from->stride[i];
      }
    }
    // No transfer if the device has that piece already.
    if (from->device[src] == device) continue;
    if (own >= 0) { // compare data: only the map tells which share becomes which
      Piece have = state_piece(shape, from, before, own);
      Piece comes = state_piece(shape, from, before, src);
      if (piece_equal(&have, &comes)) continue;
    }
    out->device[2 * out->n] = from->device[src];
    out->device[2 * out->n++ + 1] = device;
  }
}

enum { MAX_CHOICE = 64 }; // limit of readers for choose_copies

// Assigns `each` readers to each of n devices with the same data: itself, if it is one; then
// readers in its node; then the rest.  Sorts the readers by their copy.
static void choose_copies(const Cluster *c, const int *copy, int n, int each, int *reader) {
  int chosen[MAX_CHOICE], old[MAX_CHOICE], n_chosen[MAX_CHOICE] = {0};
  for (int k = 0; k < n * each; k++) {
    old[k] = reader[k];
    chosen[k] = -1;
  }
  // By distance: 0 is the device itself, 1 its node, 2 any other.
  for (int distance = 0; distance < 3; distance++)
    for (int k = 0; k < n * each; k++)
      for (int i = 0; i < n && chosen[k] < 0; i++) {
        int apart =
            copy[i] == old[k] ? 0 : 2 - (cluster_node(c, copy[i]) == cluster_node(c, old[k]));
        if (apart > distance || n_chosen[i] == each) continue;
        reader[i * each + n_chosen[i]++] = old[k];
        chosen[k] = i;
      }
}

// Reassigns the senders of `n` copies by distance; a group x begins at out->device + x * out->size.
static void send_from_nearest(const Cluster *c, const Group *few, uint32_t copied, int x, int n,
                              bool few_send, Groups *out) {
  int copy[MAX_CHOICE] = {0}, reader[MAX_CHOICE], *group[MAX_CHOICE], q = out->size - 1;
  for (int i = 0; i < n; i++)
    group[i] = out->device + mask_member(few, copied, x, i) * out->size;
  // Each of few senders has q readers, which the copies exchange.
  if (few_send) {
    for (int i = 0; i < n; i++) {
      copy[i] = group[i][0];
      memcpy(reader + i * q, group[i] + 1, sizeof *reader * (size_t)q);
    }
    choose_copies(c, copy, n, q, reader);
    for (int i = 0; i < n; i++)
      memcpy(group[i] + 1, reader + i * q, sizeof *reader * (size_t)q);
    return;
  }
  // Each of few readers has q senders, one of each part: the k-th ones have copies of each other.
  for (int k = 0; k < q; k++) {
    for (int i = 0; i < n; i++) {
      copy[i] = group[i][k];
      reader[i] = group[i][q];
    }
    choose_copies(c, copy, n, 1, reader);
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++)
        if (group[j][q] == reader[i]) group[j][k] = copy[i];
  }
}

// Groups each device of `few` with its peers of `many`, senders first.
static void stars(const Group *few, const Group *many, const Edge *e, const State *before,
                  bool few_send, const Cluster *c, Groups *out) {
  int q = many->n / few->n, *at = out->device;
  for (int x = 0; x < few->n; x++) {
    if (few_send) *at++ = few->device[x];
    for (int k = 0; k < q; k++)
      *at++ = many->device[mapped(few, many, e->map, x, k)];
    if (!few_send) *at++ = few->device[x];
  }
  out->n = few->n;
  out->size = q + 1;
  // The axes of the smaller group over which the senders have copies.
  uint32_t copied = 0;
  for (int i = 0; i < few->n_axes; i++)
    if (before->label[few_send ? i : e->map[i]] == LABEL_B) copied |= 1u << i;

  int n = mask_size(few, copied);
  // Senders that have copies of each other may exchange readers, to send within nodes.
  for (int x = 0; x < few->n && n > 1 && n * q <= MAX_CHOICE; x++)
    if (is_first(few, copied, x)) send_from_nearest(c, few, copied, x, n, few_send, out);
}

void edge_groups(const TensorShape *shape, const Group group[2], const State *before,
                 const State *after, const Edge *e, const Cluster *c, Groups *out) {
  const Group *from = &group[before->group], *to = &group[after->group];
  // Local primitives have no groups; those of send/recv are of different sizes.
  out->n = out->size = 0;
  switch (e->prim) {
  case PATH_slice:
  case PATH_split_sum:
  case PATH_pad_sum:
  case PATH_send_recv: return;
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) case PATH_##op:
#include "rt/collectives.def"
    mask_groups(from, e->mask, out);
    return;
  case PATH_permute:
  case PATH_move: pairs(shape, from, before, to, after, e, c, out); return;
  case PATH_broadcast:
  case PATH_rd_scatter: stars(from, to, e, before, true, c, out); return;
  case PATH_rd_gather:
  case PATH_reduce: stars(to, from, e, before, false, c, out); return;
  }
}
