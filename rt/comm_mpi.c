// MPI as a wire (mpi_wire.h).
//
// With one lane all calls come from the thread that called MPI_Init_thread, so MPI_THREAD_FUNNELED
// is enough.  With two lanes they come from two threads, never at once: MPI_THREAD_SERIALIZED.
//
//     exchange   MPI_Irecv and MPI_Isend of the next pieces of every stream, MPI_Test of the oldest;
//                a tag for each channel
//
// The library matches the pieces between two ranks with one tag in their order, so a stream needs
// no more than to post them in its order.

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "mpi_wire.h"

enum { FUNNELED = 1, SERIALIZED = 2, TAG = 7, MOST_BYTES = 16 << 20, MOST_PIECES = 8 };

// The pieces of a stream that are under way, oldest first.  Their ends show that it moves; MPI
// counts bytes in an int.
typedef struct Pieces {
  Request request[MOST_PIECES]; // piece i at i modulo MOST_PIECES
  int bytes[MOST_PIECES];
  int first, n;
  const Message *message; // of the newest piece; valid if there is one
  int64_t left;           // bytes of it after that piece
} Pieces;

typedef struct MpiWire {
  Wire wire;
  const NnrtRun *run;
  MpiLibrary mpi;
  Questions questions;
  Pieces *out, *in; // [channels, world]
  atomic_bool woken[RECORD_LANES];
} MpiWire;

static bool open_mpi(Wire *wire, Why *w) {
  MpiWire *m = (MpiWire *)wire;
  int provided = 0, rank = -1, size = -1, wanted = wire->lanes > 1 ? SERIALIZED : FUNNELED;
  if (!nnrt_mpi_load(&m->mpi, w)) return false;
  int code = nnrt_mpi_init(&m->mpi, m->run, wanted, &provided);
  if (code) return why(w, "MPI_Init_thread failed with %d", code);
  nnrt_mpi_end_with(&m->mpi, m->run);
  size_t streams = (size_t)wire->channels * (size_t)wire->world;
  m->out = nnrt_must_alloc(streams * sizeof *m->out);
  m->in = nnrt_must_alloc(streams * sizeof *m->in);
  // Levels of thread support are ordered.
  if (provided < FUNNELED) return why(w, "this MPI library does not allow threads at all");
  if (provided < wanted)
    return why(w, "this MPI library allows calls from one thread only, and stages need two");
  nnrt_mpi_place(&m->mpi, &rank, &size);
  if (rank == wire->rank && size == wire->world) return true;
  return why(w,
             "the launcher says rank %d of %d, the MPI library rank %d of %d: they do not belong "
             "together\nhint: NNRT_MPI_LIBRARY names the library to use",
             wire->rank, wire->world, rank, size);
}

static bool ask_mpi(Wire *wire, int rank, int lane, double seconds, Standing *out) {
  return nnrt_questions_ask(&((MpiWire *)wire)->questions, wire, rank, lane, seconds, out);
}

static void talk(MpiWire *m) {
  nnrt_questions_talk(&m->questions, &m->mpi, &m->wire);
}

// An idle rank answers, too.
static int check_mpi(Wire *wire) {
  talk((MpiWire *)wire);
  return 0;
}

// ---- exchanging

// Starts the next pieces of a stream.
static int post_more(MpiWire *m, const Pair *pair, const Stream *s, Pieces *p) {
  while (p->n < MOST_PIECES) {
    const Message *next = p->n > 0 && p->left > 0 ? p->message : NULL;
    // After the end of a message comes the next one, of which nothing is under way.
    if (!next) {
      next = p->n > 0 ? p->message->next : s->first;
      if (!next) return 0;
      p->left = next->left;
    }
    char *at = next->at + (next->left - p->left);
    int i = (p->first + p->n) % MOST_PIECES;
    int n = p->bytes[i] = (int)(p->left < MOST_BYTES ? p->left : MOST_BYTES);
    int tag = TAG + pair->channel;
    int code = next->in ? nnrt_mpi_receive(&m->mpi, tag, pair->peer, at, n, &p->request[i])
                        : nnrt_mpi_send(&m->mpi, tag, pair->peer, at, n, &p->request[i]);
    if (code) return code;
    p->message = next;
    p->left -= n;
    p->n++;
  }
  return 0;
}

