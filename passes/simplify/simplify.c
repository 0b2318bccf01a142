// Simplification: constant ops are computed, equal ops are merged, dead ops are dropped, and
// inverse ops cancel.
//
//     %a = transpose %w perm=[1,0]  : f32[8,4]
//     %b = matmul %x, %a            : f32[2,8]         %b = linear %x, %w : f32[2,8] trans=true
//     %c = fill value=2             : f32[2,8]   =>    %d = scale %b by=2 : f32[2,8]
//     %d = mul %b, %c               : f32[2,8]
//     %e = neg %d                   : f32[2,8]
//
// The rules are small and local: arithmetic in simplify_arithmetic.c, shapes in simplify_shape.c,
// matrix products in simplify_product.c, lookups in simplify_lookup.c, the order of ops in
// simplify_order.c and simplify_reshape.c, constants in fold_constants.c, equal ops in
// merge_equal.c. Each makes the graph smaller, or its ops cheaper, or moves an op towards one end
// of the graph, so repeating them terminates.
//
// Once values have layouts, rules that build ops do not apply: then only equal ops are merged and
// dead ones dropped, and in a planned module only the latter, as merging would extend live ranges.

#include "ir/analysis/rewrite.h"
#include "pass.h"

static Value *apply(Builder *b, Op *op, const SimplifyRule *rules) {
  for (; rules->fn; rules++) {
    if (rules->kind != op->kind) continue;
    Value *v = rules->fn(b, op);
    if (v && v != op->out[0]) return v;
  }
  return NULL;
}

bool pass_simplify(Module *m, const PassOptions *o, Diag *d) {
  for_each_graph(g, m) {
    Phase phase = g->module->phase;
    Builder b = {.g = g, .d = d};
    opt_stat(o, drop_dead(g), "dead ops dropped");
    for (bool changed = true; changed;) {
      // First, so that values which every layer computes, such as its mask, are computed once.
      int merged = phase < PHASE_planned ? merge_equal(g) : 0;
      opt_stat(o, merged, "equal ops merged");
      changed = merged > 0;
      if (phase < PHASE_sharded) {
        for_each_op_safe(op, g) {
          if (!op_used(op)) continue;
          if (op->kind == OP_loop) {
            if (!simplify_loop(op, d, &changed)) return false;
            continue;
          }
          // Constants are folded first; then one rule is applied.
          b.at = op;
          b.origin = op_origin(op);
          bool folded = fold_constants(&b, op);
          Value *by = folded ? NULL : apply(&b, op, arithmetic_rules);
          if (!folded && !by) by = apply(&b, op, shape_rules);
          if (!folded && !by) by = apply(&b, op, product_rules);
          if (!folded && !by) by = apply(&b, op, lookup_rules);
          if (!folded && !by) by = change_order(&b, op);
          if (by) value_replace_uses(op->out[0], by);
          if (!folded && !by) continue;
          if (b.failed) return false;
          opt_stat(o, 1, "ops simplified");
          changed = true;
        }
      }
      opt_stat(o, drop_dead(g), "dead ops dropped");
    }
    if (b.failed) return false;
    if (phase < PHASE_sharded) opt_stat(o, late_lookups(g), "lookups moved to their reader");
  }
  return true;
}
