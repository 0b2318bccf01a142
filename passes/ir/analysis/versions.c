// See versions.h.
//
// Each run is simulated once, counting its updates of the parameter: for every slice, all segments
// that read the parameter must find the same count.

#include "versions.h"

#include "ir/op.h"
#include "ir/schedule.h"
#include "place.h"

// Marks the segments with ops, other than updates, that read `v` or a view of it.
static void find_readers(const Value *v, bool *reads) {
  for_each_use(u, v) {
    if (!u->user || u->user->part == PART_update) continue;
    if (op_is_view(u->user) && u->index == 0)
      find_readers(u->user->out[0], reads);
    else
      reads[u->user->segment] = true;
  }
}

// The segment that computes the next value of the parameter; 0: none.
static int updated_in(const Graph *g, const Value *param) {
  int64_t skip;
  for (int i = 0; i < g->n_results; i++) {
    if (g->results[i]->target != param) continue;
    const Value *root = view_root(g->results[i]->use.value, &skip);
    return root->def ? root->def->segment : 0;
  }
  return 0;
}

static bool run_has_one(const Graph *g, const RankRun *run, const bool *reads, int update,
                        Arena *a) {
  int slices = module_slices(g->module), updates = 0;
  int *count = arena_array(a, int, g->schedule->segment.n + 1);
  int *found = arena_array(a, int, slices); // 1 + updates before the first read; 0: not read
  for (int i = 0; i < run->action.n; i++) {
    int segment = run->action.at[i].segment;
    int slice = segment ? count[segment]++ : slices;
    if (slice >= slices) continue;
    if (reads[segment] && found[slice] && found[slice] != 1 + updates) return false;
    if (reads[segment]) found[slice] = 1 + updates;
    updates += segment == update;
  }
  return true;
}

bool version_is_one(const Graph *g, const Value *param, const Value *also, Arena *scratch) {
  if (!g->schedule) return true;
  bool *reads = arena_array(scratch, bool, g->schedule->segment.n + 1);
  int update = updated_in(g, param);
  find_readers(param, reads);
  if (also) find_readers(also, reads);
  for (int i = 0; i < g->schedule->run.n; i++) {
    const RankRun *run = &g->schedule->run.at[i];
    if (mesh_has(param->layout->mesh, run->device[0]) &&
        !run_has_one(g, run, reads, update, scratch))
      return false;
  }
  return true;
}
