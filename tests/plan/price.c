// Estimates a module's communication over a cluster, each op on its own:
//
//     price CLUSTER FILE.nn …     seconds, and the number of ops, of each file

#include <stdio.h>
#include <stdlib.h>

#include "comm/transition.h"
#include "ir/op.h"
#include "ir/split.h"

static double seconds_of(Transitions *t, const Op *op, Diag *d) {
  if (op->kind != OP_move && op->kind != OP_all_reduce && op->kind != OP_all_gather &&
      op->kind != OP_reduce_scatter && op->kind != OP_all_to_all)
    return 0;
  Module *m = op->graph->module;
  const Value *in = op->in[0].value, *out = op->out[0];
  const Type *whole = type_whole(m, in->type, in->layout);
  if (op->kind == OP_move) return transition_messages(t, whole, in->layout, out->layout);
  MeshAxes axes;
  uint32_t mask = 0;
  if (!op_axes(op, &axes, d)) return 0;
  for (int i = 0; i < axes.n; i++)
    mask |= 1u << axes.at[i];
  return transition_collective(t, op->kind, whole, in->layout, out->layout, mask);
}

static bool price(const char *cluster, const char *path, Diag *d) {
  Module *m = module_read(path, d);
  const Cluster *c = m ? cluster_read(m->arena, cluster, "cluster", d) : NULL;
  if (!c) return false;
  Transitions *t = transitions_new(m, c, m->arena);
  double sum = 0;
  int n = 0;
  for_each_graph(g, m)
    for_each_op(op, g) {
      double seconds = g->entry ? seconds_of(t, op, d) : 0;
      sum += seconds;
      n += seconds > 0;
    }
  printf("%.9g %d\n", sum, n);
  module_free(m);
  return true;
}

int main(int argc, char **argv) {
  Diag *d = diag_new(stderr);
  bool ok = argc > 2;
  for (int i = 2; i < argc; i++)
    ok = price(argv[1], argv[i], d) && ok;
  diag_free(d);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
