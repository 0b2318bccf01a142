// Evaluates values that are known at compile time.
//
// Exporters write shapes as arithmetic:
//
//     Shape(x) -> Gather(0) -> Unsqueeze -> Concat(·, 12, 64) -> Reshape(y, ·)
//
// All shapes are static here, so Shape is a constant, and so is everything computed from constants
// alone: the ops of every imported node are evaluated at once, by their reference implementations,
// if their operands are known and the result is small.  After the import, known values with other
// readers become constants and the arithmetic is erased.

#include "frontend/onnx_tensor.h"
#include "frontend/onnx_walk.h"

enum { KNOWN_BYTES = 1 << 20 };

static void learn(Import *im, const Value *v, Tensor t, bool hinted) {
  while (im->known.n <= (int)v->id)
    vec_push(im->a, &im->known, (Known){0});
  im->known.at[v->id] = (Known){t, hinted};
}

// Returns NULL if nothing is known, not even by hints.
static const Known *find(const Import *im, const Value *v) {
  if ((int)v->id >= im->known.n || !im->known.at[v->id].tensor.data) return NULL;
  return &im->known.at[v->id];
}

bool onnx_is_known(const Import *im, const Value *v) {
  const Known *k = find(im, v);
  return k && !k->hinted;
}

const Tensor *node_known(const Node *n, const Value *v) {
  const Known *k = v ? find(n->im, v) : NULL;
  return k && !k->hinted ? &k->tensor : NULL;
}

const Tensor *onnx_hinted(const Node *n, const Value *v) {
  const Known *k = v ? find(n->im, v) : NULL;
  return k ? &k->tensor : NULL;
}

const char *onnx_hint_path(const Import *im, int i) {
  return i < im->o->n_hints ? im->o->hints[i] : NULL;
}

void onnx_learn_hint(Import *im, const Value *input, Tensor t) {
  learn(im, input, t, true);
}

bool onnx_hint(Import *im, const Value *input, int i) {
  const char *path = onnx_hint_path(im, i);
  Tensor t;
  if (!path) return true;
  if (!onnx_tensor_read(path, im->o->keep_f64, im->o->strings, im->m, im->a, &t, im->d))
    return false;
  // The types must agree, as the value stands for the input.
  if (t.type != input->type)
    return diag_error(im->d, input->loc, "'%s' holds %s, the input is %s", path,
                      type_text(im->a, t.type), type_text(im->a, input->type));
  learn(im, input, t, true);
  return true;
}

// Integers divide by zero in a machine instruction that ends the program.
static bool divides_by_zero(const Op *op, const Tensor *in) {
  if ((op->kind != OP_div && op->kind != OP_mod && op->kind != OP_fmod) ||
      dtype_class[in[1].type->dtype] == 'F')
    return false;
  // Any zero among the divisors counts.
  for (int64_t i = 0; i < type_count(in[1].type); i++)
    if (tensor_i(&in[1], i) == 0) return true;
  return false;
}

static void evaluate(Import *im, const Op *op, Node *n) {
  if (op->kind == OP_loop) return; // it may run for long
  int64_t bytes = KNOWN_BYTES, out_bytes = 0;
  bool hinted = false;
  Tensor *in = arena_array(im->a, Tensor, op->n_in + 1);
  for (int i = 0; i < op->n_in; i++) {
    const Known *k = find(im, op->in[i].value);
    if (!k) return;
    in[i] = k->tensor;
    hinted = hinted || k->hinted;
    if (type_bytes(in[i].type) > bytes) bytes = type_bytes(in[i].type);
  }
  // Results are limited to KNOWN_BYTES or the size of the largest operand: a large constant can be
  // reshaped, but not expanded.
  for (int i = 0; i < op->n_out; i++)
    out_bytes += type_bytes(op->out[i]->type);
  if (out_bytes > bytes && op->kind != OP_constant) return;
  if (divides_by_zero(op, in)) {
    node_fail(n, "divides by zero");
    return;
  }
  // An error of the evaluation is caught, and reported at the node.
  Tensor *out = arena_array(im->a, Tensor, op->n_out);
  if (op_evaluate(op, in, out, NULL, im->a, im->caught))
    for (int i = 0; i < op->n_out; i++)
      learn(im, op->out[i], out[i], hinted);
  else
    n->b->failed = true;
}

void onnx_evaluate_new(Import *im, Node *n) {
  for (Op *op = im->last ? im->last->next : im->g->first; op; op = op->next) {
    // New ops may be several per node.
    im->last = op;
    evaluate(im, op, n);
  }
}

void onnx_tidy(Import *im) {
  Graph *g = im->g;
  // Backwards, so that operands of dead arithmetic are dead when they are reached.
  for (Op *op = g->last, *prev; op; op = prev) {
    prev = op->prev;
    bool used = false;
    for (int i = 0; i < op->n_out; i++)
      used = used || value_used(op->out[i]);
    if (!used) {
      op_erase(op);
      continue;
    }
    // A known value with an unknown reader becomes a constant.
    const Known *k = find(im, op->out[0]);
    bool constant = op->kind == OP_constant || op->kind == OP_fill;
    if (!k || k->hinted || op->n_out != 1 || constant) continue;
    Builder b = {.g = g, .at = op, .origin = op_origin(op), .d = im->d};
    Value *by = build_constant(&b, k->tensor.type, k->tensor.data);
    // A broadcast of a small constant stays a broadcast, unless all its elements are equal.
    if (op->kind == OP_broadcast && by->def->kind == OP_constant) {
      op_erase(by->def);
      continue;
    }
    const char *name = op->out[0]->name;
    value_replace(op->out[0], by);
    op_erase(op);
    value_set_name(by, name);
  }
  // Erase integers read by erased arithmetic only.  Floating-point weights stay: they are saved.
  for (int i = g->n_params - 1; i >= 0; i--) {
    Value *v = g->params[i];
    if (v->role != ROLE_weight || value_used(v)) continue;
    v->train = false;
    if (dtype_class[v->type->dtype] != 'F') graph_erase_param(g, i);
  }
  graph_renumber(g);
}
