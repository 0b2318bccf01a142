// Plan programs' access to the model's annotations: annotated.h.

#include "lua_graph.h"
#include "planner/annotations/annotated.h"

// annotations(axis): adds the annotations along it as constraints of the ops.
int plan_annotations(lua_State *l) {
  PlanProgram *p = program_of(l);
  int axis = plan_axis(l, 1);
  p->n_refused += annotated_apply(p->s, axis, plan_line(l), p->box.d);
  return 0;
}

// annotated_apart(op): whether a product is sliced into groups of columns with annotated shardings.
int plan_annotated_apart(lua_State *l) {
  lua_pushboolean(l, annotated_apart(plan_op(l, 1)));
  return 1;
}
