// Communication between ranks: one interface, two ways.
//
//     comm.c          groups of ranks, and their queues
//     comm_threads.c  ranks are threads of this process and read each other's memory
//     comm_peers.c    ranks are processes that send to each other, over a Wire:
//     comm_mpi.c        MPI, found at run time
//     comm_tcp.c        sockets, when torchrun or Slurm started us
//
// What is moved is memory of this machine: tensors when that computes (cpu/comm.c), and what ranks
// agree on.  Tensors on gpus go another way (cuda/comm.h).
//
// Every rank has a communicating thread that takes jobs from a queue in order, so backward goes on
// while gradients are reduced.  All ranks put the same jobs in the same order.  A reduction adds up
// in the group's order, whatever the way and the sizes: x0 + x1 + x2 …, the same bits on all ranks.
//
// Moves that are ahead (nnrt.h) have a queue and a thread of their own: what a stage is to get for
// its next slice may still have to be made, and nothing that it does for this one waits for that.
//
//     jobs of B0       all_reduce ── all_reduce ── …
//     moves ahead      get %g1 ─────────────────── get %g1
//
// So ranks that are threads have two mailboxes, MPI two tags, and sockets two connections.

#ifndef NNRT_COMM_H
#define NNRT_COMM_H

#include <pthread.h>

#include "route.h"
#include "runtime.h"
#include "traffic.h"

// The ranks of an NnrtGroup that this rank is one of, or all of them.
typedef struct Group {
  int n, me;               // me: which of them this rank is; n is 0 where it is none
  int *rank;               // [n]
  struct Meeting *meeting; // of comm_threads.c
} Group;

// `n` elements, and parts that lie one after the other, by the ranks of the group:
//
//     reduce            y[n] = the sum of all x[n]
//     gather            y[ranks, n] = all x[n]
//     reduce_scatter    y[n] = the sum of all x[me], of x[ranks, n]
//     all_to_all        y[ranks, n]: y[i] is rank i's x[me], of x[ranks, n]
//     move              parcels, each from one rank to another (route.h)
typedef struct Job {
  enum { JOB_reduce, JOB_gather, JOB_reduce_scatter, JOB_all_to_all, JOB_move } kind;
  const Group *group; // of a move between gpus all that give or get
  void *y;
  const void *x;
  int64_t n;
  NnrtDtype dtype; // u8, so bytes, of what is only moved
  bool everyone;   // of a gather: all get y, not only the first of the group
  // Of a move: in this machine's memory an exchange; between gpus a route, whose parcels are x and
  // y, of elements of `width` bytes.
  struct Exchange *exchange;
  bool ahead; // which queue it goes to
  const Route *route;
  int64_t width;
  TraceOf of; // for --trace; without a name: it is of no op
} Job;

// What one rank has for another, or gets of it.
typedef struct Parcel {
  int peer;
  int64_t bytes;
  char *at; // allocated; NULL of one that is got, until it came
} Parcel;

// Parcels that a rank gives and gets in one job: those it gives by how many ranks further their
// peers are, counted round, and those it gets by how many back.  The rank does not wait until what
// it gives is taken, so the communicating thread frees it.
typedef struct Exchange {
  int n_to, n_from;
  Parcel *to, *from;
} Exchange;

// A move that was started, on a rank that waits for it.
typedef struct StartedMove {
  Exchange *exchange;
  int64_t job; // of the queue that the move is of
  char *kept;  // what this rank has for itself, as a parcel
  struct StartedMove *next;
} StartedMove;

enum { QUEUE_LENGTH = 1024 };

// Jobs that one thread does in order.
typedef struct Queue {
  struct NnrtComm *comm;
  int lane; // its number: the mailboxes, tags or connections that it has for itself
  pthread_t thread;
  pthread_cond_t more, fewer; // under the lock of all queues
  Job job[QUEUE_LENGTH];
  int64_t n_put, n_done; // of all time; job i is at i modulo QUEUE_LENGTH
  atomic_bool waiting;   // a rank does nothing until its jobs are done
} Queue;

enum { QUEUE_here, QUEUE_ahead, N_QUEUES };

typedef struct NnrtComm {
  const struct CommWay *way;
  NnrtRank *rank;
  Group world, *group; // the program's groups
  Route *route;        // [n_moves]
  Group *movers;       // [n_moves] all that give or get
  // [n_moves] in this machine's memory: those that nobody waited for, the first first.
  StartedMove **started;
  struct Wire *wire; // of comm_peers.c
  char *scratch;     // of the way, for the first queue
  int64_t scratch_bytes;
  double patience; // seconds to wait for other ranks
  Traffic traffic; // of generated code

  int n_queues; // 0: one rank, and nothing below is used; 1: no move is ahead, and nothing owed
  Queue queue[N_QUEUES];
  pthread_mutex_t lock;
  bool ready, closing;
  int code; // of the first that failed
  char text[512];
  // While there was nothing to do a rank was found to be gone: at the end of the job, or before.
  bool lost;
  char lost_text[512];
} NnrtComm;

