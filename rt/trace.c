// --trace: measured events in Chrome's trace format (chrome://tracing, Perfetto), the format of
// nnaot's predicted trace (tools/trace_file.c).
//
// A rank is a process of the trace.  Its threads are operations, communication, segments (groups of
// operations), moves between segments, which overlap other communication, and copies to host memory
// and back.  An event has the step in which it began and its slice of time, if any.  Only the first
// events of each thread are kept, so that a long run does not fill the memory.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"

#ifndef MOST_EVENTS // of a thread of a rank
#define MOST_EVENTS 200000
#endif

static const struct {
  const char *name, *kind;
} thread[N_TRACES] = {
    [TRACE_ops] = {"operations", "op"},         [TRACE_comm] = {"communication", "comm"},
    [TRACE_segments] = {"segments", "segment"}, [TRACE_moves] = {"moves", "comm"},
    [TRACE_out] = {"to host memory", "copy"},   [TRACE_in] = {"from host memory", "copy"}};

typedef struct Event {
  TraceOf of;
  int64_t from_mark, to_mark; // of the device, until `resolved`
  double from, to;            // in µs, once `resolved`
  bool resolved;
} Event;

typedef struct Track {
  Event *event;
  int n, room;
  int n_resolved; // the first events, which are resolved
  bool full;
} Track;

typedef struct NnrtTrace {
  pthread_mutex_t lock; // guards tracks: communicating threads add to them, too
  Track track[N_TRACES];
  int64_t begun; // a mark
  bool elsewhere;
  TraceOf *later; // indexed by the number of the copy
  int n_later;
  bool keeps;           // the events are written: --trace
  NnrtTimings *timings; // of --timings, or NULL
  double zero;          // origin of the trace's time; about the same moment on every rank
} NnrtTrace;

double nnrt_now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void add(NnrtRank *r, int thread_of, Event e) {
  NnrtTrace *trace = r->trace;
  Track *t = &trace->track[thread_of];
  pthread_mutex_lock(&trace->lock);
  // Later events are dropped.
  t->full |= t->n == MOST_EVENTS;
  if (!t->full) {
    if (t->n == t->room) {
      t->room = t->room ? 2 * t->room : 1024;
      t->event = realloc(t->event, (size_t)t->room * sizeof *t->event);
      if (!t->event) nnrt_out_of_memory((size_t)t->room * sizeof *t->event);
    }
    t->event[t->n++] = e;
  }
  pthread_mutex_unlock(&trace->lock);
}

void nnrt_trace_start(NnrtRank *r) {
  NnrtTrace *t = nnrt_must_alloc(sizeof *t);
  pthread_mutex_init(&t->lock, NULL);
  // All ranks leave this sum at about the same time: the trace's origin.
  nnrt_comm_sum(r, &(int64_t){0}, 1);
  t->zero = nnrt_now_us();
  t->keeps = r->run->flags.trace.given;
  t->timings = r->run->flags.timings.given ? nnrt_timings_new(&r->program->train) : NULL;
  r->trace = t;
}

TraceOf nnrt_trace_of(const NnrtRank *r) {
  if (!r->trace) return (TraceOf){0};
  bool in_loop = r->comm->traffic.phase == TRAFFIC_micro;
  return (TraceOf){r->graph->ops[*r->op], r->step, in_loop ? r->micro : -1, r->graph, *r->op};
}

void nnrt_trace_elsewhere(NnrtRank *r) {
  if (r->trace) r->trace->elsewhere = true;
}

void nnrt_trace_later(NnrtRank *r, int copy) {
  NnrtTrace *t = r->trace;
  if (!t) return;
  // Copies are numbered from 0: the list grows with them.
  if (copy >= t->n_later) {
    t->later = realloc(t->later, (size_t)(copy + 1) * sizeof *t->later);
    if (!t->later) nnrt_out_of_memory((size_t)(copy + 1) * sizeof *t->later);
    t->n_later = copy + 1;
  }
  t->later[copy] = nnrt_trace_of(r);
}

