// Routes within a mesh (routes.h) cost the same as their ops, never more than axis by axis, and in
// slices never less than at once; tested between all layouts of some meshes.

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

TEST_GROUP(routes) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_executed),
                                     cmocka_unit_test(test_cheaper)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
