// The ranks of a job as each of them knows the others: machine, process, and a record of the work
// in progress.
//
// Every rank keeps a record: the step and the operation that it began last, and the rank that it
// waits for.  Ranks that are threads share an array of records.  A process has its record in a
// memory file without a name, which the other processes of its machine map once all are connected:
//
//     rank 0   memfd 5 ←─ /proc/4711/fd/5 ─── rank 1 of the same machine
//              record: step 12, op 3, waits for rank 2
//
// So the record of a process can be read while it is stopped, and after it was killed.  A process
// of another machine, or of another container, is asked instead (Wire in comm.h).
//
// Writing a record is a relaxed store.  All fields but the first are read by others at any time.

#ifndef NNRT_PEERS_H
#define NNRT_PEERS_H

#include <stdatomic.h>

#include "runtime.h"

enum { PEER_HOST = 64, RECORD_LANES = 2, WHO_TEXT = 160, LAST_OP_TEXT = 256 };

typedef struct RankRecord {
  unsigned char id[16]; // drawn by its process: pids are reused, and differ between containers
  int32_t rank, pid;
  const NnrtProgram *program; // valid in its own process only
  int64_t bytes;              // of the record with the names after it; 0: they are in `program`
  int32_t n_ops[2];           // of @train and @eval; offsets of their names follow the record
  _Atomic int64_t step;       // from 0; -1: none has begun
  atomic_int graph;           // 0: @train, 1: @eval
  int op;                     // by __atomic functions; -1: none of the step has begun
  atomic_int waits_in;        // the lane whose jobs the rank's thread waits for; -1: none
  atomic_int files;           // the rank may read or write files, for any time
  struct {
    atomic_int active;     // the communicating thread runs a job
    atomic_int waits_for;  // rank, for which it waits; -1: none, or unknown for the first second
    _Atomic int64_t moved; // bytes that its exchanges have sent and received
  } lane[RECORD_LANES];
} RankRecord;

typedef struct Peer {
  char host[PEER_HOST];
  int pid;                  // 0: unknown
  const RankRecord *record; // NULL: of another machine
  char file[40];            // of another process with a record, for checks that it still runs
  ino_t inode;
} Peer;

typedef struct Peers {
  int n;
  Peer peer[];
} Peers;

// Returns the peers of a job of `n` ranks.  The ranks from `first` on, `here` of them, are of this
// process, and have records; `shared`: processes of this machine can map them.
Peers *nnrt_peers_new(const NnrtProgram *p, int n, int first, int here, bool shared);
// Collective over processes: exchanges machine and process of all ranks, and maps their records.
int nnrt_peers_meet(Peers *p, NnrtRank *r);
RankRecord *nnrt_record_of(const NnrtRank *r); // its own
int *nnrt_record_op(const NnrtRank *r);        // the operation in the record, for r->op
// The rank begins a step, or an evaluation, of its current graph.
void nnrt_record_step(const NnrtRank *r);

// Writes "rank 2 on host7 (pid 4711)".
void nnrt_peer_who(const Peers *p, int rank, char out[WHO_TEXT]);
// Writes "its last operation is 'linear  mlp.onnx:/fc1/MatMul' of step 12", or that none has begun.
void nnrt_record_last_op(const RankRecord *record, char out[LAST_OP_TEXT]);
// The state of a process, as /proc has it: 'T' stopped by a signal, 't' by a debugger, 'Z' or 'X'
// ended; '?' unknown.  Only for a peer with a record.
char nnrt_peer_state(const Peers *p, int rank);
// Sends a signal to the processes of this machine that are ranks of this job; in a signal handler.
void nnrt_peers_signal(const Peers *p, int number);

#endif
