// Checks of the options of place: sizes of stages, ways, and units for all stages. An error about
// too many stages has the largest number that fits, which is solved for.

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "placing.h"

static bool check_sizes(const Placing *p, const StageOptions *w, Diag *d) {
  int sum = 0;
  const char *axis = p->s->mesh->axis[p->axis].name;
  for (int i = 0; i < w->n && w->size; i++)
    sum += w->size[i];
  if (w->size && sum != p->n_ranks)
    return diag_error(d, p->why, "these stages have %d ranks together, and %s has %d", sum, axis,
                      p->n_ranks);
  for (int i = 0; i < w->n && w->size; i++)
    if (!placing_shares(p, w->size[i]))
      return diag_error(d, p->why, "a stage of %d ranks cannot share the rows evenly", w->size[i]);
  if (w->n > p->n_ranks)
    return diag_error(d, p->why, "%d stages cannot share the %d rank%s of %s", w->n, p->n_ranks,
                      p->n_ranks == 1 ? "" : "s", axis);
  return true;
}

static bool check_ways(const Placing *p, const StageOptions *w, Diag *d) {
  bool has[3] = {false};
  if (!w->ways) return true;
  for_each_op(op, p->s->g)
    if (op_part(op) == PART_forward && op->piece <= 2) has[op->piece] = true;
  if (p->n_ranks % 2)
    return diag_error(d, p->why, "two ways are through an even number of ranks, and %s has %d",
                      p->s->mesh->axis[p->axis].name, p->n_ranks);
  if (has[1] && has[2]) return true;
  diag_error(d, p->why, "two ways are for a model in two pieces, and this is in one");
  diag_hint(d, "pieces(list, 2, true) in 'model' deals the rows of the model to two pieces");
  return false;
}

// Whether this many stages of equal size are possible, and fit into memory.
static bool can_be(const Placing *p, int n) {
  Arena *scratch = arena_new();
  Run *run = arena_array(scratch, Run, n);
  int each = p->n_ranks / n;
  bool can = p->n_ranks % n == 0 && placing_shares(p, each);
  // The same problem, with these runs alone.
  for (int i = 0; i < n; i++)
    run[i] = (Run){i * each, each};
  if (can) {
    Loads *l = loads_new(p->s, p->axis, &p->units, p->batch, run, n, NULL, scratch);
    l->p.n_stages = n;
    can = partition_solve(scratch, &l->p, &(PartitionOptions){.seconds = PLACING_SECONDS}).run_of !=
          NULL;
  }
  arena_free(scratch);
  return can;
}

static bool check_units(const Placing *p, const StageOptions *w, Diag *d) {
  const char *axis = p->s->mesh->axis[p->axis].name;
  int n = p->units.n;
  if (!n)
    return diag_error(d, p->why,
                      "nothing is left to place along %s: all that computes something is assigned "
                      "or split",
                      axis);
  int wanted = w->chunks > 1 ? p->n_ranks : w->n;
  if (n >= wanted) return true;
  diag_error(d, p->why, "%d stages, and only %d unit%s to put on them", wanted, n,
             n == 1 ? "" : "s");
  diag_note(d, p->units.first[n - 1]->loc,
            "the last unit begins here: a unit is a layer of a large model, or a product with a "
            "weight and the ops after it");
  if (w->forwards > 1)
    diag_hint(d,
              "these are stages of a model that goes through itself %d times, as one that "
              "recycles does; of others there is pp",
              w->forwards);
  // A hint: the largest number of stages that works.
  if (w->chunks > 1 || w->forwards > 1) return false;
  while (n > 1 && !can_be(p, n))
    n--;
  if (n > 1)
    diag_hint(d, "%d stages of %d rank%s each would do: pp=%d,dp=%d, or place(axis, %d)", n,
              p->n_ranks / n, p->n_ranks / n == 1 ? "" : "s", n, p->n_ranks / n, n);
  return false;
}

bool placing_check(const Placing *p, Diag *d) {
  const StageOptions *w = p->wish;
  return check_ways(p, w, d) && check_sizes(p, w, d) && check_units(p, w, d);
}
