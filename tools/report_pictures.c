// Pictures of a step: the timeline of each rank, and the memory in use over time.
//
//     ranks 0-1   F0 F0 F0    B0 F0 B0 …      computation
//                  ─  ─  ─   ─                communication among the ranks of a segment
//                    ─  ─  ─  ─               moves to other segments
//                   ── ──       ── ──         copies to host memory, and from it
//
// Nothing is smaller than a pixel: a shorter event is part of its neighbour.  The legend explains
// only colours in use.

#include "report.h"

#include <math.h>
#include <string.h>

#include "ir/analysis/deferred.h"
#include "ir/analysis/origin.h"
#include "ir/op.h"
#include "ir/op_display_name.h"
#include "ir/schedule.h"
#include "ir/text.h"

enum { LEFT = 110, WIDTH = 970, ROW = 40, MOST_LANES = 32, MOST_HELD = 12 };
static const double least = 0.6; // least width, in pixels, of a separate bar

static double x_of(const Report *r, double time) {
  return LEFT + WIDTH * time / r->timeline->cost.seconds;
}

static void add_ticks(StrBuf *b, const Report *r, double height) {
  // A round number of seconds, about an eighth of a step.
  double all = r->timeline->cost.seconds;
  double power = pow(10, floor(log10(all / 8)));
  static const double steps[] = {1, 2, 5, 10};
  double tick = 10 * power;
  for (int i = 3; i >= 0; i--)
    if (all / (steps[i] * power) <= 10) tick = steps[i] * power;
  for (int i = 0; i * tick <= all * (1 + 1e-9); i++) {
    double x = x_of(r, i * tick);
    strbuf_addf(b, "<line class=\"grid\" x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%.1f\"/>", x, x,
                height);
    strbuf_addf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x, height + 14,
                i ? seconds_text(b->arena, i * tick) : "0");
  }
}

static void begin_svg(StrBuf *b, double height, const char *what) {
  strbuf_addf(b, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"%s\">\n",
              LEFT + WIDTH + 30, height, what);
}

// -- Timeline ----------------------------------------------------------------------------------

// A run of similar events, drawn as one.
typedef struct Bar {
  const char *class, *title;
  const char *label; // NULL: none
  double from, to;
} Bar;

typedef struct Picture {
  const Report *r;
  int *piece;   // by segment: number of its piece of a micro-batch; 0: none
  int n_pieces; // 0: micro-batches have no pieces
} Picture;

// The colour class of an op.  An update op that runs in every slice accumulates gradients, so it
// counts as backward.
static const char *part_class(const Report *r, const StepEvent *e) {
  if (e->op->deferred) return "updating before";
  bool in_slice = e->part == STEP_micro && !r->m->early_updates;
  if (in_slice && e->op->part == PART_update) return "backward";
  switch (e->op->part) {
  case PART_forward: return "forward";
  case PART_backward: return "backward";
  case PART_update:
  case N_TRAIN_PARTS: break;
  }
  return "updating";
}

static const char *segment_class(const Picture *p, const StepEvent *e) {
  int piece = p->piece[e->segment];
  bool even = (piece ? e->slice * p->n_pieces + piece - 1 : e->slice) % 2;
  switch (*segment_name(p->r->m->graphs, e->segment)) {
  case 'F': return even ? "forward even" : "forward";
  case 'B': return even ? "backward even" : "backward";
  }
  return even ? "weightgrad even" : "weightgrad";
}

