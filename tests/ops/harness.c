// See harness.h.

#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

uint64_t random_next(Random *r) { // splitmix64
  uint64_t x = r->state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double random_unit(Random *r) {
  return (double)(random_next(r) >> 11) * 0x1p-53;
}

Examples examples_read(char **paths, int n_paths, Arena *a, Diag *d) {
  Vec(Example) all = {0};
  Module **modules = arena_array(a, Module *, n_paths);
  for (int i = 0; i < n_paths; i++) {
    Module *m = module_read(paths[i], d);
    if (!m) exit(1);
    modules[i] = m;
    for_each_graph(g, m) {
      if (!g->first || g->first->next) {
        fprintf(stderr, "%s: @%s is not one op\n", paths[i], g->name);
        exit(1);
      }
      vec_push(a, &all, (Example){.op = g->first, .module = m});
    }
  }
  return (Examples){all.at, all.n, modules, n_paths};
}

void examples_free(Examples *all) {
  for (int i = 0; i < all->n_modules; i++)
    module_free(all->modules[i]);
}

Op *op_alone(Module *m, const Op *op, const Type *const *in, Diag *d) {
  static int n; // names of graphs are unique
  Graph *g = graph_new(m, str_format(m->arena, "alone%d", n++), false);
  Value *values[MAX_TERMS];
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  for (int i = 0; i < op->n_in; i++)
    values[i] = graph_param(g, NULL, in[i], ROLE_none, op->loc);
  return op_new(g, NULL, op->kind, values, op->n_in, op->attrs, n_attrs, op_origin(op), d);
}

static DType wide(DType t) {
  return dtype_class[t] == 'F' ? DT_f64 : t;
}

int term_dim(const Term *t, int letter) {
  for (int k = 0; k < t->ndim; k++)
    for (int f = 0; f < t->dim[k].n; f++)
      if (t->dim[k].letter[f] == letter) return k;
  return -1;
}

Op *op_cut_alone(Module *m, const Op *op, const Dims *dims, int letter, int n, Diag *d) {
  const Type *in[MAX_TERMS];
  for (int i = 0; i < op->n_in; i++) {
    Type t = *op->in[i].value->type;
    int dim = term_dim(&dims->in[i], letter);
    if (dim >= 0) t.dim[dim] /= n;
    in[i] = type_new(m, t.dtype, t.ndim, t.dim);
  }
  int n_attrs, dim = term_dim(&dims->out[0], letter);
  const AttrSpec *spec = op_attr_specs(op->kind, &n_attrs);
  Op changed = *op;
  Attr *attrs = arena_copy(m->arena, op->attrs, sizeof(Attr) * (size_t)n_attrs);
  changed.attrs = attrs;
  for (int i = 0; i < n_attrs; i++) {
    Attr *attr = &attrs[i];
    // A number of blocks is that of the whole.
    if (str_equal(spec[i].name, "blocks") && dims->letter[letter].name == 'c') attr->i /= n;
    if (op->kind == OP_permute_blocks && str_equal(spec[i].name, "sources") &&
        dims->letter[letter].name == PERMUTED_BLOCKS) {
      int64_t *sources = arena_array(m->arena, int64_t, attr->list.n / n);
      for (int k = 0; k < attr->list.n / n; k++)
        sources[k] = k;
      attr->list.at = sources;
      attr->list.n /= n;
    }
    if (!str_equal(spec[i].name, "shape") || dim < 0) continue;
    Attr *shape = &attrs[i]; // of result 0
    int64_t *length = arena_copy(m->arena, shape->list.at, sizeof(int64_t) * (size_t)shape->list.n);
    length[dim] /= n;
    shape->list.at = length;
  }
  return op_alone(m, &changed, in, d);
}

Op *op_double(Module *m, const Op *op, Diag *d) {
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  const Type *in[MAX_TERMS];
  for (int i = 0; i < op->n_in; i++) {
    const Type *t = op->in[i].value->type;
    in[i] = type_new(m, wide(t->dtype), t->ndim, t->dim);
  }
  Op changed = *op;
  Attr *attrs = arena_copy(m->arena, op->attrs, sizeof(Attr) * (size_t)n_attrs);
  changed.attrs = attrs;
  bool bytes = false;
  for (int i = 0; i < n_attrs; i++) {
    bytes |= op->attrs[i].kind == 'd';
    if (op->attrs[i].kind == 't') attrs[i].t = wide(op->attrs[i].t);
  }
  return op_alone(m, bytes ? op : &changed, in, d);
}

// -- Operands --------------------------------------------------------------------------------

// 0 .. n-1 in random order.
static int64_t *shuffled(int64_t n, Random *r, Arena *a) {
  int64_t *at = arena_array(a, int64_t, n);
  for (int64_t i = 0; i < n; i++) {
    int64_t j = (int64_t)(random_next(r) % (uint64_t)(i + 1));
    at[i] = at[j];
    at[j] = i;
  }
  return at;
}

Tensor *operands_new(const Example *e, const Op *op, Random *r, Arena *a) {
  Tensor *in = arena_array(a, Tensor, op->n_in);
  int64_t n = 0, at = 0;
  for (int i = 0; i < op->n_in; i++)
    n += type_count(op->in[i].value->type);
  int64_t *order = shuffled(n, r, a);
  for (int i = 0; i < op->n_in; i++) {
    const Init *init = e->op->in[i].value->init;
    in[i] = tensor_new(a, op->in[i].value->type);
    bool ranged = init && init->kind == INIT_uniform;
    double low = ranged ? init->fill : -1, high = ranged ? init->to : 1;
    Tensor given = {0};
    if (init && init->kind == INIT_bytes)
      given = (Tensor){e->op->in[i].value->type, arena_copy(a, init->bytes, (size_t)init->length)};
    int64_t n_given = type_count(e->op->in[i].value->type); // fewer if `op` is an enlarged example
    for (int64_t k = 0; k < type_count(in[i].type); k++, at++) {
      // Off-centre in the grid's cells, so that no number is 0 or another round number.
      double x = low + (high - low) * ((double)order[at] + 0.737) / (double)n;
      if (given.data && dtype_class[in[i].type->dtype] == 'F')
        tensor_set_f(&in[i], k, tensor_f(&given, k % n_given));
      else if (given.data)
        tensor_set_i(&in[i], k, tensor_i(&given, k % n_given));
      else if (init && init->kind == INIT_fill)
        tensor_set_f(&in[i], k, init->fill);
      else if (tensor_floats(&in[i]))
        tensor_set_f(&in[i], k, x);
      else if (ranged)
        tensor_set_i(&in[i], k, (int64_t)floor(x));
      else if (dtype_class[in[i].type->dtype] == 'B')
        tensor_set_i(&in[i], k, (int64_t)(random_next(r) % 2));
      else
        tensor_set_i(&in[i], k,
                     (int64_t)(random_next(r) % 19) -
                         (dtype_class[in[i].type->dtype] == 'I' ? 9 : 0));
    }
  }
  return in;
}

Box box_new(const Op *op) {
  Box box = {0};
  const Value *boxed = op_boxed(op);
  for (int i = 0; boxed && i < boxed->type->ndim; i++)
    box.whole[i] = boxed->type->dim[i];
  return box;
}

Tensor *reference_new(const Op *op, const Tensor *in, const Box *box, Arena *a, Diag *d) {
  Tensor *out = arena_array(a, Tensor, op->n_out);
  return op_evaluate(op, in, out, op_boxed(op) ? box : NULL, a, d) ? out : NULL;
}

bool graph_run(const Graph *g, Tensor *values, Arena *a, Diag *d) {
  for_each_op(op, g) {
    Tensor *in = arena_array(a, Tensor, op->n_in);
    for (int i = 0; i < op->n_in; i++)
      in[i] = values[op->in[i].value->id];
    Tensor *out = reference_new(op, in, NULL, a, d);
    if (!out) return false;
    for (int i = 0; i < op->n_out; i++)
      values[op->out[i]->id] = out[i];
  }
  return true;
}

// -- Tensors ---------------------------------------------------------------------------------

bool tensor_floats(const Tensor *t) {
  return dtype_class[t->type->dtype] == 'F';
}

Tensor tensor_copy(const Tensor *t, Arena *a) {
  return (Tensor){t->type, arena_copy(a, t->data, (size_t)type_bytes(t->type))};
}

// Computes the number and the length of the contiguous runs of bytes that `dim` divides a tensor
// into.
static void rows_of(const Type *t, int dim, int64_t *n, int64_t *bytes) {
  *n = 1;
  for (int i = 0; i < dim; i++)
    *n *= t->dim[i];
  *bytes = *n ? type_bytes(t) / *n : 0;
}

Tensor tensor_interval(const Tensor *t, Module *m, int dim, int64_t from, int64_t to, Arena *a) {
  int64_t length[MAX_NDIM], rows, bytes, row_bytes;
  memcpy(length, t->type->dim, sizeof length);
  length[dim] = to - from;
  Tensor part = tensor_new(a, type_new(m, t->type->dtype, t->type->ndim, length));
  rows_of(t->type, dim, &rows, &row_bytes);
  rows_of(part.type, dim, &rows, &bytes);
  int64_t skip = length[dim] ? bytes / length[dim] * from : 0;
  for (int64_t row = 0; row < rows; row++)
    memcpy((char *)part.data + row * bytes, (const char *)t->data + row * row_bytes + skip,
           (size_t)bytes);
  return part;
}

Tensor tensor_part(const Tensor *t, Module *m, int dim, int i, int n, Arena *a) {
  int64_t length = t->type->dim[dim] / n;
  return tensor_interval(t, m, dim, i * length, (i + 1) * length, a);
}

Tensor tensor_concat(const Tensor *t, const Tensor *u, Module *m, int dim, Arena *a) {
  int64_t length[MAX_NDIM], rows, bytes;
  memcpy(length, t->type->dim, sizeof length);
  length[dim] *= 2;
  Tensor both = tensor_new(a, type_new(m, t->type->dtype, t->type->ndim, length));
  rows_of(t->type, dim, &rows, &bytes);
  for (int64_t row = 0; row < rows; row++) {
    char *to = (char *)both.data + 2 * row * bytes;
    memcpy(to, (const char *)t->data + row * bytes, (size_t)bytes);
    memcpy(to + bytes, (const char *)u->data + row * bytes, (size_t)bytes);
  }
  return both;
}

Tensor tensor_sum(const Tensor *t, const Tensor *u, Arena *a) {
  Tensor sum = tensor_new(a, t->type);
  for (int64_t i = 0; i < type_count(t->type); i++) {
    if (tensor_floats(t))
      tensor_set_f(&sum, i, tensor_f(t, i) + tensor_f(u, i));
    else
      tensor_set_i(&sum, i, tensor_i(t, i) + tensor_i(u, i));
  }
  return sum;
}

double tensor_distance(const Tensor *t, const Tensor *u) {
  if (t->type->ndim != u->type->ndim) return INFINITY;
  for (int i = 0; i < t->type->ndim; i++)
    if (t->type->dim[i] != u->type->dim[i]) return INFINITY;
  double apart = 0, size = 0;
  for (int64_t i = 0; i < type_count(t->type); i++) {
    if (!tensor_floats(t) && tensor_i(t, i) == tensor_i(u, i)) continue;
    double x = tensor_f(t, i), y = tensor_f(u, i);
    if (isinf(y) && x == y) continue;
    if (!isfinite(x) || !isfinite(y)) return INFINITY;
    apart += (x - y) * (x - y);
    size += y * y;
  }
  return sqrt(apart) / (size > 0 ? sqrt(size) : 1);
}
