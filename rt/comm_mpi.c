// MPI as a wire, found at run time: the same executable runs on machines without MPI.
//
// There are two binary interfaces.  In MPICH's (and Intel's, and Cray's) handles are ints with
// known values; in Open MPI's they are pointers to known symbols, which tells the two apart. With
// one lane all calls come from the thread that called MPI_Init_thread, so MPI_THREAD_FUNNELED is
// enough.  With two lanes they come from two threads, never at once: MPI_THREAD_SERIALIZED.
//
//     exchange   MPI_Irecv and MPI_Isend of all transfers, MPI_Test until all are done; a tag for
//                each lane
//     a question to a rank that others wait for: tags of its own, MPI_Iprobe once a while
//     an error   MPI_Abort

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"

enum { FUNNELED = 1, SERIALIZED = 2, TAG = 7, TAG_ask = 100, TAG_answer, MOST_BYTES = 16 << 20 };

typedef struct Mpich { // mpi.h of MPICH: typedef int MPI_Comm, MPI_Datatype, MPI_Request …
  int (*comm_rank)(int comm, int *rank);
  int (*comm_size)(int comm, int *size);
  int (*comm_set_errhandler)(int comm, int handler);
  int (*isend)(const void *, int n, int type, int to, int tag, int comm, int *request);
  int (*irecv)(void *, int n, int type, int from, int tag, int comm, int *request);
  int (*test)(int *request, int *done, void *status);
  int (*iprobe)(int from, int tag, int comm, int *there, void *status);
  int (*abort)(int comm, int status);
} Mpich;

typedef struct OpenMpi { // mpi.h of Open MPI: all of these are pointers
  int (*comm_rank)(void *comm, int *rank);
  int (*comm_size)(void *comm, int *size);
  int (*comm_set_errhandler)(void *comm, void *handler);
  int (*isend)(const void *, int n, void *type, int to, int tag, void *comm, void **request);
  int (*irecv)(void *, int n, void *type, int from, int tag, void *comm, void **request);
  int (*test)(void **request, int *done, void *status);
  int (*iprobe)(int from, int tag, void *comm, int *there, void *status);
  int (*abort)(void *comm, int status);
} OpenMpi;

enum { MPICH_WORLD = 0x44000000, MPICH_BYTE = 0x4c00010d, MPICH_RETURN = 0x54000001 };
enum { MPICH_ANY = -2, OMPI_ANY = -1 }; // MPI_ANY_SOURCE

typedef union Request {
  int mpich;
  void *ompi;
} Request;

// A question to a rank that this one waits for, and the answer to another's.
typedef struct Question {
  int32_t from, lane, number;
} Question;

typedef struct Reply {
  int32_t from, number; // of the question
  Standing standing;
} Reply;

typedef struct MpiWire {
  Wire wire;
  const NnrtRun *run;
  // Guarded by `talking`: a communicating thread sends and receives what other threads ask.
  pthread_mutex_t talking;
  int asks;                 // the rank to be asked `next`; -1: none
  Question next, question;  // `question` and `reply` are being sent, or were
  Reply reply, came;        // the last reply that came
  Request asking, replying; // of them
  bool is_asking, is_replying;
  double talked_us;
  pthread_mutex_t calls; // serializes calls of MPI
  void *library;
  bool open_mpi;
  Mpich mpich;
  OpenMpi ompi;
  void *ompi_world, *ompi_byte, *ompi_return;
  int (*init_thread)(int *, char ***, int required, int *provided);
  int (*error_string)(int code, char *text, int *length);
  int (*finalize)(void);
} MpiWire;

static bool load_symbol(MpiWire *m, const char *name, void *out, Why *w) {
  void *symbol = dlsym(m->library, name);
  if (!symbol) return why(w, "the MPI library has no '%s'", name);
  memcpy(out, &symbol, sizeof symbol); // C has no cast from an object's pointer to a function's
  return true;
}

