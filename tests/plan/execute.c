// Paths are executed, step by step, on arrays of integers: every device holds a box of the tensor
// or of a share of it, a step may only use values of the devices of its group, and in the end every
// device must hold the value of the target placement.

#include <math.h>

#include "unit.h"

#include "layouts.h"

enum { DEVICES = 16 };

typedef struct Box {
  int64_t lo[PLACEMENT_DIMS], size[PLACEMENT_DIMS];
} Box;

typedef struct Held { // the value that a device holds
  Box box;
  int64_t *data; // NULL: nothing
} Held;

static int used[PATH_send_recv + 1]; // counts over all tests

typedef struct Run {
  Arena *a;
  TensorShape shape;
  Held held[DEVICES], next[DEVICES]; // before and after a step
} Run;

static uint64_t seed;

static int random_below(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

// -- Boxes -----------------------------------------------------------------------------------

static int64_t elements(const Run *r, const Box *b) {
  int64_t n = 1;
  for (int i = 0; i < r->shape.ndim; i++)
    n *= b->size[i];
  return n;
}

static Held new_held(Run *r, Box box) {
  return (Held){box, arena_array(r->a, int64_t, elements(r, &box))};
}

// Adds the common elements of both boxes to `to`; returns their number.
static int64_t add(const Run *r, Held *to, const Held *from) {
  int64_t n = elements(r, &from->box), common = 0;
  for (int64_t k = 0; k < n; k++) {
    int64_t rest = k, at[PLACEMENT_DIMS], index = 0;
    bool inside = true;
    for (int i = r->shape.ndim - 1; i >= 0; i--) {
      at[i] = from->box.lo[i] + rest % from->box.size[i] - to->box.lo[i];
      rest /= from->box.size[i];
      inside = inside && at[i] >= 0 && at[i] < to->box.size[i];
    }
    if (!inside) continue;
    for (int i = 0; i < r->shape.ndim; i++)
      index = index * to->box.size[i] + at[i];
    to->data[index] += from->data[k];
    common++;
  }
  return common;
}

static Box whole(const Run *r) {
  Box b = {0};
  for (int i = 0; i < r->shape.ndim; i++)
    b.size[i] = r->shape.dim[i];
  return b;
}

static Box state_box(const Run *r, const Group *g, const State *s, int position) {
  Piece p = state_piece(&r->shape, g, s, position);
  Box b = {0};
  for (int i = 0; i < r->shape.ndim; i++) {
    b.size[i] = r->shape.dim[i] / p.parts[i];
    b.lo[i] = p.index[i] * b.size[i];
  }
  return b;
}

// Returns the box of a device by definition: R, V and the dimensions, row-major.
static Box placement_box(const Run *r, const Placement *p, int position, int *share) {
  Box b = {0};
  for (int i = r->shape.ndim - 1; i >= 0; i--) {
    b.size[i] = r->shape.dim[i] / p->part[i];
    b.lo[i] = position % p->part[i] * b.size[i];
    position /= p->part[i];
  }
  *share = position % p->shares;
  return b;
}

// -- Steps -----------------------------------------------------------------------------------

// Adds up the values of the members of a group in `to`; their boxes are equal, or partition it.
static void sum(const Run *r, Held *to, const int *member, int n) {
  for (int i = 0; i < n; i++)
    assert_int_equal(add(r, to, &r->held[member[i]]), elements(r, &to->box));
}

static void join(const Run *r, Held *to, const int *member, int n) {
  int64_t got = 0;
  for (int i = 0; i < n; i++)
    got += add(r, to, &r->held[member[i]]);
  assert_int_equal(got, elements(r, &to->box));
}

static void local_step(Run *r, const PathStep *s, const Group *g, int position) {
  int device = g->device[position];
  bool keeps = true;
  int64_t common = 0;
  for (int i = 0; i < g->n_axes && s->edge.prim == PATH_split_sum; i++)
    keeps = keeps && !(s->edge.mask >> i & 1 && position / g->stride[i] % g->size[i]);
  if (keeps) common = add(r, &r->next[device], &r->held[device]);
  Box smaller = s->edge.prim == PATH_pad_sum ? r->held[device].box : r->next[device].box;
  if (keeps) assert_int_equal(common, elements(r, &smaller));
}

static void group_step(Run *r, PathPrim prim, const int *member, int n) {
  Held *last = &r->next[member[n - 1]];
  switch (prim) {
  case PATH_all_reduce:
  case PATH_reduce_scatter:
    for (int i = 0; i < n; i++)
      sum(r, &r->next[member[i]], member, n);
    return;
  case PATH_all_gather:
  case PATH_all_to_all:
    for (int i = 0; i < n; i++)
      join(r, &r->next[member[i]], member, n);
    return;
  case PATH_permute:
  case PATH_move: sum(r, last, member, 1); return;
  case PATH_broadcast:
  case PATH_rd_scatter:
    for (int i = 1; i < n; i++)
      sum(r, &r->next[member[i]], member, 1);
    return;
  case PATH_rd_gather: join(r, last, member, n - 1); return;
  case PATH_reduce: sum(r, last, member, n - 1); return;
  case PATH_send_recv: assert_true(add(r, last, &r->held[member[0]]) > 0); return;
  case PATH_slice:
  case PATH_split_sum:
  case PATH_pad_sum: fail();
  }
}

static void step(Run *r, const Path *p, const PathStep *s) {
  const Group *to = &p->group[s->after.group];
  bool reached[DEVICES] = {false};
  used[s->edge.prim]++;
  memset(r->next, 0, sizeof r->next);
  for (int x = 0; x < to->n; x++)
    r->next[to->device[x]] = new_held(r, state_box(r, to, &s->after, x));
  if (s->edge.prim <= PATH_pad_sum)
    for (int x = 0; x < to->n; x++)
      local_step(r, s, to, x);
  for (int i = 0; i < s->groups.n; i++) {
    const int *member = s->groups.device + i * s->groups.size;
    group_step(r, s->edge.prim, member, s->groups.size);
    reached[member[s->groups.size - 1]] = true;
  }
  // A device without a partner holds its result already.
  if (s->edge.prim == PATH_permute || s->edge.prim == PATH_move)
    for (int x = 0; x < to->n; x++)
      if (!reached[to->device[x]]) sum(r, &r->next[to->device[x]], &to->device[x], 1);
  memcpy(r->held, r->next, sizeof r->held);
}

static void fill(Run *r, const Placement *from, const Held *value) {
  Held *share = arena_array(r->a, Held, from->shares);
  for (int i = 0; i < from->shares; i++)
    share[i] = new_held(r, whole(r));
  for (int64_t k = 0; k < elements(r, &value->box); k++) {
    share[0].data[k] = value->data[k];
    for (int i = 1; i < from->shares; i++) {
      share[i].data[k] = random_below(1000) - 500;
      share[0].data[k] -= share[i].data[k];
    }
  }
  memset(r->held, 0, sizeof r->held);
  for (int x = 0; x < from->n; x++) {
    int which;
    Box box = placement_box(r, from, x, &which);
    Held *h = &r->held[from->device[x]];
    *h = new_held(r, box);
    add(r, h, &share[which]);
  }
}

// Checks every copy: its parts, with the shares of each added up, are the value.
static void check(Run *r, const Placement *to, const Held *value) {
  for (int copy = 0; copy < to->copies; copy++) {
    Held got = new_held(r, whole(r));
    for (int x = copy * to->n / to->copies; x < (copy + 1) * to->n / to->copies; x++) {
      int share;
      Box box = placement_box(r, to, x, &share);
      const Held *h = &r->held[to->device[x]];
      assert_non_null(h->data);
      assert_memory_equal(&h->box, &box, sizeof box);
      add(r, &got, h);
    }
    assert_memory_equal(got.data, value->data, sizeof(int64_t) * (size_t)elements(r, &got.box));
  }
  // All copies are equal.
  int one = to->n / to->copies;
  for (int x = one; x < to->n; x++) {
    const Held *h = &r->held[to->device[x]], *first = &r->held[to->device[x % one]];
    assert_memory_equal(h->data, first->data, sizeof(int64_t) * (size_t)elements(r, &h->box));
  }
}

static void execute(Run *r, const Cluster *c, const Placement *from, const Placement *to) {
  r->a = arena_new();
  Held value = new_held(r, whole(r));
  for (int64_t k = 0; k < elements(r, &value.box); k++)
    value.data[k] = random_below(1000);
  const Path *p = path_find(paths_new(r->a, c), &r->shape, from, to);
  assert_true(p->complete);
  assert_true(p->total.seconds <= p->p2p.seconds * (1 + 1e-9) + 1e-12);
  fill(r, from, &value);
  for (int i = 0; i < p->n_steps; i++)
    step(r, p, &p->step[i]);
  check(r, to, &value);
  arena_free(r->a);
}

// -- Tests -----------------------------------------------------------------------------------

// Small arrays on slow links: bandwidth dominates, messages cost little.
static Cluster cluster_of(int nodes, int per_node, double across) {
  return (Cluster){.name = "test",
                   .nodes = nodes,
                   .per_node = per_node,
                   .nics = 1,
                   .inside = {1e-9, 1e-6},
                   .across = {3e-9, across},
                   .start = 1e-8};
}

static TensorShape cube(int ndim, int size) {
  TensorShape s = {.ndim = ndim, .bytes = 4};
  for (int i = 0; i < ndim; i++)
    s.dim[i] = size;
  return s;
}

static void one_group(int ndim, int n, int size, int every) {
  static const int in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};
  int other[8] = {0, 2, 1, 3, 5, 4, 7, 6};
  Layouts from = layouts_of(ndim, n, in_order), to = layouts_of(ndim, n, in_order);
  Cluster one = cluster_of(1, n, 1e-5), two = cluster_of(2, n / 2, 1e-5);
  Run r = {.shape = cube(ndim, size)};
  for (int i = 0; i < from.n; i++)
    for (int k = 0; k < to.n; k++) {
      if (random_below(every)) continue;
      to.at[k].device = random_below(2) ? in_order : other;
      execute(&r, &one, &from.at[i], &to.at[k]);
      execute(&r, &two, &from.at[i], &to.at[k]);
      if (every > 1) continue;
      to.at[k].device = in_order; // every transition in its most common notation
      execute(&r, &one, &from.at[i], &to.at[k]);
    }
}

