// See boxes.h.
//
// A layout splits every dimension into equal parts, so its boxes are the cells of a grid.  With the
// shares of a partial sum there are `n_cells * n_shares` distinct pieces.  Each has as many
// replicas as the product of the sizes of the axes that are B.

#include "boxes.h"

#include "ir/intern.h"

#include <stdlib.h>
#include <string.h>

Place mesh_place(const Mesh *mesh, int position, int slice) {
  Place p = {0};
  for (int i = mesh ? mesh->n_axes - 1 : -1; i >= 0; i--) {
    int *from = mesh->axis[i].time ? &slice : &position;
    p.coord[i] = *from % mesh->axis[i].size;
    *from /= mesh->axis[i].size;
  }
  return p;
}

Region place_region(const Type *whole, const Layout *l, const Place *at) {
  Region r = {0};
  memcpy(r.size, whole->dim, (size_t)whole->ndim * sizeof *r.size);
  for (int i = 0; l && i < l->n_axes; i++) {
    if (l->axis[i].kind != SBP_S) continue;
    // Several axes may split a dimension; each divides the part of the one before.
    int dim = l->axis[i].dim;
    r.size[dim] /= l->mesh->axis[i].size;
    r.start[dim] += at->coord[i] * r.size[dim];
  }
  return r;
}

static int time_axis(const Layout *l) {
  for (int i = 0; i < l->n_axes; i++)
    if (l->mesh->axis[i].time) return i;
  return -1;
}

// The number of parts that axes outside of `axis` split its dimension into.  A slice of `axis`
// consists of as many separate pieces.
static int pieces_of_slice(const Layout *l, int axis) {
  int n = 1;
  for (int i = 0; i < axis; i++)
    if (l->axis[i].kind == SBP_S && l->axis[i].dim == l->axis[axis].dim) n *= l->mesh->axis[i].size;
  return n;
}

bool same_in_time(const Layout *a, const Layout *b) {
  int i = time_axis(a), k = time_axis(b);
  Sbp whole = {.kind = SBP_B}, x = i < 0 ? whole : a->axis[i], y = k < 0 ? whole : b->axis[k];
  // Equal kinds, and for a split the same pieces of the dimension.
  if (x.kind != y.kind) return false;
  return x.kind != SBP_S || (x.dim == y.dim && pieces_of_slice(a, i) == pieces_of_slice(b, k));
}

// -- The grid of a layout ----------------------------------------------------------------------

typedef struct Device {
  int device, position;
} Device;

// One end of a move, at the first time slice; the other slices are the same.
typedef struct End {
  const Layout *l;
  int n; // devices
  int n_cells, n_shares, n_copies;
  int parts[MAX_NDIM];      // per dimension, in one slice
  int64_t size[MAX_NDIM];   // of one part
  int64_t *start[MAX_NDIM]; // [parts], ascending
  int *cell, *share;        // [n], by position
  int *holder;              // [(cell * n_shares + share) * n_copies + copy]: a position
  Device *by_device;        // [n], sorted
  int64_t *sent;            // [n], bytes
} End;

static int compare_devices(const void *a, const void *b) {
  const Device *x = a, *y = b;
  return (x->device > y->device) - (x->device < y->device);
}

static int position_of(const End *e, int device) {
  Device key = {.device = device};
  const Device *found = bsearch(&key, e->by_device, (size_t)e->n, sizeof key, compare_devices);
  return found ? found->position : -1;
}

