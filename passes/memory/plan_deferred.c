// Blocks of deferred updates (ir/analysis/deferred.h): see plan_blocks.h.
//
//     step   op 1 … due … 20 … 31 | 1 … due … 20 …        %r = all_reduce … at 20, and %w1 = sgd %w, %r
//     %r                   ──────────────                 deferred, due before op 7: from 20 to the end, and
//     %n                                ───               again to 7; results of deferred ops live from 7
//
// Deferred ops are the last of the graph. Here their times become the times of their due ops.

#include "ir/analysis/deferred.h"

#include "ir/op.h"
#include "plan_blocks.h"

typedef struct Due {
  int64_t first, end; // times of the first deferred op, and after the last
  const int64_t *of;  // by time, from `first` on
} Due;

// The due time in the next step of the deferred op at `time`; -1: the op is not deferred.
static int64_t due_at(const Due *d, int64_t time) {
  return time >= d->first && time < d->end ? d->of[time - d->first] : -1;
}

static bool is_deferred(const Value *v) {
  return v->def && v->def->deferred && !(op_info[v->def->kind].traits & VIEW);
}

static void find_again(const MemoryPlan *p, const Due *d, Block *b) {
  Life life = {INT64_MAX, -1};
  // Values of this step: a deferred reader keeps them to the end of the step, and again until it is
  // due.
  for (int i = 0; i < b->member.n; i++) {
    const Life *of = &p->life[b->member.at[i]->id];
    if (is_deferred(b->member.at[i])) continue;
    int64_t due = due_at(d, of->to);
    life.from = earlier(life.from, of->from);
    life.to = later(life.to, due < 0 ? of->to : d->end);
    b->again = later(b->again, due);
  }
  // Results of deferred ops exist only in the next step, from their due time.
  for (int i = 0; i < b->member.n; i++) {
    const Life *of = &p->life[b->member.at[i]->id];
    if (!is_deferred(b->member.at[i])) continue;
    int64_t from = due_at(d, of->from), due = due_at(d, of->to), to = due < 0 ? of->to : due;
    if (b->again && due >= 0) {
      b->again = later(b->again, to); // in place over an operand
      continue;
    }
    life.from = earlier(life.from, from);
    life.to = later(life.to, to);
  }
  b->life = life;
}

void deferred_find(MemoryPlan *p) {
  if (!graph_first_deferred(p->g)) return;
  // The due time of each deferred op.
  const Op *first = graph_first_deferred(p->g);
  const int64_t *times = graph_deferred_due(p->g, p->scratch);
  Due due = {op_time(first), graph_end(p->g), NULL};
  int64_t *of = arena_array(p->scratch, int64_t, due.end - due.first);
  for (const Op *op = first; op; op = op->next)
    of[op_time(op) - due.first] = times[op->id];
  due.of = of;
  for (int i = 0; i < p->block.n; i++)
    if (!p->block.at[i]->kept) find_again(p, &due, p->block.at[i]);
}
