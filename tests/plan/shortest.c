// On small sizes the cost of a path equals that of an exhaustive search with the opposite
// formulation: it lists all states, tests all pairs of them for a primitive between them, and runs
// Floyd's algorithm.  One node, with the costs of AutoDDL's table 2, and without send/recv;
// count_paths.c covers the other cases.

#include "unit.h"

#include <math.h>

#include "layouts.h"

enum { MAX_STATES = 200, MOST_AXES = 3 };

// The label of an axis: B, P, or 10 * (1 + dim) + place.
enum { B = 0, P = 1 };

typedef struct Listed {
  int label[MOST_AXES];
} Listed;

typedef struct World {
  int ndim, n_axes, n; // devices: 2^n_axes
  double bytes;        // of the tensor
  const Cluster *c;
  Listed state[MAX_STATES];
  int n_states;
  double distance[MAX_STATES][MAX_STATES];
} World;

// -- States ----------------------------------------------------------------------------------

// The places of every dimension are 0, 1, … without gaps.
static bool is_valid(const World *w, const Listed *s) {
  for (int i = 0; i < w->n_axes; i++)
    for (int k = 0; k < w->n_axes; k++)
      if (i != k && s->label[i] >= 10 && s->label[i] == s->label[k]) return false;
  for (int i = 0; i < w->n_axes; i++) {
    bool below = s->label[i] < 10 || s->label[i] % 10 == 0;
    for (int k = 0; k < w->n_axes; k++)
      below = below || s->label[k] == s->label[i] - 1;
    if (!below) return false;
  }
  return true;
}

static void list_states(World *w, Listed s, int axis) {
  if (axis == w->n_axes || axis == MOST_AXES) {
    if (is_valid(w, &s)) w->state[w->n_states++] = s;
    return;
  }
  for (int label = 0; label < 10 * (1 + w->ndim); label++) {
    if (label >= 10 ? label % 10 >= w->n_axes : label > P) continue;
    s.label[axis] = label;
    list_states(w, s, axis + 1);
  }
}

static int digit(const World *w, int device, int axis) {
  return device >> (w->n_axes - 1 - axis) & 1;
}

// Computes the numbers of a device's box and of its share.
static void what(const World *w, const Listed *s, int device, int *box, int *share) {
  *box = *share = 0;
  for (int i = 0; i < w->n_axes; i++) {
    int bit = digit(w, device, i);
    if (s->label[i] == P) *share = 2 * *share + bit;
    if (s->label[i] >= 10) *box += bit << (s->label[i] / 10 * 6 - s->label[i] % 10);
  }
}

static double piece_bytes(const World *w, const Listed *s) {
  double bytes = w->bytes;
  for (int i = 0; i < w->n_axes; i++)
    bytes /= s->label[i] >= 10 ? 2 : 1;
  return bytes;
}

// -- Primitives ------------------------------------------------------------------------------

// Returns the kind of a label: 'B', 'P' or 'D'.
static char kind(int label) {
  return label == B ? 'B' : label == P ? 'P' : 'D';
}

static bool all_go(const World *w, const Listed *a, const Listed *b, char from, char to) {
  for (int i = 0; i < w->n_axes; i++)
    if (a->label[i] != b->label[i] && (kind(a->label[i]) != from || kind(b->label[i]) != to))
      return false;
  return true;
}

// Whether no dimension both loses and gains axes.
static bool dims_apart(const World *w, const Listed *a, const Listed *b) {
  for (int i = 0; i < w->n_axes; i++)
    for (int k = 0; k < w->n_axes; k++)
      if (a->label[i] != b->label[i] && a->label[k] != b->label[k] &&
          a->label[i] / 10 == b->label[k] / 10)
        return false;
  return true;
}

static double collective(const World *w, int rounds, int p, double bytes) {
  return w->c->start + rounds * (p - 1) * w->c->inside.alpha +
         rounds * bytes * (p - 1) / p * w->c->inside.beta;
}

// Whether the labels of one are those of the other in another order.
static bool is_permuted(const World *w, const Listed *a, const Listed *b) {
  bool taken[MOST_AXES] = {false};
  for (int i = 0; i < w->n_axes; i++) {
    int k = 0;
    while (k < w->n_axes && (taken[k] || b->label[k] != a->label[i]))
      k++;
    if (k == w->n_axes) return false;
    taken[k] = true;
  }
  return true;
}

// Whether every device has the right box, and devices of the same target share have equal shares.
static bool is_renumbered(const World *w, const Listed *a, const Listed *b) {
  for (int x = 0; x < w->n; x++)
    for (int y = 0; y < w->n; y++) {
      int box[4], share[4];
      what(w, a, x, &box[0], &share[0]);
      what(w, a, y, &box[1], &share[1]);
      what(w, b, x, &box[2], &share[2]);
      what(w, b, y, &box[3], &share[3]);
      if (box[0] != box[2] || (share[0] == share[1]) != (share[2] == share[3])) return false;
    }
  return true;
}

