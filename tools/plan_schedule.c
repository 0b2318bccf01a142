// nnaot-plan schedule: the order and times of the blocks of a pipeline on each device
// (passes/schedule).

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "draw_schedule.h"
#include "output.h"
#include "questions.h"
#include "schedule/best.h"
#include "schedule/kinds.h"

#define LARGEST 1e12 // times: sums of them must stay exact enough

// -- Options -----------------------------------------------------------------------------------

static struct {
  const char *kind, *constraints;
  int64_t stages, micro_batches, chunks;
  double f, b, w, comm, memory, embed, seconds;
  bool json;
} settings = {.kind = "1f1b",
              .chunks = 4,
              .constraints = "",
              .f = 1,
              .b = 1,
              .w = 1,
              .memory = INFINITY,
              .seconds = 60};

static const Option options[] = {
    GROUP("The pipeline"),
    NEEDED_INTEGER("stages", 0, &settings.stages, "P", "devices, each with one stage or more"),
    NEEDED_INTEGER("micro-batches", 0, &settings.micro_batches, "M", "of a step"),
    STRING("kind", 0, &settings.kind, "NAME",
           "gpipe, 1f1b, pipedream, interleaved:CHUNKS, chimera, zb-h1, zb-h2, zb-v, dualpipe, "
           "interlaced, 3f1b, terapipe:PIECES, or search: the shortest that is found of whole "
           "micro-batches"),
    NUMBER("f", 0, &settings.f, "T", "a device's time for the forward of a micro-batch"),
    NUMBER("b", 0, &settings.b, "T", "for the gradients of its inputs"),
    NUMBER("w", 0, &settings.w, "T", "for those of its weights"),
    NUMBER("comm", 0, &settings.comm, "T",
           "of a transfer between devices; both can compute during it"),
    NUMBER(
        "embed", 0, &settings.embed, "T",
        "for each of the four uses of an embedding, on all devices; for --kind interlaced and for "
        "an embedding in --constraints"),
    GROUP("What a search looks at"),
    NUMBER("memory", 0, &settings.memory, "LIMIT",
           "micro-batches that a device may hold at a time"),
    INTEGER("chunks", 0, &settings.chunks, "N",
            "a device has at most so many, each a stage of its own"),
    STRING("constraints", 0, &settings.constraints, "FILE.lua",
           "only the choices that this file leaves open; passes/schedule has its format"),
    NUMBER("seconds", 0, &settings.seconds, "S",
           "the best so far is the result after S seconds; before, it does not depend on the "
           "machine's speed"),
    GROUP("Output"),
    FLAG("json", 0, &settings.json,
         "print one object: makespan, span, bubble, peak, chunks, bound, optimal, ops"),
};

// -- Checks of options -------------------------------------------------------------------------

// Reports each wrong number.  Returns the status of the last one.
static int check_numbers(const Program *program) {
  const struct {
    const char *name;
    double value;
  } times[] = {{"f", settings.f},
               {"b", settings.b},
               {"w", settings.w},
               {"comm", settings.comm},
               {"embed", settings.embed}};
  const struct {
    const char *name;
    int64_t value;
  } counts[] = {{"stages", settings.stages}, {"micro-batches", settings.micro_batches}};
  int status = 0;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    if (counts[i].value < 1 || counts[i].value > SCHEDULE_PLACES)
      status = usage_error(program, "--%s must be from 1 to %d", counts[i].name, SCHEDULE_PLACES);
  }
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    if (!(times[i].value >= 0 && times[i].value <= LARGEST)) // nan as well
      status = usage_error(program, "--%s must be from 0 to %.0e", times[i].name, LARGEST);
  if (settings.chunks < 2 || settings.chunks > SCHEDULE_CHUNKS)
    status = usage_error(program, "--chunks must be from 2 to %d", SCHEDULE_CHUNKS);
  if (!(settings.seconds > 0)) status = usage_error(program, "--seconds is not above 0"); // nan
  if (!(settings.memory > 0)) status = usage_error(program, "--memory must be above 0");
  // Sums and products only of numbers that are in range.
  if (!status && settings.f + settings.b + settings.w <= 0)
    status = usage_error(program, "--f, --b and --w are all 0: there is nothing to do");
  if (!status && settings.stages > SCHEDULE_PLACES / settings.micro_batches)
    status =
        usage_error(program, "--stages times --micro-batches is more than %d", SCHEDULE_PLACES);
  return status;
}

