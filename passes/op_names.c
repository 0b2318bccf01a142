// See op_names.h.

#include "op_names.h"

#include <stdlib.h>
#include <string.h>

#include "ir/op.h"
#include "part.h"

typedef struct Named {
  const char *node;
  TrainPart part;
  int position; // in the graph
  Op *op;
} Named;

struct OpNames {
  Named *at; // by node, part and position
  int n;
};

const char *op_node(const Op *op) {
  const Loc *origin = loc_origin(op->loc);
  return origin && origin->node ? origin->node : "";
}

static int by_node(const Named *a, const Named *b) {
  int order = strcmp(a->node, b->node);
  return order ? order : (a->part > b->part) - (a->part < b->part);
}

static int by_name(const void *x, const void *y) {
  const Named *a = x, *b = y;
  int order = by_node(a, b);
  return order ? order : a->position - b->position;
}

OpNames *op_names_new(const Graph *g, Arena *a) {
  OpNames *names = arena_one(a, OpNames);
  int n = 0;
  for_each_op(op, g)
    n++;
  *names = (OpNames){arena_array(a, Named, n), n};
  n = 0;
  for_each_op(op, g) {
    names->at[n] = (Named){op_node(op), op_part(op), n, op};
    n++;
  }
  qsort(names->at, (size_t)n, sizeof *names->at, by_name);
  return names;
}

// Where those of this node and part begin.
static int begin(const OpNames *names, const Named *like) {
  int low = 0, high = names->n;
  while (low < high) {
    int middle = (low + high) / 2;
    if (by_node(&names->at[middle], like) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Op *op_names_find(const OpNames *names, const char *node, TrainPart part, int kind, int which,
                  int *n) {
  Named like = {.node = node, .part = part};
  Op *found = NULL;
  *n = 0;
  for (int i = begin(names, &like); i < names->n && !by_node(&names->at[i], &like); i++)
    if ((kind == N_OPS || (int)names->at[i].op->kind == kind) && ++*n == which)
      found = names->at[i].op;
  return found;
}

int op_names_which(const OpNames *names, const Op *op) {
  Named like = {.node = op_node(op), .part = op_part(op)};
  int which = 0;
  for (int i = begin(names, &like); i < names->n && !by_node(&names->at[i], &like); i++) {
    which += names->at[i].op->kind == op->kind;
    if (names->at[i].op == op) return which;
  }
  BUG("%s is not of this graph", op_info[op->kind].name);
}
