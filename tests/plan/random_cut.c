// Splits some ops of a model in two unequal chunks, as a plan may, though no layout can:
//
//     %y = linear %x, %w        7 rows
//
//     %1 = slice %x starts=[0,0] shape=[3,8]       %2 = slice %x starts=[3,0] shape=[4,8]
//     %3 = linear %1, %w                           %4 = linear %2, %w
//     %y = concat %3, %4 axis=0                    or add, for a letter that is summed over
//
// Readers of a chunk may be split elsewhere, which gives slices of slices and chunks of chunks.

#include "random_plans.h"

#include "ir/build.h"
#include "ir/op.h"

typedef struct Cutter {
  Op *op;
  Dims dims;
  int letter;
  int64_t at[3]; // the bounds of the two chunks
  Builder b;
} Cutter;

// Returns the elements of dimension `dim` per index of its leading letter.
static int64_t rest_of(const Cutter *c, const Term *t, int dim) {
  return dims_length(&c->dims, t, dim) / c->dims.letter[c->letter].size;
}

static Value *part_of(Cutter *c, Value *v, const Term *t, int part) {
  int dim = dims_position(&c->dims, t, c->letter), ndim = v->type->ndim;
  if (dim < 0) return v;
  int64_t starts[MAX_NDIM] = {0}, steps[MAX_NDIM], shape[MAX_NDIM], rest = rest_of(c, t, dim);
  for (int i = 0; i < ndim; i++) {
    steps[i] = 1;
    shape[i] = v->type->dim[i];
  }
  starts[dim] = c->at[part] * rest;
  shape[dim] = (c->at[part + 1] - c->at[part]) * rest;
  return build_op(&c->b, OP_slice, IN(v),
                  ATTRS(a_list("starts", starts, ndim), a_list("steps", steps, ndim),
                        a_list("shape", shape, ndim)));
}

// Returns the op on one chunk; NULL if it does not accept one.
static Op *op_part(Cutter *c, int part) {
  Op *op = c->op;
  Value *in[MAX_TERMS];
  int n;
  op_attr_specs(op->kind, &n);
  Attr *attrs = arena_array(op->graph->module->arena, Attr, n);
  for (int i = 0; i < op->n_in; i++)
    in[i] = part_of(c, op->in[i].value, &c->dims.in[i], part);
  int64_t shape[MAX_NDIM];
  for (int i = 0; i < n; i++) {
    attrs[i] = op->attrs[i];
    if (!str_equal(attrs[i].name, "shape")) continue;
    const Type *t = op->out[0]->type;
    for (int k = 0; k < t->ndim; k++)
      shape[k] = t->dim[k];
    int dim = dims_position(&c->dims, &c->dims.out[0], c->letter);
    if (dim >= 0) shape[dim] = (c->at[part + 1] - c->at[part]) * rest_of(c, &c->dims.out[0], dim);
    attrs[i] = a_list("shape", shape, t->ndim);
  }
  return op_new(op->graph, op, op->kind, in, op->n_in, attrs, n, op_origin(op), c->b.d);
}

static bool can_cut(const Cutter *c) {
  const Value *boxed = op_boxed(c->op);
  const Term *t = boxed == c->op->out[0] ? &c->dims.out[0] : &c->dims.in[0];
  return c->dims.letter[c->letter].size > 1 && !c->dims.letter[c->letter].whole &&
         dims_leads(&c->dims, c->letter) && (!boxed || dims_position(&c->dims, t, c->letter) == -1);
}

static void cut_op(Op *op, Random *r, Diag *quiet) {
  Origin origin = op_origin(op);
  origin.loc = loc_from(op->graph->module->arena, op->loc, "cut");
  Cutter c = {.op = op, .b = {.g = op->graph, .at = op, .origin = origin, .d = quiet}};
  if (!op_dims(op, &c.dims, quiet) || !c.dims.n_letters) return;
  c.letter = below(r, c.dims.n_letters);
  if (!can_cut(&c)) return;
  int64_t size = c.dims.letter[c.letter].size;
  c.at[1] = 1 + below(r, (int)size - 1);
  c.at[2] = size;
  Op *first = op_part(&c, 0), *second = op_part(&c, 1);
  if (!first || !second) return;
  for (int i = 0; i < op->n_out; i++) {
    Value *x = first->out[i], *y = second->out[i];
    int dim = dims_position(&c.dims, &c.dims.out[i], c.letter);
    Value *both = dim >= 0 ? build_op(&c.b, OP_concat, IN(x, y), ATTRS(a_i("axis", dim)))
                           : build_op(&c.b, OP_add, IN(x, y), NO_ATTRS);
    value_replace(op->out[i], both);
  }
  op_erase(op);
}

int random_cuts(Graph *g, Random *r, Diag *quiet) {
  uint32_t before = g->n_ops;
  for_each_op_safe(op, g)
    if (chance(r, 25)) cut_op(op, r, quiet);
  graph_renumber(g);
  return (int)(g->n_ops - before);
}
