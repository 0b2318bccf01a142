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
    // A view is read by the readers of its result.
    if (op_is_view(u->user) && u->index == 0)
      find_readers(u->user->out[0], reads);
    else
      reads[u->user->segment] = true;
  }
}

bool version_is_one(const Graph *g, const Value *param, const Value *also, Arena *scratch) {
  if (!g->schedule) return true;
  int slices = module_slices(g->module), n_segments = g->schedule->segment.n;
  // The segment that computes the next value of the parameter; 0: none.
  int64_t skip;
  const Result *r = graph_find_update(g, param);
  const Value *root = r ? view_root(r->use.value, &skip) : NULL;
  int update = root && root->def ? root->def->segment : 0;
  bool *reads = arena_array(scratch, bool, n_segments + 1);
  find_readers(param, reads);
  if (also) find_readers(also, reads);
  for (int i = 0; i < g->schedule->run.n; i++) {
    const RankRun *run = &g->schedule->run.at[i];
    if (!mesh_has(param->layout->mesh, run->device[0])) continue;
    // All readers of a slice must find the same number of updates.
    int *count = arena_array(scratch, int, n_segments + 1), updates = 0;
    int *found =
        arena_array(scratch, int, slices); // 1 + updates before the first read; 0: not read
    for (int k = 0; k < run->action.n; k++) {
      int segment = run->action.at[k].segment;
      int slice = segment ? count[segment]++ : slices;
      if (slice >= slices) continue;
      if (reads[segment] && found[slice] && found[slice] != 1 + updates) return false;
      if (reads[segment]) found[slice] = 1 + updates;
      updates += segment == update;
    }
  }
  return true;
}
