// See number.h.
//
// The hash leaves out `shape`, and the position of a dropout, so an op on parts is in the same
// bucket as the op on the whole, and is compared there by whole types.  Called graphs are compared
// op by op, with value numbers of their own.
//
// Two equal expressions have one form.  The operands of a commutative op are sorted by number.  A
// reshape reads the value before all reshapes, its root.  Slices and concats that move the same
// elements, but for reshapes before and after, are reshapes of the first of them:
//
//     %p = reshape %x shape=[6,3,8]     %q = slice %p starts=[0,1,0] shape=[6,1,8]
//     %r = slice %x starts=[0,8] shape=[6,8]              a reshape of %q: view {x, 8, (6,24), (8,1)}

#include "number.h"

#include <string.h>

#include "base/vec.h"
#include "ir/build.h"
#include "ir/dims.h"
#include "ir/intern.h"
#include "ir/op.h"
#include "ir/split.h"

// An op that differs from all earlier ones.
typedef struct Entry {
  const Op *op;
  const int *in; // value numbers of the operands, in the form of `canonical`
  int first;     // value number of result 0
  struct Entry *next;
} Entry;

// A slice or a concat without its shapes: see view_of.
typedef struct View {
  OpKind kind;
  int n;
  const int64_t *at;
  int number;
  struct View *next;
} View;

// A reshape, in the list of the number that it reads.
typedef struct Reshape {
  const Op *op;
  struct Reshape *next;
} Reshape;

struct Numbers {
  const Graph *g;
  Vec(const Value *) value; // by value number
  Vec(int) root;            // by value number: that of the value before all reshapes
  int *of;                  // by value id
  Reshape **reshapes;       // by value number
  Entry **slot;
  View **view;
  int n_slots; // of each of the two tables, a power of two
  Arena *a;
};

bool attr_same_whole(const Op *x, const Op *y, int i) {
  if (!str_equal(x->attrs[i].name, "shape")) return attr_same(&x->attrs[i], &y->attrs[i]);
  return type_same_dims(value_whole(x->out[0]), value_whole(y->out[0]));
}

