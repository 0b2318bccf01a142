// The loop of a rank program over time slices: the segments that its ranks run, the moves that they
// start, and their order, as the graph's schedule says (ir/schedule.h).
//
//     run devices=2-3 (get %h1 F1 B1)*8
//
//   =>
//
//     static void train_s1_get_h1_start(NnrtRank *r) {…}    a part that only starts a move
//     static void train_s1_F1_wait(NnrtRank *r) {…}         until the move is complete
//     static void train_s1_F1(NnrtRank *r) {…}              the segment
//     static void train_s1_B1(NnrtRank *r) {…}
//     static void train_s1_B1_start(NnrtRank *r) {…}        sends its results
//     static const NnrtTask train_s1_parts[] = {get, F1, B1};
//     static const int train_s1_order[] = {0, 1, 2, 0, 1, 2, …};
//
// Without a schedule the loop is one part, `micro`, and only slices have an order.

#include <string.h>

#include "ir/op.h"
#include "ir/text.h"
#include "program.h"

// -- Names -------------------------------------------------------------------------------------

// "train_s1_get_h1" of "get %h1", with a number appended if the name, or that of one of its
// functions, is taken.
static const char *name_function(Program *p, const GraphCode *code, int c, const char *part) {
  static const char *const suffix[] = {"", "_wait", "_start"};
  StrBuf plain = {.arena = p->arena};
  // Runs of other characters become one underscore.
  for (const char *at = part; *at; at++) {
    bool word = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", *at);
    if (word || (plain.n && plain.at[plain.n - 1] != '_'))
      strbuf_addf(&plain, "%c", word ? *at : '_');
  }
  const char *first =
      function_name(p->arena, code->name, &p->code.at[c], plain.n ? plain.at : "of");
  const char *name = first;
  // The part's function and its wait and start must all be free.
  for (int i = 2;; i++) {
    bool taken = false;
    for (int k = 0; k < 3; k++)
      for (int j = 0; j < p->function.n; j++)
        taken |= str_equal(p->function.at[j], str_format(p->arena, "%s%s", name, suffix[k]));
    if (!taken) break;
    name = str_format(p->arena, "%s_%d", first, i);
  }
  for (int k = 0; k < 3; k++)
    vec_push(p->arena, &p->function, str_format(p->arena, "%s%s", name, suffix[k]));
  return name;
}

// -- Parts -------------------------------------------------------------------------------------

static int find_part(const Calls *calls, const Action *action) {
  int i = 0;
  while (i < calls->part.n && (calls->part.at[i].action.segment != action->segment ||
                               calls->part.at[i].action.get != action->get))
    i++;
  return i;
}

static void add_part(Program *p, GraphCode *code, int c, const Action *action) {
  LoopPart part = {.action = *action, .name = "micro"};
  if (action->segment) part.name = segment_name(code->g, action->segment);
  if (action->get) part.name = str_format(p->arena, "get %s", value_name(p->arena, action->get));
  part.function = name_function(p, code, c, part.name);
  vec_push(p->arena, &code->calls[c].part, part);
}

void loops_find(Program *p, GraphCode *code) {
  code->calls = arena_array(p->arena, Calls, p->code.n);
  // Each graph has these names in every rank program, apart from segments.
  static const char *const fixed[] = {"begin", "update", "parts", "order", "ops", "tensors"};
  for (int c = 0; c < p->code.n; c++)
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
      vec_push(p->arena, &p->function,
               function_name(p->arena, code->name, &p->code.at[c], fixed[i]));
  for (int c = 0; c < p->code.n; c++) {
    // Without a schedule the loop is one part.
    Calls *calls = &code->calls[c];
    const RankRun *run = p->code.at[c].run[code->index];
    if (!code->g->schedule) {
      add_part(p, code, c, &(Action){0});
      continue;
    }
    for (int i = 0; run && i < run->action.n; i++) {
      int k = find_part(calls, &run->action.at[i]);
      if (k == calls->part.n) add_part(p, code, c, &run->action.at[i]);
      vec_push(p->arena, &calls->order, k);
    }
  }
}

LoopPart *loop_segment(Calls *calls, int segment) {
  int i = find_part(calls, &(Action){.segment = segment});
  return i < calls->part.n ? &calls->part.at[i] : NULL;
}

LoopPart *loop_get(Calls *calls, const Value *y) {
  for (int i = 0; i < calls->part.n; i++)
    if (calls->part.at[i].action.get == y) return &calls->part.at[i];
  return NULL;
}
