// Swap: saved activations of some ops are offloaded to host memory, and copied back before backward
// reads them.
//
//     %h = linear %x, %w     offload_group=1          %h = linear %x, %w
//     …                                      %1 = swap_out %h
//     %k = linear %g, %v     offload_group=2          …
//     …                            =>        %k = linear %g, %v
//                                            %2 = swap_wait %1, %h           %h is freed
//     %5 = gelu_back %k, %dy  backward       %3 = swap_in %2       backward
//                                            %5 = gelu_back %k, %dy  backward
//     %6 = gelu_back %h, %d   backward       %4 = swap_wait %3, %2 backward
//                                            %6 = gelu_back %4, %d   backward
//
// The plan's program selects the ops as lists (`swap`). `offload_group` is the number of the list,
// and a list is mostly a layer. Copies overlap with compute: a list is copied out during the
// forward of the next list, and copied back during its backward. So the values of two lists are on
// the device. The last list has no successor: its copies run beside ops that are in no list, as
// many as there are from the list before it, if these are a list's worth; else its copies out are
// waited for at its end. Its copies back start at the backward of those ops, else at their readers
// or, in a schedule, at the beginning of that segment.
//
// This pass follows all passes that make or fuse kernels, so it sees the actual saved activations:
// results of forward ops that backward ops read, themselves or as views. Recomputed values are not
// among them. A value stays on the device if it is produced before the loop, read by an op that
// runs once, or moved to other ranks for backward.

#include "base/vec.h"
#include "ir/analysis/local.h"
#include "ir/analysis/origin.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "pass.h"

#include <string.h>

// Values made by the ops of one list in one segment, on one mesh.
typedef struct List {
  int number, segment;
  const Mesh *mesh;
  int n_ops;
  Op *last;        // last forward op
  const Op *until; // at which copies out are complete: the last op that they run beside
  Op *first_back;  // first op of the backward pass that reads one of its values
} List;

// An offloaded value.
typedef struct Away {
  Value *v, *out, *back;
  List *list;
  Op *first; // first reader in backward
} Away;

typedef struct Swap {
  Graph *g;
  Diag *d;
  const bool *begin, *update; // by op id
  Arena *scratch;
  Vec(List *) list; // in the order of their last ops
  Vec(Away) away;
  int64_t bytes;
} Swap;

static bool is_earlier(const Op *a, const Op *b) {
  return !b || a->id < b->id;
}

// -- Offloaded values --------------------------------------------------------------------------

// Finds the first backward reader of `v` or of a view of it; false: `v` cannot be offloaded.
static bool find_readers(const Swap *s, const Value *v, Op **first) {
  for_each_use(u, v) {
    Op *op = u->user;
    if (!op || s->begin[op->id] || s->update[op->id]) return false;
    if (op->part == PART_forward && op_is_view(op)) {
      if (!find_readers(s, op->out[0], first)) return false;
    } else if (op->part != PART_forward) {
      if (op->kind == OP_move || op->part != PART_backward) return false;
      if (is_earlier(op, *first)) *first = op;
    }
  }
  return true;
}

// The list that runs next in the same segment, or NULL.
static const List *next_list(const Swap *s, const List *of) {
  const List *next = NULL;
  for (int i = 0; i < s->list.n; i++) {
    const List *l = s->list.at[i];
    if (l->segment != of->segment || l->mesh != of->mesh || l->last->id <= of->last->id) continue;
    if (!next || l->last->id < next->last->id) next = l;
  }
  return next;
}

// -- Begin and end of copies -------------------------------------------------------------------

static bool is_beside(const Swap *s, const List *l, const Op *op) {
  return op->part == PART_forward && !s->begin[op->id] && !s->update[op->id] &&
         op->segment == l->segment && op_mesh(op) == l->mesh;
}

