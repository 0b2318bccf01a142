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

// Lists the events of each lane, in order.
static void list_events(Trace *x) {
  Arena *a = x->b.arena;
  int *last = arena_array(a, int, x->t->n_lanes);
  x->first = arena_array(a, int, x->t->n_lanes);
  x->next = arena_array(a, int, x->t->event.n);
  for (int i = 0; i < x->t->n_lanes; i++)
    x->first[i] = last[i] = -1;
  for (int i = 0; i < x->t->event.n; i++) {
    int lane = x->t->event.at[i].lane;
    *(last[lane] < 0 ? &x->first[lane] : &x->next[last[lane]]) = i;
    last[lane] = i;
    x->next[i] = -1;
  }
}

static void name_it(Trace *x, int process, int tid, const char *name) {
  bool is_thread = tid >= 0;
  strbuf_addf(&x->b, "%s{\"name\":\"%s_name\",\"ph\":\"M\",\"pid\":%d,",
              x->b.at[x->b.n - 2] == '[' ? "" : ",\n", is_thread ? "thread" : "process", process);
  if (is_thread) strbuf_addf(&x->b, "\"tid\":%d,", tid);
  strbuf_addf(&x->b, "\"args\":{\"name\":%s}}", json_string(x->b.arena, name));
}

static void say_op(Trace *x, const Op *op) {
  Arena *a = x->b.arena;
  if (x->title[op->id]) return;
  x->title[op->id] = json_string(a, op_title(a, op, x->target));
  x->place[op->id] = json_string(a, op_place(a, op));
}

static const char *segment_title(const Trace *x, const StepEvent *e) {
  const char *name = e->segment ? segment_name(x->m->graphs, e->segment) : "micro";
  return json_string(x->b.arena, name);
}

static void add_event(Trace *x, int process, const StepEvent *e) {
  double from = round(1e9 * e->from), to = round(1e9 * e->to); // so that neighbours do not overlap
  int tid = e->op ? thread_of[e->line] : SEGMENTS;
  if (e->op) say_op(x, e->op);
  strbuf_addf(&x->b, ",\n{\"name\":%s,\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,",
              e->op ? x->title[e->op->id] : segment_title(x, e), thread[tid].kind, from / 1e3,
              (to - from) / 1e3);
  strbuf_addf(&x->b, "\"pid\":%d,\"tid\":%d,\"args\":{\"step\":%d,", process, tid,
              e->before ? -1 : 0);
  bool in_loop = e->slice >= 0 && !(e->op && e->op->owed);
  if (in_loop) strbuf_addf(&x->b, "\"micro_batch\":%d,", e->slice);
  strbuf_addf(&x->b, "\"at\":%s}}", e->op ? x->place[e->op->id] : "\"\"");
}

// Adds the memory in use.  Of several points at one time, the last holds from then on.
static void add_memory(Trace *x, int process, const LaneMemory *memory) {
  for (int i = 0; i < memory->point.n; i++) {
    const MemoryPoint *p = &memory->point.at[i];
    strbuf_addf(&x->b, ",\n{\"name\":\"memory\",\"ph\":\"C\",\"ts\":%.3f,\"pid\":%d,\"args\":{",
                1e6 * p->time, process);
    for (int k = 0; k < N_MEMORY_KINDS; k++)
      strbuf_addf(&x->b, "%s\"%s\":%" PRId64, k ? "," : "", memory_kind_name[k], p->bytes[k]);
    strbuf_add(&x->b, "}}");
  }
}

// Whether a rank may have this thread.
static bool is_there(const Trace *x, int tid) {
  if (tid == MOVES) return x->m->graphs->schedule || graph_first_owed(x->m->graphs);
  return tid < MOVES || x->m->host_bytes > 0;
}

static void add_process(Trace *x, int process, const char *name, int lane) {
  name_it(x, process, -1, name);
  for (int i = 0; i < N_THREADS; i++)
    if (is_there(x, i)) name_it(x, process, i, thread[i].name);
  for (int i = x->first[lane]; i >= 0; i = x->next[i])
    add_event(x, process, &x->t->event.at[i]);
  if (x->memory) add_memory(x, process, &x->memory[lane]);
}

// Whether each rank has a process of its own.
static bool are_apart(const Trace *x) {
  int64_t n = 0;
  for (int i = 0; i < x->t->event.n; i++)
    n += x->t->lane[x->t->event.at[i].lane].n_devices;
  return x->t->cost.n_ranks <= MOST_RANKS && n <= MOST_EVENTS;
}

const char *trace_text(Arena *a, const Module *m, Target target, const StepTimeline *t,
                       const LaneMemory *memory) {
  Trace x = {.b = {.arena = a}, .m = m, .target = target, .t = t, .memory = memory};
  x.title = arena_array(a, const char *, m->graphs->n_ops);
  x.place = arena_array(a, const char *, m->graphs->n_ops);
  list_events(&x);
  strbuf_add(&x.b, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  bool apart = are_apart(&x);
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
