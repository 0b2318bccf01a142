// The stages written into the program: ranks of ops and parameters, and splits of the rows that the
// ranks of a stage share. Other graphs of the module are placed like the first one.

#include "batch_letter.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "placing.h"
#include "sharding/assign.h"
#include "sharding/decide.h"

// `op`: the op to assign, or NULL. The second piece of two ways runs on the mirrored ranks.
static const Ranks *ranks_of(const Placing *p, const Op *op, const Run *run) {
  int *at = arena_array(p->s->scratch, int, run->n);
  bool back = p->wish->ways && op && op->piece == 2;
  for (int i = 0; i < run->n; i++)
    at[i] = back ? p->n_ranks - run->first - run->n + i : run->first + i;
  return ranks_new(p->s, p->axis, at, run->n);
}

// If only one stage reads an input, each of its ranks reads its slice of the batch.
static void write_input(const Placing *p, Value *v) {
  int unit = UNIT_none;
  for_each_use(u, v) {
    if (!u->user || op_part(u->user) != PART_forward) continue;
    int reader = p->units.of_op[u->user->id];
    if (reader < 0 || (unit >= 0 && p->run_of[reader] != p->run_of[unit])) return;
    unit = reader;
  }
  if (unit < 0 || p->batch[v->id] != 0 || p->s->decisions.param[v->id][p->axis] != PARAM_open)
    return;
  const Run *run = &p->run[p->run_of[unit]];
  if (run->n == 1) return;
  // Rows that these ranks cannot divide are left on all ranks.
  const Layout *before = v->layout;
  assign_param(p->s, v, p->axis, ranks_of(p, NULL, run));
  if (!param_cuts(p->s, v, 0, p->axis)) {
    v->layout = before;
    return;
  }
  decide_layout(p->s, v, p->axis, (Sbp){.kind = SBP_S}, PARAM_fixed, NULL);
}

// An op with an undecided split runs on all ranks.
static void hold(Sharding *s, Op *op, int axis) {
  if (s->constraints.op[op->id][axis] && !s->decisions.assigned[op->id][axis])
    assign_op(s, op, axis, NULL, NULL);
}

void placing_write(const Placing *p) {
  const Graph *g = p->s->g;
  for_each_op(op, g) {
    int unit = op_part(op) == PART_forward ? p->units.of_op[op->id] : UNIT_none;
    hold(p->s, op, p->axis);
    if (unit < 0) continue;
    assign_op(p->s, op, p->axis, ranks_of(p, op, &p->run[p->run_of[unit]]), p->why);
    // The ranks of a stage share its batch.
    int letter = batch_letter(p->s, p->batch, op);
    const Dims *dims = dims_of(p->s, op);
    if (op_ranks(op, p->axis) == 1 || letter < 0 || !split_legal(op, dims, letter, p->axis))
      continue;
    decide_split(p->s, op, p->axis, dims->letter[letter].name, p->why);
  }
  // Parameters follow their readers; inputs are read in shards.
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->role == ROLE_input) write_input(p, g->params[i]);
}

// -- Other graphs --------------------------------------------------------------------------------

// The ops of the model in the first graph, by the node that they belong to.
typedef struct Firsts {
  int n;           // more than the largest number of a node
  const Op **of;   // by node: its first op
  const Op **next; // by op id: the next op of the same node
} Firsts;

void placing_as_first(Sharding *s, int axis, const Loc *why) {
  // Ops of the first graph, by node.
  const Sharding *first = s->first;
  Firsts firsts = {0};
  for_each_op(op, first->g)
    if (op->of >= firsts.n) firsts.n = op->of + 1;
  firsts.of = arena_array(first->scratch, const Op *, firsts.n);
  firsts.next = arena_array(first->scratch, const Op *, first->g->n_ops);
  for (const Op *op = first->g->last; op; op = op->prev) {
    if (op_part(op) != PART_forward || !op->of) continue;
    firsts.next[op->id] = firsts.of[op->of];
    firsts.of[op->of] = op;
  }

  for_each_op(op, s->g) {
    // The op of the first graph that stands for the same op of the model.
    bool has_node = op_part(op) == PART_forward && op->of && op->of < firsts.n;
    const Op *same = has_node ? firsts.of[op->of] : NULL;
    while (same && (same->piece != op->piece || same->kind != op->kind))
      same = firsts.next[same->id];
    hold(s, op, axis);
    if (!same || s->decisions.assigned[op->id][axis] || op->split[axis] != SPLIT_NONE) continue;
    if (!s->first->decisions.placed_op[same->id][axis]) continue;
    assign_op(s, op, axis, s->first->decisions.ranks[same->id][axis], why);
    // It has the same split, if that is legal here.
    int letter = dims_find(dims_of(s, op), same->split[axis]);
    if (same->split[axis] == SPLIT_NONE || letter < 0 ||
        !split_legal(op, dims_of(s, op), letter, axis))
      continue;
    decide_split(s, op, axis, same->split[axis], why);
  }
}