// The ops from the end of the list before it to that of a list; of a first list, its own.
static int count_ops(const Swap *s, const List *l) {
  const Op *from = NULL;
  int n = 0;
  for (int i = 0; i < s->list.n; i++) {
    const List *k = s->list.at[i];
    if (k->segment == l->segment && k->mesh == l->mesh && k->last->id < l->last->id &&
        (!from || k->last->id > from->id))
      from = k->last;
  }
  for (const Op *op = l->last; from && op != from; op = op->prev)
    n += is_beside(s, l, op);
  return n > l->n_ops ? n : l->n_ops;
}

// Finds the op at which the copies out of each list are complete.
static void find_ends(const Swap *s) {
  for (int i = 0; i < s->list.n; i++) {
    List *l = s->list.at[i];
    const List *next = next_list(s, l);
    int n = 0, most = next ? 0 : count_ops(s, l);
    l->until = next ? next->last : l->last;
    const Op *last = l->last;
    for (const Op *op = last->next; op && n < most; op = op->next) {
      if (!is_beside(s, l, op)) continue;
      last = op;
      n++;
    }
    if (n >= l->n_ops && !next) l->until = last;
  }
}

// The first op of the backward of those that the last list's copies out run beside, if it precedes
// the reader; else the reader, or in a schedule the beginning of its segment.
static Op *in_from(const Swap *s, const Away *a) {
  const List *l = a->list;
  Op *at = a->first;
  if (at->segment) {
    while (at->prev && at->prev->segment == a->first->segment)
      at = at->prev;
    return at;
  }
  for (const Op *op = l->last->next; op && l->last != l->until; op = op->next) {
    for (Op *back = a->first; back && back->part == PART_backward; back = back->prev)
      if (op->of && back->of == op->of && is_beside(s, l, op) && is_earlier(back, at)) at = back;
    if (op == l->until) break;
  }
  return at;
}

// -- The ops -----------------------------------------------------------------------------------

static Value *copy_op(Swap *s, Op *at, OpKind kind, Value *const *in, int n_in, const Away *a,
                      TrainPart part) {
  Origin origin = origin_for(s->g->module->arena, value_origin(a->v), "kept in host memory");
  origin.part = part;
  Builder b = {.g = s->g, .at = at, .origin = origin, .d = s->d};
  Value *v = local_value(&b, kind, in, n_in, NO_ATTRS, a->v->layout);
  v->def->segment = part == PART_forward ? a->v->def->segment : a->first->segment;
  return v;
}

// Makes backward readers of `v`, or of views of it, read `by`.
static bool read_back(Swap *s, Value *v, Value *by, const Away *a) {
  for (Use *u = v->uses, *next; u; u = next) {
    // The copy out itself still reads the value.
    next = u->next;
    Op *op = u->user;
    if (op->kind == OP_swap_out || (op->kind == OP_swap_wait && op->in[1].value == v)) continue;
    if (op->part == PART_backward) {
      op_set_in(op, u->index, by);
    } else if (op_is_view(op)) {
      // Views are rebuilt on the returned copy, in backward.
      Op *first = NULL;
      if (!find_readers(s, op->out[0], &first) || !first) continue;
      Op *view = op_copy(s->g, a->first, op, &by, s->d);
      if (!view) return false;
      memcpy(view->split, op->split, sizeof view->split);
      view->out[0]->layout = op->out[0]->layout;
      view->part = PART_backward;
      view->order = view->offload_group = 0;
      view->segment = a->first->segment;
      if (!read_back(s, op->out[0], view->out[0], a)) return false;
    }
  }
  return true;
}

