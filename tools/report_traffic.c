// Traffic between ranks in a step: by sender and receiver, and by collective.
//
//         0    1    2    3       rank 0 sends 1.2 MB to rank 1 …
//     0   ·   1.2   ·    ·
//     1   ·    ·   1.2   ·
//
// A collective is counted as if it went around a ring of its group; an all_to_all, as direct
// messages from each to each.  The communicator decides the actual links.  The bytes that ranks
// hand over to a collective are another number, independent of its algorithm: --summary and
// --comm-manifest show it, and an executable counts it.
//
//     all_reduce of 1.0 MB on 4 ranks     handed over 4.0 MB     sent 6.0 MB: 2 * 3/4 by each

#include "report.h"

#include <limits.h>
#include <math.h>

#include "cost/collectives.h"
#include "ir/op.h"

enum { MOST_CELLS = 32, CELL = 24, LEFT = 46, TOP = 22 };

typedef struct Matrix {
  int n, per;    // cells per side, and devices per cell
  double *bytes; // [from][to]
} Matrix;

static void send(Matrix *x, int from, int to, double bytes) {
  if (from != to) x->bytes[from / x->per * x->n + to / x->per] += bytes;
}

static void add_collective(Matrix *x, const Collective *c) {
  Arena *a = arena_new();
  if (c->op->kind == OP_move) {
    // A move sends its messages.
    Messages messages = messages_of(a, c->op);
    for (int i = 0; i < messages.n; i++)
      send(x, messages.at[i].from, messages.at[i].to,
           (double)message_bytes(&messages.at[i], c->op->out[0]->type) * (double)c->count);
  } else {
    // A ring goes around each group; an all_to_all sends from each to each.
    Groups groups = collective_groups(a, c->op);
    double bytes = (double)c->bytes * (double)c->count;
    int rounds = path_ring_rounds(path_prim_of(c->op->kind));
    // The fraction of its bytes that each member of a ring sends to the next.
    double ring_share = (double)rounds * (groups.size - 1) / groups.size;
    for (int g = 0; g < groups.n; g++) {
      const int *device = groups.device + g * groups.size;
      for (int i = 0; i < groups.size; i++) {
        if (rounds) send(x, device[i], device[(i + 1) % groups.size], bytes * ring_share);
        for (int k = 0; !rounds && k < groups.size; k++)
          send(x, device[i], device[k], bytes / groups.size);
      }
    }
  }
  arena_free(a);
}

static const char *cell_name(Arena *a, const Matrix *x, int i) {
  return x->per == 1 ? str_format(a, "%d", i)
                     : str_format(a, "%d-%d", i * x->per, (i + 1) * x->per - 1);
}

static void draw_matrix(StrBuf *b, const Matrix *x) {
  double most = 0;
  Arena *a = b->arena;
  int width = LEFT + x->n * CELL + 4, height = TOP + x->n * CELL + 4;
  for (int i = 0; i < x->n * x->n; i++)
    most = fmax(most, x->bytes[i]);
  strbuf_addf(b,
              "<svg viewBox=\"0 0 %d %d\" style=\"max-width:%dpx\" role=\"img\" aria-label=\"bytes "
              "from rank "
              "to rank\">\n",
              width, height, width);
  for (int i = 0; i < x->n; i++) {
    strbuf_addf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", LEFT - 6,
                TOP + i * CELL + 16, cell_name(a, x, i));
    // Names of several ranks are too wide for many columns.
    if (x->per == 1 || x->n <= 8)
      strbuf_addf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                  LEFT + i * CELL + CELL / 2, TOP - 7, cell_name(a, x, i));
  }
  for (int i = 0; i < x->n * x->n; i++) {
    double part = most > 0 ? x->bytes[i] / most : 0;
    strbuf_addf(b,
                "<rect class=\"cell\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\" "
                "style=\"opacity:%.3f\"><title>",
                LEFT + i % x->n * CELL, TOP + i / x->n * CELL, CELL - 2, CELL - 2,
                part > 0 ? 0.2 + 0.8 * part : 0.06);
    strbuf_addf(b, "%s to %s: %s</title></rect>\n", cell_name(a, x, i / x->n),
                cell_name(a, x, i % x->n), bytes_text(a, x->bytes[i]));
  }
  strbuf_addf(
      b,
      "</svg>\n<figcaption>Bytes sent from the rank of a row to that of a column; the darkest "
      "is %s. Collectives are counted as if they went around a ring.</figcaption>\n",
      bytes_text(a, most));
}

void report_traffic(StrBuf *b, const Report *r) {
  Collectives list = {0};
  collectives_find(b->arena, r->m, &list);
  strbuf_add(b, "<h2 id=\"traffic\">Traffic</h2>\n");
  if (!list.n) {
    strbuf_add(b, "<p>Nothing moves between ranks.</p>\n");
    return;
  }
  // A cell is one device, or several neighbours if there are too many.
  int most = 0;
  for (int i = 0; i < r->timeline->cost.n_ranks; i++)
    if (r->timeline->cost.device[i] > most) most = r->timeline->cost.device[i];
  Matrix x = {.per = most / MOST_CELLS + 1};
  x.n = most / x.per + 1;
  x.bytes = arena_array(b->arena, double, x.n *x.n);
  for (int i = 0; i < list.n; i++)
    add_collective(&x, &list.at[i]);

  strbuf_add(b, "<figure>\n");
  draw_matrix(b, &x);
  strbuf_add(b, "</figure>\n");
  // A table by kind and part of the step: bytes handed over, and bytes sent.  The sum of the matrix
  // is the latter.

  strbuf_add(
      b,
      "<div class=\"table\"><table><tr><th>kind</th><th>when</th><th class=\"n\">of a step</th>"
      "<th class=\"n\">handed over by all ranks</th><th class=\"n\">sent by all ranks</th></tr>\n");
  for (int k = 0; k < N_COLLECTIVE_KINDS; k++)
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
      double bytes = 0, sent = 0;
      // A matrix with a single cell sums all transfers.
      Matrix whole = {.n = 1, .per = INT_MAX, .bytes = &sent};
      int64_t count = 0;
      for (int i = 0; i < list.n; i++) {
        const Collective *c = &list.at[i];
        if (c->op->kind != collective_kinds[k] || c->part != part) continue;
        count += c->count;
        bytes += (double)c->all_bytes * (double)c->count;
        add_collective(&whole, c);
      }
      if (!count) continue;
      static const char *const when[] = {"before the micro-batches", "in every micro-batch",
                                         "update"};
      strbuf_addf(b,
                  "<tr><td class=\"mono\">%s</td><td>%s</td><td class=\"n\">%lld</td><td "
                  "class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                  op_info[collective_kinds[k]].name, when[part], (long long)count,
                  bytes_text(b->arena, bytes), bytes_text(b->arena, sent));
    }
  strbuf_add(b, "</table></div>\n");
}
