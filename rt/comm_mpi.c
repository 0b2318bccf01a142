// MPI as a wire (mpi_wire.h).
//
// With one lane all calls come from the thread that called MPI_Init_thread, so MPI_THREAD_FUNNELED
// is enough.  With two lanes they come from two threads, never at once: MPI_THREAD_SERIALIZED.
//
//     exchange   MPI_Irecv and MPI_Isend of all transfers, MPI_Test until all are done; a tag for
//                each lane

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "mpi_wire.h"

enum { FUNNELED = 1, SERIALIZED = 2, TAG = 7, MOST_BYTES = 16 << 20 };

typedef struct MpiWire {
  Wire wire;
  const NnrtRun *run;
  MpiLibrary mpi;
  Questions questions;
} MpiWire;

static bool open_mpi(Wire *wire, Why *w) {
  MpiWire *m = (MpiWire *)wire;
  int provided = 0, rank = -1, size = -1, wanted = wire->lanes > 1 ? SERIALIZED : FUNNELED;
  if (!nnrt_mpi_load(&m->mpi, w)) return false;
  int code = nnrt_mpi_init(&m->mpi, m->run, wanted, &provided);
  if (code) return why(w, "MPI_Init_thread failed with %d", code);
  nnrt_mpi_end_with(&m->mpi, m->run);
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

// The pieces of a transfer that are under way.  Their ends show that it moves; MPI counts bytes in
// an int.
typedef struct Pieces {
  Request sending, receiving;
  int out, in; // bytes; 0: none
} Pieces;

static int piece_of(int64_t left) {
  return (int)(left < MOST_BYTES ? left : MOST_BYTES);
}

static int receive_more(MpiWire *m, int lane, const Transfer *x, Pieces *p) {
  if (p->in || !x->n_in) return 0;
  p->in = piece_of(x->n_in);
  return nnrt_mpi_receive(&m->mpi, TAG + lane, x->peer, x->in, p->in, &p->receiving);
}

static int send_more(MpiWire *m, int lane, const Transfer *x, Pieces *p) {
  if (p->out || !x->n_out) return 0;
  p->out = piece_of(x->n_out);
  return nnrt_mpi_send(&m->mpi, TAG + lane, x->peer, x->out, p->out, &p->sending);
}

// Starts the first pieces of all transfers.  Receives are posted first: an early message then needs
// no buffer.
static int start_all(MpiWire *m, int lane, const Transfer *x, int n, Pieces *p, int *out_failed) {
  int code = 0;
  for (int i = 0; i < n && !code; i++)
    code = receive_more(m, lane, &x[ *out_failed = i], &p[i]);
  for (int i = 0; i < n && !code; i++)
    code = send_more(m, lane, &x[ *out_failed = i], &p[i]);
  return code;
}

// Tests the pieces of a transfer, and starts its next ones.
static int advance(MpiWire *m, int lane, Transfer *x, Pieces *p) {
  int sent = 0, received = 0, code = p->out ? nnrt_mpi_test(&m->mpi, &p->sending, &sent) : 0;
  if (!code && p->in) code = nnrt_mpi_test(&m->mpi, &p->receiving, &received);
  int64_t moved = (sent ? p->out : 0) + (received ? p->in : 0);
  atomic_fetch_add_explicit(&m->wire.record->lane[lane].moved, moved, memory_order_relaxed);
  if (sent) {
    x->out += p->out;
    x->n_out -= p->out;
    p->out = 0;
  }
  if (received) {
    x->in += p->in;
    x->n_in -= p->in;
    p->in = 0;
  }
  if (!code) code = receive_more(m, lane, x, p);
  return code ? code : send_more(m, lane, x, p);
}

// Advances all transfers until none has bytes left.
static int finish_all(MpiWire *m, int lane, Transfer *x, int n, Pieces *p, atomic_bool *hurry,
                      int *out_failed) {
  atomic_int *waits_for = &m->wire.record->lane[lane].waits_for;
  double start = nnrt_now_us();
  bool warned = false;
  for (int turn = 0;; turn++) {
    for (int i = 0; i < n; i++) {
      int code = p[i].out || p[i].in ? advance(m, lane, &x[i], &p[i]) : 0;
      *out_failed = i;
      if (code) return code;
    }
    int awaited = nnrt_transfers_await(x, n);
    atomic_store_explicit(waits_for, awaited, memory_order_relaxed);
    if (awaited < 0) return 0;
    // Yields if the rank waits for this job, sleeps 50 µs while it computes.
    if (turn < 100 || atomic_load(hurry))
      sched_yield();
    else
      nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    // The exchange goes on: the other rank may only be slow.
    if (!warned) nnrt_wait_warn(m->wire.peers, m->wire.rank, awaited, start, &warned);
    if (nnrt_now_us() - start > 1e6) talk(m);
    if (turn == 1 << 20) turn = 100;
  }
}

static int exchange_mpi(Wire *wire, int lane, Transfer *x, int n, atomic_bool *hurry) {
  MpiWire *m = (MpiWire *)wire;
  Pieces *p = nnrt_must_alloc((size_t)n * sizeof *p);
  int failed = 0, code = start_all(m, lane, x, n, p, &failed);
  if (!code) code = finish_all(m, lane, x, n, p, hurry, &failed);
  if (code) {
    // The library has the text for its own error codes.
    char text[MPI_MOST_ERROR] = "";
    int length = 0;
    m->mpi.error_string(code, text, &length);
    code = nnrt_error(NNRT_COMM, "mpi: with rank %d: %.400s", x[failed].peer, text);
  }
  free(p);
  return code;
}

static void close_mpi(Wire *wire) {
  MpiWire *m = (MpiWire *)wire;
  nnrt_mpi_finalize(&m->mpi);
  pthread_mutex_destroy(&m->mpi.calls);
  nnrt_questions_close(&m->questions);
}

Wire *nnrt_wire_mpi(const NnrtRun *run) {
  const Launch *l = &run->launch;
  MpiWire *m = nnrt_must_alloc(sizeof *m);
  m->run = run;
  m->wire = (Wire){.name = "mpi",
                   .rank = l->rank,
                   .world = l->world,
                   .lanes = 1,
                   .open = open_mpi,
                   .exchange = exchange_mpi,
                   .close = close_mpi,
                   .check = check_mpi,
                   .ask = ask_mpi};
  nnrt_questions_open(&m->questions);
  pthread_mutex_init(&m->mpi.calls, NULL);
  return &m->wire;
}