static bool load_library(MpiWire *m, Why *w) {
  // If several are installed, take the launcher's: each works only with its own processes.
  bool hydra = getenv("PMI_RANK") != NULL;
  const char *names[] = {getenv("NNRT_MPI_LIBRARY"), hydra ? "libmpich.so.12" : "libmpi.so.40",
                         hydra ? "libmpi.so.12" : "libmpi.so", hydra ? "libmpich.so" : NULL,
                         hydra ? "libmpi.so" : NULL};
  for (size_t i = 0; i < sizeof names / sizeof *names && !m->library; i++)
    if (names[i]) m->library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
  if (!m->library)
    return why(w,
               "an MPI launcher started this process, but no MPI library is found: %s\n"
               "hint: set LD_LIBRARY_PATH, or NNRT_MPI_LIBRARY to the library's file",
               dlerror());
  // Only Open MPI has this symbol.
  m->open_mpi = dlsym(m->library, "ompi_mpi_comm_world") != NULL;
  bool ok = load_symbol(m, "MPI_Init_thread", &m->init_thread, w) &&
            load_symbol(m, "MPI_Error_string", &m->error_string, w) &&
            load_symbol(m, "MPI_Finalize", &m->finalize, w);
  // The same functions, with handles of another type.
  if (m->open_mpi)
    return ok && load_symbol(m, "MPI_Comm_rank", &m->ompi.comm_rank, w) &&
           load_symbol(m, "MPI_Comm_size", &m->ompi.comm_size, w) &&
           load_symbol(m, "MPI_Comm_set_errhandler", &m->ompi.comm_set_errhandler, w) &&
           load_symbol(m, "MPI_Isend", &m->ompi.isend, w) &&
           load_symbol(m, "MPI_Irecv", &m->ompi.irecv, w) &&
           load_symbol(m, "MPI_Test", &m->ompi.test, w) &&
           load_symbol(m, "MPI_Iprobe", &m->ompi.iprobe, w) &&
           load_symbol(m, "MPI_Abort", &m->ompi.abort, w) &&
           load_symbol(m, "ompi_mpi_comm_world", &m->ompi_world, w) &&
           load_symbol(m, "ompi_mpi_byte", &m->ompi_byte, w) &&
           load_symbol(m, "ompi_mpi_errors_return", &m->ompi_return, w);
  return ok && load_symbol(m, "MPI_Comm_rank", &m->mpich.comm_rank, w) &&
         load_symbol(m, "MPI_Comm_size", &m->mpich.comm_size, w) &&
         load_symbol(m, "MPI_Comm_set_errhandler", &m->mpich.comm_set_errhandler, w) &&
         load_symbol(m, "MPI_Isend", &m->mpich.isend, w) &&
         load_symbol(m, "MPI_Irecv", &m->mpich.irecv, w) &&
         load_symbol(m, "MPI_Test", &m->mpich.test, w) &&
         load_symbol(m, "MPI_Iprobe", &m->mpich.iprobe, w) &&
         load_symbol(m, "MPI_Abort", &m->mpich.abort, w);
}

static MpiWire *open_wire; // of nnrt_end_job; a process has one

// MPI_Abort ends all processes at once, and output that the launcher has not read is lost.  So a
// rank with an error waits until its stderr, a pipe, is read; one without gives another the time
// for its message.
static void wait_for_messages(bool has_error) {
  enum { PIECE_MS = 20, TURNS = 50, QUIET_TURNS = 25 };
  int unread = 0, quiet = has_error ? 5 : QUIET_TURNS;
  fflush(stdout);
  fflush(stderr);
  for (int turn = 0; turn < TURNS && quiet > 0; turn++) {
    nanosleep(&(struct timespec){.tv_nsec = PIECE_MS * 1000000}, NULL);
    if (ioctl(STDERR_FILENO, FIONREAD, &unread) != 0 || unread == 0) quiet--;
  }
}

// Ends the processes of all machines before this one ends with an error: not every launcher does
// so by itself.
static void abort_all(int status, const char *error) {
  MpiWire *m = open_wire;
  if (!m) return;
  wait_for_messages(error != NULL);
  // A call of another thread may never return.
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  if (pthread_mutex_timedlock(&m->calls, &until) != 0) return;
  if (m->open_mpi)
    m->ompi.abort(m->ompi_world, status);
  else
    m->mpich.abort(MPICH_WORLD, status);
}

// ---- MPI_Init, which waits for all ranks without a limit of its own

typedef struct Patience {
  const NnrtRun *run;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  bool done;
} Patience;

