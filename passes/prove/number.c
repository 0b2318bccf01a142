// See number.h.
//
// The hash leaves out `shape`, and the position of a dropout, so an op on parts is in the same
// bucket as the op on the whole, and is compared there by whole types.  Called graphs are compared
// op by op, with value numbers of their own.

#include "number.h"

#include "base/vec.h"
#include "ir/intern.h"
#include "ir/op.h"
#include "ir/split.h"

// An op that differs from all earlier ones.
typedef struct Entry {
  const Op *op;
  const int *in; // value numbers of the operands
  int first;     // value number of result 0
  struct Entry *next;
} Entry;

struct Numbers {
  const Graph *g;
  Vec(const Value *) value; // by value number
  int *of;                  // by value id
  Entry **slot;
  int n_slots; // a power of two
};

bool attr_same_whole(const Op *x, const Op *y, int i) {
  if (!str_equal(x->attrs[i].name, "shape")) return attr_same(&x->attrs[i], &y->attrs[i]);
  return type_same_dims(value_whole(x->out[0]), value_whole(y->out[0]));
}

// Whether attribute `i` says which part of the whole the op computes.
static bool is_of_part(const Op *op, int i) {
  const char *name = op->attrs[i].name;
  return str_equal(name, "shape") ||
         (op->kind == OP_dropout && (str_equal(name, "whole") || str_equal(name, "start")));
}

// `part`: including the attributes of parts.
static bool same_op(const Op *x, const int *x_in, const Op *y, const int *y_in, bool part) {
  if (x->kind != y->kind || x->n_in != y->n_in || x->n_out != y->n_out) return false;
  for (int i = 0; i < x->n_in; i++)
    if (x_in[i] != y_in[i]) return false;
  // Without these, an op on a piece equals the op on the whole.
  int n;
  op_attr_specs(x->kind, &n);
  for (int i = 0; i < n; i++)
    if ((part || !is_of_part(x, i)) && !attr_same_whole(x, y, i)) return false;
  return x->callee == y->callee || callee_same(x->callee, y->callee);
}

// Numbers the values of a called graph in order: parameters, then results of ops.
static int *in_order(const Graph *g, Arena *a) {
  int *of = arena_array(a, int, g->n_values), n = 0;
  for (int i = 0; i < g->n_params; i++)
    of[g->params[i]->id] = n++;
  // Results get the numbers after those of the parameters, in order.
  for_each_op(op, g) {
    for (int i = 0; i < op->n_out; i++)
      of[op->out[i]->id] = n++;
  }
  return of;
}

bool callee_same(const Graph *x, const Graph *y) {
  if (x->n_params != y->n_params || x->n_results != y->n_results) return false;
  for (int i = 0; i < x->n_params; i++)
    if (!type_equal(x->params[i]->type, y->params[i]->type)) return false;
  // The ops of both are compared in order, on operands with numbers of their own.
  Arena *a = arena_new();
  const int *x_of = in_order(x, a), *y_of = in_order(y, a);
  bool same = true;
  const Op *p = x->first, *q = y->first;
  for (; same && p && q; p = p->next, q = q->next) {
    int *p_in = arena_array(a, int, p->n_in), *q_in = arena_array(a, int, q->n_in);
    for (int i = 0; i < p->n_in; i++)
      p_in[i] = x_of[p->in[i].value->id];
    for (int i = 0; i < q->n_in; i++)
      q_in[i] = y_of[q->in[i].value->id];
    same = same_op(p, p_in, q, q_in, true);
  }
  same &= !p && !q;
  for (int i = 0; same && i < x->n_results; i++)
    same = x_of[x->results[i]->use.value->id] == y_of[y->results[i]->use.value->id];
  arena_free(a);
  return same;
}

// The hash bucket of an op.  The hash leaves out attributes that are different for a piece.
static Entry **slot_of(const Numbers *n, const Op *op, const int *in) {
  uint64_t h = hash_mix(0, (uint64_t)op->kind);
  for (int i = 0; i < op->n_in; i++)
    h = hash_mix(h, (uint64_t)in[i]);
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  for (int i = 0; i < n_attrs; i++)
    if (!is_of_part(op, i)) h = attr_hash(h, &op->attrs[i]);
  return &n->slot[(h ^ h >> 32) & (uint64_t)(n->n_slots - 1)];
}

static Entry *find(const Numbers *n, const Op *op, const int *in) {
  Entry *e = *slot_of(n, op, in);
  while (e && !same_op(e->op, e->in, op, in, true))
    e = e->next;
  return e;
}

bool gives_operand(const Op *op) {
  if (op->kind != OP_reshape && op->kind != OP_slice) return false;
  // A slice with the shape of its operand returns it, unless it goes backwards.
  for (int i = 0; op->kind == OP_slice && i < attr_n(op, "steps"); i++)
    if (attr_list(op, "steps")[i] != 1) return false;
  return type_equal(value_whole(op->in[0].value), value_whole(op->out[0]));
}

Numbers *numbers_new(const Graph *g, Arena *a) {
  Numbers *n = arena_one(a, Numbers);
  n->g = g;
  n->of = arena_array(a, int, g->n_values);
  n->n_slots = 64;
  while (n->n_slots < (int)g->n_ops)
    n->n_slots *= 2;
  n->slot = arena_array(a, Entry *, n->n_slots);
  // Parameters have the first numbers, by index.
  for (int i = 0; i < g->n_params; i++) {
    n->of[g->params[i]->id] = n->value.n;
    vec_push(a, &n->value, g->params[i]);
  }
  for_each_op(op, g) {
    if (gives_operand(op)) {
      n->of[op->out[0]->id] = n->of[op->in[0].value->id];
      continue;
    }
    // An op with the kind, operands and attributes of an earlier one has its numbers.
    int *in = arena_array(a, int, op->n_in);
    for (int i = 0; i < op->n_in; i++)
      in[i] = n->of[op->in[i].value->id];
    Entry *e = find(n, op, in);
    if (!e) {
      Entry **slot = slot_of(n, op, in);
      e = arena_one(a, Entry);
      *e = (Entry){op, in, n->value.n, *slot};
      *slot = e;
      for (int i = 0; i < op->n_out; i++)
        vec_push(a, &n->value, op->out[i]);
    }
    for (int i = 0; i < op->n_out; i++)
      n->of[op->out[i]->id] = e->first + i;
  }
  return n;
}

int n_numbers(const Numbers *n) {
  return n->value.n;
}

const Graph *numbers_graph(const Numbers *n) {
  return n->g;
}

int number_of(const Numbers *n, const Value *v) {
  return n->of[v->id];
}

const Value *number_value(const Numbers *n, int number) {
  return n->value.at[number];
}

int number_find(const Numbers *n, const Op *op, const int *in) {
  const Entry *e = find(n, op, in);
  return e ? e->first : -1;
}

const Op *number_like(const Numbers *n, const Op *op, const int *in, const Op *after) {
  // The op and its whole are in the same slot.  The search goes on after the last answer.
  const Entry *e = *slot_of(n, op, in);
  while (after && e && e->op != after)
    e = e->next;
  if (after && e) e = e->next;
  while (e && !same_op(e->op, e->in, op, in, false))
    e = e->next;
  return e ? e->op : NULL;
}
