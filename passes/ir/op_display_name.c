// Display names of ops: see op_display_name.h.

#include "ir/op_display_name.h"

#include <string.h>

const char *op_full_place(Arena *a, const Op *op) {
  if (!op->loc) return "";
  StrBuf why = {.arena = a};
  // The reasons of the derivation, in parentheses after the place.
  for (const Loc *l = op->loc; l->from; l = l->from)
    if (l->why) strbuf_addf(&why, "%s%s", why.n ? ", " : "(", l->why);
  const char *text = loc_text(a, loc_origin(op->loc));
  return why.n ? str_format(a, "%s%s%s)", text, *text ? " " : "", why.at) : text;
}

const char *op_place(Arena *a, const Op *op) {
  const char *text = op_full_place(a, op), *file = op->loc ? loc_origin(op->loc)->file : NULL;
  // Without folders, as the program is of one model.
  const char *slash = file ? strrchr(file, '/') : NULL;
  return slash && str_starts(text, file) ? text + (slash + 1 - file) : text;
}

// Whether the op only moves elements or changes their type.  Kernels of such ops are named by
// element size.
static bool moves_elements(const Op *op, Target target) {
  const OpInfo *row = &op_info[op->kind];
  return op->n_in == 0 || op->kind == OP_cast || (row->traits & VIEW) ||
         str_equal(row->kernels[target], "b");
}

const char *op_title(Arena *a, const Op *op, Target target) {
  if (op->kind == OP_multi_tensor)
    return str_format(a, "%s batch", op_info[op->callee->first->kind].name);
  if (op->kind != OP_fused) return op_info[op->kind].name;
  // "fused mul gelu reduce_sum": the last kinds of ops in the body; of computing ops, if there are
  // any.
  enum { SHOWN = 3 };
  const Graph *body = op->callee;
  bool all = true;
  for_each_op(part, body)
    all &= moves_elements(part, target);
  bool seen[N_OPS] = {false};
  const char *text = "";
  int n = 0;
  for (const Op *part = body->last; part && n < SHOWN; part = part->prev) {
    if (seen[part->kind] || (!all && moves_elements(part, target))) continue;
    seen[part->kind] = true;
    text = str_format(a, " %s%s", op_info[part->kind].name, text);
    n++;
  }
  return str_format(a, "fused%s", text);
}
