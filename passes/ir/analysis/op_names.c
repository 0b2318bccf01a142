// See op_names.h.
//
// All ops of the graph in two sorted lists, one with the kind as a key and one without, and a table
// from op ids to positions in the first list.  So both lookups are without a walk over the graph.

#include "op_names.h"

#include <stdlib.h>
#include <string.h>

#include "ir/op.h"
#include "ir/verify/verify.h"
#include "origin.h"

typedef struct Named {
  const char *node;
  TrainPart part;
  int kind;
  int position; // in the graph
  Op *op;
} Named;

struct OpNames {
  Named *at;  // by node, part, kind and position
  Named *any; // by node, part and position
  int n;
  int *place; // index into `at`, by op id; -1: no op
  uint32_t n_ids;
};

const char *op_node(const Op *op) {
  const Loc *origin = loc_origin(op->loc);
  return origin && origin->node ? origin->node : "";
}

static int by_node(const Named *a, const Named *b) {
  int order = strcmp(a->node, b->node);
  return order ? order : (a->part > b->part) - (a->part < b->part);
}

static int by_kind(const Named *a, const Named *b) {
  int order = by_node(a, b);
  return order ? order : a->kind - b->kind;
}

static int by_name(const void *x, const void *y) {
  const Named *a = x, *b = y;
  int order = by_kind(a, b);
  return order ? order : a->position - b->position;
}

static int by_place(const void *x, const void *y) {
  const Named *a = x, *b = y;
  int order = by_node(a, b);
  return order ? order : a->position - b->position;
}

OpNames *op_names_new(const Graph *g, Arena *a) {
  OpNames *names = arena_one(a, OpNames);
  int n = 0;
  for_each_op(op, g)
    n++;
  *names = (OpNames){.at = arena_array(a, Named, n), .n = n, .n_ids = g->n_ops};
  n = 0;
  for_each_op(op, g) {
    names->at[n] = (Named){op_node(op), op_part(op), (int)op->kind, n, op};
    n++;
  }
  // The same entries in two orders: one with the kind as a key, one without.
  names->any = arena_copy(a, names->at, (size_t)n * sizeof *names->at);
  qsort(names->at, (size_t)n, sizeof *names->at, by_name);
  qsort(names->any, (size_t)n, sizeof *names->any, by_place);
  // The index from op ids to the first list.
  names->place = arena_array(a, int, names->n_ids);
  for (uint32_t i = 0; i < names->n_ids; i++)
    names->place[i] = -1;
  for (int i = 0; i < n; i++)
    names->place[names->at[i].op->id] = i;
  return names;
}

// The number of entries before the first that equals `like`; with `behind`, before the first
// greater one.
static int bound(const Named *at, int n, int (*order)(const Named *, const Named *),
                 const Named *like, bool behind) {
  int low = 0, high = n;
  while (low < high) {
    // Entries before `low` come before the bound, those from `high` on do not.
    int middle = (low + high) / 2, is = order(&at[middle], like);
    if (is < 0 || (behind && !is))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Op *op_names_find(const OpNames *names, const char *node, TrainPart part, int kind, int which,
                  int *n) {
  // Both bounds of the equal entries, by binary search.
  Named like = {.node = node, .part = part, .kind = kind};
  const Named *at = kind == N_OPS ? names->any : names->at;
  int (*order)(const Named *, const Named *) = kind == N_OPS ? by_node : by_kind;
  int begin = bound(at, names->n, order, &like, false);
  *n = bound(at, names->n, order, &like, true) - begin;
  return which < 1 || which > *n ? NULL : at[begin + which - 1].op;
}

bool op_names_has(const OpNames *names, const Op *op) {
  return op->id < names->n_ids && names->place[op->id] >= 0 &&
         names->at[names->place[op->id]].op == op;
}

int op_names_which(const OpNames *names, const Op *op) {
  if (!op_names_has(names, op)) BUG("%s is not of this graph", op_info[op->kind].name);
  const Named *like = &names->at[names->place[op->id]];
  return names->place[op->id] - bound(names->at, names->n, by_kind, like, false) + 1;
}

int op_names_position(const OpNames *names, const Op *op) {
  if (!op_names_has(names, op)) BUG("%s is not of this graph", op_info[op->kind].name);
  return names->at[names->place[op->id]].position;
}

bool op_is_meant(const Op *op, const char *what, Arena *a) {
  // The name of a result, of an op of the body, of a node of the model, or of the kind of op.
  if (what[0] == '%') {
    for (int i = 0; i < op->n_out; i++)
      if (str_equal(value_text(a, op->out[i]), what)) return true;
    return false;
  }
  if (op->callee)
    for_each_op(inner, op->callee)
      if (op_is_meant(inner, what, a)) return true;
  for (const Loc *loc = op->loc; loc; loc = loc->from)
    if (loc->node && *what && strstr(loc->node, what)) return true;
  return str_equal(op_info[op->kind].name, what);
}
