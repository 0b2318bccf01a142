// --freeze 'emb.weight[3]': rows of a weight that are not trained.
//
//     %g0 = where %frozen, 0, %g                  no gradient, also in the norm of all gradients
//     %w1 = where %frozen, %w, %updated           (optimizer.c) no update: a decay would change them

#include <stdlib.h>
#include <string.h>

#include "ir/split.h"
#include "update.h"

bool update_freeze_rows(Update *p, const char *rows) {
  for (const char *at = rows; at && *at;) {
    // Collect a mask of frozen rows for each weight.
    size_t n = strcspn(at, ",");
    const char *text = str_copy_n(p->scratch, at, n);
    bool found = false;
    for (int i = 0; i < p->gradients.n; i++) {
      Gradient *g = &p->gradients.at[i];
      const Type *t = g->weight->as ? g->weight->as : g->weight->type;
      // NAME of "NAME[ROW]" matches the weight.
      size_t name = str_row_glob(text);
      int64_t row = name ? strtoll(text + name + 1, NULL, 10) : 0;
      if (!name || !str_glob(str_copy_n(p->scratch, text, name), g->weight->label)) continue;
      found = true;
      bool is_table =
          t->ndim > 0 && (t->dim[0] == g->weight->type->dim[0] || value_padded(g->weight));
      if (!is_table || row >= t->dim[0])
        return diag_error(p->b.d, g->weight->loc, "--freeze '%s': %s is no table with such a row",
                          text, type_text(p->scratch, t));
      p->b.origin = update_origin(p, g->weight->loc);
      // A mask of the weight's shape, true in the row.
      Builder *b = &p->b;
      const Type *type = g->weight->type;
      int64_t one[MAX_NDIM], dim[MAX_NDIM], low[MAX_NDIM] = {row};
      for (int k = 0; k < type->ndim; k++)
        one[k] = dim[k] = 1;
      dim[0] = type->dim[0];
      Value *here = build_fill(b, DT_f32, type->ndim, one, 1);
      Value *padded =
          build_op(b, OP_pad, IN(here),
                   ATTRS(a_list("low", low, type->ndim), a_list("shape", dim, type->ndim),
                         a_s("mode", "constant"), a_f("value", 0)));
      Value *half = build_fill(b, DT_f32, type->ndim, dim, 0.5);
      Value *mask =
          build_broadcast(b, build_binary(b, OP_greater, padded, half), type->ndim, type->dim);
      g->frozen = g->frozen ? build_binary(&p->b, OP_or, g->frozen, mask) : mask;
    }
    if (!found) diag_warning(p->b.d, NULL, "--freeze '%s' matches no weight that is trained", text);
    at += n + (at[n] == ',');
  }
  // Zero the gradients of these rows.  update_all keeps the rows of the weight itself.
  for (int i = 0; i < p->gradients.n && !p->b.failed; i++) {
    Gradient *g = &p->gradients.at[i];
    if (!g->frozen) continue;
    const Type *t = g->gradient->type;
    p->b.origin = update_origin(p, g->weight->loc);
    Value *zero = build_fill(&p->b, t->dtype, t->ndim, t->dim, 0);
    g->gradient = build_where(&p->b, g->frozen, zero, g->gradient);
  }
  p->b.origin = p->origin;
  return !p->b.failed;
}
