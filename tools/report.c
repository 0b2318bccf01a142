// See report.h.
//
// The page is one text.  Its parts are added in the order of the page.  The words for numbers and
// ranks, which the other parts use as well, come first.

#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"
#include "output.h"
#include "rt/utf8.h"

// -- Words -------------------------------------------------------------------------------------

void html_add(StrBuf *b, const char *text) {
  while (*text) {
    const char *as = *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '&' ? "&amp;" : NULL;
    if (*text == '"') as = "&quot;";
    char shown[UTF8_SHOWN];
    if (as) {
      strbuf_add(b, as);
      text++;
    } else if (*text == '\n' || *text == '\t') {
      strbuf_add_n(b, text++, 1);
    } else {
      strbuf_add_n(b, shown, (size_t)nnrt_utf8_shown(&text, shown));
    }
  }
}

const char *seconds_text(Arena *a, double seconds) {
  if (seconds >= 1) return str_format(a, "%.3g s", seconds);
  return seconds >= 1e-3 ? str_format(a, "%.3g ms", 1e3 * seconds)
                         : str_format(a, "%.3g µs", 1e6 * seconds);
}

const char *bytes_text(Arena *a, double bytes) {
  static const char *const unit[] = {"bytes", "kB", "MB", "GB", "TB"};
  int i = 0;
  for (; i < 4 && bytes >= 1000; i++)
    bytes /= 1000;
  return str_format(a, i && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, unit[i]);
}

const char *lane_text(Arena *a, const StepLane *lane) {
  return str_format(a, "rank%s %s", lane->n_devices > 1 ? "s" : "",
                    device_list(a, lane->device, lane->n_devices));
}

// -- At a glance -------------------------------------------------------------------------------

static void add_card(StrBuf *b, const char *value, const char *what) {
  strbuf_addf(b, "<div class=\"card\"><b>%s</b><span>%s</span></div>\n", value, what);
}

static void add_head(StrBuf *b, const Report *r) {
  strbuf_add(b, "<h1>");
  html_add(b, r->model);
  strbuf_add(b, "</h1>\n<p class=\"soft\">");
  if (*r->plan) {
    strbuf_add(b, "plan <code>");
    html_add(b, r->plan);
    strbuf_add(b, "</code> ");
  }
  // Devices, types and the command line.
  strbuf_addf(b, "on %d rank%s of <code>", r->timeline->cost.n_ranks,
              r->timeline->cost.n_ranks > 1 ? "s" : "");
  html_add(b, r->seen->cluster->name);
  strbuf_addf(b, "</code>, computing in %s for %s</p>\n<p class=\"soft\"><code>",
              summary_dtype(r->m), target_info[r->seen->target].name);
  html_add(b, summary_command(r->seen));
  strbuf_add(b, "</code>, nnaot ");
  html_add(b, r->seen->version);
  strbuf_add(b, "</p>\n<nav>");
  strbuf_add(b, "<a href=\"#time\">Time</a><a href=\"#memory\">Memory</a><a href=\"#traffic\">"
                "Traffic</a><a href=\"#alternatives\">Alternatives</a><a href=\"#graph\">Graph</a>"
                "<a href=\"#passes\">Passes</a></nav>\n");
  // Cards with the main figures.
  Arena *a = b->arena;
  const StepCost *cost = &r->timeline->cost;
  int64_t peak = 0;
  for (int i = 0; r->memory && i < r->timeline->n_lanes; i++)
    if (r->memory[i].planned > peak) peak = r->memory[i].planned;
  double busy = 0;
  for (int i = 0; i < cost->n_ranks; i++)
    busy += cost->rank[i]->compute;
  strbuf_add(b, "<div class=\"cards\">\n");
  add_card(b, seconds_text(a, cost->seconds), "a step takes, as predicted");
  add_card(b, seconds_text(a, cost->span), "of it, the longest that a rank is at work");
  add_card(b, str_format(a, "%.1f %%", 100 * cost->bubble), "of all ranks’ time they are idle");
  add_card(b, str_format(a, "%.1f %%", 100 * busy / (cost->n_ranks * cost->seconds)),
           "of all ranks’ time they compute");
  if (r->memory) add_card(b, bytes_text(a, (double)peak), "of memory, on the rank with most");
  add_card(b, str_format(a, "%d", module_slices(r->m)),
           "micro-batches of a batch, one after the other");
  strbuf_add(b, "</div>\n");
}

// -- Alternatives ------------------------------------------------------------------------------