static void test_four_devices(void **state) {
  (void)state;
  for (int ndim = 1; ndim <= 3; ndim++)
    one_group(ndim, 4, 4, 1);
}

static void test_eight_devices(void **state) {
  (void)state;
  one_group(1, 8, 16, 1);
  one_group(2, 8, 8, 10);
  one_group(3, 8, 8, 40);
}

static void shuffle(int *device, int n) {
  for (int i = 0; i < n; i++) {
    int k = i + random_below(n - i), x = device[i];
    device[i] = device[k];
    device[k] = x;
  }
}

// From any group to any other, overlapping or not, of sizes that divide each other or not.  Every
// primitive must be used.
static void test_between_groups(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 3, 4, 6, 8};
  Run r = {0};
  for (int i = 0; i < 2000; i++) {
    int ndim = 1 + random_below(2), a[DEVICES], b[DEVICES];
    for (int x = 0; x < DEVICES; x++)
      a[x] = b[x] = x;
    Cluster c = cluster_of(2, 8, random_below(2) ? 1e-5 : 1e-6);
    bool apart = random_below(3) > 0;
    shuffle(a, apart ? 8 : DEVICES);
    shuffle(b + (apart ? 8 : 0), apart ? 8 : DEVICES);
    Layouts from = layouts_of(ndim, sizes[random_below(6)], a);
    Layouts to = layouts_of(ndim, sizes[random_below(6)], b + (apart ? 8 : 0));
    r.shape = cube(ndim, ndim == 1 ? 48 : 24);
    execute(&r, &c, &from.at[random_below(from.n)], &to.at[random_below(to.n)]);
  }
  for (int i = 0; i <= PATH_send_recv; i++)
    if (!used[i]) fail_msg("%s was never used", path_prim_name[i]);
}

