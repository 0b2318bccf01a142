// Values with padding, in a module that `pad` of a plan has changed (pad.h).
//
//     %w: f32[56,8] weight "w" as f32[50,8] …     number 1, the model's f32[50,8], with 6 more rows
//     %e = gather %w, %i rows=50                  number 5: no index is one of padding
//     %y = linear %x, %w trans=true : f32[4,56]   number 7, the model's f32[4,50], with 6 more columns
//     %l, %s = cross_entropy %y, %t classes=50    numbers 8 and 9: padding counts for nothing
//     %z = slice %y starts=[0,0] shape=[4,50]     number 7
//     %s = broadcast %t shape=[4,56]              number 10, the model's f32[4,50], with 6 more columns
//
// An op keeps padding that is along a letter of its einsum which its results have and which could
// be split: then each result at an index depends on the operands at this index alone.

#include <string.h>

#include "ir/op.h"
#include "ir/split.h"
#include "prove_state.h"

static bool is_padded(const Proof *p, const Value *v) {
  return meaning(p, v)->padded_of != 0;
}

static int number_in(const Proof *p, const Value *v) {
  const Meaning *of = meaning(p, v);
  return of->padded_of ? of->padded_of - 1 : of->number;
}

bool prove_reads_padded(const Proof *p, const Op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (is_padded(p, op->in[i].value)) return true;
  return false;
}

bool prove_padded_param(Proof *p, const Value *v, const Value *is) {
  const Type *whole = value_whole(v);
  int dim = -1, n = 0;
  if (!v->as || is->as || !type_equal(v->as, is->type) || !type_pads(is->type, whole)) return false;
  for (int i = 0; i < whole->ndim; i++)
    if (whole->dim[i] > is->type->dim[i]) {
      dim = i;
      n++;
    }
  if (n != 1) return false;
  meaning(p, v)->padded_of = number_of(p->numbers, is) + 1;
  meaning(p, v)->pad_dim = dim;
  p->padding = true;
  return true;
}

// Whether two types differ at most in this dimension.
static bool same_but(const Type *x, const Type *y, int dim) {
  bool same = x->dtype == y->dtype && x->ndim == y->ndim;
  for (int i = 0; same && i < x->ndim; i++)
    same = i == dim || x->dim[i] == y->dim[i];
  return same;
}

// A slice of all but the padding.
static bool prove_slice(Proof *p, const Op *op) {
  const Meaning *of = meaning(p, op->in[0].value);
  const Value *out = op->out[0];
  if (!type_equal(value_whole(out), whole_of(p, of->padded_of - 1))) return false;
  for (int i = 0; i < out->type->ndim; i++)
    if (attr_list(op, "starts")[i] != 0 || attr_list(op, "steps")[i] != 1) return false;
  meaning(p, out)->number = of->padded_of - 1;
  return true;
}

// The op as the model has it, without the attribute that gives the length before the padding; that
// must be the length in the model.
static bool without_limit(Proof *p, const Op *op, Op *like) {
  int n;
  op_attr_specs(op->kind, &n);
  *like = *op;
  Attr *attrs = arena_copy(p->a, op->attrs, (size_t)n * sizeof *op->attrs);
  like->attrs = attrs;
  for (int i = 0; i < n; i++) {
    bool limit = str_equal(op->attrs[i].name, "rows") || str_equal(op->attrs[i].name, "classes");
    if (!limit) continue;
    const Meaning *of = meaning(p, op->in[0].value);
    int dim = str_equal(op->attrs[i].name, "rows") ? (int)attr_i(op, "axis")
                                                   : op->in[0].value->type->ndim - 1;
    if (!of->padded_of || of->pad_dim != dim ||
        op->attrs[i].i != whole_of(p, of->padded_of - 1)->dim[dim])
      return false;
    attrs[i].i = 0;
  }
  return true;
}

// A lookup or a loss that leaves the padding out: only operand 0 is padded.
static bool prove_limited(Proof *p, const Op *op, const int *in) {
  Op like;
  for (int i = 1; i < op->n_in; i++)
    if (is_padded(p, op->in[i].value)) return false;
  if (!without_limit(p, op, &like)) return false;
  const Op *is = number_like(p->numbers, &like, in, NULL);
  for (int i = 0; is && i < op->n_out; i++)
    if (!type_equal(value_whole(op->out[i]), is->out[i]->type)) return false;
  for (int i = 0; is && i < op->n_out; i++)
    meaning(p, op->out[i])->number = number_of(p->numbers, is->out[i]);
  return is != NULL;
}

// The dimension of the term that is the letter, alone; -1: none; -2: the letter is elsewhere.
static int dim_of(const Term *t, int letter) {
  int found = -1;
  for (int k = 0; k < t->ndim; k++)
    for (int f = 0; f < t->dim[k].n; f++) {
      if (t->dim[k].letter[f] != letter) continue;
      if (found != -1 || t->dim[k].n != 1) return -2;
      found = k;
    }
  return found;
}

