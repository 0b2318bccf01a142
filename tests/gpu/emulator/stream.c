// Streams and events.  Work runs as late as CUDA allows, and in the order that hurts most.
//
// Enqueueing work in a stream only stores it.  It runs in a thread that waits for it: in a
// synchronise, in the second query (the first returns `not ready`), before a copy to pageable
// memory returns, or before memory is freed.  So a program with a missing wait reads old data.
//
// To complete work of stream s, first all work of other streams that it depends on runs, even if it
// could run later, and only then the work of s itself; unrelated work of other streams is not run.
// So a missing event, in either direction, shows:
//
//     stream:  a          wait(e)  b      if comm does not wait for a, `reduce` runs before a;
//     comm:    reduce  record(e)          if stream does not wait for e, it does not run before b
//
// Only work of a chain (NCCL) begins by itself after a while, because other processes wait for it.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { MAX_GPUS = 64 };
static const double LATE = 0.02; // seconds until work of a chain begins by itself

pthread_mutex_t emulated_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
Stream *emulated_streams;
static Stream *legacy[MAX_GPUS];
static __thread bool in_host_function;

typedef struct Chain {
  const void *key;
  Stream *stream; // stream of its last work
  uint64_t number;
  struct Chain *next;
} Chain;
static Chain *chains;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Stream *new_stream(int device, bool blocking, int priority) {
  Stream *s = emulated_alloc(sizeof *s);
  s->device = device;
  s->blocking = blocking;
  s->priority = priority;
  s->asked_at = UINT64_MAX;
  s->next = emulated_streams;
  emulated_streams = s;
  return s;
}

// Locked.  NULL if it is no stream, or of another GPU than the thread's.
Stream *emulated_stream(cudaStream_t handle) {
  int device = emulated_device();
  if (!handle || handle == cudaStreamLegacy) {
    if (!legacy[device]) {
      legacy[device] = new_stream(device, true, 0);
      legacy[device]->legacy = true;
    }
    return legacy[device];
  }
  for (Stream *s = emulated_streams; s; s = s->next)
    if (s == handle) return s->destroyed ? NULL : s;
  return NULL;
}

// ---- Enqueueing

static Item *append(Stream *s) {
  Item *item = emulated_alloc(sizeof *item);
  item->number = ++s->put;
  item->put_at = now();
  if (s->last)
    s->last->next = item;
  else
    s->first = item;
  s->last = item;
  return item;
}

static void append_wait(Stream *s, Stream *on, uint64_t upto) {
  if (on == s || on->done >= upto) return;
  Item *item = append(s);
  item->on = on;
  item->upto = upto;
}

static void *begin_late_work(void *unused);

cudaError_t emulated_put(Stream *s, EmulatedWork *w, const void *chain) {
  if (s->legacy) {
    for (Stream *t = emulated_streams; t; t = t->next)
      if (t->blocking && !t->destroyed && t->device == s->device) append_wait(s, t, t->put);
  } else if (s->blocking && legacy[s->device]) {
    append_wait(s, legacy[s->device], legacy[s->device]->put);
  }
  Chain *c = chains;
  while (chain && c && c->key != chain)
    c = c->next;
  if (chain && !c) {
    static bool has_thread;
    pthread_t thread;
    if (!has_thread) has_thread = !pthread_create(&thread, NULL, begin_late_work, NULL);
    c = emulated_alloc(sizeof *c);
    c->key = chain;
    c->next = chains;
    chains = c;
  }
  if (chain && c->stream) append_wait(s, c->stream, c->number);
  Item *item = append(s);
  item->work = w;
  item->chain = chain;
  if (chain) {
    c->stream = s;
    c->number = item->number;
  }
  return cudaSuccess;
}

