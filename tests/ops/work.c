// The estimated work of a split op equals the work of its local op, for every letter of every
// instance that can be split in two, and for two letters at a time: the search's estimates agree
// with the ranks' work.
//
//     work EXAMPLES.nn...

#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "ir/analysis/work.h"

static int failures, cuts, smaller;

static bool near(double a, double b) {
  return fabs(a - b) <= 1e-9 * fabs(b);
}

static bool may_cut(const Dims *dims, int letter) {
  return !dims->letter[letter].whole && dims->letter[letter].size % 2 == 0 &&
         dims_leads(dims, letter);
}

static void compare(const Op *op, const OpWork *work, const Cut *cut, const Op *part) {
  OpWork part_work = op_work_alone(part);
  WorkSum is = work_sum(work, cut), want = work_sum(&part_work, NULL), all = work_sum(work, NULL);
  bool less = is.flops < all.flops || is.read < all.read || is.written < all.written;
  cuts++;
  smaller += less;
  if (near(is.flops, want.flops) && near(is.read, want.read) && near(is.written, want.written) &&
      work->launches == part_work.launches && work->narrow == part_work.narrow)
    return;
  failures++;
  fprintf(stderr, "%s: %s: %d letters cut: %g flops, %g read, %g written, not %g, %g, %g\n",
          loc_text(op->graph->module->arena, op->loc), op_info[op->kind].name, cut->n, is.flops,
          is.read, is.written, want.flops, want.read, want.written);
}

static void check_pairs(const Op *op, const OpWork *work, Cut cut, const Op *part, Diag *d) {
  Dims dims;
  if (!op_dims(part, &dims, d)) return;
  cut.n = 2;
  cut.at[1].parts = 2;
  for (int i = cut.at[0].letter; i < dims.n_letters; i++) {
    if (!may_cut(&dims, i)) continue;
    cut.at[1].letter = i;
    Op *both = op_cut_alone(part->graph->module, part, &dims, i, 2, d);
    if (both) compare(op, work, &cut, both);
  }
}

static void check_example(const Example *e, Diag *d) {
  Dims dims;
  const Op *op = e->op;
  if ((op_info[op->kind].traits & COMM) || !op_dims(op, &dims, d)) return;
  OpWork work = op_work(op, &dims);
  for (int i = 0; i < dims.n_letters; i++) {
    if (!may_cut(&dims, i)) continue;
    Cut cut = {.n = 1, .at = {{i, 2}}};
    Op *part = op_cut_alone(e->module, op, &dims, i, 2, d);
    if (!part) continue;
    compare(op, &work, &cut, part);
    check_pairs(op, &work, cut, part, d);
  }
}

int main(int argc, char **argv) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Examples all = examples_read(argv + 1, argc - 1, a, d);
  for (int i = 0; i < all.n; i++)
    check_example(&all.at[i], d);
  printf("work: %d cuts of %d instances, %d of less work, %d failures\n", cuts, all.n, smaller,
         failures);
  bool seen = cuts > 500 && smaller > cuts / 2; // enough cases were compared
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return failures || !seen ? EXIT_FAILURE : EXIT_SUCCESS;
}