// The letter along which operands are padded, if all that have it are; else -1.
static int padded_letter(const Proof *p, const Op *op, const Dims *dims) {
  int letter = -1;
  for (int i = 0; i < op->n_in; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    if (!of->padded_of) continue;
    const Term *t = &dims->in[i];
    if (t->dim[of->pad_dim].n != 1) return -1;
    int own = t->dim[of->pad_dim].letter[0];
    if (letter >= 0 && own != letter) return -1;
    letter = own;
  }
  for (int i = 0; i < op->n_in && letter >= 0; i++) {
    const Meaning *of = meaning(p, op->in[i].value);
    if (dim_of(&dims->in[i], letter) != (of->padded_of ? of->pad_dim : -1)) return -1;
  }
  return letter >= 0 && !dims->letter[letter].whole ? letter : -1;
}

// An op with results padded like its operands.
static bool prove_einsum(Proof *p, const Op *op, const int *in) {
  Dims *dims = arena_one(p->a, Dims);
  if ((op_traits(op) & (GLOBAL_INDEX | GLOBAL_INDEX_IN)) || op_runs_graph(op) || op->callee)
    return false;
  if (!op_dims(op, dims, p->d)) return false;
  int letter = padded_letter(p, op, dims);
  const Op *is = letter < 0 ? NULL : number_like(p->numbers, op, in, NULL);
  for (; is; is = number_like(p->numbers, op, in, is)) {
    bool same = true;
    for (int i = 0; same && i < op->n_out; i++) {
      int dim = dim_of(&dims->out[i], letter);
      same = dim >= 0 && same_but(op->out[i]->type, is->out[i]->type, dim) &&
             type_pads(is->out[i]->type, op->out[i]->type);
    }
    if (same) break;
  }
  for (int i = 0; is && i < op->n_out; i++) {
    Meaning *of = meaning(p, op->out[i]);
    of->padded_of = number_of(p->numbers, is->out[i]) + 1;
    of->pad_dim = dim_of(&dims->out[i], letter);
  }
  return is != NULL;
}

// The dimension in which a type is longer than the model's, if it is the only one; else -1.
static int longer_dim(const Type *is, const Type *type) {
  int found = -1;
  if (is->ndim != type->ndim) return -1;
  for (int i = 0; i < type->ndim; i++) {
    if (type->dim[i] == is->dim[i]) continue;
    if (found >= 0 || type->dim[i] < is->dim[i]) return -1;
    found = i;
  }
  return found >= 0 && same_but(type, is, found) ? found : -1;
}

// A broadcast that repeats its operand more often than the model's, or a fill with more elements.
static bool prove_longer(Proof *p, const Op *op, const int *in) {
  const Value *out = op->out[0];
  if (!p->padding || (op->kind != OP_broadcast && op->kind != OP_fill)) return false;
  const Op *is = NULL;
  int dim = -1;
  while (dim < 0 && (is = number_like(p->numbers, op, in, is))) {
    dim = longer_dim(is->out[0]->type, out->type);
    // Dimensions of the operand are the last ones of the result.
    const Type *x = op->n_in ? op->in[0].value->type : NULL;
    int own = x ? dim - (out->type->ndim - x->ndim) : -1;
    if (own >= 0 && x->dim[own] != 1) dim = -1;
  }
  if (dim < 0) return false;
  meaning(p, out)->padded_of = number_of(p->numbers, is->out[0]) + 1;
  meaning(p, out)->pad_dim = dim;
  return true;
}

bool prove_has_whole(const Proof *p, const Op *op) {
  int *in = arena_array(p->a, int, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    if ((in[i] = meaning(p, op->in[i].value)->number) == UNKNOWN) return false;
  for (const Op *is = NULL; (is = number_like(p->numbers, op, in, is));) {
    bool same = true;
    for (int i = 0; i < op->n_out; i++)
      same &= type_equal(op->out[i]->type, is->out[i]->type);
    if (same) return true;
  }
  return false;
}

bool prove_padded(Proof *p, const Op *op) {
  int *in = arena_array(p->a, int, op->n_in);
  // Shards are made of a module that is proved already.
  if (op->graph->module->phase >= PHASE_sharded) return false;
  for (int i = 0; i < op->n_in; i++)
    if ((in[i] = number_in(p, op->in[i].value)) == UNKNOWN) return false;
  if (!prove_reads_padded(p, op)) return prove_longer(p, op, in);
  if (op->kind == OP_slice && prove_slice(p, op)) return true;
  bool limits = op_has_attr(op, "rows") || op_has_attr(op, "classes");
  return limits ? prove_limited(p, op, in) : prove_einsum(p, op, in);
}
