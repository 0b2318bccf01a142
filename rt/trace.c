// --trace: what really ran when, in Chrome's trace format (chrome://tracing, Perfetto).
//
// A rank is a process of the picture, with threads for its operations, for communication, for the
// segments that the operations are of, each with the slice of time that it ran, and for moves from
// one segment to another, which are communication beside the rest.
// Only the first events of each rank are kept, so that a long run does not fill the memory.

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"

enum { MOST_EVENTS = 200000 };

typedef struct Event {
  const char *name;
  int64_t step; // -1: not said, as the slice
  int slice;
  int64_t from_mark, to_mark; // of the device, until `resolved`
  double from, to;            // in µs, then
  bool resolved;
} Event;

typedef struct Track { // written by one thread at a time
  Event *event;
  int n, room;
  int n_resolved; // from the first on
  bool full;
} Track;

typedef struct NnrtTrace {
  Track ops, comm, segments, moves;
  int64_t begun; // a mark
  double zero;   // what the picture's time counts from; about the same moment on every rank
} NnrtTrace;

double nnrt_now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void add(Track *t, Event e) {
  if (t->n == MOST_EVENTS) {
    t->full = true;
    return;
  }
  if (t->n == t->room) {
    t->room = t->room ? 2 * t->room : 1024;
    t->event = realloc(t->event, (size_t)t->room * sizeof *t->event);
    if (!t->event) nnrt_must_alloc((size_t)-1);
  }
  t->event[t->n++] = e;
}

void nnrt_trace_start(NnrtRank *r) {
  NnrtTrace *t = nnrt_must_alloc(sizeof *t);
  nnrt_comm_sum(r, &(int64_t){0}, 1);
  t->zero = nnrt_now_us();
  r->trace = t;
}

void nnrt_trace_begin(NnrtRank *r, int i) {
  (void)i;
  r->trace->begun = nnrt_device_mark(r);
}

void nnrt_trace_end(NnrtRank *r, int i) {
  add(&r->trace->ops, (Event){.name = r->graph->ops[i],
                              .step = r->step,
                              .slice = -1,
                              .from_mark = r->trace->begun,
                              .to_mark = nnrt_device_mark(r)});
}

void nnrt_trace_segment(NnrtRank *r, const char *name, int64_t from) {
  add(&r->trace->segments, (Event){.name = name,
                                   .step = r->step,
                                   .slice = r->micro,
                                   .from_mark = from,
                                   .to_mark = nnrt_device_mark(r)});
}

static Track *comm_track(NnrtRank *r, bool ahead) {
  return ahead ? &r->trace->moves : &r->trace->comm;
}

void nnrt_trace_comm(NnrtRank *r, bool ahead, const char *what, int slice, int64_t from,
                     int64_t to) {
  add(comm_track(r, ahead),
      (Event){.name = what, .step = -1, .slice = slice, .from_mark = from, .to_mark = to});
}

void nnrt_trace_host(NnrtRank *r, bool ahead, const char *what, int slice, double from, double to) {
  add(comm_track(r, ahead),
      (Event){.name = what, .step = -1, .slice = slice, .from = from, .to = to, .resolved = true});
}

static void resolve(NnrtRank *r, Track *t) {
  for (; t->n_resolved < t->n; t->n_resolved++) {
    Event *e = &t->event[t->n_resolved];
    if (e->resolved) continue;
    e->from = nnrt_device_time(r, e->from_mark);
    e->to = nnrt_device_time(r, e->to_mark);
    e->resolved = true;
  }
}

void nnrt_trace_resolve(NnrtRank *r) {
  if (!r->trace) return;
  resolve(r, &r->trace->ops);
  resolve(r, &r->trace->comm);
  resolve(r, &r->trace->segments);
  resolve(r, &r->trace->moves);
  nnrt_device_forget_marks(r);
}

static void write_track(FILE *f, const NnrtTrace *t, const Track *track, int rank, int thread) {
  static const char *const name_of[] = {"operations", "communication", "segments", "moves"};
  static const char *const kind_of[] = {"op", "comm", "segment", "comm"};
  fprintf(
      f,
      ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
      rank, thread, name_of[thread]);
  for (int i = 0; i < track->n; i++) {
    const Event *e = &track->event[i];
    // "linear  mlp.onnx:/fc1/MatMul": the operation, and where it comes from
    const char *at = strstr(e->name, "  ");
    char *name = nnrt_must_format("%.*s", at ? (int)(at - e->name) : (int)strlen(e->name), e->name);
    fputs(",\n{\"name\":", f);
    nnrt_json_write_string(f, name);
    fprintf(
        f, ",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,\"args\":{",
        kind_of[thread], e->from - t->zero, e->to - e->from, rank, thread);
    if (e->step >= 0) fprintf(f, "\"step\":%lld,", (long long)e->step);
    if (e->slice >= 0) fprintf(f, "\"micro_batch\":%d,", e->slice);
    fputs("\"at\":", f);
    nnrt_json_write_string(f, at ? at + strspn(at, " ") : "");
    fputs("}}", f);
    free(name);
  }
}

bool nnrt_trace_write(NnrtRank *r, const char *path, Why *w) {
  NnrtTrace *t = r->trace;
  r->trace = NULL; // what gathers the trace is not part of it
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  if (!f) nnrt_must_alloc((size_t)-1);
  fprintf(f,
          "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
          r->rank ? ",\n" : "", r->rank, r->rank);
  write_track(f, t, &t->ops, r->rank, 0);
  write_track(f, t, &t->comm, r->rank, 1);
  write_track(f, t, &t->segments, r->rank, 2);
  if (t->moves.n) write_track(f, t, &t->moves, r->rank, 3);
  if (fclose(f) != 0) nnrt_must_alloc((size_t)-1);

  // Texts of different lengths are gathered as the longest.
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
    if (t->ops.full)
      nnrt_say_note("the trace holds the first %d operations of each rank", MOST_EVENTS);
  }
  free(mine);
  free(all);
  free(lengths);
  free(t->ops.event);
  free(t->comm.event);
  free(t->segments.event);
  free(t->moves.event);
  free(t);
  return ok;
}