static bool swap(Swap *s) {
  const Op **until = arena_array(s->scratch, const Op *, s->away.n);
  Op **from = arena_array(s->scratch, Op *, s->away.n);
  for (int i = 0; i < s->away.n; i++) {
    until[i] = s->away.at[i].list->until;
    // The copy back starts before the first reader of the next list, or at the beginning of the
    // segment.
    const Away *a = &s->away.at[i];
    const List *next = next_list(s, a->list);
    Op *at = next && next->first_back && next->first_back->segment == a->first->segment
                 ? next->first_back
                 : in_from(s, a);
    bool in_order = at->id > until[i]->id && at->id <= a->first->id;
    from[i] = in_order && at->part == PART_backward ? at : a->first;
  }
  for (int i = 0; i < s->away.n; i++) {
    Away *a = &s->away.at[i];
    a->out = copy_op(s, a->v->def->next, OP_swap_out, &a->v, 1, a, PART_forward);
  }
  for (int i = 0; i < s->away.n; i++) {
    // The wait follows the last op of the next list, and earlier copies and waits there.
    Away *a = &s->away.at[i];
    Op *at = until[i]->next;
    while (at && (at->kind == OP_swap_out || at->kind == OP_swap_wait))
      at = at->next;
    Value *in[] = {a->out, a->v};
    a->out = copy_op(s, at, OP_swap_wait, in, 2, a, PART_forward);
  }
  for (int i = s->away.n; i-- > 0;) { // the last is read first
    Away *a = &s->away.at[i];
    a->back = copy_op(s, from[i], OP_swap_in, &a->out, 1, a, PART_backward);
  }
  for (int i = 0; i < s->away.n; i++) {
    // Backward reads the returned copy.
    Away *a = &s->away.at[i];
    Value *in[] = {a->back, a->out};
    Value *y = copy_op(s, a->first, OP_swap_wait, in, 2, a, PART_backward);
    s->bytes += type_bytes(y->type);
    if (!read_back(s, a->v, y, a)) return false;
  }
  return true;
}

bool pass_swap(Module *m, const PassOptions *o, Diag *d) {
  int64_t n = 0, bytes = 0;
  for_each_graph(g, m) {
    Swap s = {.g = g, .d = d, .scratch = opt_scratch(o)};
    bool any = false;
    for_each_op(op, g)
      any |= op->offload_group != 0;
    if (!g->entry || !any) continue;
    // Positions are compared by op id.
    graph_renumber(g);
    const PartOps part = graph_part_ops(g, s.scratch);
    s.begin = part.begin;
    s.update = part.update;
    // Results of the lists' ops that backward reads are offloaded.
    for_each_op(op, s.g) {
      if (op->part != PART_forward || !op_swap_list(op) || s.begin[op->id] || s.update[op->id])
        continue;
      // The list of the op's number, segment and mesh.
      List *l = NULL;
      for (int i = 0; i < s.list.n && !l; i++) {
        List *k = s.list.at[i];
        if (k->number == op_swap_list(op) && k->segment == op->segment && k->mesh == op_mesh(op))
          l = k;
      }
      if (!l) {
        l = arena_one(s.scratch, List);
        *l = (List){.number = op_swap_list(op), .segment = op->segment, .mesh = op_mesh(op)};
        vec_push(s.scratch, &s.list, l);
      }
      l->last = op;
      l->n_ops++;
      for (int i = 0; i < op->n_out && !op_is_view(op); i++) {
        Op *first = NULL;
        if (!find_readers(&s, op->out[i], &first) || !first) continue;
        if (is_earlier(first, l->first_back)) l->first_back = first;
        vec_push(s.scratch, &s.away, (Away){.v = op->out[i], .list = l, .first = first});
      }
    }
    find_ends(&s);
    // Values that backward reads before their copy out is complete stay on the device.
    int kept = 0;
    for (int i = 0; i < s.away.n; i++)
      if (s.away.at[i].list->until->id < s.away.at[i].first->id) s.away.at[kept++] = s.away.at[i];
    s.away.n = kept;
    if (!swap(&s)) return false;
    n += s.away.n;
    bytes += s.bytes;
    graph_renumber(g);
  }
  // No later pass reads the list numbers.
  for_each_graph(g, m)
    for_each_op(op, g)
      op->offload_group = 0;
  opt_stat(o, n, "values to host memory and back");
  opt_stat(o, bytes, "bytes of them");
  return true;
}