cudaError_t emulated_enqueue(cudaStream_t handle, EmulatedWork *w, const void *chain) {
  pthread_mutex_lock(&emulated_lock);
  Stream *s = emulated_stream(handle);
  cudaError_t e;
  if (in_host_function)
    e = cudaErrorNotPermitted;
  else if (!s || s->device != emulated_device())
    e = cudaErrorInvalidResourceHandle;
  else if (s->capture)
    e = emulated_record(s, w, chain);
  else if (s->legacy && (e = emulated_capture_legacy()) != cudaSuccess)
    ;
  else
    e = emulated_put(s, w, chain);
  pthread_mutex_unlock(&emulated_lock);
  if (e != cudaSuccess) w->free(w);
  return emulated_error(e);
}

// ---- Running.  Locked, except while work runs.

void emulated_run(EmulatedWork *w, bool *done, bool again) {
  emulated_open_memory();
  *done = w->run(w, again);
  emulated_close_memory();
}

static void pop(Stream *s) {
  Item *item = s->first;
  s->first = item->next;
  if (!s->first) s->last = NULL;
  s->done = item->number;
  free(item);
}

typedef enum {
  RAN,     // something
  PENDING, // waits for another process
  BUSY     // another thread runs it
} Progress;

// The first item up to `upto` that waits for another stream; NULL: none.
static const Item *first_wait(Stream *s, uint64_t upto) {
  for (const Item *item = s->looked_upto < upto ? s->first : NULL; item && item->number <= upto;
       item = item->next)
    if (!item->work && item->on->done < item->upto) return item;
  if (s->looked_upto < upto) s->looked_upto = upto;
  return NULL;
}

// Runs one item that s needs in order to complete `upto`.  A wait comes after the item that it
// waits for, so following the waits leads to a runnable item, unless another thread runs it.  If
// that item waits for another process, the items before the wait run: the other process may wait
// for them.
static Progress step(Stream *s, uint64_t upto) {
  if (s->busy) return BUSY;
  const Item *wait = first_wait(s, upto);
  if (wait) {
    bool alone = wait == s->first;
    Progress p = step(wait->on, wait->upto);
    if (p != PENDING || alone) return p;
    if (s->busy) return BUSY;
    if (s->done >= upto) return RAN; // another thread has completed it meanwhile
  }
  Item *item = s->first;
  if (!item->work && item->on->done < item->upto) return PENDING;
  if (!item->work) {
    pop(s);
    return RAN;
  }
  bool again = item->begun, done;
  s->busy = true;
  pthread_mutex_unlock(&emulated_lock);
  emulated_run(item->work, &done, again);
  if (done) item->work->free(item->work);
  pthread_mutex_lock(&emulated_lock);
  s->busy = false;
  item->begun = true;
  if (done) pop(s);
  pthread_cond_broadcast(&changed);
  return done ? RAN : PENDING;
}

static void rest(bool other_thread) {
  if (other_thread) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&changed, &emulated_lock, &t);
  } else {
    pthread_mutex_unlock(&emulated_lock);
    usleep(50);
    pthread_mutex_lock(&emulated_lock);
  }
}

void emulated_finish(Stream *s, uint64_t upto) {
  while (s->done < upto) {
    Progress p = step(s, upto);
    if (p == RAN) continue;
    // Work that waits for another process must not block other streams: the other process may wait
    // for them.
    bool other = false;
    for (Stream *t = emulated_streams; t && p != BUSY && !other; t = t->next)
      other = t != s && t->done < t->put && step(t, t->put) == RAN;
    if (!other) rest(p == BUSY);
  }
}

// Runs as far as possible without waiting; returns whether that was enough.
static bool try_finish(Stream *s, uint64_t upto) {
  while (s->done < upto)
    if (step(s, upto) != RAN) return false;
  return true;
}

void emulated_finish_device(int device) {
  for (Stream *s = emulated_streams; s; s = s->next)
    if (s->device == device) emulated_finish(s, s->put);
}

