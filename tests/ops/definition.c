// The definitions of joined ops (ir/definition.h) keep the promises of their rows:
//
//     reference   of an op that has one of its own: in f64 the definition computes the same
//     splits      every split of the op in two is one of its definition, with the same layouts
//
//     definition EXAMPLES.nn...

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "ir/definition.h"
#include "ir/split.h"

static int failures, compared, splits;

static void fail(const Op *op, const char *what) {
  failures++;
  fprintf(stderr, "%s: %s: %s\n", loc_text(op->graph->module->arena, op->loc),
          op_info[op->kind].name, what);
}

static void compare(const Example *e, Arena *a, Diag *d) {
  Module *m = module_new(), *of = module_new();
  const Op *op = op_double(m, e->op, d);
  const Graph *g = op ? op_definition(op, of, false, d) : NULL;
  Random r = {7};
  if (g) {
    Tensor *in = operands_new(e, op, &r, a), *values = arena_array(a, Tensor, g->n_values);
    Tensor *want = reference_new(op, in, NULL, a, d);
    for (int i = 0; i < op->n_in; i++)
      values[g->params[i]->id] = in[i];
    if (!want || !graph_run(g, values, a, d)) fail(op, "does not run");
    for (int i = 0; want && i < op->n_out; i++) {
      double distance = tensor_distance(&values[g->results[i]->use.value->id], &want[i]);
      if (!(distance <= 1e-12)) fail(op, "the definition differs from the reference");
    }
    compared++;
  } else {
    fail(e->op, "has no definition");
  }
  module_free(of);
  module_free(m);
}

// Gives `op`, half of the work of `whole`, the layouts of a split of `letter` in two.
static void lay_out(Op *op, const Dims *dims, int letter, const Mesh *mesh) {
  Module *m = op->graph->module;
  Sbp have = {.kind = SBP_B};
  op->split[0] = dims->letter[letter].name;
  for (int i = 0; i < op->n_in; i++) {
    Sbp sbp = split_wants(op, dims, i, 0, have);
    op->in[i].value->layout = layout_new(m, mesh, &sbp);
  }
  for (int i = 0; i < op->n_out; i++) {
    Sbp sbp = split_gives(op, dims, i, 0);
    op->out[i]->layout = layout_new(m, mesh, &sbp);
  }
}

static void split(const Example *e, Diag *d) {
  Dims dims;
  bool over_time = op_info[e->op->kind].traits & ACCUMULATES; // of a time axis: in lit tests
  if (over_time || !op_dims(e->op, &dims, d)) return;
  for (int i = 0; i < dims.n_letters; i++) {
    if (dims.letter[i].whole || dims.letter[i].size % 2 || !dims_leads(&dims, i)) continue;
    Module *m = module_new(), *of = module_new();
    static int devices[] = {0, 1};
    Mesh *mesh = arena_one(m->arena, Mesh);
    *mesh = (Mesh){.name = "m", .n_axes = 1, .axis = {{"r", 2, false}}, .n_devices = 2};
    mesh->device = devices;
    module_add_mesh(m, mesh);
    Op *op = op_cut_alone(m, e->op, &dims, i, 2, d);
    if (op) {
      m->phase = of->phase = PHASE_local;
      lay_out(op, &dims, i, mesh);
      const Graph *g = op_definition(op, of, false, d);
      if (!g) fail(op, "a split is none of its definition");
      for (int k = 0; g && k < op->n_out; k++) {
        const Value *v = g->results[k]->use.value;
        if (!sbp_equal(v->layout->axis[0], op->out[k]->layout->axis[0]))
          fail(op, "a result has another layout by its definition");
        if (!type_equal(v->type, op->out[k]->type))
          fail(op, "a result has another type by its definition");
      }
      splits++;
    }
    module_free(of);
    module_free(m);
  }
}

int main(int argc, char **argv) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Examples all = examples_read(argv + 1, argc - 1, a, d);
  bool seen[N_OPS] = {false};
  for (int i = 0; i < all.n; i++) {
    const Op *op = all.at[i].op;
    if (!is_joined(op->kind)) continue;
    seen[op->kind] = true;
    if (op_info[op->kind].reference != joined_ref) compare(&all.at[i], a, d);
    split(&all.at[i], d);
  }
  for (int i = 0; i < N_OPS; i++)
    if (is_joined((OpKind)i) && !seen[i]) {
      failures++;
      fprintf(stderr, "%s: no example\n", op_info[i].name);
    }
  printf("definition: %d references, %d splits, %d failures\n", compared, splits, failures);
  bool enough = compared >= 2 && splits >= 10;
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return failures || !enough ? EXIT_FAILURE : EXIT_SUCCESS;
}