static int by_seconds(const void *x, const void *y) {
  const Candidate *a = *(const Candidate *const *)x, *b = *(const Candidate *const *)y;
  if (a->made != b->made) return a->made ? -1 : 1;
  return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

static void add_alternatives(StrBuf *b, const Report *r) {
  const Candidates *all = &r->seen->candidates;
  strbuf_add(b, "<h2 id=\"alternatives\">Alternatives</h2>\n");
  if (!all->n || r->seen->chosen < 0) {
    strbuf_add(b, "<p>The plan was asked for, so no others were looked at. <code>--plan auto"
                  "</code> makes those that may be the best and prices them.</p>\n");
    return;
  }
  const Candidate **order = arena_array(b->arena, const Candidate *, all->n);
  // Bars are relative to the slowest candidate.
  double slowest = 0;
  for (int i = 0; i < all->n; i++) {
    order[i] = &all->at[i];
    if (order[i]->made && isfinite(order[i]->seconds)) slowest = fmax(slowest, order[i]->seconds);
  }
  qsort(order, (size_t)all->n, sizeof *order, by_seconds);
  strbuf_add(b,
             "<p>The plans that were made and priced, the fastest first.</p>\n<div class=\"table\">"
             "<table><tr><th>plan</th><th class=\"n\">micro-batches</th><th class=\"n\">step</th>"
             "<th class=\"n\">memory of a rank</th><th class=\"n\"></th><th></th></tr>\n");
  for (int i = 0; i < all->n; i++) {
    // The difference in time is relative to the chosen plan.
    const Candidate *c = order[i], *best = &all->at[r->seen->chosen];
    Arena *a = b->arena;
    bool chosen = c == best;
    const char *class = chosen ? "chosen" : c->fits ? "" : "out";
    strbuf_addf(b, "<tr class=\"%s\"><td class=\"mono\">", class);
    html_add(b, c->plan);
    strbuf_addf(b, "</td><td class=\"n\">%" PRId64 "</td>", c->micro_batches);
    // A candidate that could not be made has only a reason.
    if (!c->made) {
      strbuf_add(b, "<td colspan=\"4\">");
      html_add(b, c->why);
      strbuf_add(b, "</td></tr>\n");
      continue;
    }
    strbuf_addf(b, "<td class=\"n\">%s</td><td class=\"n\">%s</td>", seconds_text(a, c->seconds),
                bytes_text(a, (double)c->needs.peak_bytes));
    if (!c->fits)
      strbuf_add(b, "<td>does not fit</td>");
    else
      strbuf_addf(b, "<td class=\"n\">%s</td>",
                  chosen ? "taken"
                         : str_format(a, "%+.1f %%", 100 * (c->seconds / best->seconds - 1)));
    strbuf_addf(
        b,
        "<td style=\"width:30%%\"><span class=\"bar\" style=\"width:%.1f%%\"></span></td></tr>\n",
        100 * c->seconds / slowest);
  }
  strbuf_add(b, "</table></div>\n");
}

// -- Passes ------------------------------------------------------------------------------------

enum { MOST_LINES = 400 }; // of a diff

static const char *line_end(const char *s) {
  const char *end = strchr(s, '\n');
  return end ? end : s + strlen(s);
}

static void add_passes(StrBuf *b, const Report *r) {
  strbuf_add(b, "<h2 id=\"passes\">Passes</h2>\n<p>The changes of each pass, from the model to the "
                "program of the ranks.</p>\n");
  if (!strstr(r->diffs, "--- before ")) strbuf_add(b, "<p>None changed anything.</p>\n");
  strbuf_add(b, "<pre>");
  html_add(b, r->counts);
  strbuf_add(b, "</pre>\n");
  for (const char *at = r->diffs; *at;) {
    if (str_starts(at, "--- before ")) {
      // The head of a diff has two lines; its body ends at the next head.
      static const char head[] = "--- before ";
      const char *end = line_end(at), *name = at + strlen(head), *lines = end;
      int more = 0, less = 0, n = 0;
      lines = *lines ? line_end(lines + 1) : lines;
      const char *next = lines;
      while (*next && !str_starts(next + 1, head) && !str_starts(next + 1, "# -- ")) {
        more += next[1] == '+';
        less += next[1] == '-';
        next = line_end(next + 1);
      }
      strbuf_add(b, "<details><summary><code>");
      html_add(b, str_copy_n(b->arena, name, (size_t)(end - name)));
      strbuf_addf(b, "</code> <span class=\"soft\">+%d −%d lines</span></summary><pre>", more,
                  less);
      for (const char *line = lines; line < next && n < MOST_LINES;
           line = line_end(line + 1), n++) {
        // The first character of a line decides its colour.
        const char *from = line + 1, *to = line_end(from);
        const char *as = *from == '+' ? "plus" : *from == '-' ? "minus" : *from == '@' ? "at" : "";
        strbuf_addf(b, "<i class=\"%s\">", as);
        html_add(b, str_copy_n(b->arena, from, (size_t)(to - from)));
        strbuf_add(b, from == to ? " </i>" : "</i>");
      }
      if (n == MOST_LINES)
        strbuf_add(b, "<i class=\"at\">… and more, which --print-changed prints</i>");
      strbuf_add(b, "</pre></details>\n");
      at = *next ? next + 1 : next;
    } else
      at = *line_end(at) ? line_end(at) + 1 : line_end(at);
  }
}

// -- The page ----------------------------------------------------------------------------------

const char *report_text(Arena *a, const Report *r) {
  StrBuf body = {.arena = a}, page = {.arena = a}, title = {.arena = a};
  add_head(&body, r);
  report_timeline(&body, r);
  report_memory(&body, r);
  report_traffic(&body, r);
  add_alternatives(&body, r);
  report_graph(&body, r);
  add_passes(&body, r);
  html_add(&title, *r->plan ? str_format(a, "%s, plan %s", r->model, r->plan) : r->model);
  static const char at_title[] = "@TITLE@", at_body[] = "@BODY@";
  const char *first = strstr(report_html, at_title), *second = strstr(report_html, at_body);
  strbuf_add(&page, str_copy_n(a, report_html, (size_t)(first - report_html)));
  strbuf_add(&page, title.at);
  first += strlen(at_title);
  strbuf_add(&page, str_copy_n(a, first, (size_t)(second - first)));
  strbuf_add(&page, body.at);
  strbuf_add(&page, second + strlen(at_body));
  return page.at;
}