static void *begin_late_work(void *unused) {
  (void)unused;
  for (;;) {
    usleep((useconds_t)(LATE * 1e6 / 4));
    pthread_mutex_lock(&emulated_lock);
    double late = now() - LATE;
    for (Stream *s = emulated_streams; s; s = s->next) {
      uint64_t upto = 0;
      for (const Item *item = s->first; item && item->put_at < late; item = item->next)
        if (item->chain) upto = item->number;
      if (upto) try_finish(s, upto);
    }
    pthread_mutex_unlock(&emulated_lock);
  }
  return NULL;
}

// ---- Streams

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  NEED_DEVICE;
  if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)
    return emulated_error(cudaErrorInvalidValue);
  pthread_mutex_lock(&emulated_lock);
  *out = new_stream(emulated_device(), flags == cudaStreamDefault,
                    priority > 0    ? 0
                    : priority < -5 ? -5
                                    : priority);
  pthread_mutex_unlock(&emulated_lock);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
  return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
  return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *out) {
  NEED_DEVICE;
  pthread_mutex_lock(&emulated_lock);
  Stream *s = emulated_stream(handle);
  if (s) *out = s->priority;
  pthread_mutex_unlock(&emulated_lock);
  return s ? cudaSuccess : emulated_error(cudaErrorInvalidResourceHandle);
}

// Finds the stream and locks, or returns the error of waiting for it.
static cudaError_t begin_wait(cudaStream_t handle, Stream **out) {
  pthread_mutex_lock(&emulated_lock);
  *out = emulated_stream(handle);
  cudaError_t e = !*out             ? cudaErrorInvalidResourceHandle
                  : (*out)->capture ? cudaErrorStreamCaptureUnsupported
                                    : cudaSuccess;
  if (e != cudaSuccess) pthread_mutex_unlock(&emulated_lock);
  return emulated_error(e);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  NEED_DEVICE;
  Stream *s;
  cudaError_t e = begin_wait(handle, &s);
  if (e != cudaSuccess) return e;
  emulated_finish(s, s->put);
  s->destroyed = true;
  pthread_mutex_unlock(&emulated_lock);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  NEED_NOT_RECORDING;
  Stream *s;
  cudaError_t e = begin_wait(handle, &s);
  if (e != cudaSuccess) return e;
  uint64_t upto = s->put;
  if (s->legacy) {
    for (Stream *t = emulated_streams; t; t = t->next)
      if (t->blocking && t->device == s->device) emulated_finish(t, t->put);
  }
  emulated_finish(s, upto);
  pthread_mutex_unlock(&emulated_lock);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  NEED_NOT_RECORDING;
  Stream *s;
  cudaError_t e = begin_wait(handle, &s);
  if (e != cudaSuccess) return e;
  bool done = s->done == s->put;
  if (!done && s->asked_at == s->put) done = try_finish(s, s->put);
  s->asked_at = s->put;
  pthread_mutex_unlock(&emulated_lock);
  return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void) {
  NEED_NOT_RECORDING;
  pthread_mutex_lock(&emulated_lock);
  emulated_finish_device(emulated_device());
  pthread_mutex_unlock(&emulated_lock);
  return cudaSuccess;
}

cudaError_t cudaDeviceReset(void) {
  return cudaDeviceSynchronize();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  NEED_DEVICE;
  if (!event || flags) return emulated_error(cudaErrorInvalidValue);
  pthread_mutex_lock(&emulated_lock);
  Stream *s = emulated_stream(handle);
  cudaError_t e = cudaSuccess;
  if (!s)
    e = cudaErrorInvalidResourceHandle;
  else if (s->capture || event->capture)
    e = emulated_record_wait(s, event);
  else if (event->stream)
    append_wait(s, event->stream, event->upto);
  pthread_mutex_unlock(&emulated_lock);
  return emulated_error(e);
}

// ---- Host functions in a stream

typedef struct Call {
  EmulatedWork work;
  cudaHostFn_t function;
  void *data;
} Call;

