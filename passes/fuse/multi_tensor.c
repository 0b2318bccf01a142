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
// The operands of a batch in host memory (offload.c, offload_gradients.c) are on the device
// together. So a batch has no more bytes of them than the largest member alone. With early updates
// (optimizer_in_backward.c) the same limit holds for the gradients of updates and of sums of
// squares: those of a batch are live until the last one is ready.
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

// Arrays by op or value id have room for all batches: ids stay as they are until the end.
typedef struct Batcher {
  Graph *g;
  Arena *scratch;
  Diag *d;
  int *group;       // by op id: its group, from 1; 0: it is never batched
  Vec(int) left;    // by group: its ops that are not batched yet; 0: done
  bool *late;       // by op id: whether it runs once per step
  int *after;       // by op id: the ops of the present group on a path to it, and itself
  bool *reads;      // by op id: whether it reads results of the present batch
  Value **of;       // by value id: its copy in the present body
  int named[N_OPS]; // by kind: the number of the next free name
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
    if (value_on_host(op->in[i].value) || gradient_on_host(op->in[i].value))
      bytes += type_bytes(op->in[i].value->type);
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

// The first cast of result 0 of `op` that can join the launch; all casts of a batch are to the type
// of its first one, or NULL.
static Op *narrowing(const Op *op, const Op *first) {
  Op *cast = NULL; // uses are newest first
  for_each_use(u, op->out[0])
    if (u->user && u->user->kind == OP_cast && dtype_narrow(u->user->out[0]->type->dtype))
      cast = u->user;
  if (!cast || !(op_info[op->kind].traits & NARROWS)) return NULL;
  return first && first->out[0]->type->dtype != cast->out[0]->type->dtype ? NULL : cast;
}

// Replaces the members by a batch with their results, in order.
static Op *make_batch(Batcher *b, const Ops *member) {
  // The members, each followed by the cast that joins it.
  Ops all = {0};
  const Op *first_cast = NULL;
  for (int i = 0; i < member->n; i++) {
    Op *cast = narrowing(member->at[i], first_cast);
    if (!first_cast) first_cast = cast;
    vec_push(b->scratch, &all, member->at[i]);
    if (cast) vec_push(b->scratch, &all, cast);
  }
  // The body has a free name.
  Op *last = member->at[member->n - 1];
  const char *name = NULL;
  while (!name || graph_find(b->g->module, name))
    name = str_format(b->scratch, "%s_%d", op_info[last->kind].name, b->named[last->kind]++);
  Graph *body = graph_new(b->g->module, name, false);
  Value **of = b->of;
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
  // Copies are valid in this body only.
  for (int i = 0; i < operands.n; i++)
    of[operands.at[i]->id] = NULL;
  for (int i = 0; i < all.n; i++)
    for (int k = 0; k < all.at[i]->n_out; k++)
      of[all.at[i]->out[k]->id] = NULL;
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

// Moves direct and indirect readers of the batch's results after it, in their order; all of them
// come after op `before`, or NULL.
static void put_readers_behind(Batcher *b, Op *batch, Op *before) {
  Ops readers = {0};
  b->reads[batch->id] = true;
  for (Op *op = before ? before->next : b->g->first; op != batch; op = op->next) {
    for (int i = 0; i < op->n_in; i++) {
      const Op *def = op->in[i].value->def;
      if (def && b->reads[def->id]) b->reads[op->id] = true;
    }
    if (b->reads[op->id]) vec_push(b->scratch, &readers, op);
  }
  Op *at = batch->next;
  for (int i = 0; i < readers.n; i++) {
    op_move_before(readers.at[i], at);
    b->reads[readers.at[i]->id] = false;
  }
  b->reads[batch->id] = false;
}

// Batches the ops of the group, `n` in number, that run once per step or do not; all of them come
// after op `before`, or NULL.
static void batch_group(Batcher *b, int group, int n, bool once, Op *before) {
  // An op is at the level of the longest path to it through ops of the group; paths begin at the
  // first of them and end at the last.
  Levels levels = {.at = arena_array(b->scratch, Ops, n)};
  Op *start = before ? before->next : b->g->first, *end = start;
  for (int seen = 0; seen < n; end = end->next) {
    int longest = 0;
    for (int i = 0; i < end->n_in; i++) {
      const Op *def = end->in[i].value->def;
      if (def && b->after[def->id] > longest) longest = b->after[def->id];
    }
    b->after[end->id] = longest;
    if (b->group[end->id] != group) continue;
    seen++;
    if (b->late[end->id] != once) continue;
    vec_push(b->scratch, &levels.at[longest], end);
    b->after[end->id] = longest + 1;
    if (levels.n < longest + 1) levels.n = longest + 1;
  }
  for (const Op *op = start; op != end; op = op->next)
    b->after[op->id] = 0;
  for (int i = 0; i < levels.n; i++) {
    const Ops *level = &levels.at[i];
    // A batch is bounded by its bytes in host memory, and with early updates by its gradients: no
    // more together than the largest alone.
    int64_t most_away = largest(level, bytes_away), most_made = largest(level, bytes_made);
    for (int from = 0, size; from < level->n; from += size) {
      int most = count_within(level, from, most_away, bytes_away);
      int early =
          b->g->module->early_updates ? count_within(level, from, most_made, bytes_made) : most;
      size = early < most ? early : most;
      if (size < 2) continue;
      b->n_batches++;
      b->n_ops += size;
      b->left.at[group] -= size;
      Op *batch = make_batch(b, &(Ops){level->at + from, size, size});
      b->late[batch->id] = once;
      put_readers_behind(b, batch, before);
    }
  }
}

// Finds the groups: ops that are alike, in the order of the first of each.
static void find_groups(Batcher *b) {
  Ops first = {0};
  int n_meshes = module_n_meshes(b->g->module) + 1;
  // The groups of a mesh are a chain, through the first op of each.
  int *newest = arena_array(b->scratch, int, n_meshes);
  Vec(int) older = {0};
  vec_push(b->scratch, &first, NULL);
  vec_push(b->scratch, &older, 0);
  b->left.n = 0;
  vec_push(b->scratch, &b->left, 0);
  for_each_op(op, b->g) {
    if (!may_batch(op)) continue;
    const Mesh *mesh = op_mesh(op);
    int *head = &newest[mesh ? mesh->id + 1 : 0], k = *head;
    while (k && !alike(op, first.at[k]))
      k = older.at[k];
    if (!k) {
      k = first.n;
      vec_push(b->scratch, &first, op);
      vec_push(b->scratch, &older, *head);
      vec_push(b->scratch, &b->left, 0);
      *head = k;
    }
    b->group[op->id] = k;
    b->left.at[k]++;
  }
}

static void batch_graph(Batcher *b, Graph *g) {
  b->g = g;
  graph_renumber(g);
  // Each op of the graph is in one batch at most, and its results have one successor each.
  size_t ops = 2 * (size_t)g->n_ops, values = 2 * (size_t)g->n_values;
  b->group = arena_array(b->scratch, int, ops);
  b->after = arena_array(b->scratch, int, ops);
  b->reads = arena_array(b->scratch, bool, ops);
  b->late = arena_array(b->scratch, bool, ops);
  b->of = arena_array(b->scratch, Value *, values);
  const bool *late = graph_update_ops(g, b->scratch);
  for (uint32_t i = 0; i < g->n_ops; i++)
    b->late[i] = late[i];
  find_groups(b);
  // Groups are batched one after the other, so that an existing batch counts as one op.
  bool *done = arena_array(b->scratch, bool, b->left.n);
  for (Op *op = g->first; op;) {
    int group = b->group[op->id];
    if (!group || done[group]) {
      op = op->next;
      continue;
    }
    // The op is the first of its group: all that changes comes after the op before it.
    Op *before = op->prev;
    done[group] = true;
    for (int once = 0; once < 2 && b->left.at[group]; once++)
      batch_group(b, group, b->left.at[group], once, before);
    op = before ? before->next : g->first;
  }
  graph_renumber(g);
}

bool pass_multi_tensor(Module *m, const PassOptions *o, Diag *d) {
  Batcher b = {.scratch = opt_scratch(o), .d = d};
  Vec(Graph *) entries = {0}; // bodies are added meanwhile
  for_each_graph(g, m)
    if (g->entry) vec_push(b.scratch, &entries, g);
  for (int i = 0; i < entries.n; i++)
    batch_graph(&b, entries.at[i]);
  opt_stat(o, b.n_batches, "batches");
  opt_stat(o, b.n_ops, "ops batched");
  return true;
}
