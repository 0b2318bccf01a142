// The splits of a gradient's ops when their op of the model splits a letter: the same letter, under
// the name that it has in each of these ops.
//
//     %m = mul %x, %c                 split=[0]     m[a,b,c], which the attention reads as %t
//     %t = transpose %m perm=[1,0,2]
//     ...
//     %dt = attention_back ...                      the gradient of %t, so of %m turned round
//     %dm = mul %dt, %c2              split=[1]     its letter 1 is the mul's 0
//     %dx = transpose %dm perm=[1,0,2]
//
// Each letter of a gradient op is matched with a letter of its op of the model, operand by operand:
//
// * An operand that the op of the model reads or produces has the letters of that op.
// * An operand that another op of the same gradient produces has the letters found for that op.
// * Any other operand is the gradient of a result, through a chain of ops. It has the letters of
// the
//   op of the model with the gradient that produced it. These are followed up the model, through ops
//   that pass gradients on unchanged, such as transposes and sums.
//
// A letter of results only is the letter of the operand that they are the gradient of. Letters that
// none of this determines are never split.

#include "dim_map.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/split.h"
#include "problem.h"
#include "splits.h"

#include <string.h>

enum { MAX_UP = 100 }; // longest chain of ops between two ops with gradients that read each other

typedef struct Finder {
  const Problem *p;
  Factors **map;  // by op id, of gradients: each letter in letters of the op of the model
  uint32_t *seen; // by op id: the last walk up the model that visited it
  uint32_t walk;
} Finder;

static const Value *uncast(const Value *v) {
  while (v->def && v->def->kind == OP_cast)
    v = v->def->in[0].value;
  return v;
}

// Finds the letters of a value that the op of the model reads or produces, in any element type.
static bool letters_of_model(const Problem *p, const Value *v, const Op *of, Lettered *out) {
  const Dims *dims = dims_of(p->s, of);
  for (int i = 0; i < of->n_in; i++)
    if (uncast(of->in[i].value) == uncast(v)) {
      *out = lettered_of(dims, &dims->in[i]);
      return true;
    }
  for (int i = 0; i < of->n_out; i++)
    if (of->out[i] == uncast(v)) {
      *out = lettered_of(dims, &dims->out[i]);
      return true;
    }
  return false;
}

static void forget(Factors *map, const Dims *dims) {
  for (int i = 0; i < dims->n_letters; i++)
    map[i].n = 0;
}

// Translates `l`, the dimensions of a gradient in letters of `at`, which reads the value, into
// letters of `of`, a direct or indirect producer of an operand of `at`.
static bool letters_up(Finder *f, const Op *at, const Lettered *l, const Op *of, int most,
                       Lettered *out) {
  f->seen[at->id] = f->walk;
  for (int i = 0; i < at->n_in; i++) {
    const Op *def = at->in[i].value->def;
    if (!def || op_part(def) != PART_forward || f->seen[def->id] == f->walk) continue;
    // Other ops are passed only if they pass gradients on unchanged.
    bool passes_on = def->kind == OP_cast || (op_traits(def) & ADDITIVE);
    if (def != of && (!most || !passes_on)) continue;
    Factors map[MAX_LETTERS];
    // The letters of `at` in letters of the producer of its operand `i`.
    const Problem *p = f->p;
    const Value *v = at->in[i].value;
    const Dims *dims = dims_of(p->s, at), *up = dims_of(p->s, v->def);
    Lettered made = lettered_of(up, &up->out[v->index]);
    forget(map, dims);
    lettered_learn(map, dims, &dims->in[i], &made);
    Lettered there = lettered_translate(l, map);
    if (!letters_known(&there)) continue;
    if (def == of) *out = there;
    if (def == of || letters_up(f, def, &there, of, most - 1, out)) return true;
  }
  return false;
}

static bool letters_of_gradient(Finder *f, const Value *v, const Op *of, Lettered *out) {
  const Problem *p = f->p;
  const Op *def = v->def, *model = def ? p->model_op[def->id] : NULL;
  if (!model || !f->map[def->id]) return false;
  const Dims *dims = dims_of(p->s, def);
  Lettered own = lettered_of(dims, &dims->out[v->index]);
  Lettered l = lettered_translate(&own, f->map[def->id]);
  if (model == of) *out = l;
  f->walk++;
  return model == of || (letters_known(&l) && letters_up(f, model, &l, of, MAX_UP, out));
}

