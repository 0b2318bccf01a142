// The text of a schedule: a line for each run, with repetitions factored out.
//
//     run devices=0-1 F0*3 (F0 get %g1 B0)*5 (get %g1 B0)*3

#include "ir/schedule.h"

#include <inttypes.h>
#include <string.h>

#include "ir/analysis/boxes.h"
#include "ir/op.h"
#include "ir/parse.h"
#include "ir/split.h"
#include "ir/text.h"

Schedule *graph_schedule(Graph *g) {
  if (!g->schedule) g->schedule = arena_one(g->module->arena, Schedule);
  return g->schedule;
}

int schedule_segment(Graph *g, const char *name) {
  Schedule *s = graph_schedule(g);
  int i = 0;
  while (i < s->segment.n && strcmp(s->segment.at[i], name) != 0)
    i++;
  if (i == s->segment.n) vec_push(g->module->arena, &s->segment, str_copy(g->module->arena, name));
  return i + 1;
}

const char *segment_name(const Graph *g, int segment) {
  return g->schedule->segment.at[segment - 1];
}

const RankRun *graph_run_of(const Graph *g, int device) {
  for (int i = 0; g->schedule && i < g->schedule->run.n; i++) {
    const RankRun *run = &g->schedule->run.at[i];
    // Each device is in one run.
    for (int k = 0; k < run->n_devices; k++)
      if (run->device[k] == device) return run;
  }
  return NULL;
}

bool move_leads_on(const Op *move) {
  const Op *made = move->in[0].value->def;
  return !made || !made->segment || made->segment != move->segment;
}

bool move_is_ahead(const Op *op) {
  if (op->kind != OP_move || !move_leads_on(op)) return false;
  const Value *x = op->in[0].value, *y = op->out[0];
  // A device that only the target mesh has must receive.
  if (x->layout->mesh != y->layout->mesh && !mesh_covers(x->layout->mesh, y->layout->mesh))
    return true;
  // Otherwise the messages tell.
  return module_move_elements(op->graph->module, value_whole(x), x->layout, y->layout) > 0;
}

bool move_sends(const Op *move, const int *device, int n) {
  const Value *x = move->in[0].value;
  Arena *a = arena_new();
  Messages messages = {0};
  bool found = false;
  move_messages(value_whole(x), x->layout, move->out[0]->layout, NULL, a, &messages);
  for (int i = 0; i < messages.n && !found; i++)
    for (int k = 0; k < n; k++)
      found |= messages.at[i].from == device[k] && messages.at[i].to != device[k];
  arena_free(a);
  return found;
}

int move_start(const Op *move, const RankRun *run) {
  const Op *made = move->in[0].value->def;
  if (made && made->segment) return made->segment;
  // A value of the outside is sent in the first segment of the run.
  for (int i = 0; i < run->action.n; i++)
    if (run->action.at[i].segment) return run->action.at[i].segment;
  return 0;
}

// -- Writing -----------------------------------------------------------------------------------

// The longest period of a repetition: the actions of a stage with many chunks in one round.
enum { LONGEST_PERIOD = 256 };

static bool same_actions(const Action *a, const Action *b, int n) {
  for (int i = 0; i < n; i++)
    if (a[i].segment != b[i].segment || a[i].get != b[i].get) return false;
  return true;
}

// The number of consecutive repetitions of the first `period` of n actions.
static int times(const Action *a, int n, int period) {
  int k = 1;
  while ((k + 1) * period <= n && same_actions(a, a + k * period, period))
    k++;
  return k;
}

// Takes the repetition that covers the most actions, with the shortest such period.
static void add_actions(StrBuf *b, const Graph *g, const Action *a, int n) {
  for (int i = 0; i < n;) {
    int period = 1, covers = times(a + i, n - i, 1);
    for (int longer = 2; longer <= LONGEST_PERIOD && 2 * longer <= n - i; longer++) {
      int k = times(a + i, n - i, longer);
      if (k < 2 || k * longer <= covers) continue;
      period = longer;
      covers = k * longer;
    }
    // A single segment goes without parentheses: F0*3.
    int k = covers / period;
    bool group = k > 1 && (period > 1 || !a[i].segment);
    if (i) strbuf_add(b, " ");
    if (group) strbuf_add(b, "(");
    // The actions of one period may repeat among themselves.
    if (group && period > 1)
      add_actions(b, g, a + i, period);
    else if (a[i].segment)
      strbuf_add(b, str_name(b->arena, segment_name(g, a[i].segment)));
    else
      strbuf_addf(b, "get %s", value_name(b->arena, a[i].get));
    if (group) strbuf_add(b, ")");
    if (k > 1) strbuf_addf(b, "*%d", k);
    i += covers;
  }
}

void schedule_print(StrBuf *b, const Graph *g) {
  for (int i = 0; g->schedule && i < g->schedule->run.n; i++) {
    const RankRun *run = &g->schedule->run.at[i];
    strbuf_addf(b, "  run devices=%s ", device_list(b->arena, run->device, run->n_devices));
    add_actions(b, g, run->action.at, run->action.n);
    strbuf_add(b, "\n");
  }
}

// -- Reading -----------------------------------------------------------------------------------

enum { MAX_ACTIONS = 1 << 24 };

typedef Vec(Action) Actions;

static bool ends(const Parser *p) {
  const Token *t = parser_peek(p);
  return t->kind == TOKEN_end || token_is(t, ")") || token_is(t, "}") ||
         (token_is(t, "run") && token_is(parser_peek2(p), "devices"));
}

static bool parse_actions(Parser *p, Actions *out) {
  do {
    int from = out->n, n;
    int64_t k = 1;
    Action action = {0};
    // A group, a value to receive, or a segment to run.
    if (parser_accept(p, "(")) {
      if (p->nesting == MAX_NESTING)
        return parser_expected(p, "parentheses that are nested less deeply");
      p->nesting++;
      bool ok = parse_actions(p, out) && parser_expect(p, ")");
      p->nesting--;
      if (!ok) return false;
    } else if (parser_accept(p, "get")) {
      if (!parse_value(p, &action.get)) return false;
    } else {
      const Token *t = expect_kind(p, TOKEN_word, "a segment, such as F0, or get");
      if (!t) return false;
      action.segment = schedule_segment(p->g, t->text);
    }
    // A value with a failed definition is already reported.
    if (action.segment || action.get) vec_push(p->scratch, out, action);
    // A repetition copies the actions that were just added.
    n = out->n - from;
    const Token *t = parser_peek(p);
    if (parser_accept(p, "*") && !parse_int(p, 1, MAX_NUMBER, &k)) return false;
    if ((k - 1) * n > MAX_ACTIONS - out->n)
      return parser_fail(p, t, "more than %d actions", MAX_ACTIONS);
    for (int64_t i = 0; i < (k - 1) * n; i++) {
      Action again = out->at[from + i];
      vec_push(p->scratch, out, again);
    }
  } while (!ends(p));
  return true;
}

bool schedule_parse(Parser *p) {
  RankRun run = {0};
  Actions actions = {0};
  if (!parser_expect(p, "devices") || !parser_expect(p, "=") ||
      !parse_devices(p, &run.device, &run.n_devices) || !parse_actions(p, &actions))
    return false;
  // The scratch arena is freed; the actions of the run stay.
  for (int i = 0; i < actions.n; i++)
    vec_push(p->m->arena, &run.action, actions.at[i]);
  vec_push(p->m->arena, &graph_schedule(p->g)->run, run);
  return true;
}