static void draw_bar(StrBuf *b, const Report *r, const Bar *bar, double y, double height) {
  double x = x_of(r, bar->from), width = fmax(x_of(r, bar->to) - x, 0.3);
  strbuf_addf(b, "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"",
              bar->class, x, y, width, height);
  if (!bar->title) {
    strbuf_add(b, "/>\n");
    return;
  }
  strbuf_add(b, "><title>");
  html_add(b, bar->title);
  strbuf_addf(b, ", %s from %s</title></rect>\n", seconds_text(b->arena, bar->to - bar->from),
              seconds_text(b->arena, bar->from));
  if (bar->label && width > 3 + 5 * (double)strlen(bar->label))
    strbuf_addf(b, "<text class=\"on\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                x + width / 2, y + height / 2 + 3.5, bar->label);
}

// Makes the bar of an event in a line.  Returns false if the event has none there.
static bool bar_of(StrBuf *b, const Picture *p, const StepEvent *e, StepLine line, Bar *out) {
  Arena *a = b->arena;
  *out = (Bar){.from = e->from, .to = e->to};
  bool moves = line != LINE_computes;
  if (e->line != line || (!e->op && !e->segment)) return false;
  // An op of a segment is drawn as its segment.
  if (e->op && !moves && e->segment) return false;
  // " of micro-batch 1, piece 2"
  int piece = e->op ? e->op->piece : p->piece[e->segment];
  bool slices = e->slice >= 0 && module_slices(p->r->m) > 1, pieces = p->n_pieces && piece;
  const char *of =
      str_format(a, "%s%s%s%s", slices ? str_format(a, " of micro-batch %d", e->slice) : "",
                 slices && pieces ? "," : "", pieces && !slices ? " of" : "",
                 pieces ? str_format(a, " piece %d", piece) : "");
  if (e->before || (e->op && e->op->deferred)) of = " of the step before";
  if (e->op) {
    out->class = !moves ? part_class(p->r, e) : e->before ? "moving before" : "moving";
    out->title = str_format(a, "%s%s", op_title(a, e->op, p->r->seen->target), of);
  } else {
    out->class = segment_class(p, e);
    out->title = str_format(a, "%s%s", segment_name(p->r->m->graphs, e->segment), of);
    out->label = piece ? str_format(a, "%d.%d", e->slice, piece) : str_format(a, "%d", e->slice);
  }
  return true;
}

// Draws a line of a lane.  Neighbours of one kind that no eye could tell apart become one.
static void draw_lane(StrBuf *b, const Picture *p, int lane, StepLine line, double y,
                      double height) {
  const Report *r = p->r;
  Bar bar = {0}, next;
  double pixel = r->timeline->cost.seconds / WIDTH * least;
  for (int i = 0; i < r->timeline->event.n; i++) {
    const StepEvent *e = &r->timeline->event.at[i];
    if (e->lane != lane || !bar_of(b, p, e, line, &next)) continue;
    bool short_ = bar.to - bar.from < 4 * pixel || next.to - next.from < 4 * pixel;
    if (bar.class && bar.class == next.class && short_ && next.from - bar.to < pixel) {
      bar.to = next.to;
      bar.title = NULL;
      continue;
    }
    if (bar.class) draw_bar(b, r, &bar, y, height);
    bar = next;
  }
  if (bar.class) draw_bar(b, r, &bar, y, height);
}

static void add_time_legend(StrBuf *b, const Picture *p) {
  static const char *const kind[][2] = {{"forward", "forward"},
                                        {"backward", "backward"},
                                        {"weightgrad", "gradients of weights"},
                                        {"updating", "update"},
                                        {"moving", "communication"}};
  strbuf_add(b, "<div class=\"legend\">");
  // Only colours in use are explained.
  const StepTimeline *t = p->r->timeline;
  for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
    bool is_drawn = false;
    Bar bar;
    for (int k = 0; !is_drawn && k < t->event.n; k++)
      is_drawn = bar_of(b, p, &t->event.at[k], t->event.at[k].line, &bar) &&
                 str_starts(bar.class, kind[i][0]);
    if (is_drawn) strbuf_addf(b, "<span><i class=\"%s\"></i>%s</span>", kind[i][0], kind[i][1]);
  }
  if (graph_first_deferred(p->r->m->graphs))
    strbuf_add(b, "<span><i class=\"updating before\"></i><i class=\"moving before\"></i>of the "
                  "step before</span>");
  if (p->r->m->host_bytes)
    strbuf_add(b, "<span>thin lines below: copies to host memory, and from it</span>");
  if (p->r->m->graphs->schedule)
    strbuf_addf(b, "<span>numbers are those of micro-batches%s</span>",
                p->n_pieces ? ", and of their pieces after the point" : "");
  strbuf_add(b, "</div>\n");
}

