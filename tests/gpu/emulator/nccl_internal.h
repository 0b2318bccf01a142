// Interfaces between the parts of the emulated NCCL.
//
//     nccl.c         communicators, memory
//     nccl_group.c   calls, which are collected and enqueued in their stream when a group ends
//     nccl_run.c     runs collectives and messages, through shared memory

#ifndef EMULATOR_NCCL_INTERNAL_H
#define EMULATOR_NCCL_INTERNAL_H

#include <nccl.h>
#include <stdatomic.h>

#include "emulator.h"

enum { MAX_RANKS = 64, CHUNK = 64 * 1024, PAIR_CHUNK = 16 * 1024 };

typedef enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, SEND, RECV } Kind;
extern const char *const nccl_kind_name[]; // "ncclAllReduce"

// The properties of a call that ranks must agree on.
typedef struct Label {
  int32_t kind, type, reduction, root;
  uint64_t count;
} Label;

typedef struct Slot {
  _Atomic uint64_t posted, read; // steps
  Label label;
  char data[CHUNK];
} Slot;

typedef struct Pair {
  _Atomic uint64_t posted, read;
  uint64_t bytes; // of the whole message
  char data[PAIR_CHUNK];
} Pair;

typedef struct Shared {
  _Atomic int joined;
  _Atomic int gpu[MAX_RANKS]; // 1 + index
  Slot slot[MAX_RANKS];
  Pair pair[MAX_RANKS][MAX_RANKS]; // [from][to]
} Shared;

struct ncclComm {
  int rank, n, device;
  bool blocking;
  ncclUniqueId id;
  Shared *shared;
  uint64_t step, sent[MAX_RANKS], received[MAX_RANKS];
  // The state for ncclCommGetAsyncError.
  enum { JOINING, IN_PROGRESS, READY, FINALIZED, FAILED } state;
  ncclResult_t failure;
  bool used, used_pair;
  _Atomic bool aborted;
  _Atomic int users; // itself, and work that is not freed
  _Atomic int running;
  char error[256];
  struct ncclComm *next; // in the group
};

typedef struct Call {
  Label label;
  int peer;
  const char *from;
  char *to;
  ncclComm_t comm;
  cudaStream_t stream;
  // State of a run.
  uint64_t at; // completed steps, or bytes of a message
  bool posted, done;
} Call;

typedef struct Group {
  EmulatedWork work;
  ncclComm_t comm;
  int n;
  Call call[];
} Group;

// ---- nccl.c

// Stores the message for ncclGetLastError and returns the result.
ncclResult_t nccl_fail(ncclComm_t c, ncclResult_t result, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
ncclResult_t nccl_check_ready(ncclComm_t c, const char *what); // first statement of every call
void nccl_wait_joined(ncclComm_t c);
void nccl_release(ncclComm_t c); // drops one reference

// ---- nccl_group.c

ncclResult_t nccl_in_group(ncclResult_t r); // stores the first failure for ncclGroupEnd
bool nccl_join_later(ncclComm_t c);         // at the end of the group, if in one

// ---- nccl_run.c

size_t nccl_size_of(int type); // 0 for unknown types
bool nccl_is_message(const Call *c);
bool nccl_run_group(EmulatedWork *w, bool again);

#endif
