// The table of nnaot-plan fit, and its JSON: see fit.h.

#include "fit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "output.h"

bool fit_fits(const FitRow *r) {
  return r->best && r->best->fits;
}

double fit_lacks(const FitRow *r) {
  double needs = r->best ? (double)r->best->needs.peak_bytes : r->least;
  double memory = r->best ? r->memory : r->cluster->memory;
  return !fit_fits(r) && needs > memory ? needs - memory : 0;
}

// Whether a row that fits is a smaller answer than another one.  A plan that fits unknown memory
// may not fit the device.
static bool is_smaller(const FitRow *r, const FitRow *than) {
  bool known = r->cluster->memory > 0, known_too = than->cluster->memory > 0;
  if (known != known_too) return known;
  if (r->devices != than->devices) return r->devices < than->devices;
  return r->cluster->memory < than->cluster->memory;
}

int fit_smallest(const FitRows *rows) {
  int best = -1;
  for (int i = 0; i < rows->n; i++) {
    const FitRow *r = &rows->at[i];
    if (fit_fits(r) && (best < 0 || is_smaller(r, &rows->at[best]))) best = i;
  }
  return best;
}

// Whether the step of a row that fits has a price in seconds.
static bool is_timed(const FitRow *r) {
  return fit_fits(r) && isfinite(r->best->seconds) && r->best->seconds > 0;
}

// The dollars of a million samples or tokens, `n` of which are in a step.
static double dollars_per_million(const FitRow *r, double n) {
  return cluster_dollars(r->cluster) / 3600 * r->best->seconds / n * 1e6;
}

// -- The table -----------------------------------------------------------------------------------

enum { NAME, DEVICES, PLAN, MICRO_BATCHES, STEP, SAMPLES, TOKENS, PEAK, MEMORY, HOUR, MILLION };
enum { N_COLUMNS = MILLION + 1 };

typedef struct Cells {
  const char *of[N_COLUMNS];
} Cells;

// "84.9 GB", "512 B".
static const char *size_of(Arena *a, double bytes) {
  static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
  int k = 0;
  for (; k < 4 && bytes >= 999.5; k++)
    bytes /= 1000;
  return str_format(a, "%.*f %s",
                    !k || bytes >= 99.95 ? 0
                    : bytes >= 9.995     ? 1
                                         : 2,
                    bytes, unit[k]);
}

// Four significant digits, without an exponent.
static const char *figure(Arena *a, double x) {
  int digits = x > 0 ? 3 - (int)floor(log10(x)) : 0;
  return str_format(a, "%.*f", digits < 0 ? 0 : digits > 6 ? 6 : digits, x);
}

// The cells of a row that has a plan.
static void cells_of(const FitRow *r, const char **cell, Arena *a) {
  const Candidate *c = r->best;
  double dollars = cluster_dollars(r->cluster), n = r->tokens > 0 ? r->tokens : r->rows;
  cell[PLAN] = c->plan;
  cell[MICRO_BATCHES] = str_format(a, "%" PRId64, c->micro_batches);
  cell[PEAK] = size_of(a, (double)c->needs.peak_bytes);
  cell[MEMORY] = r->memory > 0 ? size_of(a, r->memory) : "-";
  cell[HOUR] = dollars > 0 ? str_format(a, "%.2f", dollars) : "-";
  if (!is_timed(r)) return;
  cell[STEP] = figure(a, c->seconds * 1e3);
  cell[SAMPLES] = figure(a, r->rows / c->seconds);
  if (r->tokens > 0) cell[TOKENS] = figure(a, r->tokens / c->seconds);
  if (dollars > 0) cell[MILLION] = figure(a, dollars_per_million(r, n));
}

// "does not fit: zero3 in 8 micro-batches needs 92.1 GB of 84.6 GB, 7.50 GB too many".
static const char *miss(Arena *a, const FitRow *r) {
  if (!r->best && r->least <= 0) return str_format(a, "no plan: %s", r->why);
  if (!r->best)
    return str_format(a, "does not fit: every plan needs at least %s, %s too many",
                      size_of(a, r->least), size_of(a, fit_lacks(r)));
  const Candidate *c = r->best;
  return str_format(a, "does not fit: %s in %" PRId64 " micro-batch%s needs %s of %s, %s too many",
                    c->plan, c->micro_batches, c->micro_batches == 1 ? "" : "es",
                    size_of(a, (double)c->needs.peak_bytes), size_of(a, r->memory),
                    size_of(a, fit_lacks(r)));
}

// Adds the cells, aligned; texts on the left, figures on the right.
static void add_line(StrBuf *b, const char *const cell[], const int width[]) {
  for (int k = 0; k < N_COLUMNS; k++) {
    if (!width[k]) continue;
    bool left = k == NAME || k == PLAN;
    strbuf_addf(b, "%s%*s", k ? "  " : "", left ? -width[k] : width[k], cell[k]);
  }
  while (b->n && b->at[b->n - 1] == ' ')
    b->at[--b->n] = 0;
  strbuf_add(b, "\n");
}

