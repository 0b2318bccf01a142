// Live slices of blocks, in a loop with a schedule (ir/schedule.h): see plan_blocks.h.
//
//     run devices=0 F0 F0 F0 B0 F0 B0 …          %h of F0, which B0 reads:   at 4096 slots=3:1024
//
// A rank has several slices in progress. A value that is produced in one segment and read in
// another has as many adjacent slots as live slices (ir/analysis/live_ranges.h has the live range
// of each). Its block lives while any of its slices does.

#include "ir/op.h"
#include "plan_blocks.h"

// The live range of each slice of the block on a run; false: it has none there.
static bool block_stays(const MemoryPlan *p, const Block *b, int run, LiveRange *out) {
  bool there = false;
  int slices = module_slices(p->m);
  for (int i = 0; i < b->member.n; i++) {
    const LiveRange *stay = live_ranges_of(p->stays, b->member.at[i], run);
    for (int m = 0; stay && m < slices; m++) {
      out[m].from = there ? earlier(out[m].from, stay[m].from) : stay[m].from;
      out[m].to = there ? later(out[m].to, stay[m].to) : stay[m].to;
    }
    there |= stay != NULL;
  }
  // A reduction reads the block until its segment ends.
  for (int i = 0; there && i < b->wait.n; i++)
    for (int m = 0; b->wait.at[i]->segment && m < slices; m++)
      out[m].to = later(out[m].to, live_range_segment_end(p->stays, b->wait.at[i], run, m));
  return there;
}

static void count_stays(MemoryPlan *p, Block *b, LiveRange *stay) {
  // Members outside of the loop keep their live range.
  Life life = {INT64_MAX, -1};
  int slots = 1;
  bool all_stay = true;
  for (int i = 0; i < b->member.n; i++) {
    const Value *v = b->member.at[i];
    // The rows of the first slice are present before the ops that precede the loop.
    if (value_stays(v) && !v->def) life.from = 0;
    if (value_stays(v)) continue;
    all_stay = false;
    life.from = earlier(life.from, p->life[v->id].from);
    life.to = later(life.to, p->life[v->id].to);
  }
  for (int r = 0; r < p->g->schedule->run.n; r++) {
    if (!block_stays(p, b, r, stay)) continue;
    // The op times at which the block is alive in segments of the run.
    const RankRun *actions = &p->g->schedule->run.at[r];
    Life own = {INT64_MAX, -1};
    for (int m = 0; m < module_slices(p->m); m++) {
      int first = live_range_action(p->stays, stay[m].from),
          last = live_range_action(p->stays, stay[m].to);
      for (int k = first; k <= last; k++) {
        const Life *segment = &p->segment[actions->action.at[k].segment];
        if (!actions->action.at[k].segment) continue;
        int64_t from = k == first ? live_range_op_time(p->stays, stay[m].from) : segment->from;
        int64_t to = k == last ? live_range_op_time(p->stays, stay[m].to) : segment->to;
        own.from = earlier(own.from, earlier(later(from, segment->from), segment->to));
        own.to = later(own.to, later(earlier(to, segment->to), segment->from));
      }
    }
    // Live ranges end in the order of slices: the slots are the most slices alive together.
    int slices = module_slices(p->m);
    int together = 1;
    for (int m = 0, k = 0; m < slices; m++) {
      while (k < slices && stay[k].from <= stay[m].to)
        k++;
      if (k - m > together) together = k - m;
    }
    slots = (int)later(slots, together);
    life.from = earlier(life.from, own.from);
    life.to = later(life.to, own.to);
  }
  if (life.to >= 0) b->life = life; // else it is on no run
  b->slots = all_stay && slots > 1 ? slots : 0;
}

void slots_find(MemoryPlan *p) {
  LiveRange *stay = arena_array(p->scratch, LiveRange, module_slices(p->m));
  for (int i = 0; i < p->block.n; i++)
    if (!p->block.at[i]->kept) count_stays(p, p->block.at[i], stay);
}

void slots_begin(MemoryPlan *p) {
  p->stays = NULL;
  if (!p->g->schedule) return;
  p->stays = stays_new(p->g, p->scratch);
  p->segment = arena_array(p->scratch, Life, p->g->schedule->segment.n + 1);
  for_each_op(op, p->g) {
    Life *life = &p->segment[op->segment];
    if (!life->from) life->from = op_time(op);
    life->to = op_time(op);
  }
}