TraceOf nnrt_trace_said(const NnrtRank *r, int copy) {
  return r->trace ? r->trace->later[copy] : (TraceOf){0};
}

void nnrt_trace_begin(NnrtRank *r, int i) {
  (void)i;
  r->trace->elsewhere = false;
  r->trace->begun = nnrt_device_mark(r);
}

void nnrt_trace_end(NnrtRank *r, int i) {
  (void)i;
  if (r->trace->elsewhere) return;
  nnrt_trace_device(r, TRACE_ops, nnrt_trace_of(r), r->trace->begun, nnrt_device_mark(r));
}

void nnrt_trace_segment(NnrtRank *r, const char *name, int64_t from) {
  TraceOf of = {.name = name, .step = r->step, .slice = r->micro};
  nnrt_trace_device(r, TRACE_segments, of, from, nnrt_device_mark(r));
}

void nnrt_trace_device(NnrtRank *r, int thread_of, TraceOf of, int64_t from, int64_t to) {
  add(r, thread_of, (Event){.of = of, .from_mark = from, .to_mark = to});
}

void nnrt_trace_host(NnrtRank *r, int thread_of, TraceOf of, double from, double to) {
  add(r, thread_of, (Event){.of = of, .from = from, .to = to, .resolved = true});
}

void nnrt_trace_resolve(NnrtRank *r) {
  if (!r->trace) return;
  // Timings are of training, and not of evaluations between steps.
  NnrtTimings *timings = r->graph == &r->program->train ? r->trace->timings : NULL;
  double first = 0, last = 0; // of the operations of the step
  pthread_mutex_lock(&r->trace->lock);
  for (int i = 0; i < N_TRACES; i++) {
    // Events of the device have marks until its clock is read.
    Track *t = &r->trace->track[i];
    for (; t->n_resolved < t->n; t->n_resolved++) {
      Event *e = &t->event[t->n_resolved];
      if (!e->resolved) {
        e->from = nnrt_device_time(r, e->from_mark);
        e->to = nnrt_device_time(r, e->to_mark);
        e->resolved = true;
      }
      // A transfer may end after its step, and be of an evaluation.
      bool timed = timings && (i == TRACE_ops || i == TRACE_comm || i == TRACE_moves);
      if (!timed || !e->of.name || e->of.graph != r->graph) continue;
      nnrt_timings_add(timings, e->of.op, e->to - e->from);
      if (i != TRACE_ops) continue;
      if (last == 0) first = e->from;
      last = e->to;
    }
    if (!r->trace->keeps) t->n = t->n_resolved = 0;
  }
  if (timings) nnrt_timings_step(timings, last - first);
  pthread_mutex_unlock(&r->trace->lock);
  nnrt_device_forget_marks(r);
}

// Whether ranks of the program may have such a thread.
static bool is_there(const NnrtProgram *p, int thread_of) {
  // Every rank of a program shows the same threads, even if one of them has no event.
  bool ahead = p->schedule || p->n_deferred, host = false;
  for (int i = 0; i < p->n_moves; i++)
    ahead |= p->move[i].ahead;
  for (int i = 0; i < p->n_codes; i++)
    host |= p->code[i].host_bytes > 0;
  return thread_of < TRACE_moves || (thread_of == TRACE_moves ? ahead : host);
}

static void write_track(FILE *f, const NnrtTrace *t, int rank, int tid) {
  fprintf(
      f,
      ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
      rank, tid, thread[tid].name);
  for (int i = 0; i < t->track[tid].n; i++) {
    const Event *e = &t->track[tid].event[i];
    // "linear  mlp.onnx:/fc1/MatMul": the operation, and its origin
    const char *text = e->of.name, *at = strstr(text, "  ");
    char *name = nnrt_must_format("%.*s", at ? (int)(at - text) : (int)strlen(text), text);
    fputs(",\n{\"name\":", f);
    nnrt_json_write_string(f, name);
    fprintf(f, ",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,",
            thread[tid].kind, e->from - t->zero, e->to - e->from, rank, tid);
    // The arguments are shown when an event is clicked.
    fprintf(f, "\"args\":{\"step\":%lld,", (long long)e->of.step);
    if (e->of.slice >= 0) fprintf(f, "\"micro_batch\":%d,", e->of.slice);
    fputs("\"at\":", f);
    nnrt_json_write_string(f, at ? at + strspn(at, " ") : "");
    fputs("}}", f);
    free(name);
  }
}

