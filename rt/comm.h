// Communication between ranks: one interface, two transports.
//
//     comm.c            groups of ranks, and their queues
//     comm_threads.c    ranks are threads of this process and read each other's memory
//     stalls.c          names the rank that a stalled rank waits for
//     comm_processes.c  ranks are processes that send to each other, over a Wire (wire.h); several
//                       jobs are under way at once
//     phases.c            messages and sums of a job
//     comm_mpi.c          MPI, found at run time (mpi_wire.h)
//     comm_tcp.c          sockets, if torchrun or Slurm started the process (tcp.h)
//
// All transfers are between buffers in host memory: tensors if the target is the CPU (cpu/comm.c),
// and agreements between ranks.  Tensors on GPUs have other transports (cuda/collectives.h).
//
// Every rank has a communicating thread that takes jobs from a queue in order, so backward
// continues while gradients are reduced.  All ranks put the same jobs in the same order.  A
// reduction adds in the group's order, x0 + x1 + x2 …, for every transport and size: all ranks get
// the same bits.
//
// Moves that are ahead (nnrt.h) have a queue and a thread of their own.  The sender may still be
// computing the value that a stage needs for its next slice, and no job of the current slice may
// wait for it.
//
//     jobs of B0       all_reduce ── all_reduce ── …
//     moves ahead      get %g1 ─────────────────── get %g1
//
// So ranks that are threads have two mailboxes, and processes a channel of each.

#ifndef NNRT_COMM_H
#define NNRT_COMM_H

#include <pthread.h>

#include "host_traffic.h"
#include "job.h"
#include "peers.h"
#include "route.h"
#include "runtime.h"
#include "traffic.h"
#include "wire.h"

// The ranks of an NnrtGroup that contains this rank, or all ranks.
typedef struct Group {
  int n, me;               // me: the index of this rank; n is 0 if the rank is in no group
  int *rank;               // [n]
  struct Meeting *meeting; // used by comm_threads.c
} Group;

typedef struct Job {
  JobKind kind;
  const Group *group; // of a move between GPUs: all senders and receivers
  void *y;
  const void *x;
  int64_t n;       // elements of x, or of a part of it
  NnrtDtype dtype; // u8 (bytes) of transfers without arithmetic
  bool everyone;   // of an all_gather: all ranks get y, not only the first of the group
  // Of a move: in host memory an exchange; between GPUs a route with its parcels in x and y, of
  // elements of `width` bytes.
  struct Exchange *exchange;
  bool ahead; // selects the queue
  const Route *route;
  int64_t width;
  TraceOf of; // for --trace; without a name: of no op
  double began_us;
} Job;

// ---- blocks.c: memory that steps use again

void *nnrt_block_new(int64_t bytes); // at a multiple of 64, not zeroed; ends the job on failure
void nnrt_block_free(void *block);   // by any thread; NULL: nothing
void nnrt_blocks_release(void);      // frees those that are not in use

// A message from one rank to another, at either end.
typedef struct Parcel {
  int peer;
  int64_t bytes;
  char *at; // a block; NULL of a parcel to receive, until it arrives
} Parcel;

// Parcels that a rank sends and receives in one job.  Sends are sorted by (peer - rank) modulo the
// number of ranks, receives by (rank - peer).  The rank does not wait for its sends, so the
// communicating thread frees their parcels.
typedef struct Exchange {
  int n_to, n_from;
  Parcel *to, *from;
} Exchange;

// A move that was started, on a rank that has to wait for it.
typedef struct StartedMove {
  Exchange *exchange;
  int64_t job; // in the queue of the move
  char *kept;  // the message of this rank to itself, as a parcel
  struct StartedMove *next;
} StartedMove;

// A collective that was started on copies: of a small operand (small_operand.h), or of a tensor
// that is split along a dimension with others before it, with the parts of ranks one after the
// other.
typedef struct SortedJob {
  void *y;           // of the call; nnrt_wait finds it by this
  char *given, *got; // blocks: x sorted by receiver and y by sender; NULL: the tensor itself
  int64_t bytes;     // of both
  int n;             // parts of `got`, each of `runs` runs of `run` bytes
  int64_t runs, run;
  struct SortedJob *next;
} SortedJob;

enum { QUEUE_LENGTH = 1024 };

// Jobs that one thread runs: they begin in order, and are done in order.
typedef struct Queue {
  struct NnrtComm *comm;
  int lane; // its number; every lane has mailboxes, tags or connections of its own
  pthread_t thread;
  pthread_cond_t more, fewer; // with the lock of all queues
  Job job[QUEUE_LENGTH];
  int64_t n_put, n_done; // since the start; job i is at i modulo QUEUE_LENGTH
  int64_t n_begun;       // used by the thread only
  double ended_us;       // the last job that is done, for --trace
  bool running;          // the thread is in the transport
  atomic_bool waiting;   // a rank is blocked until its jobs are done
  struct Window *window; // used by comm_processes.c
} Queue;

enum { QUEUE_here, QUEUE_ahead, N_QUEUES = RECORD_LANES };