// Returns the only operand with that shape; -1: none, or several.
static int operand_shaped(const Op *op, const Type *t) {
  int found = -1;
  for (int i = 0; i < op->n_in; i++) {
    const Type *in = op->in[i].value->type;
    if (in->ndim != t->ndim || memcmp(in->dim, t->dim, (size_t)t->ndim * sizeof *t->dim) != 0)
      continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

void gradients_find(Problem *p) {
  const Graph *g = p->s->g;
  const Op *const *model = model_ops(g, p->scratch);
  Finder f = {.p = p, .seen = arena_array(p->scratch, uint32_t, g->n_ops)};
  f.map = arena_array(p->scratch, Factors *, g->n_ops);
  Op **by_id = arena_array(p->scratch, Op *, g->n_ops);
  p->model_op = arena_array(p->scratch, Op *, g->n_ops);
  p->model_letter = arena_array(p->scratch, int8_t *, g->n_ops);
  for_each_op(op, g) {
    const Op *of = op_part(op) == PART_backward ? model_op_of(p->s, op, model) : NULL;
    by_id[op->id] = op;
    if (!of) continue;
    p->model_op[op->id] = by_id[of->id];
    int n = dims_of(p->s, op)->n_letters;
    f.map[op->id] = arena_array(p->scratch, Factors, n);
    p->model_letter[op->id] = arena_array(p->scratch, int8_t, n);
    // Operands first: the letters of results complete them.
    const Dims *dims = dims_of(p->s, op);
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = kept_of(p->s, op->in[i].value);
      Lettered l;
      if (letters_of_model(p, v, of, &l) || letters_of_gradient(&f, v, of, &l))
        lettered_learn(f.map[op->id], dims, &dims->in[i], &l);
    }
    // A letter that only the result has, such as the words of an embedding table, is the letter of
    // the operand with this gradient.
    const Dims *of_dims = dims_of(p->s, of);
    for (int r = 0; r < op->n_out; r++) {
      int at = operand_shaped(of, op->out[r]->type);
      if (at < 0) continue;
      Factors made[MAX_LETTERS];
      forget(made, dims);
      Lettered is = lettered_of(of_dims, &of_dims->in[at]);
      lettered_learn(made, dims, &dims->out[r], &is);
      for (int k = 0; k < dims->n_letters; k++) {
        bool is_read = false;
        for (int in = 0; in < dims->n_in; in++)
          is_read |= dims_position(dims, &dims->in[in], k) != -1;
        if (made[k].n && !is_read) f.map[op->id][k] = made[k];
      }
    }
    // A split of a letter divides its leading factor.
    for (int i = 0; i < n; i++)
      p->model_letter[op->id][i] = (int8_t)leading_letter(&f.map[op->id][i]);
  }
}

void choose_gradient_split(const Problem *p, Op *op, const Op *of) {
  for (int i = 0; i < p->n_axes; i++)
    op->split[p->axis[i]] = SPLIT_NONE;
  for (int i = 0; i < p->n_axes; i++) {
    int axis = p->axis[i];
    char split = of->split[axis];
    // A recomputed op has the split of the op that it repeats.
    if (repeated_by(p->s, op) == of) {
      op->split[axis] = split;
      continue;
    }
    if (split == SPLIT_NONE || split == SPLIT_PARTIAL || !p->model_letter[op->id]) continue;
    // Any other op splits the first letter that matches the split letter of its op of the model, if
    // that is legal.
    const Dims *dims = dims_of(p->s, op);
    int letter = dims_find(dims_of(p->s, of), split);
    for (int k = 0; k < dims->n_letters && op->split[axis] == SPLIT_NONE; k++)
      if (p->model_letter[op->id][k] == letter && split_legal(op, dims, k, axis))
        op->split[axis] = dims->letter[k].name;
  }
}