static void add_table(StrBuf *b, const FitRows *rows) {
  static const char *const titles[N_COLUMNS] = {
      "cluster",  "devices", "plan",   "micro-batches", "step ms",    "samples/s",
      "tokens/s", "peak",    "memory", "$/hour",        "$/M samples"};
  Arena *a = b->arena;
  bool priced = false, tokens = false, planned = false;
  for (int i = 0; i < rows->n; i++) {
    planned |= fit_fits(&rows->at[i]);
    priced |= fit_fits(&rows->at[i]) && cluster_dollars(rows->at[i].cluster) > 0;
    tokens |= rows->at[i].tokens > 0;
  }
  // The cells, and the width of each column; 0: a column that no row has.
  Cells head, *cell = arena_array(a, Cells, rows->n);
  memcpy(head.of, titles, sizeof titles);
  if (tokens) head.of[MILLION] = "$/M tokens";
  int width[N_COLUMNS] = {0};
  for (int i = -1; i < rows->n; i++) {
    const char **of = i < 0 ? head.of : cell[i].of;
    for (int k = 0; i >= 0 && k < N_COLUMNS; k++)
      of[k] = "-";
    if (i >= 0) {
      of[NAME] = rows->at[i].name;
      of[DEVICES] = str_format(a, "%d", rows->at[i].devices);
      if (fit_fits(&rows->at[i])) cells_of(&rows->at[i], of, a);
    }
    for (int k = 0; k < N_COLUMNS; k++) {
      bool none = (k > DEVICES && !planned) || (k == TOKENS && !tokens) || (k >= HOUR && !priced);
      if (!none && (int)strlen(of[k]) > width[k]) width[k] = (int)strlen(of[k]);
    }
  }
  add_line(b, head.of, width);
  for (int i = 0; i < rows->n; i++) {
    const FitRow *r = &rows->at[i];
    if (fit_fits(r))
      add_line(b, cell[i].of, width);
    else
      strbuf_addf(b, "%*s  %*d  %s\n", -width[NAME], r->name, width[DEVICES], r->devices,
                  miss(a, r));
  }
}

// -- The answers below ---------------------------------------------------------------------------

// Adds what would make a model fit on the row's cluster.
static void add_cures(StrBuf *b, const FitRow *r) {
  Arena *a = b->arena;
  if (fit_lacks(r) <= 0) return;
  strbuf_addf(b, "\nwhat would make it fit on %s:\n", r->name);
  if (r->best) {
    const Needs *n = &r->best->needs;
    double kept = (double)(n->weight_bytes + n->state_bytes);
    strbuf_addf(b,
                "  rank %d needs %s: %s of weights, %s of optimizer states, %s of gradients and "
                "activations\n",
                n->rank, size_of(a, (double)n->peak_bytes), size_of(a, (double)n->weight_bytes),
                size_of(a, (double)n->state_bytes), size_of(a, (double)n->peak_bytes - kept));
  }
  strbuf_addf(b, "  %s more of each device\n", size_of(a, fit_lacks(r)));
  if (r->other) strbuf_addf(b, "  another plan: %s\n", strstr(r->other, "--plan"));
  if (r->wider) strbuf_addf(b, "  more devices: %s\n", r->wider);
  if (!r->other && !r->wider)
    strbuf_addf(
        b, "  none of %d plan%s needs less%s%s\n", r->n_tried, r->n_tried == 1 ? "" : "s",
        r->requested ? ", and no other that is quick to make fits"
                     : ", with recomputation and offloading among them",
        r->nodes_tried ? str_format(a, "; nor does it fit on up to %d nodes", r->nodes_tried) : "");
  if (r->cut)
    strbuf_add(b, "  other numbers of micro-batches are tried if --micro-batches is left out\n");
}

// Adds "h100:1x8 (12.31 ms)" of the row with the least of a figure, if there are several rows with
// it.
static void add_least(StrBuf *b, const FitRows *rows, const char *title, bool dollars) {
  int best = -1, n = 0;
  double least = 0;
  for (int i = 0; i < rows->n; i++) {
    const FitRow *r = &rows->at[i];
    if (!is_timed(r) || (dollars && cluster_dollars(r->cluster) <= 0)) continue;
    double x = dollars ? dollars_per_million(r, r->rows) : r->best->seconds;
    if (best < 0 || x < least) best = i, least = x;
    n++;
  }
  if (n > 1) strbuf_addf(b, "%s: %s\n", title, rows->at[best].name);
}