static End end_of(const Type *whole, const Layout *l, Arena *a) {
  End e = {.l = l, .n = l->mesh ? l->mesh->n_devices : 1, .n_cells = 1, .n_shares = 1};
  // The grid: parts per dimension, shares of a partial sum, and replicas.
  for (int d = 0; d < whole->ndim; d++)
    e.parts[d] = 1;
  for (int i = 0; i < l->n_axes; i++) {
    if (l->mesh->axis[i].time) continue;
    if (l->axis[i].kind == SBP_S) e.parts[l->axis[i].dim] *= l->mesh->axis[i].size;
    if (l->axis[i].kind == SBP_P) e.n_shares *= l->mesh->axis[i].size;
  }
  for (int d = 0; d < whole->ndim; d++)
    e.n_cells *= e.parts[d];
  e.n_copies = e.n / e.n_cells / e.n_shares;
  e.cell = arena_array(a, int, e.n);
  e.share = arena_array(a, int, e.n);
  e.holder = arena_array(a, int, e.n);
  e.by_device = arena_array(a, Device, e.n);
  e.sent = arena_array(a, int64_t, e.n);
  int *n_holders = arena_array(a, int, e.n_cells *e.n_shares);
  for (int d = 0; d < whole->ndim; d++)
    e.start[d] = arena_array(a, int64_t, e.parts[d]);
  // The size of a part, and the distance of two parts along each axis, as in place_region.
  int64_t step[MAX_AXES] = {0};
  memcpy(e.size, whole->dim, (size_t)whole->ndim * sizeof *e.size);
  for (int i = 0; i < l->n_axes; i++)
    if (l->axis[i].kind == SBP_S) step[i] = e.size[l->axis[i].dim] /= l->mesh->axis[i].size;
  // Every device holds one replica of one share of one cell.
  Place at = {0};
  for (int p = 0; p < e.n; p++) {
    // The digits of a part's index and of the share are the coordinates along their axes.
    int index[MAX_NDIM] = {0};
    int64_t start[MAX_NDIM] = {0};
    for (int i = 0; i < l->n_axes; i++) {
      const Sbp *sbp = &l->axis[i];
      if (l->mesh->axis[i].time) continue;
      if (sbp->kind == SBP_P) e.share[p] = e.share[p] * l->mesh->axis[i].size + at.coord[i];
      if (sbp->kind != SBP_S) continue;
      index[sbp->dim] = index[sbp->dim] * l->mesh->axis[i].size + at.coord[i];
      start[sbp->dim] += at.coord[i] * step[i];
    }
    for (int d = 0; d < whole->ndim; d++) {
      e.cell[p] = e.cell[p] * e.parts[d] + index[d];
      e.start[d][index[d]] = start[d];
    }
    int thing = e.cell[p] * e.n_shares + e.share[p];
    e.holder[thing * e.n_copies + n_holders[thing]++] = p;
    e.by_device[p] = (Device){l->mesh ? l->mesh->device[p] : 0, p};
    // The place of the next device.
    for (int i = l->n_axes - 1; i >= 0; i--) {
      if (l->mesh->axis[i].time) continue;
      if (++at.coord[i] < l->mesh->axis[i].size) break;
      at.coord[i] = 0;
    }
  }
  // position_of searches this list; most meshes have it already.
  bool sorted = true;
  for (int p = 1; p < e.n; p++)
    sorted &= compare_devices(&e.by_device[p - 1], &e.by_device[p]) <= 0;
  if (!sorted) qsort(e.by_device, (size_t)e.n, sizeof *e.by_device, compare_devices);
  return e;
}

static int device_at(const End *e, int position) {
  return e->l->mesh ? e->l->mesh->device[position] : 0;
}

// The region of a cell.
static Region cell_region(const End *e, int ndim, int cell) {
  Region r = {0};
  for (int d = ndim - 1; d >= 0; d--) {
    r.start[d] = e->start[d][cell % e->parts[d]];
    r.size[d] = e->size[d];
    cell /= e->parts[d];
  }
  return r;
}

// The intersection of two regions; false if it is empty.
static bool intersect(const Region *x, const Region *y, int ndim, Region *out) {
  *out = (Region){0};
  for (int d = 0; d < ndim; d++) {
    int64_t x_end = x->start[d] + x->size[d], y_end = y->start[d] + y->size[d];
    // The later start and the earlier end, in each dimension.
    out->start[d] = x->start[d] > y->start[d] ? x->start[d] : y->start[d];
    out->size[d] = (x_end < y_end ? x_end : y_end) - out->start[d];
    if (out->size[d] <= 0) return false;
  }
  return true;
}

// -- Pairs of shares ---------------------------------------------------------------------------

typedef struct Pair {
  int from, to; // shares
  int64_t stays;
} Pair;

static int compare_pairs(const void *a, const void *b) {
  const Pair *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->to > y->to) - (x->to < y->to);
}

static int most_first(const void *a, const void *b) {
  const Pair *x = a, *y = b;
  if (x->stays != y->stays) return x->stays > y->stays ? -1 : 1;
  return compare_pairs(a, b);
}

// For each pair of a source share and a target share, counts the elements that need no transfer.
// Most elements first.
static int find_pairs(const Type *whole, const End *from, const End *to, Pair *pair) {
  int n = 0, merged = 0;
  // One pair per device that has a box before and after, with the size of the intersection.
  for (int p = 0; p < to->n; p++) {
    int at = position_of(from, device_at(to, p));
    if (at < 0) continue;
    Region x = cell_region(from, whole->ndim, from->cell[at]);
    Region y = cell_region(to, whole->ndim, to->cell[p]), both;
    if (!intersect(&x, &y, whole->ndim, &both)) continue;
    Pair found = {from->share[at], to->share[p], 1};
    for (int d = 0; d < whole->ndim; d++)
      found.stays *= both.size[d];
    pair[n++] = found;
  }
  if (n == 0) return 0;
  // Pairs of the same shares are merged, and then ordered by the number of elements.
  qsort(pair, (size_t)n, sizeof *pair, compare_pairs);
  for (int i = 1; i < n; i++)
    if (compare_pairs(&pair[merged], &pair[i]) == 0)
      pair[merged].stays += pair[i].stays;
    else
      pair[++merged] = pair[i];
  qsort(pair, (size_t)++merged, sizeof *pair, most_first);
  return merged;
}

