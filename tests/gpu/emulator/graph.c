// Captures work into graphs, and runs them.
//
// A stream in capture has `tails`: its next work depends on those nodes.  An event recorded in it
// stores them, and a stream that waits for the event is captured from then on, too:
//
//     stream:  a   record(e)  b       wait(f)  d       nodes  a   b after a   c after a
//     comm:           wait(e)  c  record(f)                   d after b and c
//
// A graph runs in a legal order that differs most from the order of capture: of the runnable nodes,
// the last captured one runs first.  So a missing edge shows.

#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct Node {
  EmulatedWork *work;
  int *after, n_after;
  const void *chain;
} Node;

struct CUgraph_st {
  Node *node;
  int n;
  int users; // itself, graphs instantiated from it, and unfinished runs
};

struct CUgraphExec_st {
  cudaGraph_t graph;
  int *user, *first_user; // node i's users: user[first_user[i] .. first_user[i + 1])
};

typedef struct Capture {
  cudaGraph_t graph;
  Stream *origin;
  enum cudaStreamCaptureMode mode;
  pthread_t thread;
  bool ruined, ended;
  struct Capture *next; // never freed: events refer to them
} Capture;

static Capture *captures;

static __thread int forbidding; // captures of this thread that are not relaxed
static __thread Capture *current;
static int capturing_blocking; // captures with which the legacy stream must not interact

static void release(cudaGraph_t g) { // locked
  if (--g->users) return;
  for (int i = 0; i < g->n; i++) {
    g->node[i].work->free(g->node[i].work);
    free(g->node[i].after);
  }
  free(g->node);
  free(g);
}