static bool run_call(EmulatedWork *w, bool again) {
  (void)again;
  Call *c = (Call *)w;
  emulated_close_memory();
  in_host_function = true;
  c->function(c->data);
  in_host_function = false;
  emulated_open_memory();
  return true;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *data) {
  NEED_DEVICE;
  Call *c = emulated_alloc(sizeof *c);
  *c = (Call){{"a function of the host", run_call, emulated_free}, function, data};
  return emulated_enqueue(s, &c->work, NULL);
}

// ---- Events

typedef struct Mark {
  EmulatedWork work;
  double at;
  Event *event;
} Mark;

static bool run_mark(EmulatedWork *w, bool again) {
  (void)again;
  ((Mark *)w)->event->ran_at = 1e3 * now();
  return true;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
  NEED_DEVICE;
  *out = emulated_alloc(sizeof **out);
  (*out)->flags = flags;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  NEED_DEVICE;
  if (!event) return emulated_error(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&emulated_lock);
  Stream *s = emulated_stream(handle);
  cudaError_t e = cudaSuccess;
  if (!s || s->device != emulated_device()) {
    e = cudaErrorInvalidResourceHandle;
  } else if (s->capture) {
    e = emulated_record_event(s, event);
  } else if (!s->legacy || (e = emulated_capture_legacy()) == cudaSuccess) {
    event->capture = NULL;
    if (!(event->flags & cudaEventDisableTiming) || s->legacy) {
      Mark *m = emulated_alloc(sizeof *m);
      *m = (Mark){.work = {"an event", run_mark, emulated_free}, .event = event};
      emulated_put(s, &m->work, NULL);
    }
    event->stream = s;
    event->upto = s->put;
    event->asked = false;
  }
  pthread_mutex_unlock(&emulated_lock);
  return emulated_error(e);
}

// Locks, if there is no error.
static cudaError_t begin_event(cudaEvent_t event) {
  pthread_mutex_lock(&emulated_lock);
  cudaError_t e = !event           ? cudaErrorInvalidResourceHandle
                  : event->capture ? cudaErrorCapturedEvent
                                   : cudaSuccess;
  if (e != cudaSuccess) pthread_mutex_unlock(&emulated_lock);
  return emulated_error(e);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  NEED_NOT_RECORDING;
  cudaError_t e = begin_event(event);
  if (e != cudaSuccess) return e;
  if (event->stream) emulated_finish(event->stream, event->upto);
  pthread_mutex_unlock(&emulated_lock);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  NEED_NOT_RECORDING;
  cudaError_t e = begin_event(event);
  if (e != cudaSuccess) return e;
  bool done = !event->stream || event->stream->done >= event->upto;
  if (!done && event->asked) done = try_finish(event->stream, event->upto);
  event->asked = true;
  pthread_mutex_unlock(&emulated_lock);
  return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *out, cudaEvent_t from, cudaEvent_t to) {
  NEED_DEVICE;
  pthread_mutex_lock(&emulated_lock);
  cudaError_t e = cudaSuccess;
  Event *both[] = {from, to};
  for (int i = 0; i < 2 && e == cudaSuccess; i++)
    if (!both[i] || !both[i]->stream || both[i]->flags & cudaEventDisableTiming)
      e = cudaErrorInvalidResourceHandle;
    else if (both[i]->stream->done < both[i]->upto)
      e = cudaErrorNotReady;
  if (e == cudaSuccess) *out = (float)(to->ran_at - from->ran_at);
  pthread_mutex_unlock(&emulated_lock);
  return emulated_error(e);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  NEED_DEVICE;
  if (!event) return emulated_error(cudaErrorInvalidResourceHandle);
  pthread_mutex_lock(&emulated_lock);
  // The record may still be pending in the stream.
  if (event->stream) emulated_finish(event->stream, event->upto);
  pthread_mutex_unlock(&emulated_lock);
  free(event->tails);
  free(event);
  return cudaSuccess;
}