// "priced by 16-bit peak", "by ring, in a node; nccl: nvls simple, 1.20 ms".
static const char *priced_by(Arena *a, const PriceTerm *t) {
  if (!t->nodes) return str_format(a, "by %s", t->by);
  const char *where = t->nodes > 1 ? "across nodes" : "in a node";
  if (!t->algorithm) return str_format(a, "by %s, %s", t->by, where);
  if (str_equal(t->by, "nccl"))
    return str_format(a, "by nccl: %s %s, %s", t->algorithm, t->protocol, where);
  return str_format(a, "by %s, %s; nccl: %s %s, %s ms", t->by, where, t->algorithm, t->protocol,
                    figure(a, t->nccl_seconds * 1e3));
}

// Adds the memory of the row's plan by use, and how its step was priced.
static void add_details(StrBuf *b, const FitRow *r) {
  Arena *a = b->arena;
  strbuf_addf(b, "\n%s, %d plan%s tried\n", r->name, r->n_tried, r->n_tried == 1 ? "" : "s");
  strbuf_addf(b, "  memory of rank %d: %s\n", r->best->needs.rank, needs_text(a, &r->best->needs));
  if (r->prices.n) strbuf_addf(b, "  rank %d computes most, in a step:\n", r->priced_rank);
  for (int i = 0; i < r->prices.n; i++) {
    const PriceTerm *t = &r->prices.at[i];
    strbuf_addf(b, "    %-14s %8" PRId64 "  %10s ms  %s\n", t->what, t->count,
                figure(a, t->seconds * 1e3), priced_by(a, t));
  }
}

const char *fit_text(Arena *a, const FitRows *rows, bool verbose) {
  StrBuf b = {.arena = a};
  add_table(&b, rows);
  int smallest = fit_smallest(rows);
  strbuf_addf(&b, "\nsmallest that fits: %s\n", smallest < 0 ? "none" : rows->at[smallest].name);
  add_least(&b, rows, "fastest", false);
  add_least(&b, rows, "cheapest", true);
  for (int i = 0; i < rows->n; i++)
    add_cures(&b, &rows->at[i]);
  for (int i = 0; verbose && i < rows->n; i++)
    if (fit_fits(&rows->at[i])) add_details(&b, &rows->at[i]);
  return b.at;
}

// -- JSON ----------------------------------------------------------------------------------------

static void add_number(StrBuf *b, const char *key, bool known, double x) {
  strbuf_addf(b, ", \"%s\": %s", key, known ? str_format(b->arena, "%.9g", x) : "null");
}

static void add_text(StrBuf *b, const char *key, const char *text) {
  strbuf_addf(b, ", \"%s\": %s", key, text ? json_string(b->arena, text) : "null");
}

static void add_row(StrBuf *b, const FitRow *r) {
  const Candidate *c = r->best;
  double dollars = cluster_dollars(r->cluster);
  bool timed = is_timed(r), priced = timed && dollars > 0, tokens = r->tokens > 0;
  strbuf_addf(b, "{\"cluster\": %s, \"devices\": %d, \"fits\": %s", json_string(b->arena, r->name),
              r->devices, fit_fits(r) ? "true" : "false");
  add_text(b, "plan", c ? c->plan : NULL);
  add_number(b, "micro_batches", c, c ? (double)c->micro_batches : 0);
  add_number(b, "step_ms", timed, timed ? c->seconds * 1e3 : 0);
  add_number(b, "samples_per_s", timed, timed ? r->rows / c->seconds : 0);
  add_number(b, "tokens_per_s", timed && tokens, timed ? r->tokens / c->seconds : 0);
  add_number(b, "peak_bytes", c || r->least > 0, c ? (double)c->needs.peak_bytes : r->least);
  add_number(b, "weight_bytes", c, c ? (double)c->needs.weight_bytes : 0);
  add_number(b, "state_bytes", c, c ? (double)c->needs.state_bytes : 0);
  add_number(b, "memory_bytes", r->cluster->memory > 0, c ? r->memory : r->cluster->memory);
  add_number(b, "lacks_bytes", c || r->least > 0, fit_lacks(r));
  add_number(b, "dollars_per_hour", dollars > 0, dollars);
  add_number(b, "dollars_per_million_samples", priced,
             priced ? dollars_per_million(r, r->rows) : 0);
  add_number(b, "dollars_per_million_tokens", priced && tokens,
             priced && tokens ? dollars_per_million(r, r->tokens) : 0);
  add_number(b, "plans_tried", true, r->n_tried);
  add_text(b, "why", c ? NULL : r->why);
  add_text(b, "fits_with_plan", r->other);
  add_text(b, "fits_with_devices", r->wider);
  strbuf_add(b, "}");
}

const char *fit_json(Arena *a, const FitRows *rows, const char *model) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "{\"model\": %s, \"clusters\": [", json_string(a, model));
  for (int i = 0; i < rows->n; i++) {
    strbuf_add(&b, i ? ",\n  " : "\n  ");
    add_row(&b, &rows->at[i]);
  }
  int smallest = fit_smallest(rows);
  strbuf_addf(&b, "\n], \"smallest\": %s}\n",
              smallest < 0 ? "null" : json_string(a, rows->at[smallest].name));
  return b.at;
}