// A cost limit prunes send/recv exactly if its cost exceeds the limit.
static void test_limits(void **state) {
  (void)state;
  static const int sizes[] = {2, 3, 4, 6, 8};
  for (int i = 0; i < 500; i++) {
    int device[DEVICES];
    for (int x = 0; x < DEVICES; x++)
      device[x] = x;
    shuffle(device, DEVICES);
    Arena *a = arena_new();
    Cluster c = cluster_of(2, 8, 1e-5);
    c.nics = 1 + random_below(3);
    TensorShape shape = cube(2, 24);
    Layouts from = layouts_of(2, sizes[random_below(5)], device);
    Layouts to = layouts_of(2, sizes[random_below(5)], device + random_below(8));
    Group group[2];
    State first, last;
    path_groups(a, &c, &shape, &from.at[random_below(from.n)], &to.at[random_below(to.n)], group,
                &first, &last);
    P2p q = {a, traffic_new(a, &c), &c, &shape, INFINITY};
    const Producers *p = p2p_producers(a, &shape, &group[first.group], &first);
    double all = p2p_cost(&q, p, &group[last.group], &last, NULL).seconds;
    for (double part = 0.25; part < 2 && all > 0; part += 0.5) {
      q.limit = part * all;
      double seconds = p2p_cost(&q, p, &group[last.group], &last, NULL).seconds;
      if (part > 1)
        assert_true(seconds == all);
      else
        assert_true(seconds > q.limit && seconds <= all);
    }
    arena_free(a);
  }
}

TEST_GROUP(execute) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_four_devices),
      cmocka_unit_test(test_eight_devices),
      cmocka_unit_test(test_between_groups),
      cmocka_unit_test(test_limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
