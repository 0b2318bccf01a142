// Recompute: activation checkpointing (Chen et al. 2016).  Backward recomputes the results of some
// ops instead of reading saved activations.
//
//     %h = linear %x, %w        of=1 recompute_group=1              %h = linear %x, %w of=1
//     %g = gelu %h              of=2 recompute_group=1              %g = gelu %h       of=2
//     %y = linear %g, %v        of=3 recompute_group=1              %y = linear %g, %v of=3
//     …                                                  …
//     %1 = linear_back_w %g, %dy    backward of=3   =>   %5 = linear %x, %w backward of=1 recompute_group=1
//     %2 = linear %dy, %v           backward of=3        %6 = gelu %5       backward of=2 recompute_group=1
//     %3 = gelu_back %h, %2         backward of=2        %1 = linear_back_w %6, %dy backward of=3
//     %4 = linear_back_w %x, %3     backward of=1        %2 = linear %dy, %v        backward of=3
//                                                        %3 = gelu_back %5, %2      backward of=2
//                                                        %4 = linear_back_w %x, %3  backward of=1
//
// %h and %g are dead after %y; only %x is saved.  The program of a plan gives the ops, as lists
// (`recompute`), which are numbered as recompute groups.  A result that another group reads is
// saved, since that group is recomputed from it.  So if each layer of a network is a group, the
// values between layers are saved, and those within a layer are live for its own gradients only.
// Ops that only lead to detached values belong to no group (autodiff.c): that value is saved.
//
// A value of weights alone that is larger than they are, such as a table of relative positions that
// is looked up for each pair of positions, belongs to the group that reads it, if that is one: it
// is recomputed like the values of this group, and not saved, also if the list has left it out. One
// that several groups read is saved once.
//
//     %b = gather %table, %at       : f32[4096,4096]             … recompute_group=1
//     %y = add %s, %b               recompute_group=1      =>    %5 = gather %table, %at   before the
//                                                                gradients of group 1
//
// An op is repeated right before the first op of backward that needs it, together with its
// predecessors in the group.  Dead results are not repeated: running statistics are updated once.
// Random numbers are functions of key and element, so they are the same again.
//
// With `by_piece`, ops in pieces (planner/lua/pieces.h) are recomputed one piece at a time.
// Example: the attention of a layer is cut into two pieces.  The gradients of its successors need
// %s, the sum over all pieces; the gradients of each piece need its own results, later.  So the
// pieces are computed twice, once for %s and once right before their gradients; one piece is live
// at a time, at the price of one more computation.
//
//     %a1 = … %x          piece=1                %5 = … %x          piece=1 recompute_group=1
//     %p1 = … %a1         piece=1                %6 = … %5          piece=1 recompute_group=1
//     %a2 = … %x          piece=2                %7 = … %x          piece=2 recompute_group=1
//     %p2 = … %a2         piece=2                %8 = … %7          piece=2 recompute_group=1
//     %s = add %p1, %p2                   =>     %9 = add %6, %8    recompute_group=1
//     …                                          … readers of %9, which have no pieces
//                                                %10 = … %x         piece=2 recompute_group=1
//                                                … gradients of piece 2, which read %10
//                                                %11 = … %x         piece=1 recompute_group=1
//                                                … gradients of piece 1, which read %11
//
// If a group is on several devices, each recomputes its shard from the operands that it has
// received: shard arranges that (comm/recompute_layouts.h).
//
// The repeated op is of backward, with the number of the original.  This pass runs after all passes
// that merge or rewrite ops of global tensors; shard gives the repeated op the layout of the
// original (kept_of).  merge_equal does not merge it, and fuse does not join it with ops of
// forward; no other pass merges equal ops, and no op of forward reads a result of backward
// (verify.c).  The proof begins before this pass, so it covers the recomputation.

#include "base/vec.h"
#include "ir/analysis/origin.h"
#include "pass.h"

typedef struct Recompute {
  Graph *g;
  Arena *arena, *scratch;
  Diag *d;
  Value **again; // by value id: the recomputed value, or NULL
  Value **own;   // by value id: the recomputed value of a piece, for the gradients of that piece
  uint32_t n_values;
  int64_t n;
} Recompute;

// Whether the value is recomputed: an op of a group makes it, and no other group reads it.
static bool is_not_kept(const Value *v) {
  if (!v->def || v->def->part != PART_forward || !v->def->recompute_group) return false;
  for_each_use(u, v)
    if (u->user && u->user->part == PART_forward && u->user->recompute_group &&
        u->user->recompute_group != v->def->recompute_group)
      return false;
  return true;
}

// `piece` if `v` belongs to it and is recomputed separately for it, else 0.
static int piece_within(const Value *v, int piece) {
  const Op *def = v->def;
  if (!def->by_piece || def->piece != piece) return 0;
  // An op that reads values of different pieces, as sums over them do, belongs to none.
  int of = 0;
  for (int i = 0; i < def->n_in; i++) {
    const Op *read = def->in[i].value->def;
    if (!read || !read->piece) continue;
    if (of && read->piece != of) return 0;
    of = read->piece;
  }
  return piece;
}

// The recomputed value of `v`, which is not saved, for gradients of `piece`; 0: for gradients
// without a piece, or for other repeated ops.  NULL: not repeated yet.
static Value *again(const Recompute *r, const Value *v, int piece) {
  if (piece_within(v, piece)) return r->own[v->id];
  return r->again[v->id] ? r->again[v->id] : r->own[v->id];
}