cudaError_t emulated_capture_forbids(void) {
  if (!forbidding) return cudaSuccess;
  if (current) current->ruined = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t emulated_capture_legacy(void) {
  return capturing_blocking ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

// ---- Capture.  Locked.

static void set_tails(Stream *s, const int *tails, int n) {
  int *copy = emulated_alloc((size_t)(n + 1) * sizeof *copy);
  for (int i = 0; i < n; i++)
    copy[i] = tails[i];
  free(s->tails);
  s->tails = copy;
  s->n_tails = n;
}

static void join(Stream *s, const int *tails, int n) {
  s->tails = realloc(s->tails, (size_t)(s->n_tails + n + 1) * sizeof *s->tails);
  if (!s->tails) emulated_abort("no memory");
  for (int i = 0; i < n; i++) {
    bool there = false;
    for (int j = 0; j < s->n_tails; j++)
      there |= s->tails[j] == tails[i];
    if (!there) s->tails[s->n_tails++] = tails[i];
  }
}

cudaError_t emulated_record(Stream *s, EmulatedWork *w, const void *chain) {
  Capture *c = s->capture;
  if (c->ruined) return cudaErrorStreamCaptureInvalidated;
  cudaGraph_t g = c->graph;
  if (chain)
    for (int i = g->n - 1; i >= 0; i--)
      if (g->node[i].chain == chain) {
        join(s, &i, 1);
        break;
      }
  if ((g->n & (g->n - 1)) == 0) {
    g->node = realloc(g->node, (size_t)(g->n ? 2 * g->n : 1) * sizeof *g->node);
    if (!g->node) emulated_abort("no memory");
  }
  g->node[g->n] = (Node){w, s->tails, s->n_tails, chain};
  s->tails = NULL;
  set_tails(s, &g->n, 1);
  g->n++;
  return cudaSuccess;
}

cudaError_t emulated_record_event(Stream *s, Event *e) {
  if (s->capture->ruined) return cudaErrorStreamCaptureInvalidated;
  free(e->tails);
  e->tails = emulated_alloc((size_t)(s->n_tails + 1) * sizeof *e->tails);
  memcpy(e->tails, s->tails, (size_t)s->n_tails * sizeof *e->tails);
  e->n_tails = s->n_tails;
  e->capture = s->capture;
  e->stream = NULL;
  return cudaSuccess;
}

cudaError_t emulated_record_wait(Stream *s, Event *e) {
  if (!e->capture) {
    // Work outside of a graph runs before all of it, or never: waiting for it means nothing there.
    if (!e->stream) return cudaSuccess;
    s->capture->ruined = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (e->capture->ended)
    return s->capture ? cudaErrorStreamCaptureIsolation : cudaErrorCapturedEvent;
  if (e->capture->ruined) return cudaErrorStreamCaptureInvalidated;
  if (s->legacy) return cudaErrorStreamCaptureImplicit;
  if (s->capture && s->capture != e->capture) return cudaErrorStreamCaptureIsolation;
  if (!s->capture) {
    s->capture = e->capture;
    set_tails(s, e->tails, e->n_tails);
  } else {
    join(s, e->tails, e->n_tails);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
  NEED_DEVICE;
  pthread_mutex_lock(&emulated_lock);
  Stream *s = emulated_stream(handle);
  cudaError_t e = !s           ? cudaErrorInvalidResourceHandle
                  : s->legacy  ? cudaErrorStreamCaptureUnsupported
                  : s->capture ? cudaErrorIllegalState
                               : cudaSuccess;
  if (e == cudaSuccess) {
    Capture *c = emulated_alloc(sizeof *c);
    *c = (Capture){.graph = emulated_alloc(sizeof *c->graph),
                   .origin = s,
                   .mode = mode,
                   .thread = pthread_self(),
                   .next = captures};
    captures = c;
    c->graph->users = 1;
    s->capture = c;
    set_tails(s, NULL, 0);
    if (mode != cudaStreamCaptureModeRelaxed) forbidding++;
    current = c;
    capturing_blocking += s->blocking;
  }
  pthread_mutex_unlock(&emulated_lock);
  return emulated_error(e);
}

// Whether the end of a stream in the same capture is before the end of the first.
static bool is_joined(const Capture *c, const bool *has_user, const Stream *s) {
  for (int i = 0; i < s->n_tails; i++) {
    bool joined = has_user[s->tails[i]];
    for (int j = 0; j < c->origin->n_tails; j++)
      joined |= c->origin->tails[j] == s->tails[i];
    if (!joined) return false;
  }
  return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
  NEED_DEVICE;
  *out = NULL;
  pthread_mutex_lock(&emulated_lock);
  Stream *s = emulated_stream(handle);
  Capture *c = s ? s->capture : NULL;
  cudaError_t e =
      !s               ? cudaErrorInvalidResourceHandle
      : !c             ? cudaErrorIllegalState
      : c->origin != s ? cudaErrorStreamCaptureUnmatched
      : c->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self())
          ? cudaErrorStreamCaptureWrongThread
          : cudaSuccess;
  if (e == cudaSuccess) {
    cudaGraph_t g = c->graph;
    bool *has_user = emulated_alloc((size_t)g->n + 1);
    for (int i = 0; i < g->n; i++)
      for (int j = 0; j < g->node[i].n_after; j++)
        has_user[g->node[i].after[j]] = true;
    bool joined = true;
    for (Stream *t = emulated_streams; t; t = t->next)
      if (t->capture == c) {
        joined = joined && is_joined(c, has_user, t);
        t->capture = NULL;
      }
    free(has_user);
    e = c->ruined ? cudaErrorStreamCaptureInvalidated
        : joined  ? cudaSuccess
                  : cudaErrorStreamCaptureUnjoined;
    c->ended = true;
    if (c->mode != cudaStreamCaptureModeRelaxed) forbidding--;
    if (current == c) current = NULL;
    capturing_blocking -= s->blocking;
    if (e == cudaSuccess)
      *out = g;
    else
      release(g);
  }
  pthread_mutex_unlock(&emulated_lock);
  return emulated_error(e);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *out) {
  NEED_DEVICE;
  pthread_mutex_lock(&emulated_lock);
  const Stream *s = emulated_stream(handle);
  *out = !s || !s->capture    ? cudaStreamCaptureStatusNone
         : s->capture->ruined ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
  pthread_mutex_unlock(&emulated_lock);
  return s ? cudaSuccess : emulated_error(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  NEED_DEVICE;
  static __thread enum cudaStreamCaptureMode mine = cudaStreamCaptureModeGlobal;
  enum cudaStreamCaptureMode before = mine;
  mine = *mode;
  *mode = before;
  return cudaSuccess;
}

// ---- Graphs

cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  NEED_DEVICE;
  if (!g) return emulated_error(cudaErrorInvalidValue);
  pthread_mutex_lock(&emulated_lock);
  release(g);
  pthread_mutex_unlock(&emulated_lock);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) {
  NEED_DEVICE;
  if (!g || nodes) return emulated_error(cudaErrorInvalidValue); // only the number is supported
  *n = (size_t)g->n;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags) {
  (void)flags;
  NEED_DEVICE;
  if (!g) return emulated_error(cudaErrorInvalidValue);
  cudaGraphExec_t x = emulated_alloc(sizeof *x);
  int n = g->n, edges = 0;
  for (int i = 0; i < n; i++)
    edges += g->node[i].n_after;
  x->graph = g;
  x->first_user = emulated_alloc((size_t)(n + 2) * sizeof *x->first_user);
  x->user = emulated_alloc((size_t)(edges + 1) * sizeof *x->user);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < g->node[i].n_after; j++)
      x->first_user[g->node[i].after[j] + 2]++;
  for (int i = 0; i < n; i++)
    x->first_user[i + 2] += x->first_user[i + 1];
  for (int i = 0; i < n; i++)
    for (int j = 0; j < g->node[i].n_after; j++)
      x->user[x->first_user[g->node[i].after[j] + 1]++] = i;
  pthread_mutex_lock(&emulated_lock);
  g->users++;
  pthread_mutex_unlock(&emulated_lock);
  *out = x;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g,
                                          unsigned long long flags) {
  if (!emulated_setting("EMULATED_GRAPHS", 1)) return emulated_error(cudaErrorNotSupported);
  return cudaGraphInstantiate(out, g, flags);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
  NEED_DEVICE;
  if (!x) return emulated_error(cudaErrorInvalidValue);
  pthread_mutex_lock(&emulated_lock);
  emulated_finish_device(emulated_device()); // completes its runs in streams
  release(x->graph);
  pthread_mutex_unlock(&emulated_lock);
  free(x->first_user);
  free(x->user);
  free(x);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s) {
  (void)s;
  NEED_DEVICE;
  return x ? cudaSuccess : emulated_error(cudaErrorInvalidValue);
}

// ---- Running

typedef struct Run {
  EmulatedWork work;
  cudaGraphExec_t exec;
  int *missing;            // by node: number of unfinished predecessors
  int *ready, n_ready;     // the last is the next
  int *pending, n_pending; // begun, and to be called again
} Run;

static void insert(Run *r, int node) {
  int at = r->n_ready++;
  for (; at > 0 && r->ready[at - 1] > node; at--)
    r->ready[at] = r->ready[at - 1];
  r->ready[at] = node;
}

static bool try_node(Run *r, int node, bool again) {
  cudaGraphExec_t x = r->exec;
  bool done;
  EmulatedWork *w = x->graph->node[node].work;
  done = w->run(w, again);
  if (!done) return false;
  for (int i = x->first_user[node]; i < x->first_user[node + 1]; i++)
    if (--r->missing[x->user[i]] == 0) insert(r, x->user[i]);
  return true;
}

static bool run_graph(EmulatedWork *w, bool again) {
  Run *r = (Run *)w;
  cudaGraph_t g = r->exec->graph;
  if (!again) {
    for (int i = 0; i < g->n; i++) {
      r->missing[i] = g->node[i].n_after;
      if (!r->missing[i]) insert(r, i);
    }
  }
  for (int i = 0, n = r->n_pending; i < n; i++) {
    int node = r->pending[0];
    r->n_pending--;
    memmove(r->pending, r->pending + 1, (size_t)r->n_pending * sizeof *r->pending);
    if (!try_node(r, node, true)) r->pending[r->n_pending++] = node;
  }
  while (r->n_ready) {
    int node = r->ready[--r->n_ready];
    if (!try_node(r, node, false)) r->pending[r->n_pending++] = node;
  }
  return r->n_pending == 0;
}

static void free_run(EmulatedWork *w) {
  Run *r = (Run *)w;
  free(r->missing);
  free(r->ready);
  free(r->pending);
  free(r);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  NEED_DEVICE;
  if (!x) return emulated_error(cudaErrorInvalidValue);
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(s, &status);
  if (status != cudaStreamCaptureStatusNone)
    return emulated_error(cudaErrorStreamCaptureUnsupported);
  size_t n = (size_t)x->graph->n + 1;
  Run *r = emulated_alloc(sizeof *r);
  *r = (Run){.work = {"a graph", run_graph, free_run},
             .exec = x,
             .missing = emulated_alloc(n * sizeof(int)),
             .ready = emulated_alloc(n * sizeof(int)),
             .pending = emulated_alloc(n * sizeof(int))};
  const void *chain = NULL;
  for (int i = 0; i < x->graph->n; i++)
    if (x->graph->node[i].chain) chain = x->graph->node[i].chain;
  return emulated_enqueue(s, &r->work, chain);
}