static double edge(const World *w, const Listed *a, const Listed *b) {
  double best = INFINITY, old = piece_bytes(w, a), new = piece_bytes(w, b);
  int p = 1;
  for (int i = 0; i < w->n_axes; i++)
    p *= a->label[i] != b->label[i] ? 2 : 1;
  if (p == 1 || all_go(w, a, b, 'B', 'D') || all_go(w, a, b, 'B', 'P') || all_go(w, a, b, 'D', 'P'))
    return 0;
  if (all_go(w, a, b, 'P', 'B')) best = collective(w, 2, p, old);
  if (all_go(w, a, b, 'P', 'D')) best = collective(w, 1, p, old);
  if (all_go(w, a, b, 'D', 'B')) best = collective(w, 1, p, new);
  if (all_go(w, a, b, 'D', 'D') && dims_apart(w, a, b)) best = collective(w, 1, p, old);
  if (is_permuted(w, a, b)) {
    double moved = w->c->start + w->c->inside.alpha + old * w->c->inside.beta;
    best = fmin(best, is_renumbered(w, a, b) ? 0 : moved);
  }
  return best;
}

static void find_distances(World *w) {
  for (int i = 0; i < w->n_states; i++)
    for (int k = 0; k < w->n_states; k++)
      w->distance[i][k] = edge(w, &w->state[i], &w->state[k]);
  for (int via = 0; via < w->n_states; via++)
    for (int i = 0; i < w->n_states; i++)
      for (int k = 0; k < w->n_states; k++)
        w->distance[i][k] = fmin(w->distance[i][k], w->distance[i][via] + w->distance[via][k]);
}

// -- Comparison ------------------------------------------------------------------------------

// `turned`: the list of devices enumerates its axes from the last to the first.
static int state_of(const World *w, const Placement *p, bool turned) {
  Listed s = {{0}};
  int axis = 0;
  for (int i = 0; i < 2 + w->ndim; i++) {
    int size = i == 0 ? p->copies : i == 1 ? p->shares : p->part[i - 2];
    for (int place = 0; size > 1; size /= 2, place++, axis++)
      s.label[turned ? w->n_axes - 1 - axis : axis] = i == 0   ? B
                                                      : i == 1 ? P
                                                               : 10 * (i - 1) + place;
  }
  for (int i = 0; i < w->n_states; i++)
    if (!memcmp(&w->state[i], &s, sizeof s)) return i;
  fail();
  return -1;
}

// Returns the number of paths that beat send/recv.
static void compare(int ndim, int n_axes, bool turned, Cluster c, int *n_cases, int *n_better) {
  static const int in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};
  static const int turned_order[4][8] = {
      {0}, {0, 1}, {0, 2, 1, 3}, {0, 4, 2, 6, 1, 5, 3, 7}}; // by number of axes
  static World w;
  TensorShape shape = {.ndim = ndim, .dim = {1024, 1024, 1024}, .bytes = 4};
  w = (World){.ndim = ndim, .n_axes = n_axes, .n = 1 << n_axes, .bytes = 4, .c = &c};
  for (int i = 0; i < ndim; i++)
    w.bytes *= (double)shape.dim[i];
  list_states(&w, (Listed){{0}}, 0);
  find_distances(&w);
  Layouts l = layouts_of(ndim, w.n, in_order);
  Layouts to = layouts_of(ndim, w.n, turned ? turned_order[n_axes] : in_order);
  Arena *a = arena_new();
  Paths *paths = paths_new(a, &c);
  paths_without_send_recv(paths);
  for (int i = 0; i < l.n; i++)
    for (int k = 0; k < l.n; k++) {
      if (l.n > 20 && (i * l.n + k) % 8) continue; // every eighth of many
      const Path *p = path_find(paths, &shape, &l.at[i], &to.at[k]);
      double want = w.distance[state_of(&w, &l.at[i], false)][state_of(&w, &to.at[k], turned)];
      if (fabs(p->total.seconds - want) > 1e-9 * want + 1e-11) {
        print_message("%d dimensions, %d devices, layouts %d to %d: %g, exhaustive %g\n", ndim, w.n,
                      i, k, p->total.seconds, want);
        fail();
      }
      ++*n_cases;
      *n_better += p->total.seconds < p->p2p.seconds * (1 - 1e-9);
    }
  arena_free(a);
}

static void test_exhaustive(void **state) {
  (void)state;
  Cluster c = {.name = "test", .nodes = 1, .per_node = 8, .nics = 1, .across = {1, 1}};
  int n_cases = 0, n_better = 0;
  for (int ndim = 1; ndim <= 3; ndim++)
    for (int n_axes = 1; n_axes <= 3; n_axes++)
      for (int costs = 0; costs < 3; costs++) {
        // Bandwidth only; latency only; both.
        c.start = costs == 0 ? 0 : 1e-5;
        c.inside = (Link){costs == 0 ? 0 : costs == 1 ? 1e-3 : 1e-6, costs == 1 ? 1e-13 : 1e-11};
        for (int turned = 0; turned < 2; turned++)
          compare(ndim, n_axes, turned, c, &n_cases, &n_better);
      }
  print_message("%d transitions are the cheapest there are, %d of them cheaper than send/recv\n",
                n_cases, n_better);
}

TEST_GROUP(shortest) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_exhaustive)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