typedef struct NnrtComm {
  const struct Transport *transport;
  NnrtRank *rank;
  RankRecord *record;  // of this rank
  Group world, *group; // the program's groups
  Route *route;        // [n_moves]
  Group *movers;       // [n_moves] all senders and receivers
  // [n_moves] in host memory: moves that were started and not waited for, oldest first.
  StartedMove **started;
  SortedJob *sorted;    // in host memory, oldest first
  int64_t sorted_bytes; // of their copies
  struct Wire *wire;    // used by comm_processes.c
  char *scratch;        // of the transport, for the first queue
  int64_t scratch_bytes;
  double stall_timeout; // seconds to wait for other ranks
  Traffic traffic;      // of generated code
  HostTraffic hosts;

  int n_queues; // 0: one rank, nothing below is used; 1: no move is ahead, no update deferred
  Queue queue[N_QUEUES];
  pthread_mutex_t lock;
  bool ready, closing;
  int code; // of the first failure
  char text[1200];
  // The thread of the first queue, while idle, found a rank to be gone: normal at the end of the
  // job, an error before.
  bool lost;
  double lost_for;    // seconds since
  atomic_bool parted; // this rank waits for no other any more: a lost one is normal
  char lost_text[1200];
} NnrtComm;

// Functions of a transport, called by the threads of the queues.  The first thread opens before and
// closes after the other runs.  They return a code, as kernels do.
typedef struct Transport {
  int (*open)(NnrtComm *c);
  void (*close)(NnrtComm *c);
  // Runs the jobs of the queue until all that were put are done.
  int (*run)(Queue *q);
  void (*wake)(Queue *q); // a job was put meanwhile, by any thread; NULL: `run` looks for it
} Transport;

extern const Transport nnrt_comm_threads, nnrt_comm_processes;

// For `run`.  The next job that has not begun, in its place until it is done; NULL: there is none,
// or another queue has failed.
Job *nnrt_queue_next(Queue *q);
void nnrt_queue_begin(Queue *q); // it has begun
void nnrt_queue_end(Queue *q);   // the oldest job that is not done is done

// Creates r->comm; `shared` is the result of comm_threads_new, or the wire.
bool nnrt_comm_open(NnrtRank *r, const Transport *transport, void *shared, Why *w);
void nnrt_comm_close(NnrtRank *r);
void *nnrt_comm_threads_new(const NnrtProgram *p); // shared by all ranks of this process
void nnrt_comm_threads_free(void *shared, const NnrtProgram *p);

// Collective over all ranks, and complete when they return; a failure ends the job.
void nnrt_comm_exchange(NnrtRank *r, Exchange *e); // as nnrt_comm_move
void nnrt_comm_sum(NnrtRank *r, int64_t *x, int n);
void nnrt_comm_gather(NnrtRank *r, void *y, const void *x,
                      int64_t bytes); // at rank 0, in rank order
void nnrt_comm_drain(NnrtRank *r);    // waits for all jobs of both queues
// Between `begin` and `end`, which waits for all ranks, a rank that reads or writes files may take
// any time; one that is stopped, or gone, is still an error after the timeout.
void nnrt_comm_begin_files(NnrtRank *r);
void nnrt_comm_end_files(NnrtRank *r);
// Waits for all ranks before they end: a connection that closes earlier is a failed rank.
void nnrt_comm_part(NnrtRank *r);
bool nnrt_comm_lost(NnrtComm *c, char *text, size_t size); // whether a rank is gone

// Jobs in host memory.  All ranks start the same jobs in the same order; the queue owns x and y
// until nnrt_comm_wait(c, y).
int nnrt_comm_start(NnrtComm *c, Job job);
int nnrt_comm_wait(NnrtComm *c, const void *y);
int nnrt_comm_do(NnrtComm *c, Job job); // starts a job and waits for it

Exchange *nnrt_exchange_new(int n_to, int n_from);
Parcel nnrt_parcel_new(int peer, int64_t bytes);
void nnrt_exchange_free(Exchange *e);
// Sends and receives; returns when all receives are complete.  From this call on, the queue owns an
// exchange without receives, and frees it; the caller owns any other.
int nnrt_comm_move(NnrtComm *c, Exchange *e, bool ahead, TraceOf of);
// The same in two calls.  The queue owns the exchange until the wait; an exchange without receives
// has no wait.
int nnrt_comm_move_start(NnrtComm *c, Exchange *e, bool ahead, TraceOf of, int64_t *out_job);
int nnrt_comm_move_wait(NnrtComm *c, bool ahead, int64_t job);

// A barrier for threads of this process, of the ranks' own threads.
void nnrt_comm_meet(NnrtRank *r, const Group *g);

// y = x[0] + x[1] + … + x[n - 1], in this order.
void nnrt_comm_add(void *y, const void *const *x, int n, int64_t count, NnrtDtype t);
// Returns the number of ranks in each group with this number.
int nnrt_group_size(const NnrtProgram *p, int group);
// Returns the group of the rank; the caller frees `rank`.
Group nnrt_group_of(const NnrtProgram *p, int group, int rank);
// Returns the senders and receivers of a move, if the rank is one of them; the caller frees `rank`.
Group nnrt_movers_of(const NnrtProgram *p, int move, int rank);
// Returns the index of this rank's slice, of `n`, along the group's axes; over time, the current
// one.
int nnrt_group_place(const NnrtRank *r, int group, int *n);
char *nnrt_comm_scratch(NnrtComm *c, int64_t bytes);

// ---- stalls.c: the rank that a stalled rank waits for

Standing nnrt_standing_of(const RankRecord *record, int lane);
// Names the rank for which this one has waited on `lane` for `seconds`, and the reason, in `text`.
// False: the wait is in order, or over.
bool nnrt_stall_find(NnrtComm *c, int lane, double seconds, char *text, size_t size);
// The same of ranks that wait in a device, which does not know for whom: of all others.
void nnrt_stall_find_any(NnrtComm *c, double seconds, char *text, size_t size);
// Warns once that a rank has waited for another for a minute; called during the wait.
void nnrt_wait_warn(const Peers *p, int rank, int other, double since_us, bool *io_warned);

#endif
