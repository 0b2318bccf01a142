// See model_features.h.

#include "model_features.h"

// The weight of which the value is a view or a cast; NULL: none.
static const Value *weight_of(const Value *v) {
  while (v->def && v->def->n_in == 1)
    v = v->def->in[0].value;
  return !v->def && v->role == ROLE_weight ? v : NULL;
}

static int64_t common_divisor(int64_t x, int64_t y) {
  while (y) {
    int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return x;
}

// Counts the elements of a weight once.
static double count_once(bool *seen, const Value *weight) {
  if (seen[weight->id]) return 0;
  seen[weight->id] = true;
  return (double)type_count(weight->type);
}

static void add_attention(ModelFeatures *f, const Op *op) {
  const Type *q = op->in[0].value->type, *k = op->in[1].value->type;
  int tokens = attr_i(op, "seq_major") ? 1 : 2, heads = 3 - tokens;
  int64_t least = q->dim[tokens] < k->dim[tokens] ? q->dim[tokens] : k->dim[tokens];
  if (!f->tokens || least < f->tokens) f->tokens = least;
  f->key_heads = common_divisor(k->dim[heads], f->key_heads);
  f->masked |= op->n_in > 3;
}

// Whether the product's result is as wide as the table, of one row for each word.
static bool is_logits(const Op *op, int64_t words) {
  const Type *t = op->out[0]->type;
  return (op->kind == OP_linear || op->kind == OP_matmul) && t->dim[t->ndim - 1] == words;
}

// Whether the op looks up rows that depend on its input, not constant positions.
static bool looks_up(const Op *op) {
  return op->kind == OP_gather && attr_i(op, "axis") == 0 && !weight_of(op->in[1].value);
}

// The table of words of which the op looks up rows; NULL: it does not.
static const Value *table_of(const Op *op) {
  const Value *w = op->n_in ? weight_of(op->in[0].value) : NULL;
  return w && w->type->ndim == 2 && looks_up(op) ? w : NULL;
}

int64_t graph_words(const Graph *g) {
  int64_t words = 0;
  for_each_op(op, g) {
    const Value *w = table_of(op);
    if (w && w->type->dim[0] > words) words = w->type->dim[0];
  }
  return words;
}

const bool *ops_of_words(const Module *front, Arena *a) {
  const Graph *g = front->graphs;
  bool *of = arena_array(a, bool, g->n_ops);
  int64_t words = graph_words(g);
  for_each_op(op, g)
    of[op->id] = table_of(op) || (words && is_logits(op, words));
  return of;
}

ModelFeatures model_features(const Module *front, Arena *a) {
  const Graph *g = front->graphs;
  ModelFeatures f = {0};
  bool *seen = arena_array(a, bool, g->n_values);
  double weights = 0, tables = 0;
  int64_t words = 0;
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->role == ROLE_weight) weights += (double)type_count(g->params[i]->type);
  for_each_op(op, g) {
    if (op->kind == OP_attention) add_attention(&f, op);
    f.attends |= op->kind == OP_attention || op->kind == OP_softmax;
    bool norm = op->kind == OP_layer_norm || op->kind == OP_rms_norm;
    f.sequences |= norm && op->out[0]->type->ndim == 3;
    const Value *w = NULL;
    for (int i = 0; i < op->n_in && !w; i++)
      w = weight_of(op->in[i].value);
    if (!w) continue;
    if (op->kind == OP_grouped_linear) {
      f.experts = (int)common_divisor(op->in[0].value->type->dim[0], f.experts);
      f.expert_weights += count_once(seen, w);
    } else if (op->kind == OP_gather && w->type->ndim == 2 && attr_i(op, "axis") == 0) {
      tables += count_once(seen, w);
      if (w->type->dim[0] > words) words = w->type->dim[0];
    } else if (words && is_logits(op, words)) {
      tables += count_once(seen, w);
    }
  }
  if (weights > 0) f.words_share = tables / weights;
  return f;
}
