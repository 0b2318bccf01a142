// The scale of the loss in f16.  If autodiff scaled the loss, the scale adapts as that of
// torch.amp.GradScaler:
//
//     %good   = less %norm, inf                  no gradient is infinite or not a number
//     %gscale = where %good, %c, nan             nan: the optimizers leave weights and states alone
//     scale, after `growth` good steps in a row:  2 * scale, and a new count
//     scale, after a bad one:                     scale / 2
//
// A bad step is a skipped step: adam does not count it when it corrects its averages, so the number
// of updates is a state here.  The output `loss_scale` is the next step's scale.  The runtime
// derives two things from it.  If it exists, a norm that is not finite is a skipped step and not
// the end of the job.  If it no longer decreases after such a step, at 2^-14, the range of f16 is
// not the cause, and the job ends.  A loss that is not finite always ends the job, since no scale
// can help there.

#include <math.h>

#include "update.h"

static const double least_scale = 0x1p-14, largest_scale = 0x1p24;

static Value *number(Update *p, DType t, double x) {
  return build_fill(&p->b, t, 0, NULL, x);
}

static Value *choose(Update *p, Value *which, Value *x, Value *y) {
  return build_where(&p->b, which, x, y);
}

static Value *add_one(Update *p, Value *x) {
  return build_op(&p->b, OP_offset, IN(x), ATTRS(a_f("by", 1)));
}

static Value *scalar_state(Update *p, const char *label, DType dtype) {
  Module *m = p->g->module;
  Value *s = graph_param(p->g, label, type_scalar(m, dtype), ROLE_state, NULL);
  s->label = label;
  s->init = init_fill(m, dtype, 0);
  return s;
}

bool update_scale_loss(Update *p, Value *norm, int64_t growth) {
  Builder *b = &p->b;
  Value *scale = p->loss_scale, *streak = scalar_state(p, "loss_scale.good_steps", DT_f32);
  // The norm is finite only if all gradients are.
  Value *good = build_binary(b, OP_less, norm, number(p, DT_f32, INFINITY));
  p->gscale = choose(p, good, p->gscale, number(p, DT_f32, NAN));
  // The next scale: doubled after `growth` good steps in a row, halved after a bad one.
  Value *longer = add_one(p, streak);
  Value *grows = build_binary(b, OP_greater_equal, longer, number(p, DT_f32, (double)growth));
  Value *up = choose(p, grows, build_scale(b, scale, 2), scale);
  Value *next = choose(p, good, up, build_scale(b, scale, 0.5));
  next = build_op(b, OP_clip, IN(next), ATTRS(a_f("low", least_scale), a_f("high", largest_scale)));
  Value *zero = number(p, DT_f32, 0);
  Value *next_streak = choose(p, good, choose(p, grows, zero, longer), zero);
  if (!update_add_output(p, next, "loss_scale") || b->failed) return false;
  graph_update(p->g, scale, next);
  graph_update(p->g, streak, next_streak);
  // Skipped steps do not count in bias corrections, so the step number no longer serves.
  bool counts = false; // an optimizer reads the number of updates
  for (int i = 0; i < p->groups.n; i++)
    counts |= optimizer_counts_steps(&p->groups.at[i].spec);
  if (!counts) return true;
  p->updates = scalar_state(p, "loss_scale.updates", DT_i64);
  graph_update(p->g, p->updates, choose(p, good, add_one(p, p->updates), p->updates));
  return !b->failed;
}
