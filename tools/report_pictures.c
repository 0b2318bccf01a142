// Pictures of a step: who does what when, and what is in memory meanwhile.
//
//     ranks 0-1   F0 F0 F0    B0 F0 B0 …      what is computed
//                  ─  ─  ─   ─                what ranks of a segment send each other
//                    ─  ─  ─  ─               moves to other segments
//                   ── ──       ── ──         copies to host memory, and from it
//
// A pixel is the least that is drawn: what is shorter is part of its neighbour.

#include "report.h"

#include <math.h>

#include "distribute/part.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "ir/text.h"
#include "ir/titles.h"

enum { LEFT = 110, WIDTH = 970, ROW = 40, MOST_LANES = 32, MOST_HELD = 12 };
static const double least = 0.6; // of a pixel, that is drawn for itself

static double x_of(const Report *r, double time) {
  return LEFT + WIDTH * time / r->timeline->cost.seconds;
}

// A round number of seconds, of which some eight are in a step.
static double tick_of(double seconds) {
  double power = pow(10, floor(log10(seconds / 8)));
  static const double steps[] = {1, 2, 5, 10};
  for (int i = 0; i < 4; i++)
    if (seconds / (steps[i] * power) <= 10) return steps[i] * power;
  return 10 * power;
}

static void add_ticks(StrBuf *b, const Report *r, double height) {
  double all = r->timeline->cost.seconds, tick = tick_of(all);
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

// -- Who does what when ------------------------------------------------------------------------

// A run of alike events that are drawn as one.
typedef struct Bar {
  const char *class, *title;
  double from, to;
  int segment, slice; // of one that has a label
} Bar;

// What is added up in every slice is of gradients, whatever asked for it.
static const char *part_class(const StepEvent *e) {
  if (e->part == STEP_micro && e->op->part == PART_update && !e->op->owed) return "backward";
  switch (e->op->part) {
  case PART_forward: return "forward";
  case PART_backward: return "backward";
  case PART_update:
  case N_TRAIN_PARTS: break;
  }
  return "updating";
}

static const char *segment_class(const Report *r, const StepEvent *e) {
  switch (*segment_name(r->m->graphs, e->segment)) {
  case 'F': return e->slice % 2 ? "forward even" : "forward";
  case 'B': return e->slice % 2 ? "backward even" : "backward";
  }
  return e->slice % 2 ? "weightgrad even" : "weightgrad";
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
  if (bar->segment && width > 11)
    strbuf_addf(b, "<text class=\"on\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n",
                x + width / 2, y + height / 2 + 3.5, bar->slice);
}

// What the event is in a line; false: nothing.
static bool bar_of(StrBuf *b, const Report *r, const StepEvent *e, StepLine line, Bar *out) {
  Arena *a = b->arena;
  *out = (Bar){.from = e->from, .to = e->to, .segment = e->segment, .slice = e->slice};
  bool moves = line != LINE_computes;
  if (e->line != line || (!e->op && !e->segment)) return false;
  if (e->op && !moves && e->segment) return false; // its segment is drawn
  const char *of =
      e->slice < 0 || module_slices(r->m) == 1 ? "" : str_format(a, " of micro-batch %d", e->slice);
  if (e->op) {
    out->class = moves ? "moving" : part_class(e);
    out->title = str_format(a, "%s%s", op_title(a, e->op, r->seen->target), of);
    out->segment = 0;
  } else {
    out->class = segment_class(r, e);
    out->title = str_format(a, "%s%s", segment_name(r->m->graphs, e->segment), of);
  }
  return true;
}

// Neighbours of a kind that no eye could tell apart become one.
static void draw_lane(StrBuf *b, const Report *r, int lane, StepLine line, double y,
                      double height) {
  Bar bar = {0}, next;
  double pixel = r->timeline->cost.seconds / WIDTH * least;
  for (int i = 0; i < r->timeline->event.n; i++) {
    const StepEvent *e = &r->timeline->event.at[i];
    if (e->lane != lane || !bar_of(b, r, e, line, &next)) continue;
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

static void add_time_legend(StrBuf *b, const Report *r) {
  bool scheduled = r->m->graphs->schedule;
  strbuf_add(b, "<div class=\"legend\"><span><i class=\"forward\"></i>forward</span>"
                "<span><i class=\"backward\"></i>backward</span>");
  if (scheduled) strbuf_add(b, "<span><i class=\"weightgrad\"></i>gradients of weights</span>");
  strbuf_add(
      b, "<span><i class=\"updating\"></i>update</span><span><i class=\"moving\"></i>communication"
         "</span>");
  if (r->m->host_bytes)
    strbuf_add(b, "<span>thin lines below: copies to host memory, and from it</span>");
  if (scheduled) strbuf_add(b, "<span>numbers are those of micro-batches</span>");
  strbuf_add(b, "</div>\n");
}

void report_timeline(StrBuf *b, const Report *r) {
  const StepTimeline *t = r->timeline;
  int n = t->n_lanes < MOST_LANES ? t->n_lanes : MOST_LANES;
  strbuf_add(b, "<h2 id=\"time\">Time</h2>\n<figure>\n");
  add_time_legend(b, r);
  begin_svg(b, n * ROW + 22, "what ranks do when");
  add_ticks(b, r, n * ROW);
  for (int i = 0; i < n; i++) {
    strbuf_addf(b, "<text class=\"row\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                LEFT - 8, i * ROW + 17, lane_text(b->arena, &t->lane[i]));
    draw_lane(b, r, i, LINE_computes, i * ROW + 4, 18);
    draw_lane(b, r, i, LINE_moves, i * ROW + 23, 4);
    draw_lane(b, r, i, LINE_ahead, i * ROW + 28, 4);
    draw_lane(b, r, i, LINE_out, i * ROW + 33, 2);
    draw_lane(b, r, i, LINE_in, i * ROW + 36, 2);
  }
  strbuf_add(
      b, "</svg>\n<figcaption>Above what a rank computes, below what it sends and gets meanwhile. "
         "Ranks that do the same at the same time are one row.");
  if (n < t->n_lanes) strbuf_addf(b, " The first %d of %d.", n, t->n_lanes);
  strbuf_add(b, "</figcaption>\n</figure>\n");
}

// -- Memory ------------------------------------------------------------------------------------

enum { COLUMNS = 480, MEMORY_HEIGHT = 120 };

typedef struct Column {
  int64_t all, bytes[N_MEMORY_KINDS]; // where there is most
} Column;

static int64_t sum_of(const MemoryPoint *p) {
  int64_t all = 0;
  for (int k = 0; k < N_MEMORY_KINDS; k++)
    all += p->bytes[k];
  return all;
}

static void raise(Column *c, const MemoryPoint *p) {
  int64_t all = sum_of(p);
  if (all < c->all) return;
  c->all = all;
  for (int k = 0; k < N_MEMORY_KINDS; k++)
    c->bytes[k] = p->bytes[k];
}

// In each column the most that is in use in its time.
static void find_columns(const Report *r, const LaneMemory *m, Column *column) {
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
}

static void add_area(StrBuf *b, const Column *column, int kind, double scale) {
  strbuf_addf(b, "<path class=\"m%d\" d=\"M%d %d", kind, LEFT, MEMORY_HEIGHT);
  for (int c = 0; c < COLUMNS; c++) {
    int64_t upto = 0;
    for (int k = 0; k <= kind; k++)
      upto += column[c].bytes[k];
    double x = LEFT + (double)WIDTH * c / COLUMNS, y = MEMORY_HEIGHT - scale * (double)upto;
    strbuf_addf(b, "L%.1f %.1fH%.1f", x, y, x + (double)WIDTH / COLUMNS);
  }
  strbuf_addf(b, "L%d %dZ\"/>\n", LEFT + WIDTH, MEMORY_HEIGHT);
}

static void draw_memory(StrBuf *b, const Report *r, int lane) {
  const LaneMemory *m = &r->memory[lane];
  Column *column = arena_array(b->arena, Column, COLUMNS);
  double scale = (MEMORY_HEIGHT - 10) / (double)(m->planned ? m->planned : 1);
  find_columns(r, m, column);
  begin_svg(b, MEMORY_HEIGHT + 22, "memory over time");
  add_ticks(b, r, MEMORY_HEIGHT);
  // What lies behind is drawn first.
  for (int k = N_MEMORY_KINDS; k--;)
    add_area(b, column, k, scale);
  strbuf_addf(b, "<line class=\"limit\" x1=\"%d\" y1=\"10\" x2=\"%d\" y2=\"10\"/>\n", LEFT,
              LEFT + WIDTH);
  strbuf_addf(b, "<text class=\"row\" x=\"%d\" y=\"14\" text-anchor=\"end\">%s</text>\n</svg>\n",
              LEFT - 8, bytes_text(b->arena, (double)m->planned));
}

static void add_held(StrBuf *b, const Report *r, const MemoryHeld *h) {
  Arena *a = b->arena;
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
}

// What the most bytes are of: by kind, and the largest.
static void explain_peak(StrBuf *b, const Report *r, const LaneMemory *m) {
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
  strbuf_addf(b,
              ": %s. The rest of the %s that plan_memory planned are gaps between places.</p>\n"
              "<div class=\"legend\">",
              bytes_text(a, (double)m->peak), bytes_text(a, (double)m->planned));
  for (int k = 0; k < N_MEMORY_KINDS; k++)
    if (by_kind[k])
      strbuf_addf(b, "<span><i class=\"m%d\"></i>%s %s</span>", k, memory_kind_name[k],
                  bytes_text(a, (double)by_kind[k]));
  strbuf_add(
      b, "</div>\n<div class=\"table\"><table><tr><th class=\"n\">at the peak</th><th class=\"n\">"
         "micro-batches</th><th>as</th><th>made by</th><th>in the model</th></tr>\n");
  for (int i = 0; i < m->at_peak.n && i < MOST_HELD; i++) {
    add_held(b, r, &m->at_peak.at[i]);
    shown += m->at_peak.at[i].bytes * m->at_peak.at[i].slices;
  }
  if (m->at_peak.n > MOST_HELD)
    strbuf_addf(b,
                "<tr class=\"out\"><td class=\"n\">%s</td><td></td><td></td><td>%d "
                "others</td><td></td></tr>\n",
                bytes_text(a, (double)(m->peak - shown)), m->at_peak.n - MOST_HELD);
  strbuf_add(b, "</table></div>\n");
}

static void add_memory(StrBuf *b, const Report *r, int lane) {
  strbuf_add(b, "<figure>\n");
  draw_memory(b, r, lane);
  strbuf_addf(b, "<figcaption>%s; dashed: the bytes that are planned</figcaption>\n</figure>\n",
              lane_text(b->arena, &r->timeline->lane[lane]));
  explain_peak(b, r, &r->memory[lane]);
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