// Tests the oldest pieces of a stream.
static int test_oldest(MpiWire *m, Lane *lane, Stream *s, Pieces *p) {
  while (p->n > 0) {
    int done = 0, code = nnrt_mpi_test(&m->mpi, &p->request[p->first], &done);
    if (code || !done) return code;
    nnrt_stream_moved(lane, s, p->bytes[p->first]);
    p->first = (p->first + 1) % MOST_PIECES;
    p->n--;
  }
  return 0;
}

static Pieces *pieces_of(const MpiWire *m, Pieces *of, const Pair *pair) {
  return &of[pair->channel * m->wire.world + pair->peer];
}

// Tests and posts the pieces of all busy pairs.  Receives are posted first: an early message then
// needs no buffer.
static int advance(MpiWire *m, Lane *lane, int *out_failed) {
  int code = 0;
  for (int i = 0; i < lane->n_busy && !code; i++) {
    Pair *pair = lane->busy[i];
    Pieces *in = pieces_of(m, m->in, pair);
    *out_failed = pair->peer;
    code = test_oldest(m, lane, &pair->in, in);
    if (!code) code = post_more(m, pair, &pair->in, in);
  }
  for (int i = 0; i < lane->n_busy && !code; i++) {
    Pair *pair = lane->busy[i];
    Pieces *out = pieces_of(m, m->out, pair);
    *out_failed = pair->peer;
    code = test_oldest(m, lane, &pair->out, out);
    if (!code) code = post_more(m, pair, &pair->out, out);
  }
  return code;
}

static int exchange_mpi(Wire *wire, Lane *lane, atomic_bool *hurry) {
  MpiWire *m = (MpiWire *)wire;
  double began = nnrt_now_us();
  for (int turn = 0;; turn++) {
    int failed = 0, code = advance(m, lane, &failed);
    if (code) {
      // The library has the text for its own error codes.
      char text[MPI_MOST_ERROR] = "";
      int length = 0;
      m->mpi.error_string(code, text, &length);
      return nnrt_error(NNRT_COMM, "mpi: with rank %d: %.400s", failed, text);
    }
    if (lane->n_ended > 0 || atomic_exchange(&m->woken[lane->number], false)) return 0;
    // Yields if the rank waits for this job, sleeps 50 µs while it computes.
    if (turn < 100 || atomic_load(hurry))
      sched_yield();
    else
      nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    double now = nnrt_now_us();
    // A lane that is busy for long answers; short waits need no calls for that.
    if (now - lane->since_us > 1e6) talk(m);
    if (now - began > 1e6) return 0;
  }
}

static void wake_mpi(Wire *wire, int lane) {
  atomic_store(&((MpiWire *)wire)->woken[lane], true);
}

static void close_mpi(Wire *wire) {
  MpiWire *m = (MpiWire *)wire;
  nnrt_mpi_finalize(&m->mpi);
  pthread_mutex_destroy(&m->mpi.calls);
  nnrt_questions_close(&m->questions);
  free(m->out);
  free(m->in);
}

Wire *nnrt_wire_mpi(const NnrtRun *run) {
  const Launch *l = &run->launch;
  MpiWire *m = nnrt_must_alloc(sizeof *m);
  m->run = run;
  m->wire = (Wire){.name = "mpi",
                   .rank = l->rank,
                   .world = l->world,
                   .lanes = 1,
                   .channels = CHANNEL_ahead,
                   .open = open_mpi,
                   .exchange = exchange_mpi,
                   .wake = wake_mpi,
                   .close = close_mpi,
                   .check = check_mpi,
                   .ask = ask_mpi};
  nnrt_questions_open(&m->questions);
  pthread_mutex_init(&m->mpi.calls, NULL);
  return &m->wire;
}