static int read_choice(const Program *program, ScheduleChoice *c) {
  // Wrong numbers and a wrong kind are both reported.  A search uses as many chunks as it may,
  // unless a file gives its shape.

  int status = check_numbers(program);
  ScheduleKind kind;
  const char *wrong = schedule_kind(c->arena, settings.kind, &kind);
  if (wrong) {
    int other = usage_error(program, "--kind: %s", wrong);
    return status ? status : other;
  }
  bool searches = !kind.text && (!*settings.constraints || option_given("chunks"));
  c->kind = kind.text;
  c->ask.chunks = searches ? (int)settings.chunks : kind.count;
  if (status) return status;
  c->constraints = *settings.constraints ? settings.constraints : NULL;
  if (c->constraints && c->kind)
    return usage_error(program, "--constraints has no effect with --kind %s: they are for search",
                       settings.kind);
  if (option_given("chunks") && c->kind)
    return usage_error(program, "--chunks has no effect with --kind %s: it is for search",
                       settings.kind);
  c->ask.n_devices = (int)settings.stages;
  c->ask.n_micro_batches = (int)settings.micro_batches;
  c->ask.f = settings.f;
  c->ask.b = settings.b;
  c->ask.w = settings.w;
  c->ask.e = settings.embed;
  c->ask.latency = settings.comm;
  c->ask.memory = settings.memory;
  return 0;
}

// -- Output ------------------------------------------------------------------------------------

static void print_json(Arena *a, const ScheduleBest *x) {
  const Timeline *t = &x->timeline;
  int n = x->plan->shape.n_devices;
  printf("{\"kind\": %s, \"makespan\": %.12g, \"span\": %.12g, \"bubble\": %.12g, \"peak\": [",
         json_string(a, x->plan->name), t->makespan, t->span, t->bubble);
  for (int d = 0; d < n; d++)
    printf("%s%.12g", d ? ", " : "", t->peak[d]);
  printf("], \"chunks\": %d, \"bound\": %.12g, \"optimal\": %s, \"ops\": [",
         schedule_best_chunks(x), x->bound, x->optimal ? "true" : "false");
  for (int d = 0; d < n; d++)
    for (int i = t->at[d]; i < t->at[d + 1]; i++) {
      // Blocks of one device follow each other in time.
      int block = t->block[i];
      const Blocks *b = x->plan->blocks;
      const Work *w = b->work[block];
      int pieces = x->plan->shape.pieces;
      printf("%s\n  {\"device\": %d, \"kind\": \"%s\", \"stage\": %d, \"micro_batch\": %d, ",
             i ? "," : "", d, work_kind_name[w->kind], w->stage, b->micro_batch[block] / pieces);
      if (pieces > 1) printf("\"piece\": %d, ", b->micro_batch[block] % pieces);
      if (x->plan->shape.forwards > 1 || w->kind == WORK_E) printf("\"pass\": %d, ", w->pass);
      printf("\"start\": %.12g, \"end\": %.12g}", x->timeline.start[block], x->timeline.end[block]);
    }
  printf("]}\n");
}

static int schedule(const Program *program, ScheduleChoice *c, Diag *d) {
  ScheduleBest x;
  c->end = clock_seconds() + settings.seconds;
  if (!schedule_best(c, &x, d)) return EXIT_FAILURE;
  if (x.late) {
    diag_note(d, NULL, "the search ended after %.6g seconds, before it was complete",
              settings.seconds);
    diag_hint(d, "--seconds S gives it more time");
  }
  // The kind or the file decides whether there is an embedding.
  const Shape *shape = &x.plan->shape;
  const char *option = c->constraints ? "constraints" : "kind";
  const char *value = c->constraints ? c->constraints : settings.kind;
  if (!shape->embedding && settings.embed > 0)
    return usage_error(program, "--embed has no effect with --%s %s", option, value);
  if (shape->embedding && !option_given("embed")) {
    diag_warning(d, NULL, "the embedding of --%s %s takes no time, and is not drawn", option,
                 value);
    diag_hint(d, "--embed T says how long each of its four uses takes on all devices");
  }
  if (settings.json) {
    print_json(c->arena, &x);
  } else {
    draw_timeline(x.plan, &x.timeline);
    if (!c->kind) printf("%s\n", schedule_best_text(c->arena, c, &x));
    // The last line has the figures of the whole timeline.
    const Timeline *t = &x.timeline;
    printf("makespan %.9g; span %.9g; bubble %.6g; peak ", t->makespan, t->span, t->bubble);
    for (int k = 0; k < x.plan->shape.n_devices; k++)
      printf("%s%.6g", k ? "," : "", t->peak[k]);
    printf("\n");
  }
  return output_flush(d) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int answer(const Program *program, const char *file) {
  (void)file;
  ScheduleChoice c = {.arena = arena_new()};
  int status = read_choice(program, &c);
  if (!status) {
    Diag *d = diag_new(stderr);
    status = schedule(program, &c, d);
    diag_free(d);
  }
  arena_free(c.arena);
  return status;
}

const Question question_schedule = {
    {"nnaot-plan schedule",
     "nnaot-plan schedule --stages P --micro-batches M [--kind NAME] [--f T] [--b T] [--w T] "
     "[--comm T]\n                           [--embed T] [--chunks N] [--memory LIMIT] "
     "[--constraints FILE.lua]\n                           [--seconds S] [--json]",
     "Draws a line for each device. The last line is the makespan, the longest time of a device "
     "from its\nfirst block to its last, the fraction of the devices' time that is idle (the "
     "bubble), and the most\nmicro-batches that each holds at a time.",
     options, sizeof options / sizeof *options, NULL, NULL},
    "which block of a pipeline each device runs when",
    false,
    answer,
};