// Whether attribute `i` says which part of the whole the op computes.
static bool is_of_part(const Op *op, int i) {
  const char *name = op->attrs[i].name;
  return str_equal(name, "shape") || (op->kind == OP_loop && str_equal(name, "workspace")) ||
         (op_draws(op->kind) && (str_equal(name, "whole") || str_equal(name, "start")));
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

static bool is_commutative(OpKind kind) {
  return kind == OP_add || kind == OP_mul;
}

// The operands of `op` in the one form of equal expressions: `in`, or `space` for two numbers.
static const int *canonical(const Numbers *n, const Op *op, const int *in, int *space) {
  bool sort = is_commutative(op->kind) && in[0] > in[1];
  if (op->kind != OP_reshape && !sort) return in;
  space[0] = sort ? in[1] : n->root.at[in[0]];
  if (sort) space[1] = in[0];
  return space;
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
    if (!is_of_part(op, i)) h = attr_bucket(h, &op->attrs[i]);
  return &n->slot[(h ^ h >> 32) & (uint64_t)(n->n_slots - 1)];
}

static Entry *find(const Numbers *n, const Op *op, const int *in) {
  Entry *e = *slot_of(n, op, in);
  while (e && !same_op(e->op, e->in, op, in, true))
    e = e->next;
  return e;
}

// -- Views -----------------------------------------------------------------------------------

// The elements that a slice takes of the root of its operand, in order: the root, the offset of the
// first, and pairs of length and distance, merged if one dimension continues the next.
static int slice_view(const Op *op, int root, int64_t *at) {
  const Type *from = value_whole(op->in[0].value), *to = value_whole(op->out[0]);
  int64_t length[MAX_NDIM], distance[MAX_NDIM], offset = 0, stride = 1;
  int n = 0;
  for (int i = from->ndim - 1; i >= 0; i--) {
    int64_t by = stride * attr_list(op, "steps")[i];
    offset += attr_list(op, "starts")[i] * stride;
    stride *= from->dim[i];
    if (to->dim[i] == 1) continue;
    if (n && by == length[n - 1] * distance[n - 1]) {
      length[n - 1] *= to->dim[i];
      continue;
    }
    length[n] = to->dim[i];
    distance[n++] = by;
  }
  at[0] = root;
  at[1] = offset;
  for (int i = 0; i < n; i++) {
    at[2 + 2 * i] = length[i];
    at[3 + 2 * i] = distance[i];
  }
  return 2 + 2 * n;
}

// The roots of the operands of a concat, and the number of parts that each is cut into.
static int concat_view(const Numbers *n, const Op *op, const int *in, int64_t *at) {
  const Type *to = value_whole(op->out[0]);
  at[0] = 1;
  for (int i = 0; i < attr_i(op, "axis"); i++)
    at[0] *= to->dim[i];
  for (int i = 0; i < op->n_in; i++)
    at[1 + i] = n->root.at[in[i]];
  return 1 + op->n_in;
}

enum { MAX_VIEW = MAX_TERMS + 2 + 2 * MAX_NDIM };

// The view of a slice or concat; its length, or 0 for other ops.
static int view_of(const Numbers *n, const Op *op, const int *in, int64_t *at) {
  if (op->kind == OP_slice) return slice_view(op, n->root.at[in[0]], at);
  return op->kind == OP_concat ? concat_view(n, op, in, at) : 0;
}

static View **view_slot(const Numbers *n, OpKind kind, const int64_t *at, int length) {
  uint64_t h = hash_mix(0, (uint64_t)kind);
  for (int i = 0; i < length; i++)
    h = hash_mix(h, (uint64_t)at[i]);
  return &n->view[(h ^ h >> 32) & (uint64_t)(n->n_slots - 1)];
}

static const View *find_view(const Numbers *n, OpKind kind, const int64_t *at, int length) {
  const View *v = *view_slot(n, kind, at, length);
  while (v &&
         (v->kind != kind || v->n != length || memcmp(v->at, at, sizeof *at * (size_t)length) != 0))
    v = v->next;
  return v;
}

int number_view(const Numbers *n, const Op *op, const int *in) {
  int64_t at[MAX_VIEW];
  int length = view_of(n, op, in, at);
  const View *v = length ? find_view(n, op->kind, at, length) : NULL;
  return v ? v->number : -1;
}

int number_reshape(const Numbers *n, int root, const Type *whole) {
  if (type_equal(n->value.at[root]->type, whole)) return root;
  Attr shape = a_list("shape", whole->dim, whole->ndim);
  // The hash of a reshape has no shape, so the entries of all of the root are in one slot.
  const Op reshape = {.kind = OP_reshape, .n_in = 1, .n_out = 1, .attrs = &shape};
  const Entry *e = *slot_of(n, &reshape, &root);
  while (e && (e->op->kind != OP_reshape || e->in[0] != root ||
               !type_equal(n->value.at[e->first]->type, whole)))
    e = e->next;
  return e ? e->first : -1;
}

bool gives_operand(const Op *op) {
  if (op->kind != OP_reshape && op->kind != OP_slice) return false;
  // A slice with the shape of its operand returns it, unless it goes backwards.
  for (int i = 0; op->kind == OP_slice && i < attr_n(op, "steps"); i++)
    if (attr_list(op, "steps")[i] != 1) return false;
  return type_equal(value_whole(op->in[0].value), value_whole(op->out[0]));
}

// Remembers the view of a slice or concat that the next number is for.
static void add_view(Numbers *n, const Op *op, const int *in) {
  int64_t at[MAX_VIEW];
  int length = view_of(n, op, in, at);
  if (!length) return;
  View **slot = view_slot(n, op->kind, at, length), *v = arena_one(n->a, View);
  *v = (View){op->kind, length, arena_copy(n->a, at, sizeof *at * (size_t)length), n->value.n,
              *slot};
  *slot = v;
}

Numbers *numbers_new(const Graph *g, Arena *a) {
  Numbers *n = arena_one(a, Numbers);
  n->g = g;
  n->a = a;
  n->of = arena_array(a, int, g->n_values);
  n->reshapes = arena_array(a, Reshape *, g->n_values);
  n->n_slots = 64;
  while (n->n_slots < (int)g->n_ops)
    n->n_slots *= 2;
  n->slot = arena_array(a, Entry *, n->n_slots);
  n->view = arena_array(a, View *, n->n_slots);
  // Parameters have the first numbers, by index.
  for (int i = 0; i < g->n_params; i++) {
    n->of[g->params[i]->id] = n->value.n;
    vec_push(a, &n->root, n->value.n);
    vec_push(a, &n->value, g->params[i]);
  }
  for_each_op(op, g) {
    if (gives_operand(op)) {
      n->of[op->out[0]->id] = n->of[op->in[0].value->id];
      continue;
    }
    int *in = arena_array(a, int, op->n_in), space[2];
    for (int i = 0; i < op->n_in; i++)
      in[i] = n->of[op->in[i].value->id];
    if (op->kind == OP_reshape) {
      Reshape *reshape = arena_one(a, Reshape), **list = &n->reshapes[in[0]];
      *reshape = (Reshape){op, *list};
      *list = reshape;
    }
    // Reshapes may add up to none, and to one that is known by another op.
    int root = op->kind == OP_reshape ? n->root.at[in[0]] : number_view(n, op, in);
    int known = root < 0 ? -1 : number_reshape(n, n->root.at[root], op->out[0]->type);
    if (known >= 0) {
      n->of[op->out[0]->id] = known;
      continue;
    }
    // An op with the kind, operands and attributes of an earlier one has its numbers.
    const int *form = canonical(n, op, in, space);
    Entry *e = find(n, op, form);
    if (!e) {
      Entry **slot = slot_of(n, op, form);
      e = arena_one(a, Entry);
      if (form == space) memcpy(in, space, (size_t)op->n_in * sizeof *in);
      *e = (Entry){op, in, n->value.n, *slot};
      *slot = e;
      if (root < 0) add_view(n, op, in);
      for (int i = 0; i < op->n_out; i++) {
        vec_push(a, &n->root, root < 0 ? n->value.n : n->root.at[root]);
        vec_push(a, &n->value, op->out[i]);
      }
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

int number_root(const Numbers *n, int number) {
  return n->root.at[number];
}

int number_find(const Numbers *n, const Op *op, const int *in) {
  int space[2];
  const Entry *e = find(n, op, canonical(n, op, in, space));
  return e ? e->first : -1;
}

int number_cast(const Numbers *n, int number, DType to) {
  Attr attr = a_t("to", to);
  Op cast = {.kind = OP_cast, .n_in = 1, .n_out = 1, .attrs = &attr};
  return number_find(n, &cast, &number);
}

const Op *number_loop(const Numbers *n, const Op *op, const int *in) {
  const Op *found = NULL;
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  for (const Entry *e = *slot_of(n, op, in); e; e = e->next) {
    bool same = e->op->kind == op->kind && e->op->n_in == op->n_in &&
                e->op->callee->n_results == op->callee->n_results;
    for (int i = 0; same && i < op->n_in; i++)
      same = e->in[i] == in[i];
    for (int i = 0; same && i < n_attrs; i++)
      same = is_of_part(op, i) || attr_same(&e->op->attrs[i], &op->attrs[i]);
    // Of several, the one with the number of the op.
    if (same && (!found || (found->of != op->of && e->op->of == op->of))) found = e->op;
  }
  return found;
}

const Op *number_like(const Numbers *n, const Op *op, const int *in, const Op *after) {
  int space[2];
  // Entries have one of the equal reshapes of a root, and none of those that give the root.  But a
  // piece is one of the operand itself, so all that read this are needed.
  if (op->kind == OP_reshape) {
    const Reshape *r = n->reshapes[in[0]];
    while (after && r && r->op != after)
      r = r->next;
    if (after && r) r = r->next;
    return r ? r->op : NULL;
  }
  in = canonical(n, op, in, space);
  // The op and its whole are in the same slot.  The search goes on after the last answer.
  const Entry *e = *slot_of(n, op, in);
  while (after && e && e->op != after)
    e = e->next;
  if (after && e) e = e->next;
  while (e && !same_op(e->op, e->in, op, in, false))
    e = e->next;
  return e ? e->op : NULL;
}
