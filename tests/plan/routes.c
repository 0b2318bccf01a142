// Routes within a mesh (routes.h) cost the same as their ops, never more than axis by axis, and in
// slices never less than at once; tested between all layouts of some meshes. Between meshes none
// costs less than its bound.

#include "unit.h"

#include <math.h>

#include "comm/hops.h"
#include "comm/mesh.h"
#include "cost/collectives.h"
#include "cost/cost_comm.h"
#include "ir/op.h"
#include "ir/split.h"

static const struct {
  const char *cluster, *mesh;
  int ndim;
  int64_t dim[3];
} cases[] = {
    {"h100:1x4", "a:2+b:2", 2, {512, 512}},      {"h100:2x2", "a:2+b:2", 2, {512, 512}},
    {"h100:2x4", "a:8", 3, {64, 64, 64}},        {"h100:2x8", "a:2+b:8", 2, {4096, 4096}},
    {"h100:2x8", "a:8+b:2", 2, {64, 64}},        {"cpu:4x2", "a:2+b:2+c:2", 2, {256, 256}},
    {"h100:2x4", "t:2:time+a:4+b:2", 2, {8, 8}},
};

enum { MAX_LAYOUTS = 256 };

typedef struct Bench {
  Module *m;
  Diag *d;
  const Cluster *c;
  const Mesh *mesh;
  const Type *type;
  const Layout *layout[MAX_LAYOUTS];
  int n;
} Bench;

// Adds all layouts that divide the type; replicated over time.
static void add_layouts(Bench *b, Sbp *layout, int axis) {
  if (axis == b->mesh->n_axes) {
    const Layout *l = layout_new(b->m, b->mesh, layout);
    int64_t parts[MAX_NDIM] = {1, 1, 1};
    for (int a = 0; a < l->n_axes; a++)
      if (layout[a].kind == SBP_S) parts[layout[a].dim] *= b->mesh->axis[a].size;
    for (int d = 0; d < b->type->ndim; d++)
      if (b->type->dim[d] % parts[d]) return;
    assert_true(b->n < MAX_LAYOUTS);
    b->layout[b->n++] = l;
    return;
  }
  int n = b->mesh->axis[axis].time ? 1 : b->type->ndim + 2;
  for (int k = 0; k < n; k++) {
    layout[axis] = k == 0   ? (Sbp){.kind = SBP_B}
                   : k == 1 ? (Sbp){.kind = SBP_P}
                            : (Sbp){.kind = SBP_S, .dim = k - 2};
    add_layouts(b, layout, axis + 1);
  }
}

static Bench bench_new(int i) {
  Bench b = {.m = module_new(), .d = diag_new(stderr)};
  b.c = cluster_read(b.m->arena, cases[i].cluster, "cluster", b.d);
  Mesh *mesh = (Mesh *)mesh_parse(b.m, cases[i].mesh, b.d);
  module_add_mesh(b.m, mesh);
  b.mesh = mesh;
  b.type = type_new(b.m, DT_f32, cases[i].ndim, cases[i].dim);
  b.m->phase = PHASE_local;
  add_layouts(&b, (Sbp[MAX_AXES]){{0}}, 0);
  return b;
}

static void bench_free(Bench *b) {
  module_free(b->m);
  diag_free(b->d);
}

// Returns the predicted seconds of the ops between two layouts.
static double ops_seconds(Bench *b, Transitions *t, CommPrices *prices, const Layout *from,
                          const Layout *to) {
  Graph *g = graph_new(b->m, "g", true);
  Value *v = graph_param(g, "x", type_local(b->m, b->type, from), ROLE_input, NULL);
  v->layout = from;
  Builder builder = {.g = g, .d = b->d};
  Value *out = transition_build(t, &builder, v, to);
  assert_non_null(out);
  assert_ptr_equal(out->layout, to);
  double seconds = 0;
  for_each_op(op, g)
    if (op_is_collective(op)) seconds += comm_price(prices, op)->cost.seconds;
  graph_erase(g);
  return seconds;
}

// Partial sums can only come from partial sums.
static bool has_way(const Layout *from, const Layout *to) {
  for (int a = 0; a < from->n_axes; a++)
    if (to->axis[a].kind == SBP_P && from->axis[a].kind != SBP_P) return false;
  return true;
}