void report_timeline(StrBuf *b, const Report *r) {
  const StepTimeline *t = r->timeline;
  // A segment belongs to a piece if all its ops with a piece have that one.  A segment that runs
  // piece after piece has ops of several.
  Arena *a = b->arena;
  const Graph *g = r->m->graphs;
  Picture p = {.r = r};
  int n_segments = g->schedule ? g->schedule->segment.n : 0;
  bool *mixed = arena_array(a, bool, n_segments + 1);
  p.piece = arena_array(a, int, n_segments + 1);
  for_each_op(op, g) {
    int *piece = &p.piece[op->segment];
    if (!op->segment || !op->piece) continue;
    mixed[op->segment] |= *piece && *piece != op->piece;
    *piece = op->piece;
  }
  for (int i = 0; i <= n_segments; i++) {
    if (mixed[i]) p.piece[i] = 0;
    p.n_pieces = p.piece[i] > p.n_pieces ? p.piece[i] : p.n_pieces;
  }

  int n = t->n_lanes < MOST_LANES ? t->n_lanes : MOST_LANES;
  strbuf_add(b, "<h2 id=\"time\">Time</h2>\n<figure>\n");
  add_time_legend(b, &p);
  begin_svg(b, n * ROW + 22, "timeline of ranks");
  add_ticks(b, r, n * ROW);
  // A row per lane: computation, and below it thin lines for transfers and copies.
  for (int i = 0; i < n; i++) {
    strbuf_addf(b, "<text class=\"row\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                LEFT - 8, i * ROW + 17, lane_text(b->arena, &t->lane[i]));
    draw_lane(b, &p, i, LINE_computes, i * ROW + 4, 18);
    draw_lane(b, &p, i, LINE_moves, i * ROW + 23, 4);
    draw_lane(b, &p, i, LINE_ahead, i * ROW + 28, 4);
    draw_lane(b, &p, i, LINE_out, i * ROW + 33, 2);
    draw_lane(b, &p, i, LINE_in, i * ROW + 36, 2);
  }
  strbuf_add(b, "</svg>\n<figcaption>Above the computation of a rank, below its communication. "
                "Ranks that do the same at the same time are one row.");
  if (graph_first_deferred(r->m->graphs))
    strbuf_add(b, " Steps follow one another without a barrier, and all are alike: one begins "
                  "with the sums that the one before has left under way, and does the updates of "
                  "that before it reads the weights. What is sent at its end goes on in the next.");
  if (n < t->n_lanes) strbuf_addf(b, " The first %d of %d.", n, t->n_lanes);
  strbuf_add(b, "</figcaption>\n</figure>\n");
}

// -- Memory ------------------------------------------------------------------------------------

enum { COLUMNS = 480, MEMORY_HEIGHT = 120 };

typedef struct Column {
  int64_t all, bytes[N_MEMORY_KINDS]; // at the column's peak
} Column;

static void raise(Column *c, const MemoryPoint *p) {
  int64_t all = 0;
  for (int k = 0; k < N_MEMORY_KINDS; k++)
    all += p->bytes[k];

  if (all < c->all) return;
  c->all = all;
  for (int k = 0; k < N_MEMORY_KINDS; k++)
    c->bytes[k] = p->bytes[k];
}

static void draw_memory(StrBuf *b, const Report *r, int lane) {
  const LaneMemory *m = &r->memory[lane];
  Column *column = arena_array(b->arena, Column, COLUMNS);
  double scale = (MEMORY_HEIGHT - 10) / (double)(m->planned ? m->planned : 1);
  // A column shows the peak of memory in use in its time.
  double per = r->timeline->cost.seconds / COLUMNS;
  const MemoryPoint *last = NULL;
  for (int c = 0, i = 0; c < COLUMNS; c++) {
    column[c] = (Column){0};
    if (last) raise(&column[c], last);
    for (; i < m->point.n && (m->point.at[i].time < (c + 1) * per || c + 1 == COLUMNS); i++) {
      last = &m->point.at[i];
      raise(&column[c], last);
    }
  }
  begin_svg(b, MEMORY_HEIGHT + 22, "memory over time");
  add_ticks(b, r, MEMORY_HEIGHT);
  // Areas are stacked: draw from back to front.
  for (int k = N_MEMORY_KINDS; k--;) {
    // The edge of an area is the sum of its kind and those below.
    strbuf_addf(b, "<path class=\"m%d\" d=\"M%d %d", k, LEFT, MEMORY_HEIGHT);
    for (int c = 0; c < COLUMNS; c++) {
      int64_t upto = 0;
      for (int below = 0; below <= k; below++)
        upto += column[c].bytes[below];
      double x = LEFT + (double)WIDTH * c / COLUMNS, y = MEMORY_HEIGHT - scale * (double)upto;
      strbuf_addf(b, "L%.1f %.1fH%.1f", x, y, x + (double)WIDTH / COLUMNS);
    }
    strbuf_addf(b, "L%d %dZ\"/>\n", LEFT + WIDTH, MEMORY_HEIGHT);
  }
  strbuf_addf(b, "<line class=\"limit\" x1=\"%d\" y1=\"10\" x2=\"%d\" y2=\"10\"/>\n", LEFT,
              LEFT + WIDTH);
  strbuf_addf(b, "<text class=\"row\" x=\"%d\" y=\"14\" text-anchor=\"end\">%s</text>\n</svg>\n",
              LEFT - 8, bytes_text(b->arena, (double)m->planned));
}

static void add_memory(StrBuf *b, const Report *r, int lane) {
  strbuf_add(b, "<figure>\n");
  draw_memory(b, r, lane);
  strbuf_addf(b, "<figcaption>%s; dashed: the bytes that are planned%s</figcaption>\n</figure>\n",
              lane_text(b->arena, &r->timeline->lane[lane]),
              graph_first_deferred(r->m->graphs)
                  ? "; gradients are there until the next step has updated with them"
                  : "");
  // The bytes at the peak: by kind, and the largest values.
  const LaneMemory *m = &r->memory[lane];
  Arena *a = b->arena;
  int64_t by_kind[N_MEMORY_KINDS] = {0}, shown = 0;
  for (int i = 0; i < m->at_peak.n; i++)
    by_kind[m->at_peak.at[i].kind] += m->at_peak.at[i].bytes * m->at_peak.at[i].slices;
  strbuf_addf(b, "<p>The most is in use after %s", seconds_text(a, m->peak_time));
  if (m->peak_op) {
    strbuf_add(b, ", while <code>");
    html_add(b, op_title(a, m->peak_op, r->seen->target));
    strbuf_addf(b, "</code>%s runs",
                m->peak_slice < 0 || module_slices(r->m) == 1
                    ? ""
                    : str_format(a, " of micro-batch %d", m->peak_slice));
  }
  strbuf_addf(b, ": %s of the %s that plan_memory planned.", bytes_text(a, (double)m->peak),
              bytes_text(a, (double)m->planned));
  // Offsets are fixed for the step, so fragmentation leaves gaps.
  if (m->planned > m->peak)
    strbuf_addf(b, " The other %s are gaps between places.",
                bytes_text(a, (double)(m->planned - m->peak)));
  strbuf_add(b, "</p>\n<div class=\"legend\">");
  for (int k = 0; k < N_MEMORY_KINDS; k++)
    if (by_kind[k])
      strbuf_addf(b, "<span><i class=\"m%d\"></i>%s %s</span>", k, memory_kind_name[k],
                  bytes_text(a, (double)by_kind[k]));
  strbuf_add(
      b, "</div>\n<div class=\"table\"><table><tr><th class=\"n\">at the peak</th><th class=\"n\">"
         "micro-batches</th><th>as</th><th>made by</th><th>in the model</th></tr>\n");
  // The largest values first; the rest is one row.
  for (int i = 0; i < m->at_peak.n && i < MOST_HELD; i++) {
    const MemoryHeld *h = &m->at_peak.at[i];
    strbuf_addf(
        b,
        "<tr><td class=\"n\">%s</td><td class=\"n\">%s</td><td><span class=\"legend\" "
        "style=\"margin:0\"><span><i class=\"m%d\"></i>%s</span></span></td><td class=\"mono\">",
        bytes_text(a, (double)(h->bytes * h->slices)),
        h->slices > 1 ? str_format(a, "%d × %s", h->slices, bytes_text(a, (double)h->bytes)) : "",
        (int)h->kind, memory_kind_name[h->kind]);
    if (h->value->def)
      html_add(b, op_title(a, h->value->def, r->seen->target));
    else
      html_add(b, h->value->label);
    strbuf_addf(b, " <span class=\"soft\">%s</span></td><td class=\"mono\">",
                type_text(a, h->value->type));
    if (h->value->def) html_add(b, op_place(a, h->value->def));
    strbuf_add(b, "</td></tr>\n");
    shown += h->bytes * h->slices;
  }
  if (m->at_peak.n > MOST_HELD)
    strbuf_addf(b,
                "<tr class=\"out\"><td class=\"n\">%s</td><td></td><td></td><td>%d "
                "others</td><td></td></tr>\n",
                bytes_text(a, (double)(m->peak - shown)), m->at_peak.n - MOST_HELD);
  strbuf_add(b, "</table></div>\n");
  const LaneMemory *host = r->host ? &r->host[lane] : NULL;
  if (host)
    strbuf_addf(b, "<p>In host memory are at most %s, after %s.</p>\n",
                bytes_text(b->arena, (double)host->peak), seconds_text(b->arena, host->peak_time));
}

void report_memory(StrBuf *b, const Report *r) {
  strbuf_add(b, "<h2 id=\"memory\">Memory</h2>\n");
  if (!r->memory) {
    strbuf_add(b, "<p>Values have no places yet.</p>\n");
    return;
  }
  int most = 0, n = r->timeline->n_lanes < MOST_LANES ? r->timeline->n_lanes : MOST_LANES;
  for (int i = 0; i < r->timeline->n_lanes; i++)
    if (r->memory[i].planned > r->memory[most].planned) most = i;
  add_memory(b, r, most);
  for (int i = 0; i < n; i++) {
    if (i == most) continue;
    strbuf_addf(b, "<details><summary>%s: %s</summary>\n<div style=\"padding:0 14px\">",
                lane_text(b->arena, &r->timeline->lane[i]),
                bytes_text(b->arena, (double)r->memory[i].planned));
    add_memory(b, r, i);
    strbuf_add(b, "</div></details>\n");
  }
}
