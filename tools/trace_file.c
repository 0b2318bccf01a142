// See trace_file.h.
//
//     rank 0      operations      linear  fused add gelu  …
//                 communication            move                micro_batch 3   mlp.onnx:/act/Gelu
//                 segments        F0 ──────────────── F0 ───
//                 moves               move            micro_batch 2   with a schedule
//                 to host memory      swap_out                        of a plan that swaps or offloads
//                 from host memory              swap_in
//                 memory          weights, forward, … in bytes
//
// A rank is a process of the picture.  Events that began in the previous step have step -1.  With
// many ranks or events, ranks with equal timelines share one process: "ranks 0-63".

#include "trace_file.h"

#include <inttypes.h>
#include <math.h>

#include "ir/analysis/deferred.h"
#include "ir/op_display_name.h"
#include "ir/schedule.h"
#include "ir/text.h"
#include "output.h"

enum { MOST_RANKS = 64, MOST_EVENTS = 400000 };
enum { OPERATIONS, COMMUNICATION, SEGMENTS, MOVES, TO_HOST, FROM_HOST, N_THREADS };
static const struct {
  const char *name, *kind;
} thread[] = {{"operations", "op"}, {"communication", "comm"},  {"segments", "segment"},
              {"moves", "comm"},    {"to host memory", "copy"}, {"from host memory", "copy"}};
// The threads of events that are ops.
static const int thread_of[] = {[LINE_computes] = OPERATIONS,
                                [LINE_moves] = COMMUNICATION,
                                [LINE_ahead] = MOVES,
                                [LINE_out] = TO_HOST,
                                [LINE_in] = FROM_HOST};

typedef struct Trace {
  StrBuf b;
  const Module *m;
  Target target;
  const StepTimeline *t;
  const LaneMemory *memory;
  const char **title, **place; // of ops, by id, as JSON
  int *first, *next;           // first event of each lane, and successor of each event
} Trace;

static void name_it(Trace *x, int process, int tid, const char *name) {
  bool is_thread = tid >= 0;
  strbuf_addf(&x->b, "%s{\"name\":\"%s_name\",\"ph\":\"M\",\"pid\":%d,",
              x->b.at[x->b.n - 2] == '[' ? "" : ",\n", is_thread ? "thread" : "process", process);
  if (is_thread) strbuf_addf(&x->b, "\"tid\":%d,", tid);
  strbuf_addf(&x->b, "\"args\":{\"name\":%s}}", json_string(x->b.arena, name));
}

static void add_process(Trace *x, int process, const char *name, int lane) {
  Arena *a = x->b.arena;
  name_it(x, process, -1, name);
  // Threads that a rank cannot have are not named.
  for (int i = 0; i < N_THREADS; i++) {
    bool is_there = i < MOVES || x->m->host_bytes > 0;
    if (i == MOVES) is_there = x->m->graphs->schedule || graph_first_deferred(x->m->graphs);
    if (is_there) name_it(x, process, i, thread[i].name);
  }
  for (int i = x->first[lane]; i >= 0; i = x->next[i]) {
    // Times are rounded so that neighbours do not overlap.
    const StepEvent *e = &x->t->event.at[i];
    double from = round(1e9 * e->from), to = round(1e9 * e->to);
    int tid = e->op ? thread_of[e->line] : SEGMENTS;
    if (e->op && !x->title[e->op->id]) {
      x->title[e->op->id] = json_string(a, op_title(a, e->op, x->target));
      x->place[e->op->id] = json_string(a, op_place(a, e->op));
    }
    const char *title =
        e->op ? x->title[e->op->id]
              : json_string(a, e->segment ? segment_name(x->m->graphs, e->segment) : "micro");
    strbuf_addf(&x->b, ",\n{\"name\":%s,\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,",
                title, thread[tid].kind, from / 1e3, (to - from) / 1e3);
    strbuf_addf(&x->b, "\"pid\":%d,\"tid\":%d,\"args\":{\"step\":%d,", process, tid,
                e->before ? -1 : 0);
    bool in_loop = e->slice >= 0 && !(e->op && e->op->deferred);
    if (in_loop) strbuf_addf(&x->b, "\"micro_batch\":%d,", e->slice);
    strbuf_addf(&x->b, "\"at\":%s}}", e->op ? x->place[e->op->id] : "\"\"");
  }
  if (x->memory) {
    // The memory in use.  Of several points at one time, the last holds from then on.
    const LaneMemory *memory = &x->memory[lane];
    for (int i = 0; i < memory->point.n; i++) {
      const MemoryPoint *p = &memory->point.at[i];
      strbuf_addf(&x->b, ",\n{\"name\":\"memory\",\"ph\":\"C\",\"ts\":%.3f,\"pid\":%d,\"args\":{",
                  1e6 * p->time, process);
      for (int k = 0; k < N_MEMORY_KINDS; k++)
        strbuf_addf(&x->b, "%s\"%s\":%" PRId64, k ? "," : "", memory_kind_name[k], p->bytes[k]);
      strbuf_add(&x->b, "}}");
    }
  }
}

const char *trace_text(Arena *a, const Module *m, Target target, const StepTimeline *t,
                       const LaneMemory *memory) {
  Trace x = {.b = {.arena = a}, .m = m, .target = target, .t = t, .memory = memory};
  x.title = arena_array(a, const char *, m->graphs->n_ops);
  x.place = arena_array(a, const char *, m->graphs->n_ops);
  // The events of each lane, in order.
  int *last = arena_array(a, int, x.t->n_lanes);
  x.first = arena_array(a, int, x.t->n_lanes);
  x.next = arena_array(a, int, x.t->event.n);
  for (int i = 0; i < x.t->n_lanes; i++)
    x.first[i] = last[i] = -1;
  for (int i = 0; i < x.t->event.n; i++) {
    int lane = x.t->event.at[i].lane;
    *(last[lane] < 0 ? &x.first[lane] : &x.next[last[lane]]) = i;
    last[lane] = i;
    x.next[i] = -1;
  }
  strbuf_add(&x.b, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  // Each rank has a process of its own, unless there are too many ranks or events.
  int64_t n = 0;
  for (int i = 0; i < x.t->event.n; i++)
    n += x.t->lane[x.t->event.at[i].lane].n_devices;
  bool apart = x.t->cost.n_ranks <= MOST_RANKS && n <= MOST_EVENTS;
  for (int i = 0; i < t->n_lanes; i++) {
    const StepLane *lane = &t->lane[i];
    for (int k = 0; apart && k < lane->n_devices; k++)
      add_process(&x, lane->device[k], str_format(a, "rank %d", lane->device[k]), i);
    if (apart) continue;
    const char *ranks = device_list(a, lane->device, lane->n_devices);
    add_process(&x, lane->device[0],
                str_format(a, "rank%s %s", lane->n_devices > 1 ? "s" : "", ranks), i);
  }
  strbuf_add(&x.b, "\n]}\n");
  return x.b.at;
}
