// The model as a table: its ops, with repeated blocks once, and the sharding of values over ranks.
//
//     gather      f32[4,64,64]   @pp0 {S(0), B}   /wte/Gather
//     4 times, ops alike:
//       layer_norm …

#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/op_display_name.h"
#include "ir/text.h"
#include "repeats/repeats.h"
#include "report.h"

enum { DEEPEST = 3, MOST_ROWS = 600 };

typedef struct Table {
  StrBuf *b;
  const Report *r;
  int n_rows;
} Table;

static bool is_shown(const Op *op) {
  return op_part(op) == PART_forward && !(op_info[op->kind].traits & VIEW) &&
         op->kind != OP_constant;
}

static bool has_shown(const Occurrence *o) {
  for (int i = 0; i < o->block->n_members; i++)
    if (o->member[i].op ? is_shown(o->member[i].op) : has_shown(o->member[i].inner)) return true;
  return false;
}

// Adds members.  Occurrences that follow each other are shown once.
static void add_members(Table *t, const Member *m, int n, int depth) {
  for (int i = 0; i < n; i++) {
    if (m[i].op) {
      // An op: its title, type, ranks, layout, and place in the model.
      const Op *op = m[i].op;
      StrBuf *b = t->b;
      const Value *v = op->out[0];
      if (!is_shown(op) || t->n_rows++ >= MOST_ROWS) continue;
      strbuf_addf(b, "<tr><td class=\"in%d\">", depth);
      html_add(b, op_title(b->arena, op, t->r->seen->target));
      strbuf_addf(b, "</td><td class=\"mono\">%s</td><td class=\"mono\">",
                  type_text(b->arena, v->type));
      const Mesh *mesh = v->layout ? v->layout->mesh : NULL;
      if (mesh) html_add(b, device_list(b->arena, mesh->device, mesh->n_devices));
      strbuf_add(b, "</td><td class=\"mono\">");
      for (int axis = 0, n_shown = 0; mesh && axis < mesh->n_axes; axis++) {
        if (mesh->axis[axis].size == 1) continue;
        strbuf_addf(b, "%s%s ", n_shown++ ? ", " : "", sbp_text(b->arena, v->layout->axis[axis]));
        html_add(b, mesh->axis[axis].name);
      }
      strbuf_add(b, "</td><td class=\"mono\">");
      html_add(b, op_place(b->arena, op));
      strbuf_add(b, "</td></tr>\n");
      continue;
    }
    int times = 1;
    while (i + times < n && !m[i + times].op && m[i + times].inner->block == m[i].inner->block)
      times++;
    if (has_shown(m[i].inner)) {
      // A block: its title, and its members one level deeper.
      const Occurrence *o = m[i].inner;
      if (times > 1)
        strbuf_addf(
            t->b,
            "<tr class=\"block\"><td colspan=\"5\" class=\"in%d\">%d times, one after the other: "
            "%d ops</td></tr>\n",
            depth, times, o->block->n_ops);
      else
        strbuf_addf(t->b,
                    "<tr class=\"block\"><td colspan=\"5\" class=\"in%d\">one of %d alike: %d ops"
                    "</td></tr>\n",
                    depth, o->block->n, o->block->n_ops);
      add_members(t, o->member, o->block->n_members, depth < DEEPEST ? depth + 1 : depth);
    }
    i += times - 1;
  }
}

void report_graph(StrBuf *b, const Report *r) {
  Arena *a = b->arena;
  const Graph *g = r->m->graphs;
  Table t = {b, r, 0};
  // Repeats are found in the forward ops only.
  bool *among = arena_array(a, bool, g->n_ops);
  for_each_op(op, g)
    among[op->id] = op_part(op) == PART_forward;
  const Repeats *found = repeats_find(g, LEAST_BLOCK, among, a);
  strbuf_add(
      b,
      "<h2 id=\"graph\">Graph</h2>\n<p>What ranks compute of the model itself; its gradients and "
      "updates follow from that. Sizes are those of one rank, in one micro-batch. Along each axis "
      "of the "
      "ranks a "
      "value is split, S(dimension), the same everywhere, B, or a sum that is not added up yet, "
      "P.</p>\n"
      "<div class=\"table\"><table><tr><th>op</th><th>result</th><th>ranks</th><th>layout</th>"
      "<th>in the model</th></tr>\n");
  add_members(&t, found->order, found->n_order, 0);
  strbuf_add(b, "</table></div>\n");
  if (t.n_rows > MOST_ROWS)
    strbuf_addf(b, "<p class=\"note\">%d more are not shown; --emit nn writes them all.</p>\n",
                t.n_rows - MOST_ROWS);
}