// Collective: reports the threads for which some rank has more events than are kept.
static void say_full(NnrtRank *r, const NnrtTrace *t) {
  int64_t full[N_TRACES];
  char *names = NULL;
  for (int i = 0; i < N_TRACES; i++)
    full[i] = t->track[i].full;
  // A thread is reported if it is full on any rank.
  nnrt_comm_sum(r, full, N_TRACES);
  for (int i = 0; i < N_TRACES && r->rank == 0; i++) {
    if (!full[i]) continue;
    char *more = names ? nnrt_must_format("%s, %s", names, thread[i].name)
                       : nnrt_must_format("%s", thread[i].name);
    free(names);
    names = more;
  }
  if (names)
    nnrt_say_note("the trace holds the first %d events of a thread of a rank, and not all of: %s",
                  MOST_EVENTS, names);
  free(names);
}

static void free_trace(NnrtTrace *t) {
  for (int i = 0; i < N_TRACES; i++)
    free(t->track[i].event);
  free(t->later);
  pthread_mutex_destroy(&t->lock);
  free(t);
}

void nnrt_trace_print_timings(NnrtRank *r) {
  NnrtTrace *t = r->trace;
  nnrt_timings_end(t->timings, r);
  bool full = false;
  for (int i = 0; i < N_TRACES; i++)
    full |= t->track[i].full;
  if (full && r->rank == 0)
    nnrt_say_note("these times are of the first %d events of a thread in %s", MOST_EVENTS,
                  t->keeps ? "the run, as in the trace" : "a step");
  t->timings = NULL;
  if (t->keeps) return;
  r->trace = NULL;
  free_trace(t);
}

bool nnrt_trace_write(NnrtRank *r, const char *path, Why *w) {
  NnrtTrace *t = r->trace;
  r->trace = NULL; // gathering the trace is not traced
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  if (!f) nnrt_must_alloc((size_t)-1);
  fprintf(f,
          "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
          r->rank ? ",\n" : "", r->rank, r->rank);
  // Each rank writes its own events; rank 0 joins the texts.
  for (int i = 0; i < N_TRACES; i++)
    if (is_there(r->program, i)) write_track(f, t, r->rank, i);
  nnrt_must_close(f, &text);

  // Texts of different lengths are padded to the longest.
  int64_t *lengths = nnrt_must_alloc((size_t)r->ranks * sizeof *lengths), longest = 0;
  lengths[r->rank] = (int64_t)n;
  nnrt_comm_sum(r, lengths, r->ranks);
  for (int i = 0; i < r->ranks; i++)
    longest = lengths[i] > longest ? lengths[i] : longest;
  char *mine = nnrt_must_alloc((size_t)longest), *all = NULL;
  memcpy(mine, text, n);
  free(text);
  if (r->rank == 0) all = nnrt_must_alloc((size_t)(longest * r->ranks));
  nnrt_comm_gather(r, all, mine, longest);

  bool ok = true;
  if (r->rank == 0) {
    OutFile o;
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", tail[] = "\n]}\n";
    ok = nnrt_out_begin(&o, path, w);
    bool begun = ok;
    ok = ok && nnrt_out_write(&o, head, sizeof head - 1, w);
    for (int i = 0; ok && i < r->ranks; i++)
      ok = nnrt_out_write(&o, all + i * longest, lengths[i], w);
    ok = ok && nnrt_out_write(&o, tail, sizeof tail - 1, w);
    if (ok)
      ok = nnrt_out_commit(&o, w);
    else if (begun)
      nnrt_out_abandon(&o);
  }
  say_full(r, t);
  free(mine);
  free(all);
  free(lengths);
  free_trace(t);
  return ok;
}
