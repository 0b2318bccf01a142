// Multi-tensor launches: independent ops of one kind become one launch, with casts of their
// results.
//
//     %a1, %am1, %av1 = adam %a, %ga, %am, %av, %lr, %c, %step beta1=0.9 …
//     %b1, %bm1, %bv1 = adam %b, %gb, %bm, %bv, %lr, %c, %step beta1=0.9 …
//
//   =>  %a1, %am1, %av1, %b1, %bm1, %bv1 = multi_tensor @adam_0 %a, %ga, %am, %av, %lr, %c, %step, %b, …
//
//     graph @adam_0(%0: f32[8,6], %1: f32[8,6], …) {
//       %7, %8, %9 = adam %0, %1, %2, %3, %4, %5, %6 beta1=0.9 …
//       %14, %15, %16 = adam %10, %11, %12, %13, %4, %5, %6 beta1=0.9 …
//       return %7, %8, %9, %14, %15, %16
//     }
//
// A model has a hundred tensors of a few hundred numbers, and on a gpu each launch costs as much as
// millions of them. Ops of trait MULTI_TENSOR are batched: optimizers and the sums of squares for
// clipping. They must have the same attributes and types, and run equally often: once per step, or
// for every micro-batch.
//
// The operands of a batch in host memory (offload.c) are on the device together. So a batch has no
// more bytes of them than the largest member alone. With early updates (optimizer_in_backward.c)
// the same limit holds for the gradients of updates and of sums of squares: those of a batch are
// live until the last one is ready.
//
// A cast to 16 bits of a result of an op of trait NARROWS is done in the same launch (see
// keep_casts.c). In the body it follows its op:
//
//       %7, %8, %9 = adam %0, %1, %2, %3, %4, %5, %6 beta1=0.9 …
//       %10 = cast %7 to=bf16
//
// An op is at level n if the longest path to it has n ops of its group; ops of one level are
// independent of each other. Their batch takes the position of the last of them, and readers of
// their results come after it. Groups are batched one after the other, so that an existing batch
// counts as one op.

#include <string.h>

#include "base/vec.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "pass.h"

typedef Vec(Op *) Ops;
typedef Vec(Value *) Values;

typedef struct Batcher {
  Graph *g;
  Arena *scratch;
  Diag *d;
  int64_t n_batches, n_ops;
} Batcher;

static bool may_batch(const Op *op) {
  return (op_info[op->kind].traits & MULTI_TENSOR) && op->in[0].value->type->dtype == DT_f32;
}

static bool alike(const Op *a, const Op *b) {
  return a->kind == b->kind && a->out[0]->type->dtype == b->out[0]->type->dtype &&
         op_mesh(a) == op_mesh(b) && op_same_attrs(a, b);
}

// -- Candidates ---------------------------------------------------------------------------------

// The ops like `first`, and that run once per step or not, by level: ops of level.at[n] are
// independent of each other.
typedef struct Levels {
  Ops *at;
  int n;
} Levels;

// The bytes of operands in host memory.
static int64_t bytes_away(const Op *op) {
  int64_t bytes = 0;
  for (int i = 0; i < op->n_in; i++)
    if (value_on_host(op->in[i].value)) bytes += type_bytes(op->in[i].value->type);
  return bytes;
}

// The bytes of operands that the step produces: the gradient.
static int64_t bytes_made(const Op *op) {
  int64_t bytes = 0;
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def && op->in[i].value->type->ndim > 0)
      bytes += type_bytes(op->in[i].value->type);
  return bytes;
}

static int64_t largest(const Ops *level, int64_t (*bytes_of)(const Op *)) {
  int64_t most = 0;
  for (int i = 0; i < level->n; i++)
    if (bytes_of(level->at[i]) > most) most = bytes_of(level->at[i]);
  return most;
}

// The number of ops, from number `from` on, with no more bytes together than `most`.
static int count_within(const Ops *level, int from, int64_t most, int64_t (*bytes_of)(const Op *)) {
  int64_t bytes = 0;
  int n = 0;
  while (from + n < level->n && bytes + bytes_of(level->at[from + n]) <= most)
    bytes += bytes_of(level->at[from + n++]);
  return n;
}

// -- One batch ----------------------------------------------------------------------------------

// The first cast of result 0 of `op` that can join the launch; all casts of a batch are to one
// type.
static Op *narrowing(const Op *op, const Ops *before) {
  Op *cast = NULL; // uses are newest first
  for_each_use(u, op->out[0])
    if (u->user && u->user->kind == OP_cast && dtype_narrow(u->user->out[0]->type->dtype))
      cast = u->user;
  if (!cast || !(op_info[op->kind].traits & NARROWS)) return NULL;
  for (int i = 0; i < before->n; i++)
    if (before->at[i]->kind == OP_cast &&
        before->at[i]->out[0]->type->dtype != cast->out[0]->type->dtype)
      return NULL;
  return cast;
}