// An op to repeat, the piece that it is repeated for, and the number of its operands visited so
// far.
typedef struct Frame {
  Op *op;
  int piece, operand;
} Frame;

static Frame frame_of(const Value *v, int piece) {
  return (Frame){v->def, piece_within(v, piece), 0};
}

// Repeats the op of `v` before `at`, after its missing predecessors in the group.
static bool repeat_all(Recompute *r, const Value *v, Op *at) {
  Vec(Frame) open = {0};
  vec_push(r->scratch, &open, frame_of(v, at->piece));
  while (open.n > 0) {
    Frame *top = &open.at[open.n - 1];
    if (top->operand < top->op->n_in) {
      Value *x = top->op->in[top->operand++].value;
      int piece = top->piece;
      if (is_not_kept(x) && !again(r, x, piece)) vec_push(r->scratch, &open, frame_of(x, piece));
      continue;
    }
    // Several open ops may need the same op.
    open.n--;
    const Op *op = top->op;
    if (again(r, op->out[0], top->piece)) continue;
    Value **in = arena_array(r->scratch, Value *, op->n_in);
    for (int i = 0; i < op->n_in; i++) {
      Value *x = op->in[i].value;
      in[i] = is_not_kept(x) ? again(r, x, top->piece) : x;
    }
    Origin origin = op_origin(op);
    origin.part = PART_backward;
    origin.loc = loc_from(r->arena, op->loc, "recomputed");
    Op *copy = op_copy_as(r->g, at, op, in, origin, r->d);
    for (int i = 0; copy && i < op->n_out; i++)
      (top->piece ? r->own : r->again)[op->out[i]->id] = copy->out[i];
    r->n++;
    if (!copy) return false;
  }
  return true;
}

// -- Values of weights alone ---------------------------------------------------------------------

enum { LEAST = 1 << 16 }; // bytes of a value that is worth its recomputation

// The group of all forward readers of the op's results; 0: none, or there are several.
static int readers_group(const Op *op) {
  int group = 0;
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i]) {
      if (!u->user) return 0;
      if (u->user->part != PART_forward) continue;
      int own = u->user->recompute_group;
      if (!own || (group && own != group)) return 0;
      group = own;
    }
  return group;
}

// Puts ops of weights alone with larger results than these weights into the group that reads them.
static void join_groups(Graph *g, Arena *scratch) {
  // The bytes of the weights that a value is made of, indices left out; -1: it depends on data.
  double *of_weights = arena_array(scratch, double, g->n_values);
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    bool floats = dtype_class[v->type->dtype] == 'F';
    of_weights[v->id] = v->role != ROLE_weight ? -1 : floats ? (double)type_bytes(v->type) : 0;
  }
  for_each_op(op, g) {
    double bytes = op_draws(op->kind) || op->callee ? -1 : 0;
    for (int i = 0; i < op->n_in && bytes >= 0; i++) {
      double own = of_weights[op->in[i].value->id];
      bytes = own < 0 ? -1 : bytes + own;
    }
    for (int i = 0; i < op->n_out; i++)
      of_weights[op->out[i]->id] = bytes;
  }
  // From readers to their operands, so that all ops of a chain join.
  for (Op *op = g->last; op; op = op->prev) {
    if (op->part != PART_forward || op->recompute_group || op->n_in == 0 || op->n_out != 1)
      continue;
    double from = of_weights[op->out[0]->id], bytes = (double)type_bytes(op->out[0]->type);
    if (from < 0 || bytes < LEAST || bytes <= from) continue;
    op->recompute_group = readers_group(op);
  }
}

// -- The pass ------------------------------------------------------------------------------------

static bool recompute(Graph *g, const PassOptions *o, Diag *d, int64_t *n) {
  Recompute r = {.g = g, .arena = g->module->arena, .scratch = opt_scratch(o), .d = d};
  bool any = false;
  for_each_op(op, g)
    any |= op->part == PART_forward && op->recompute_group;
  if (!any) return true;
  graph_renumber(g);
  join_groups(g, r.scratch);
  r.n_values = g->n_values;
  r.again = arena_array(r.scratch, Value *, g->n_values);
  r.own = arena_array(r.scratch, Value *, g->n_values);
  for_each_op(op, g) {
    if (op->part != PART_backward || op_is_recomputed(op)) continue;
    // Backward reads the recomputed values.
    for (int i = 0; i < op->n_in; i++) {
      Value *v = op->in[i].value;
      if (v->id >= r.n_values || !is_not_kept(v)) continue;
      if (!again(&r, v, op->piece) && !repeat_all(&r, v, op)) return false;
      op_set_in(op, i, again(&r, v, op->piece));
    }
  }
  // Forward ops that only gradients have read are dead: backward recomputes them.
  for (Op *op = g->last, *prev; op; op = prev) {
    prev = op->prev;
    if (op->part != PART_forward || !op->recompute_group) continue;
    op->recompute_group = 0;
    if (!op_used(op)) op_erase(op);
  }
  *n += r.n;
  return true;
}

bool pass_recompute(Module *m, const PassOptions *o, Diag *d) {
  int64_t n = 0;
  for_each_graph(g, m)
    if (g->entry && !recompute(g, o, d, &n)) return false;
  opt_stat(o, n, "ops repeated");
  return true;
}