static void test_executed(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Bench b = bench_new((int)i);
    Transitions *t = transitions_new(b.m, b.c, b.m->arena);
    CommPrices *prices = comm_prices_new(b.m->arena, b.c);
    for (int k = 0; k < b.n * b.n; k++) {
      const Layout *from = b.layout[k / b.n], *to = b.layout[k % b.n];
      if (!has_way(from, to)) continue;
      double routed = transition_routed(t, b.type, from, to, 1);
      double taken = ops_seconds(&b, t, prices, from, to);
      if (fabs(routed - taken) > 1e-9 * routed)
        fail_msg("%s, %s: %s to %s is priced %g, and takes %g", cases[i].cluster, cases[i].mesh,
                 layout_text(b.m->arena, from), layout_text(b.m->arena, to), routed, taken);
    }
    bench_free(&b);
  }
}

static void test_cheaper(void **state) {
  (void)state;
  int n = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Bench b = bench_new((int)i);
    Transitions *t = transitions_new(b.m, b.c, b.m->arena);
    for (int k = 0; k < b.n * b.n; k++) {
      const Layout *from = b.layout[k / b.n], *to = b.layout[k % b.n];
      if (from == to || !has_way(from, to)) continue;
      double hops = INFINITY, routed = transition_routed(t, b.type, from, to, 1);
      for (Hops h = NO_HOPS; h <= ALL_HOP; h++)
        hops = fmin(hops, hops_seconds(b.m, t, b.type, from, to, h));
      assert_true(routed <= hops * (1 + 1e-9));
      assert_true(transition_routed(t, b.type, from, to, 4) >= routed * (1 - 1e-9));
      n += routed < hops * (1 - 1e-9);
    }
    bench_free(&b);
  }
  assert_true(n > 1000); // many are cheaper
}

// Adds a mesh of these devices, and its layouts.
static Bench bench_of(const Bench *b, const char *axes, const int *device, int n) {
  Bench other = {.m = b->m, .d = b->d, .c = b->c, .type = b->type};
  Mesh *mesh = (Mesh *)mesh_parse(b->m, axes, b->d);
  assert_int_equal(mesh->n_devices, n);
  mesh->name = str_format(b->m->arena, "m%d", module_n_meshes(b->m));
  mesh->device = arena_copy(b->m->arena, device, (size_t)n * sizeof *device);
  module_add_mesh(b->m, mesh);
  other.mesh = mesh;
  add_layouts(&other, (Sbp[MAX_AXES]){{0}}, 0);
  return other;
}

// Compares the bound of each transfer from one mesh to another with its seconds. Returns how many
// bounds are more than 0.
static int count_bounds(Transitions *t, const Bench *from, const Bench *to) {
  int n = 0;
  for (int k = 0; k < from->n * to->n; k++) {
    const Layout *x = from->layout[k / to->n], *y = to->layout[k % to->n];
    bool any_sum = false;
    for (int a = 0; a < y->n_axes; a++)
      any_sum |= y->axis[a].kind == SBP_P;
    double least = transition_least(t, from->type, x, y);
    double seconds = any_sum ? INFINITY : transition_seconds(t, from->type, x, y);
    if (least > seconds)
      fail_msg("%s to %s takes %g, less than %g", layout_text(from->m->arena, x),
               layout_text(from->m->arena, y), seconds, least);
    n += least > 0;
  }
  return n;
}

// Devices that have a part receive the rest at least; others all of it.
static void test_bounds(void **state) {
  (void)state;
  static const char *const cluster[] = {"h100:1x4", "h100:2x2", "cpu:2x2"};
  static const int pair[][2] = {{0, 1}, {2, 3}, {0, 2}, {3, 1}};
  int within = 0, without = 0;
  for (size_t i = 0; i < sizeof cluster / sizeof *cluster; i++) {
    // Large enough for starts not to hide a bound that is too high.
    const int64_t dim[] = {8192, 8192};
    Bench b = {.m = module_new(), .d = diag_new(stderr)};
    b.c = cluster_read(b.m->arena, cluster[i], "cluster", b.d);
    b.type = type_new(b.m, DT_f32, 2, dim);
    b.m->phase = PHASE_local;
    Bench all = bench_of(&b, "a:2+b:2", (const int[]){0, 1, 2, 3}, 4), part[4];
    for (int k = 0; k < 4; k++)
      part[k] = bench_of(&b, "c:2", pair[k], 2);
    Transitions *t = transitions_new(b.m, b.c, b.m->arena);
    for (int k = 0; k < 4; k++) {
      within += count_bounds(t, &all, &part[k]);
      without += count_bounds(t, &part[k], &all) + count_bounds(t, &part[k], &part[(k + 1) % 4]);
    }
    bench_free(&b);
  }
  assert_true(within > 100 && without > 100);
}

TEST_GROUP(routes) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_executed),
                                     cmocka_unit_test(test_cheaper), cmocka_unit_test(test_bounds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
