// Common subexpressions: ops of one kind with the same operands and attributes have the same
// results.
//
//     %a = exp %x                  %a = exp %x
//     %b = exp %x           =>     %c = add %a, %a
//     %c = add %a, %b
//
// Recomputations for gradients (recompute.c) are intended, and stay. So do equal ops of two pieces
// (planner/lua/pieces.h): they may be on different ranks.
//
// Random ops are merged, too: their numbers depend on the key only. One walk in order finds all of
// them, as operands are merged before their readers are visited.

#include <string.h>

#include "ir/analysis/origin.h"
#include "ir/analysis/rewrite.h"
#include "ir/intern.h"

typedef struct Entry {
  Op *op;
  struct Entry *next;
} Entry;

static bool op_equal(const Op *x, const Op *y) {
  if (x->kind != y->kind || x->n_in != y->n_in || x->n_out != y->n_out || x->callee != y->callee ||
      memcmp(x->split, y->split, sizeof x->split) != 0)
    return false;
  for (int i = 0; i < x->n_in; i++)
    if (x->in[i].value != y->in[i].value) return false;
  for (int i = 0; i < x->n_out; i++)
    if (x->out[i]->type != y->out[i]->type || x->out[i]->layout != y->out[i]->layout) return false;
  return x->piece == y->piece && op_same_attrs(x, y);
}

int merge_equal(Graph *g) {
  // A hash table of about one slot per op.
  int merged = 0, n_slots = 64;
  while (n_slots < (int)g->n_ops)
    n_slots *= 2;
  Arena *a = arena_new();
  Entry **slot = arena_array(a, Entry *, n_slots);
  for_each_op_safe(op, g) {
    // Recomputation would be undone.
    if ((op_info[op->kind].traits & COMM) || op_is_recomputed(op)) continue;
    // Equal ops have equal hashes.
    uint64_t h = hash_mix(0, (uint64_t)op->kind);
    for (int i = 0; i < op->n_in; i++)
      h = hash_mix(h, op->in[i].value->id);
    h = hash_mix(h, (uintptr_t)op->attrs); // interned
    Entry **at = &slot[(h ^ h >> 32) & (uint64_t)(n_slots - 1)], *e = *at;
    while (e && !op_equal(e->op, op))
      e = e->next;
    // The first of its kind stays.
    if (!e) {
      e = arena_one(a, Entry);
      *e = (Entry){op, *at};
      *at = e;
      continue;
    }
    // A later one is replaced by it.
    for (int i = 0; i < op->n_out; i++)
      value_replace_uses(op->out[i], e->op->out[i]);
    op_erase(op);
    merged++;
  }
  arena_free(a);
  return merged;
}
