// See hops.h.
//
// next_step chooses the axis that changes next, and whether directly or through B. hops_seconds
// follows these steps to the end. Successive collectives of one kind that will be joined cost as
// one.

#include "hops.h"

#include "ir/collective.h"
#include "ir/split.h"

bool is_time(const Layout *l, int axis) {
  return l->mesh->axis[axis].time;
}

const Layout *with_axis(Module *m, const Layout *l, int axis, Sbp sbp) {
  Sbp all[MAX_AXES];
  for (int a = 0; a < l->n_axes; a++)
    all[a] = l->axis[a];
  all[axis] = sbp;
  return layout_new(m, l->mesh, all);
}

// The axis to change first: sums, then gathers from the inside out, then slices from the outside
// in.
static int next_axis(const Layout *have, const Layout *want) {
  for (int a = 0; a < have->n_axes; a++)
    if (have->axis[a].kind == SBP_P && want->axis[a].kind != SBP_P) return a;
  for (int a = have->n_axes - 1; a >= 0; a--) {
    // A shard is gathered if it is not wanted, or if an axis outside of it changes. Axes that shard
    // one dimension are nested, the first outermost, so a slice is undone only if none is inside of
    // it.
    Sbp cut = have->axis[a];
    for (int k = 0; cut.kind == SBP_S && k <= a; k++)
      if (sbp_equal(have->axis[k], cut) != sbp_equal(want->axis[k], cut)) return a;
  }
  int a = 0;
  while (sbp_equal(have->axis[a], want->axis[a]))
    a++;
  return a;
}

Step next_step(Module *m, const Layout *have, const Layout *want, Hops hops) {
  int axis = next_axis(have, want);
  Sbp from = have->axis[axis];
  int hop = from.kind == SBP_P ? SUMS_HOP : SLICES_HOP;
  // P or S(i) becomes S(j) in one hop if the axes that shard j are nested as wanted.
  Sbp wanted = want->axis[axis];
  bool one_hop = wanted.kind == SBP_S && !is_time(have, axis);
  for (int a = 0; one_hop && a < have->n_axes; a++) {
    bool cuts = sbp_equal(have->axis[a], wanted);
    if (a < axis) one_hop = cuts == sbp_equal(want->axis[a], wanted);
    if (a > axis) one_hop = !cuts;
  }
  bool at_once = from.kind == SBP_B || ((hops & hop) && one_hop);
  Sbp to = at_once ? wanted : (Sbp){.kind = SBP_B};
  return (Step){axis, with_axis(m, have, axis, to)};
}

// -- Costs -------------------------------------------------------------------------------------

double hops_seconds(Module *m, Transitions *prices, const Type *whole, const Layout *from,
                    const Layout *want, Hops hops) {
  double sum = 0;
  for (const Layout *have = from; have != want;) {
    Step s = next_step(m, have, want, hops), next = s;
    Sbp before = have->axis[s.axis], after = s.layout->axis[s.axis];
    // From a replicated value nothing is sent, to a partial sum neither.
    OpKind kind = before.kind == SBP_B ? OP_local_slice : collective_between(before, after, false);
    uint32_t axes = 0;
    const Layout *first = have;
    // Neighbouring axes with the same change are one collective.
    do {
      axes |= 1u << next.axis;
      have = next.layout;
      if (have == want || kind == OP_all_to_all) break;
      next = next_step(m, have, want, hops);
    } while (sbp_equal(have->axis[next.axis], before) &&
             sbp_equal(next.layout->axis[next.axis], after));
    sum += transition_collective(prices, kind, whole, first, have, axes);
  }
  return sum;
}