// Called by the thread of a queue: moves by that which they are in, all else by the first, which
// opens before and closes after the other runs.  They return a code, as kernels do.
typedef struct CommWay {
  const char *name;
  int (*open)(NnrtComm *c);
  void (*close)(NnrtComm *c);
  int (*reduce)(NnrtComm *c, const Job *job);
  int (*gather)(NnrtComm *c, const Job *job);
  int (*reduce_scatter)(NnrtComm *c, const Job *job);
  int (*all_to_all)(NnrtComm *c, const Job *job);
  int (*move)(NnrtComm *c, const Job *job);
} CommWay;

extern const CommWay nnrt_comm_threads, nnrt_comm_peers;

// Makes r->comm; `shared` is what comm_threads_new returned, or the wire.
bool nnrt_comm_open(NnrtRank *r, const CommWay *way, void *shared, Why *w);
void nnrt_comm_close(NnrtRank *r);
void *nnrt_comm_threads_new(const NnrtProgram *p); // what all ranks of this process share
void nnrt_comm_threads_free(void *shared, const NnrtProgram *p);

// Collective, over all ranks, and done when they return; a failure ends the job.
void nnrt_comm_exchange(NnrtRank *r, Exchange *e); // as nnrt_comm_move
void nnrt_comm_sum(NnrtRank *r, int64_t *x, int n);
void nnrt_comm_gather(NnrtRank *r, void *y, const void *x,
                      int64_t bytes); // at rank 0, in rank order
void nnrt_comm_drain(NnrtRank *r);    // waits until nothing is under way
// Between `begin` and `end`, which waits for all ranks, they wait for each other as long as it
// takes: rank 0 may have much to read or write.
void nnrt_comm_begin_files(NnrtRank *r);
void nnrt_comm_end_files(NnrtRank *r);
// Comes before the ranks end, so that one that is gone before has failed.
void nnrt_comm_part(NnrtRank *r);
bool nnrt_comm_lost(NnrtComm *c, char *text, size_t size); // is one gone?

// In memory of this machine.  Jobs of all ranks are started in the same order; x and y are the
// queue's until nnrt_comm_wait(c, y).
int nnrt_comm_start(NnrtComm *c, Job job);
int nnrt_comm_wait(NnrtComm *c, const void *y);
int nnrt_comm_do(NnrtComm *c, Job job); // both

Exchange *nnrt_exchange_new(int n_to, int n_from);
Parcel nnrt_parcel_new(int peer, int64_t bytes);
void nnrt_exchange_free(Exchange *e);
// Gives and gets; returns when all is here that it gets.  One that gets nothing belongs to the
// queue from now on, any other to the caller.
int nnrt_comm_move(NnrtComm *c, Exchange *e, bool ahead, TraceOf of);
// The same in two.  The exchange is the queue's until the wait, which one that gets nothing does
// without.
int nnrt_comm_move_start(NnrtComm *c, Exchange *e, bool ahead, TraceOf of, int64_t *out_job);
int nnrt_comm_move_wait(NnrtComm *c, bool ahead, int64_t job);

void nnrt_comm_meet(const Group *g); // of threads of this process: none goes on before all came

// y = x[0] + x[1] + … + x[n - 1], in this order.
void nnrt_comm_add(void *y, const void *const *x, int n, int64_t count, NnrtDtype t);
// How many ranks each of the groups of this number has.
int nnrt_group_size(const NnrtProgram *p, int group);
// The one that the rank is in, its `rank` to be freed.
Group nnrt_group_of(const NnrtProgram *p, int group, int rank);
// The ranks that give or get in a move, if the rank is one of them; its `rank` to be freed.
Group nnrt_movers_of(const NnrtProgram *p, int move, int rank);
// Which of `n` slices is this rank's along the group's axes; over time, the current one.
int nnrt_group_place(const NnrtRank *r, int group, int *n);
char *nnrt_comm_scratch(NnrtComm *c, int64_t bytes);

// How processes reach each other.  Each lane is called by one thread, and what goes through one has
// nothing to do with the others; the first one's thread opens, closes and checks all.
typedef struct Wire {
  const char *name;
  int rank, world, lanes;
  bool (*open)(struct Wire *w, Why *why);
  // Sends to one rank while receiving from one.
  int (*exchange)(struct Wire *w, int lane, int to, const void *out, int64_t n_out, int from,
                  void *in, int64_t n_in, atomic_bool *hurry);
  void (*close)(struct Wire *w);
  // A code if a rank is gone, while nothing is exchanged; NULL: the launcher looks after that.
  int (*check)(struct Wire *w);
} Wire;

Wire *nnrt_wire_mpi(const Launch *l);
Wire *nnrt_wire_tcp(const Launch *l);

#endif