// The target share of each source share.  Assigns the pairs with the most local elements first, and
// no target share more than its even portion of source shares.
static int *share_targets(const Type *whole, const End *from, const End *to, Arena *a) {
  int *target = arena_array(a, int, from->n_shares), *taken = arena_array(a, int, to->n_shares);
  int most = (from->n_shares + to->n_shares - 1) / to->n_shares, next = 0;
  Pair *pair = arena_array(a, Pair, to->n);
  int n = to->n_shares > 1 ? find_pairs(whole, from, to, pair) : 0;
  // Greedy: the pairs with the most elements that stay local come first.
  for (int i = 0; i < from->n_shares; i++)
    target[i] = -1;
  for (int i = 0; i < n; i++) {
    if (target[pair[i].from] >= 0 || taken[pair[i].to] == most) continue;
    target[pair[i].from] = pair[i].to;
    taken[pair[i].to]++;
  }
  // The remaining shares fill up the targets with capacity.
  for (int i = 0; i < from->n_shares; i++) {
    if (target[i] >= 0) continue;
    while (taken[next] == most)
      next++;
    target[i] = next;
    taken[next]++;
  }
  return target;
}

// -- Messages ----------------------------------------------------------------------------------

typedef struct Move {
  const Type *whole;
  End from, to;
  const Distance *distance;
  MessageVisitor *visit;
  void *context;
} Move;

int64_t message_bytes(const Message *m, const Type *t) {
  int64_t n = dtype_bytes[t->dtype];
  for (int d = 0; d < t->ndim; d++)
    n *= m->size[d];
  return n;
}

// The source position of the device that sends a cell of a share to device `to`.
static int sender(const Move *m, int cell, int share, int to) {
  const End *e = &m->from;
  int own = position_of(e, to), best = -1;
  // A device that has the cell itself sends nothing.
  if (own >= 0 && e->cell[own] == cell && e->share[own] == share) return own;
  int64_t best_key[3] = {0};
  for (int i = 0; i < e->n_copies; i++) {
    int p = e->holder[(cell * e->n_shares + share) * e->n_copies + i], device = device_at(e, p);
    // The nearest replica; then the one that has sent least; then the closest number.
    int far = m->distance ? m->distance->between(m->distance->context, device, to) : 0;
    int64_t key[3] = {far, e->sent[p], llabs((int64_t)device - to)};
    int k = 0;
    while (best >= 0 && k < 2 && key[k] == best_key[k])
      k++;
    if (best >= 0 && key[k] >= best_key[k]) continue;
    best = p;
    memcpy(best_key, key, sizeof key);
  }
  return best;
}