// Ends the process if MPI_Init has not returned in time; then the launcher ends the others.
static void *watch_init(void *arg) {
  Patience *p = arg;
  nnrt_crash_thread(NULL, "the thread that watches MPI_Init");
  double seconds = nnrt_connect_timeout(&p->run->flags);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += (time_t)(seconds < 1e9 ? seconds + 1 : 1e9);
  pthread_mutex_lock(&p->lock);
  while (!p->done)
    if (pthread_cond_timedwait(&p->ended, &p->lock, &until) == ETIMEDOUT && !p->done) {
      nnrt_mpi_say_missing(p->run);
      wait_for_messages(true);
      nnrt_end_job(1);
    }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

static int init_in_time(MpiWire *m, int wanted, int *provided) {
  Patience p = {.run = m->run};
  pthread_mutex_init(&p.lock, NULL);
  pthread_cond_init(&p.ended, NULL);
  bool watched = pthread_create(&p.thread, NULL, watch_init, &p) == 0;
  // The arguments are not needed: the launcher's variables are in the environment.
  int code = m->init_thread(NULL, NULL, wanted, provided);
  pthread_mutex_lock(&p.lock);
  p.done = true;
  pthread_cond_signal(&p.ended);
  pthread_mutex_unlock(&p.lock);
  if (watched) pthread_join(p.thread, NULL);
  pthread_cond_destroy(&p.ended);
  pthread_mutex_destroy(&p.lock);
  return code;
}

// On SIGQUIT, in its handler, which cannot call MPI: processes of this machine.
static void tell_quit(void) {
  const MpiWire *m = open_wire;
  if (m) nnrt_peers_signal(m->run->peers, SIGQUIT);
}

static bool open_mpi(Wire *wire, Why *w) {
  MpiWire *m = (MpiWire *)wire;
  int provided = 0, rank = -1, size = -1, wanted = wire->lanes > 1 ? SERIALIZED : FUNNELED;
  if (!load_library(m, w)) return false;
  int code = init_in_time(m, wanted, &provided);
  if (code) return why(w, "MPI_Init_thread failed with %d", code);
  open_wire = m;
  nnrt_before_end(abort_all);
  nnrt_stacks_tell(tell_quit);
  // Levels of thread support are ordered.
  if (provided < FUNNELED) return why(w, "this MPI library does not allow threads at all");
  if (provided < wanted)
    return why(w, "this MPI library allows calls from one thread only, and stages need two");
  // Errors are returned as codes, so that the rank can report its operation.
  if (m->open_mpi) {
    m->ompi.comm_set_errhandler(m->ompi_world, m->ompi_return);
    m->ompi.comm_rank(m->ompi_world, &rank);
    m->ompi.comm_size(m->ompi_world, &size);
  } else {
    m->mpich.comm_set_errhandler(MPICH_WORLD, MPICH_RETURN);
    m->mpich.comm_rank(MPICH_WORLD, &rank);
    m->mpich.comm_size(MPICH_WORLD, &size);
  }
  if (rank == wire->rank && size == wire->world) return true;
  return why(w,
             "the launcher says rank %d of %d, the MPI library rank %d of %d: they do not belong "
             "together\nhint: NNRT_MPI_LIBRARY names the library to use",
             wire->rank, wire->world, rank, size);
}

static int send_piece(MpiWire *m, int tag, int to, const char *data, int n, Request *r) {
  pthread_mutex_lock(&m->calls);
  // MPI is called by one thread at a time.
  int code = m->open_mpi ? m->ompi.isend(data, n, m->ompi_byte, to, tag, m->ompi_world, &r->ompi)
                         : m->mpich.isend(data, n, MPICH_BYTE, to, tag, MPICH_WORLD, &r->mpich);
  pthread_mutex_unlock(&m->calls);
  return code;
}

static int receive_piece(MpiWire *m, int tag, int from, char *data, int n, Request *r) {
  pthread_mutex_lock(&m->calls);
  int code = m->open_mpi ? m->ompi.irecv(data, n, m->ompi_byte, from, tag, m->ompi_world, &r->ompi)
                         : m->mpich.irecv(data, n, MPICH_BYTE, from, tag, MPICH_WORLD, &r->mpich);
  pthread_mutex_unlock(&m->calls);
  return code;
}

static int test(MpiWire *m, Request *r, int *done) {
  void *ignore = m->open_mpi ? NULL : (void *)1; // MPI_STATUS_IGNORE
  pthread_mutex_lock(&m->calls);
  // A test is short, so the other lane is not held up.
  int code =
      m->open_mpi ? m->ompi.test(&r->ompi, done, ignore) : m->mpich.test(&r->mpich, done, ignore);
  pthread_mutex_unlock(&m->calls);
  return code;
}

// ---- questions between ranks of different machines

static bool is_there(MpiWire *m, int tag) {
  int there = 0;
  void *ignore = m->open_mpi ? NULL : (void *)1;
  pthread_mutex_lock(&m->calls);
  int code = m->open_mpi ? m->ompi.iprobe(OMPI_ANY, tag, m->ompi_world, &there, ignore)
                         : m->mpich.iprobe(MPICH_ANY, tag, MPICH_WORLD, &there, ignore);
  pthread_mutex_unlock(&m->calls);
  return !code && there;
}

// Receives a short message that is there.
static bool take_message(MpiWire *m, int tag, void *out, int n) {
  Request r;
  int done = 0, code = receive_piece(m, tag, m->open_mpi ? OMPI_ANY : MPICH_ANY, out, n, &r);
  while (!code && !done)
    code = test(m, &r, &done);
  return !code;
}

// Whether the last message of this kind has left; until then its memory is in use.
static bool has_left(MpiWire *m, bool *io_sending, Request *r) {
  int done = 1;
  if (*io_sending && test(m, r, &done)) done = 1;
  if (done) *io_sending = false;
  return done;
}

// Asks, answers and hears answers; called now and then by the threads that call MPI.
static void talk(MpiWire *m) {
  enum { TURN_US = 100000 };
  double now = nnrt_now_us();
  if (pthread_mutex_trylock(&m->talking) != 0) return;
  if (now - m->talked_us >= TURN_US) {
    m->talked_us = now;
    if (m->asks >= 0 && has_left(m, &m->is_asking, &m->asking)) {
      m->question = m->next;
      m->is_asking = send_piece(m, TAG_ask, m->asks, (char *)&m->question, sizeof m->question,
                                &m->asking) == 0;
      m->asks = -1;
    }
    Question q;
    if (is_there(m, TAG_ask) && has_left(m, &m->is_replying, &m->replying) &&
        take_message(m, TAG_ask, &q, sizeof q) && q.from >= 0 && q.from < m->wire.world) {
      m->reply = (Reply){m->wire.rank, q.number, nnrt_standing_of(m->wire.record, q.lane)};
      m->is_replying =
          send_piece(m, TAG_answer, q.from, (char *)&m->reply, sizeof m->reply, &m->replying) == 0;
    }
    if (is_there(m, TAG_answer)) take_message(m, TAG_answer, &m->came, sizeof m->came);
  }
  pthread_mutex_unlock(&m->talking);
}

static bool ask_mpi(Wire *wire, int rank, int lane, double seconds, Standing *out) {
  MpiWire *m = (MpiWire *)wire;
  double until = nnrt_now_us() + seconds * 1e6;
  pthread_mutex_lock(&m->talking);
  int number = m->next.number + 1;
  m->next = (Question){wire->rank, lane, number};
  m->asks = rank;
  pthread_mutex_unlock(&m->talking);
  bool came = false;
  while (!came && nnrt_now_us() < until) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    pthread_mutex_lock(&m->talking);
    came = m->came.number == number && m->came.from == rank;
    if (came) *out = m->came.standing;
    pthread_mutex_unlock(&m->talking);
  }
  return came;
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
  return receive_piece(m, TAG + lane, x->peer, x->in, p->in, &p->receiving);
}

static int send_more(MpiWire *m, int lane, const Transfer *x, Pieces *p) {
  if (p->out || !x->n_out) return 0;
  p->out = piece_of(x->n_out);
  return send_piece(m, TAG + lane, x->peer, x->out, p->out, &p->sending);
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
  int sent = 0, received = 0, code = p->out ? test(m, &p->sending, &sent) : 0;
  if (!code && p->in) code = test(m, &p->receiving, &received);
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
    char text[1024] = ""; // MPI_MAX_ERROR_STRING is at most this
    int length = 0;
    m->error_string(code, text, &length);
    code = nnrt_error(NNRT_COMM, "mpi: with rank %d: %.400s", x[failed].peer, text);
  }
  free(p);
  return code;
}

static void close_mpi(Wire *wire) {
  MpiWire *m = (MpiWire *)wire;
  open_wire = NULL;
  m->finalize();
  pthread_mutex_destroy(&m->calls);
  pthread_mutex_destroy(&m->talking);
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
  m->asks = -1;
  pthread_mutex_init(&m->talking, NULL);
  pthread_mutex_init(&m->calls, NULL);
  return &m->wire;
}