// Replaces the members by a batch with their results, in order.
static Op *make_batch(Batcher *b, const Ops *member) {
  // The members, each followed by the cast that joins it.
  Ops all = {0};
  for (int i = 0; i < member->n; i++) {
    Op *cast = narrowing(member->at[i], &all);
    vec_push(b->scratch, &all, member->at[i]);
    if (cast) vec_push(b->scratch, &all, cast);
  }
  // The body has a free name.
  Op *last = member->at[member->n - 1];
  const char *name = NULL;
  for (int i = 0; !name || graph_find(b->g->module, name); i++)
    name = str_format(b->scratch, "%s_%d", op_info[last->kind].name, i);
  Graph *body = graph_new(b->g->module, name, false);
  Value **of = arena_array(b->scratch, Value *, b->g->n_values);
  Values operands = {0};
  for (int i = 0; i < all.n; i++) {
    // The body has a copy of each member.
    const Op *op = all.at[i];
    Value **in = arena_array(b->scratch, Value *, op->n_in);
    for (int k = 0; k < op->n_in; k++) {
      // An operand is a copied result, or a parameter.
      Value *v = op->in[k].value;
      if (!of[v->id]) {
        of[v->id] = graph_param(body, NULL, v->type, ROLE_none, NULL);
        of[v->id]->layout = v->layout;
        vec_push(b->scratch, &operands, v);
      }
      in[k] = of[v->id];
    }
    int n_attrs;
    op_attr_specs(op->kind, &n_attrs);
    Op *copy = op_new(body, NULL, op->kind, in, op->n_in, op->attrs, n_attrs, op_origin(op), b->d);
    if (!copy) BUG("a copy of %s does not fit", op_info[op->kind].name);
    memcpy(copy->split, op->split, sizeof copy->split);
    for (int k = 0; k < op->n_out; k++) {
      of[op->out[k]->id] = copy->out[k];
      copy->out[k]->layout = op->out[k]->layout;
      graph_output(body, copy->out[k], NULL);
    }
  }
  graph_renumber(body);
  // The batch is at the position of the last member.
  Op *batch = op_new_call(b->g, last->next, OP_multi_tensor, body, operands.at, operands.n,
                          op_origin(last), b->d);
  if (!batch) BUG("the batch @%s does not fit", body->name);
  int n = 0;
  for (int i = 0; i < all.n; i++)
    for (int k = 0; k < all.at[i]->n_out; k++) {
      // The result takes over the name.
      Value *v = all.at[i]->out[k], *by = batch->out[n++];
      const char *label = v->name;
      by->layout = v->layout;
      value_replace(v, by);
      if (!label) continue;
      value_set_name(v, NULL);
      value_set_name(by, label);
    }
  for (int i = all.n - 1; i >= 0; i--) // casts before their operands
    op_erase(all.at[i]);
  return batch;
}

// Moves direct and indirect readers of the batch's results after it, in their order.
static void put_readers_behind(Batcher *b, Op *batch) {
  bool *late = arena_array(b->scratch, bool, b->g->n_ops);
  Ops readers = {0};
  late[batch->id] = true;
  for (Op *op = b->g->first; op != batch; op = op->next) {
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      if (def && late[def->id]) late[op->id] = true;
    }
    if (late[op->id]) vec_push(b->scratch, &readers, op);
  }
  Op *at = batch->next;
  for (int i = 0; i < readers.n; i++)
    op_move_before(readers.at[i], at);
}

// Batches the ops like `first`. True if the graph changed.
static bool batch_alike(Batcher *b, const Op *first) {
  bool changed = false;
  for (int once = 0; once < 2; once++) {
    graph_renumber(b->g);
    // An op is at the level of the longest path to it through ops like `first`.
    Levels levels = {.at = arena_array(b->scratch, Ops, b->g->n_ops)};
    // `after` counts the ops of the group on a path to an op, and itself.
    int *after = arena_array(b->scratch, int, b->g->n_ops);
    const bool *late = graph_update_ops(b->g, b->scratch);
    for_each_op(op, b->g) {
      int n = 0;
      for (int i = 0; i < op->n_in; i++) {
        const Op *def = op->in[i].value->def;
        if (def && after[def->id] > n) n = after[def->id];
      }
      after[op->id] = n;
      if (!may_batch(op) || !alike(op, first) || late[op->id] != (bool)once) continue;
      vec_push(b->scratch, &levels.at[n], op);
      after[op->id] = n + 1;
      if (levels.n < n + 1) levels.n = n + 1;
    }
    for (int i = 0; i < levels.n; i++) {
      const Ops *level = &levels.at[i];
      // A batch is bounded by its bytes in host memory, and with early updates by its gradients:
      // no more together than the largest alone.
      int64_t most_away = largest(level, bytes_away), most_made = largest(level, bytes_made);
      for (int from = 0, n; from < level->n; from += n) {
        int most = count_within(level, from, most_away, bytes_away);
        int early =
            b->g->module->early_updates ? count_within(level, from, most_made, bytes_made) : most;
        n = early < most ? early : most;
        if (n < 2) continue;
        b->n_batches++;
        b->n_ops += n;
        put_readers_behind(b, make_batch(b, &(Ops){level->at + from, n, n}));
        changed = true;
      }
    }
  }
  return changed;
}

bool pass_multi_tensor(Module *m, const PassOptions *o, Diag *d) {
  Batcher b = {.scratch = opt_scratch(o), .d = d};
  Vec(Graph *) entries = {0}; // bodies are added meanwhile
  for_each_graph(g, m)
    if (g->entry) vec_push(b.scratch, &entries, g);
  for (int i = 0; i < entries.n; i++) {
    b.g = entries.at[i];
    // Groups are batched one after the other, so that an existing batch counts as one op.
    Ops done = {0}; // the first of each group
    for (Op *op = b.g->first; op;) {
      // An op like one that was first before is done.
      bool skip = !may_batch(op);
      for (int k = 0; k < done.n && !skip; k++)
        skip = alike(op, done.at[k]);
      if (!skip) vec_push(b.scratch, &done, op);
      op = !skip && batch_alike(&b, op) ? b.g->first : op->next;
    }
    graph_renumber(b.g);
  }
  opt_stat(o, b.n_batches, "batches");
  opt_stat(o, b.n_ops, "ops batched");
  return true;
}