// The first part of dimension `d` that ends after `start`.
static int first_part(const End *e, int d, int64_t start) {
  int low = 0, high = e->parts[d] - 1;
  while (low < high) {
    // Parts are ascending, so binary search finds it.
    int middle = (low + high) / 2;
    if (e->start[d][middle] + e->size[d] > start)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Sends all source cells that intersect the target region of the device at position `to`.
static void send_share(Move *m, int share, int to) {
  int ndim = m->whole->ndim, first[MAX_NDIM], at[MAX_NDIM];
  Region y = cell_region(&m->to, ndim, m->to.cell[to]);
  for (int d = 0; d < ndim; d++)
    at[d] = first[d] = first_part(&m->from, d, y.start[d]);
  // The cells from the first one that overlaps, in each dimension.
  for (;;) {
    int cell = 0, d = ndim - 1;
    for (int i = 0; i < ndim; i++)
      cell = cell * m->from.parts[i] + at[i];
    Region x = {0}, both;
    for (int i = 0; i < ndim; i++) {
      x.start[i] = m->from.start[i][at[i]];
      x.size[i] = m->from.size[i];
    }
    if (intersect(&x, &y, ndim, &both)) {
      Message message = {.to = device_at(&m->to, to), .share = share};
      int from = sender(m, cell, share, message.to);
      message.from = device_at(&m->from, from);
      for (int i = 0; i < ndim; i++) {
        message.size[i] = both.size[i];
        message.at_from[i] = both.start[i] - x.start[i];
        message.at_to[i] = both.start[i] - y.start[i];
      }
      if (message.from != message.to) m->from.sent[from] += message_bytes(&message, m->whole);
      m->visit(m->context, &message);
    }
    // The next cell of the grid, innermost dimension first, while it begins inside the target.
    while (d >= 0 &&
           (++at[d] == m->from.parts[d] || m->from.start[d][at[d]] >= y.start[d] + y.size[d])) {
      at[d] = first[d];
      d--;
    }
    if (d < 0) return;
  }
}

void move_visit(const Type *whole, const Layout *from, const Layout *to, const Distance *distance,
                MessageVisitor *visit, void *context) {
  Arena *scratch = arena_new();
  Move m = {whole,  end_of(whole, from, scratch), end_of(whole, to, scratch), distance, visit,
            context};
  int *target = share_targets(whole, &m.from, &m.to, scratch);
  for (int p = 0; p < m.to.n; p++)
    for (int share = 0; share < m.from.n_shares; share++)
      // A device receives all source shares that its own share sums.
      if (target[share] == m.to.share[p]) send_share(&m, share, p);
  arena_free(scratch);
}

typedef struct MessageList {
  Arena *arena;
  Messages *out;
} MessageList;

static void list_message(void *context, const Message *message) {
  MessageList *list = context;
  vec_push(list->arena, list->out, *message);
}

void move_messages(const Type *whole, const Layout *from, const Layout *to,
                   const Distance *distance, Arena *a, Messages *out) {
  *out = (Messages){0};
  move_visit(whole, from, to, distance, list_message, &(MessageList){a, out});
}

bool move_stays(const Type *whole, const Layout *from, const Layout *to) {
  // Between stages no device has the source; the first one is told without the cells of all.
  if (from->mesh && to->mesh && !mesh_has(from->mesh, to->mesh->device[0])) return false;
  Arena *a = arena_new();
  End x = end_of(whole, from, a), y = end_of(whole, to, a);
  int *target = share_targets(whole, &x, &y, a);
  bool stays = x.n_shares == y.n_shares;
  for (int p = 0; stays && p < y.n; p++) {
    // A device without the source, or with another share, must receive.
    int at = position_of(&x, device_at(&y, p));
    stays = at >= 0 && target[x.share[at]] == y.share[p];
    // The same region of the same share, on every device.
    for (int d = 0; stays && d < whole->ndim; d++) {
      Region before = cell_region(&x, whole->ndim, x.cell[at]);
      Region after = cell_region(&y, whole->ndim, y.cell[p]);
      stays = before.start[d] == after.start[d] && before.size[d] == after.size[d];
    }
  }
  arena_free(a);
  return stays;
}

// The elements of a box.
static int64_t region_elements(const Region *r, int ndim) {
  int64_t n = 1;
  for (int d = 0; d < ndim; d++)
    n *= r->size[d];
  return n;
}

int64_t move_elements(const Type *whole, const Layout *from, const Layout *to) {
  Arena *a = arena_new();
  End x = end_of(whole, from, a), y = end_of(whole, to, a);
  int *target = share_targets(whole, &x, &y, a);
  int64_t moved = 0;
  for (int p = 0; p < y.n; p++) {
    Region own = cell_region(&y, whole->ndim, y.cell[p]), before, both;
    int at = position_of(&x, device_at(&y, p));
    if (at >= 0) before = cell_region(&x, whole->ndim, x.cell[at]);
    // Source cells cover the region once for each share; the device may have a part of one.
    for (int share = 0; share < x.n_shares; share++) {
      if (target[share] != y.share[p]) continue;
      moved += region_elements(&own, whole->ndim);
      if (at >= 0 && x.share[at] == share && intersect(&before, &own, whole->ndim, &both))
        moved -= region_elements(&both, whole->ndim);
    }
  }
  arena_free(a);
  return moved;
}

// Types and layouts are interned, so pointers identify the move.
static KnownMove *find_known(const Module *m, const Type *whole, const Layout *from,
                             const Layout *to) {
  KnownMove **bucket = &m->interned->moves[layouts_hash(whole, from, to) % N_BUCKETS];
  for (KnownMove *k = *bucket; k; k = k->next)
    if (k->whole == whole && k->from == from && k->to == to) return k;
  KnownMove *k = arena_one(m->arena, KnownMove);
  *k = (KnownMove){.whole = whole,
                   .from = from,
                   .to = to,
                   .stays = move_stays(whole, from, to),
                   .next = *bucket};
  *bucket = k;
  return k;
}

bool module_move_stays(const Module *m, const Type *whole, const Layout *from, const Layout *to) {
  return find_known(m, whole, from, to)->stays;
}

int64_t module_move_elements(const Module *m, const Type *whole, const Layout *from,
                             const Layout *to) {
  KnownMove *k = find_known(m, whole, from, to);
  if (k->stays) return 0;
  if (!k->counted) k->moved = move_elements(whole, from, to);
  k->counted = true;
  return k->moved;
}
