// Facts about the values of the model's program that executables need to compare themselves with it
// (ir/model_values.h): their order, a fingerprint of the program, and the lengths of sums.
//
//     %y = linear %x, %w : f32[8,6]     of %x: f32[8,4] and %w: f32[4,6]: sums of 4 terms
//     %m = reduce_sum %y axes=[0,1]     48 terms
//     %s = softmax %y                   6 terms: the row that each element depends on

#include <string.h>

#include "ir/dims.h"
#include "ir/intern.h"
#include "ir/op.h"
#include "ir/split.h"
#include "prove_state.h"

const Value **graph_values_in_order(const Graph *g, Arena *a, int *n) {
  const Value **value = arena_array(a, const Value *, (size_t)g->n_values + 1);
  *n = 0;
  for (int i = 0; i < g->n_params; i++)
    value[(*n)++] = g->params[i];
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      value[(*n)++] = op->out[i];
  return value;
}

static uint64_t add_text(uint64_t h, const char *text) {
  h = hash_mix(h, text != NULL);
  for (; text && *text; text++)
    h = hash_mix(h, (uint64_t)(unsigned char)*text);
  return h;
}

static uint64_t add_number(uint64_t h, double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return hash_mix(h, bits);
}

static uint64_t add_type(uint64_t h, const Type *t) {
  h = hash_mix(hash_mix(h, (uint64_t)t->dtype), (uint64_t)t->ndim);
  for (int i = 0; i < t->ndim; i++)
    h = hash_mix(h, (uint64_t)t->dim[i]);
  return h;
}

static uint64_t add_param(uint64_t h, const Value *v) {
  h = hash_mix(add_text(add_type(h, v->type), v->label), (uint64_t)v->role);
  h = hash_mix(h, (uint64_t)v->whole | (uint64_t)v->train << 1 | (uint64_t)v->each_slice << 2);
  // A file may have another name on another machine; the contents are compared when they run.
  const Init *init = v->init;
  if (!init) return h;
  h = hash_mix(hash_mix(h, (uint64_t)init->kind), (uint64_t)init->dtype);
  h = hash_mix(hash_mix(h, (uint64_t)init->length), (uint64_t)init->seed);
  return add_number(add_number(h, init->fill), init->to);
}

// Mixes a graph in, with the numbers of its values in `number`, by id.
static uint64_t add_graph(uint64_t h, const Graph *g) {
  Arena *a = arena_new();
  int *number = arena_array(a, int, g->n_values), n = 0;
  for (int i = 0; i < g->n_params; i++) {
    number[g->params[i]->id] = n++;
    h = add_param(h, g->params[i]);
  }
  for_each_op(op, g) {
    // By name: the numbers of kinds change with every new row of ops.def.
    h = hash_mix(add_text(h, op_info[op->kind].name), (uint64_t)op->n_in);
    for (int i = 0; i < op->n_in; i++)
      h = hash_mix(h, (uint64_t)number[op->in[i].value->id]);
    int n_attrs;
    op_attr_specs(op->kind, &n_attrs);
    for (int i = 0; i < n_attrs; i++)
      h = attr_hash(h, &op->attrs[i]);
    if (op->callee) h = add_graph(h, op->callee);
    for (int i = 0; i < op->n_out; i++) {
      number[op->out[i]->id] = n++;
      h = add_type(h, op->out[i]->type);
    }
  }
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    h = hash_mix(add_text(h, r->label), (uint64_t)number[r->use.value->id]);
    h = hash_mix(h, r->target ? 1 + (uint64_t)number[r->target->id] : 0);
  }
  arena_free(a);
  return h;
}

uint64_t graph_fingerprint(const Graph *g) {
  uint64_t h = add_graph(1, g);
  return h ^ h >> 29;
}

static bool has_letter(const Term *t, int letter) {
  for (int i = 0; i < t->ndim; i++)
    for (int k = 0; k < t->dim[i].n; k++)
      if (t->dim[i].letter[k] == letter) return true;
  return false;
}

int64_t value_terms(const Value *v, Diag *d) {
  Dims dims;
  if (!v->def) return 1;
  bool quiet = diag_quiet(d, true), known = op_dims(v->def, &dims, d);
  diag_quiet(d, quiet);
  int64_t terms = 1;
  // A letter is summed over if the result lacks it, and maybe if it must not be split.
  for (int i = 0; known && i < dims.n_letters; i++) {
    bool summed = dims.letter[i].whole;
    for (int k = 0; k < dims.n_out; k++)
      summed |= !has_letter(&dims.out[k], i);
    if (summed && dims.letter[i].size > 1) terms *= dims.letter[i].size;
  }
  return terms;
}

// Fills in the value of the model's program that each value stands for.
void prove_values(const Proof *p, const Wanted *want) {
  const Value **live = arena_array(p->a, const Value *, p->model->n_values);
  int n, *first = arena_array(p->a, int, n_numbers(p->numbers));
  const Value **now = graph_values_in_order(p->model, p->a, &n);
  for (int i = 0; i < n; i++)
    live[now[i]->id] = now[i];
  // Equal values have the number of the first.
  for (int i = 0; i < n_numbers(p->numbers); i++)
    first[i] = NO_MODEL_VALUE;
  for (int i = 0; i < want->n; i++) {
    const Value *v = want->value[i];
    bool is_live = v->id < p->model->n_values && live[v->id] == v;
    int number = is_live ? number_of(p->numbers, v) : UNKNOWN;
    if (number == UNKNOWN || first[number] != NO_MODEL_VALUE) continue;
    first[number] = i;
    want->out->n_computed += v->def != NULL;
  }
  want->out->n = want->n;
  want->out->n_values = p->g->n_values;
  want->out->of = arena_array(want->a, ModelValue, p->g->n_values);
  for (uint32_t i = 0; i < p->g->n_values; i++)
    want->out->of[i] = (ModelValue){NO_MODEL_VALUE, 1};
  const Value **made = graph_values_in_order(p->g, p->a, &n);
  for (int i = 0; i < n; i++) {
    const Meaning *of = meaning(p, made[i]);
    int number = of->number;
    // A piece that is everything is the value, too.
    for (const Piece *piece = of->piece; piece && number == UNKNOWN; piece = piece->other)
      if (!piece_is_part_of_sum(piece) && piece_is_all(piece, whole_of(p, piece->number)))
        number = piece->number;
    if (number == UNKNOWN) continue;
    const Value *is = number_value(p->numbers, number);
    if (type_equal(value_whole(made[i]), is->type))
      want->out->of[made[i]->id] = (ModelValue){first[number], value_terms(is, p->d)};
  }
}
